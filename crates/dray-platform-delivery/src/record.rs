//! The record of a delivery: its files, its visible requests, and what it waits for.
//!
//! `wire` converts it to a `DeliveryRecord` for the bucket and to a `DeliveryReport` for callers and events.

use dray_bus::Meta;
use dray_platform::{ErrorKind, Route};
use dray_presentation::name;
use dray_proto::{NamedCode as _, v1};
use dray_types::TenantId;

use crate::machine::DeliveryStep;
use crate::web_files::WebFileVerdict;

mod wire;

pub(crate) use wire::route_code;

pub(crate) use self::wire::audit_line;

/// An enum with the values of a code of the contracts, without the unspecified one.
macro_rules! code {
    ($(#[$doc:meta])* $type:ident = $wire:ident { $($(#[$about:meta])* $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$about])* $value,)*
        }

        impl $type {
            /// The name in JSON, metrics and logs.
            pub fn name(self) -> &'static str {
                v1::$wire::from(self).name()
            }

            pub(crate) const fn of_code(code: v1::$wire) -> Option<Self> {
                match code {
                    v1::$wire::Unspecified => None,
                    $(v1::$wire::$value => Some(Self::$value),)*
                }
            }
        }

        impl From<$type> for v1::$wire {
            fn from(value: $type) -> Self {
                match value {
                    $($type::$value => Self::$value,)*
                }
            }
        }
    };
}

code! {
    /// State of one file of a delivery (platform-delivery 1).
    FileState = FileState {
        /// The file was not sent yet.
        Queued,
        /// A request with it was recorded and has no outcome yet.
        Sending,
        /// The platform confirmed it.
        Delivered,
        /// The platform confirmed a message with a link to it.
        DeliveredAsLink,
        /// The platform confirmed a message with a link to a preview of it.
        DeliveredAsPreview,
        /// The file was copied into a directory of this machine.
        Copied,
        /// Refused permanently: another attempt would fail too.
        Rejected,
        /// All attempts failed, for reasons that may be temporary.
        Failed,
        /// The file may have arrived.
        Unknown,
    }
}

code! {
    /// The reason why a delivery waits.
    WaitingReason = WaitingReason {
        /// The delivery waits for a rate limit of the platform.
        RateLimited,
        /// The delivery waits for a message of the user, without which the platform allows no message.
        WindowClosed,
        /// The delivery waits for other deliveries of the same chat.
        Queue,
    }
}

impl FileState {
    /// Whether the user has the file.
    pub const fn is_shown(self) -> bool {
        matches!(
            self,
            Self::Delivered | Self::DeliveredAsLink | Self::DeliveredAsPreview | Self::Copied
        )
    }

    /// Whether the state of the file is final.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Sending)
    }

    /// The state of a file that is given up for this reason: refused permanently, or tried without success.
    pub const fn given_up(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::TooLong
            | ErrorKind::BadFormat
            | ErrorKind::Forbidden
            | ErrorKind::NotFound
            | ErrorKind::TooLarge
            | ErrorKind::Empty
            | ErrorKind::WindowClosed
            | ErrorKind::UnsupportedKind
            | ErrorKind::NoThread => Self::Rejected,
            ErrorKind::RateLimited
            | ErrorKind::Transient
            | ErrorKind::Auth
            | ErrorKind::StaleFileId
            | ErrorKind::Source
            | ErrorKind::Unknown => Self::Failed,
        }
    }
}

/// The reason why a file did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFailureKind {
    /// The platform refused it, or a request to the platform failed.
    Platform(ErrorKind),
    /// No account serves the chat.
    NoAccount,
    /// The platform's response was lost.
    Ambiguous,
}

impl FileFailureKind {
    /// The name in JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        v1::DeliveryErrorKind::from(self).name()
    }
}

impl From<ErrorKind> for FileFailureKind {
    fn from(kind: ErrorKind) -> Self {
        Self::Platform(kind)
    }
}

/// The state of one file of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRecord {
    /// Path as requested; empty for a file that was requested by a claim.
    pub path: Vec<u8>,
    /// Visible name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Media type, detected from the bytes.
    pub media_type: String,
    /// SHA-256, 32 bytes; empty if the file was not copied into the store.
    pub sha256: Vec<u8>,
    /// State of the delivery of the file.
    pub state: FileState,
    /// Route on which it was sent; `None` before.
    pub route: Option<Route>,
    /// The platform's id of the visible message.
    pub platform_message_id: String,
    /// The platform's id of the file.
    pub platform_file_id: String,
    /// Unix milliseconds at which its link ends; 0 for none.
    pub url_expires_at_ms: u64,
    /// The reason why it did not arrive.
    pub error_kind: Option<FileFailureKind>,
    /// Sentence on the failure; empty for none.
    pub error_message: String,
    /// The platform's own code; empty for none.
    pub platform_code: String,
    /// Whether what the user sees may differ from the bytes.
    pub lossy: bool,
    /// The claim of the stored file; `None` if the file was not copied into the store.
    pub claim: Option<v1::Claim>,
    /// Proof of the copy out of the sandbox.
    pub transfer: Option<v1::TransferReceipt>,
    /// Visible requests that were made for it.
    pub attempts: u32,
    /// Most bytes that the chat accepts, if the file was too large; 0 if unknown.
    pub limit: u64,
    /// Previews of the file, if it is sent as a preview.
    pub preview: Option<v1::PreviewReceipt>,
    /// Decision of the rules about files from the web.
    pub web: WebFileVerdict,
}

impl FileRecord {
    /// A file of which only the state is known.
    pub const fn in_state(state: FileState) -> Self {
        Self {
            path: Vec::new(),
            name: String::new(),
            size: 0,
            media_type: String::new(),
            sha256: Vec::new(),
            state,
            route: None,
            platform_message_id: String::new(),
            platform_file_id: String::new(),
            url_expires_at_ms: 0,
            error_kind: None,
            error_message: String::new(),
            platform_code: String::new(),
            lossy: false,
            claim: None,
            transfer: None,
            attempts: 0,
            limit: 0,
            preview: None,
            web: WebFileVerdict::NONE,
        }
    }

    /// A stored file that waits for its delivery.
    pub fn stored(claim: v1::Claim) -> Self {
        let artifact = claim.artifact.clone().unwrap_or_default();
        let artifact_name = match artifact.name.as_str() {
            "" => STORED_FILE_NAME,
            name => name,
        };
        Self {
            name: name::clean_name(artifact_name),
            size: artifact.size,
            media_type: artifact.media_type,
            sha256: artifact.sha256,
            claim: Some(claim),
            ..Self::in_state(FileState::Queued)
        }
    }

    /// What the scan found in the text that left the sandbox; empty for none.
    pub fn content_warning(&self) -> &str {
        self.transfer
            .as_ref()
            .map_or("", |transfer| transfer.content_warning.as_str())
    }

    /// Marks the file as rejected or failed, with the sentence of the kind and the platform's code.
    pub fn give_up(&mut self, kind: ErrorKind, code: &str) {
        self.state = FileState::given_up(kind);
        self.error_kind = Some(kind.into());
        kind.sentence().clone_into(&mut self.error_message);
        code.clone_into(&mut self.platform_code);
    }

    /// Marks the file as possibly delivered.
    pub fn mark_unknown(&mut self, code: &str) {
        self.state = FileState::Unknown;
        self.error_kind = Some(FileFailureKind::Ambiguous);
        code.clone_into(&mut self.platform_code);
        "The platform's answer was lost: the file may have been delivered."
            .clone_into(&mut self.error_message);
    }
}

/// Visible name of a stored file without a name.
const STORED_FILE_NAME: &str = "file";

/// One delivery. Only a compare-and-set of [`crate::records::RecordStore`] changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryRecord {
    /// Identifies it within its tenant.
    pub delivery_id: String,
    /// The delivery's session; empty for none.
    pub session: String,
    /// Chat to which the files go.
    pub target: Option<v1::ChatTarget>,
    /// The files, in the order requested.
    pub files: Vec<FileRecord>,
    /// Whether every file was shown.
    pub success: bool,
    /// Whether the delivery ended.
    pub finished: bool,
    /// Unix milliseconds at which it was requested. They order the deliveries of a chat.
    pub begun_at_ms: u64,
    /// Unix milliseconds of its end; 0 while it runs.
    pub ended_at_ms: u64,
    /// The result of the tool, as the agent sees it; empty while it runs.
    pub result_json: String,
    /// Notice to the user about failures; empty without failures.
    pub notice: String,
    /// Visible requests that make it up, in order; empty before they are planned.
    pub steps: Vec<DeliveryStep>,
    /// Turn of the agent.
    pub turn: String,
    /// Text of the agent that is shown with the files.
    pub message: String,
    /// Options of the request, such as to send files as documents.
    pub flags: Option<v1::DeliveryFlags>,
    /// Name of its tenant.
    pub tenant: String,
    /// Unix milliseconds at which it continues; 0 if it does not wait. After its end: Unix milliseconds from which its
    /// end is to be published; 0 once it is published.
    pub due_at_ms: u64,
    /// The reason why it does not continue now; `None` while it is worked on.
    pub waiting: Option<WaitingReason>,
    /// How often it was put back to wait.
    pub rounds: u32,
    /// Unix milliseconds after which it is given up.
    pub deadline_ms: u64,
    /// W3C trace parent of the request.
    pub traceparent: String,
    /// Random number of the worker that wrote it last, to distinguish equal writes of two workers.
    pub writer: u64,
    /// Whether the delivery ended because it was cancelled.
    pub cancelled: bool,
}

impl DeliveryRecord {
    /// The first record of a delivery.
    pub fn begin(meta: &Meta, start: DeliveryStart, begun_at_ms: u64, timeout_ms: u64) -> Self {
        let DeliveryStart {
            delivery_id,
            session,
            target,
            message,
            flags,
            files,
            turn,
        } = start;
        Self {
            delivery_id,
            session,
            target,
            files,
            begun_at_ms,
            turn,
            message,
            flags,
            tenant: meta.tenant.to_string(),
            deadline_ms: begun_at_ms.saturating_add(timeout_ms),
            traceparent: meta.trace.traceparent.clone(),
            ..Self::default()
        }
    }

    /// The tenant; the default one when its name is not valid.
    pub fn tenant_id(&self) -> TenantId {
        TenantId::new(self.tenant.as_str()).unwrap_or_default()
    }

    /// The file at this index.
    pub fn file_mut(&mut self, index: u32) -> Option<&mut FileRecord> {
        self.files.get_mut(usize::try_from(index).ok()?)
    }
}

/// The content of the first record of a delivery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryStart {
    /// Identifies it within its tenant.
    pub delivery_id: String,
    /// The delivery's session; empty for none.
    pub session: String,
    /// Chat to which the files go.
    pub target: Option<v1::ChatTarget>,
    /// Text of the agent that is shown with the files.
    pub message: String,
    /// Options of the request, such as to send files as documents.
    pub flags: Option<v1::DeliveryFlags>,
    /// The files, in order, including those that failed already.
    pub files: Vec<FileRecord>,
    /// Turn of the agent.
    pub turn: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_file_gets_a_name_that_is_safe_to_show() {
        let claim = |name: &str| v1::Claim {
            artifact: Some(v1::Artifact {
                name: name.to_owned(),
                ..v1::Artifact::default()
            }),
            ..v1::Claim::default()
        };
        assert_eq!(FileRecord::stored(claim("")).name, "file");
        let named = FileRecord::stored(claim("../a\u{202e}b.pdf"));
        assert_eq!(named.name, "ab.pdf");
        assert_eq!(named.state, FileState::Queued);
    }

    #[test]
    fn every_reason_to_give_up_ends_in_a_final_state_that_is_not_shown() {
        for kind in ErrorKind::ALL_KINDS {
            let state = FileState::given_up(kind);
            assert!(state.is_final() && !state.is_shown(), "{kind}");
        }
        assert!(!FileState::Queued.is_final() && !FileState::Sending.is_final());
    }
}
