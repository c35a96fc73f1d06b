//! Enum codes of the contracts and the names that were on the wire before them.
//!
//! A writer sets the code and, for peers of the previous version, its name in the deprecated field beside it. A reader
//! uses the code, and the name only where the code is unspecified. Both rules are in this module alone; the compiler
//! warns wherever a deprecated field is used.

use crate::v1::{
    self, ConsoleAction, ConsoleStage, CredentialState, DeliveryErrorKind, DeliveryRoute,
    DeliveryStage, FilePermission, FileState, PolicyStep, PreviewAction, PreviewLinkState,
    SandboxEntryKind, StepState, StepVerdict, TicketAction, TicketDirection, TicketState,
    WaitingReason,
};

/// A code or a name of a peer with a newer contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value} is not known to this version")]
pub struct UnknownCode {
    /// Type of the code.
    kind: &'static str,
    /// The number, or the name.
    value: String,
}

/// An enum of the contracts whose values have names in JSON, logs, metrics and deprecated fields.
pub trait NamedCode: Copy + PartialEq + TryFrom<i32> + 'static {
    /// Name of the type, for errors.
    const TYPE_NAME: &'static str;

    /// The name; empty for an unspecified code.
    fn name(self) -> &'static str;

    /// The code with this name; the unspecified one for an empty name.
    fn from_name(name: &str) -> Option<Self>;

    /// Reads a code and the deprecated name of the same field; `None` if neither is set.
    ///
    /// # Errors
    /// The code is unknown: a newer peer wrote it.
    fn read(code: i32, name: &str) -> Result<Option<Self>, UnknownCode> {
        let known = match code {
            0 => Self::from_name(name),
            code => Self::try_from(code).ok(),
        };
        match known {
            Some(known) if known.name().is_empty() => Ok(None),
            Some(known) => Ok(Some(known)),
            None => Err(UnknownCode {
                kind: Self::TYPE_NAME,
                value: if code == 0 {
                    name.to_owned()
                } else {
                    code.to_string()
                },
            }),
        }
    }
}

macro_rules! names {
    ($type:ident { $($code:ident => $name:literal,)* }) => {
        impl NamedCode for $type {
            const TYPE_NAME: &'static str = stringify!($type);

            fn name(self) -> &'static str {
                match self {
                    Self::Unspecified => "",
                    $(Self::$code => $name,)*
                }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    "" => Some(Self::Unspecified),
                    $($name => Some(Self::$code),)*
                    _ => None,
                }
            }
        }
    };
}

// These modules come after the macro `names`, which these modules use.
mod question;
mod sandbox;
mod turn;

names!(ConsoleAction {
    Login => "login",
    Logout => "logout",
    Resend => "resend",
    Redrive => "redrive",
    SandboxGet => "sandbox_get",
    SandboxPut => "sandbox_put",
    PolicyResolve => "policy_resolve",
    Preview => "preview",
    PreviewRevoke => "preview_revoke",
    SetUpCheck => "set_up_check",
    FileGet => "file_get",
    PlaygroundTurn => "playground_turn",
    AnswerQuestion => "answer_question",
    SandboxSend => "sandbox_send",
});

names!(PreviewAction {
    Created => "created",
    Opened => "opened",
    Revoked => "revoked",
    Scanned => "scanned",
});

names!(PreviewLinkState {
    Open => "open",
    Expired => "expired",
    Revoked => "revoked",
});

names!(ConsoleStage {
    Begun => "begun",
    Done => "done",
    Failed => "failed",
});

names!(CredentialState {
    Accepted => "accepted",
    Refused => "refused",
    Unreachable => "unreachable",
    Unverified => "unverified",
});

names!(FilePermission {
    Allowed => "allowed",
    Denied => "denied",
    PerChat => "per_chat",
});

names!(FileState {
    Queued => "queued",
    Sending => "sending",
    Delivered => "delivered",
    DeliveredAsLink => "delivered_as_link",
    DeliveredAsPreview => "delivered_as_preview",
    Copied => "copied",
    Rejected => "rejected",
    Failed => "failed",
    Unknown => "unknown",
});

names!(DeliveryRoute {
    Photo => "photo",
    Document => "document",
    Animation => "animation",
    Video => "video",
    Audio => "audio",
    Voice => "voice",
    Album => "album",
    Attachment => "attachment",
    File => "file",
    Image => "image",
    Link => "link",
    Text => "text",
    Notice => "notice",
    Copy => "copy",
});

names!(DeliveryErrorKind {
    TooLong => "too_long",
    BadFormat => "bad_format",
    Forbidden => "forbidden",
    NotFound => "not_found",
    RateLimited => "rate_limited",
    Transient => "transient",
    TooLarge => "too_large",
    Empty => "empty",
    Auth => "auth",
    WindowClosed => "window_closed",
    UnsupportedKind => "unsupported_kind",
    StaleFileId => "stale_file_id",
    NoThread => "no_thread",
    Source => "source",
    Unknown => "unknown",
    NoAccount => "no_account",
    Ambiguous => "ambiguous",
});

names!(WaitingReason {
    RateLimited => "rate_limited",
    WindowClosed => "window_closed",
    Queue => "queue",
});

names!(DeliveryStage {
    Checking => "checking",
    Fetching => "fetching",
    Stored => "stored",
    Sending => "sending",
    Waiting => "waiting",
    Sent => "sent",
    AttemptFailed => "attempt_failed",
});

names!(StepState {
    Ready => "ready",
    Sending => "sending",
    Done => "done",
    Unknown => "unknown",
    Failed => "failed",
});

names!(PolicyStep {
    OperatorSwitch => "operator_switch",
    AppSwitch => "app_switch",
    AppPatterns => "app_patterns",
    Url => "url",
    Scheme => "scheme",
    OperatorHosts => "operator_hosts",
    AppHosts => "app_hosts",
    Port => "port",
    HostName => "host_name",
    Resolution => "resolution",
    Addresses => "addresses",
    PolicyRules => "policy_rules",
    Quota => "quota",
    Robots => "robots",
});

names!(StepVerdict {
    Allowed => "allowed",
    Refused => "refused",
    NotJudged => "not_judged",
});

names!(TicketAction {
    Issued => "issued",
    Completed => "completed",
    Refused => "refused",
    Revoked => "revoked",
});

names!(TicketDirection {
    Upload => "upload",
    Download => "download",
});

names!(TicketState {
    Open => "open",
    Active => "active",
    Stored => "stored",
    Complete => "complete",
    Failed => "failed",
    Revoked => "revoked",
    Expired => "expired",
});

/// The displayed name of an unset code or a code of a newer peer.
const UNKNOWN_NAME: &str = "unknown";

fn displayed_name<E: NamedCode>(read: &Result<Option<E>, UnknownCode>) -> &'static str {
    match read {
        Ok(Some(code)) => code.name(),
        Ok(None) => "",
        Err(_) => UNKNOWN_NAME,
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::DeliveredFile {
    /// The state of the file. An unknown code of a newer peer becomes [`FileState::Unknown`], never a success; a file
    /// without a state is queued.
    pub fn file_state(&self) -> FileState {
        match FileState::read(self.state_code, &self.state) {
            Ok(state) => state.unwrap_or(FileState::Queued),
            Err(_) => FileState::Unknown,
        }
    }

    /// Writes the code and the name that older readers compare.
    pub fn set_file_state(&mut self, state: FileState) {
        self.state_code = state.into();
        state.name().clone_into(&mut self.state);
    }

    /// The route that was taken; `None` before a send, and for a route of a newer peer.
    pub fn route_taken(&self) -> Option<DeliveryRoute> {
        DeliveryRoute::read(self.route_code, &self.route)
            .ok()
            .flatten()
    }

    /// Name of the route; empty before a send, `unknown` for a route of a newer peer.
    pub fn route_name(&self) -> &'static str {
        displayed_name(&DeliveryRoute::read(self.route_code, &self.route))
    }

    /// Writes the code and the name that older readers compare.
    pub fn set_route_taken(&mut self, route: DeliveryRoute) {
        self.route_code = route.into();
        route.name().clone_into(&mut self.route);
    }

    /// The reason why the file did not arrive; `None` without a failure. An unknown code of a newer peer becomes
    /// [`DeliveryErrorKind::Unknown`].
    pub fn failure(&self) -> Option<DeliveryErrorKind> {
        DeliveryErrorKind::read(self.error_code, &self.error_kind)
            .unwrap_or(Some(DeliveryErrorKind::Unknown))
    }

    /// Sets the reason why the file did not arrive; the unspecified kind for no failure.
    pub fn set_failure(&mut self, kind: DeliveryErrorKind) {
        self.error_code = kind.into();
        kind.name().clone_into(&mut self.error_kind);
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
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::DeliveryReport {
    /// The reason why the delivery waits; `None` if it does not wait. An unknown code of a newer peer becomes
    /// [`WaitingReason::Queue`].
    pub fn waiting_reason(&self) -> Option<WaitingReason> {
        WaitingReason::read(self.waiting_code, &self.waiting).unwrap_or(Some(WaitingReason::Queue))
    }

    /// Sets the reason for waiting; the unspecified reason if it does not wait.
    pub fn set_waiting_reason(&mut self, reason: WaitingReason) {
        self.waiting_code = reason.into();
        reason.name().clone_into(&mut self.waiting);
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::DeliveryRecord {
    /// The reason why the delivery waits; `None` if it does not wait. An unknown code of a newer worker becomes
    /// [`WaitingReason::Queue`].
    pub fn waiting_reason(&self) -> Option<WaitingReason> {
        WaitingReason::read(self.waiting_code, &self.waiting).unwrap_or(Some(WaitingReason::Queue))
    }

    /// Sets the reason for waiting; the unspecified reason if it does not wait.
    pub fn set_waiting_reason(&mut self, reason: WaitingReason) {
        self.waiting_code = reason.into();
        reason.name().clone_into(&mut self.waiting);
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::DeliveryStep {
    /// The state of the step; ready if unset. An unknown code of a newer worker becomes [`StepState::Sending`], because
    /// the step may be visible in part.
    pub fn step_state(&self) -> StepState {
        match StepState::read(self.state_code, &self.state) {
            Ok(state) => state.unwrap_or(StepState::Ready),
            Err(_) => StepState::Sending,
        }
    }

    /// The form in which the platform shows the step.
    ///
    /// # Errors
    /// The code is unknown: a newer worker planned the step, and this one cannot send it.
    pub fn planned_route(&self) -> Result<Option<DeliveryRoute>, UnknownCode> {
        DeliveryRoute::read(self.route_code, &self.route)
    }

    /// The reason why the last attempt failed; `None` without a failure. An unknown code of a newer worker becomes
    /// [`DeliveryErrorKind::Unknown`].
    pub fn failure(&self) -> Option<DeliveryErrorKind> {
        DeliveryErrorKind::read(self.error_code, &self.error_kind)
            .unwrap_or(Some(DeliveryErrorKind::Unknown))
    }

    /// Sets state, route and the last failure (the unspecified kind without a failure).
    pub fn set_codes(&mut self, state: StepState, route: DeliveryRoute, kind: DeliveryErrorKind) {
        self.state_code = state.into();
        state.name().clone_into(&mut self.state);
        self.route_code = route.into();
        route.name().clone_into(&mut self.route);
        self.error_code = kind.into();
        kind.name().clone_into(&mut self.error_kind);
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::StepConfirmation {
    /// The route that was taken; `None` for one of a newer worker.
    pub fn route_taken(&self) -> Option<DeliveryRoute> {
        DeliveryRoute::read(self.route_code, &self.route)
            .ok()
            .flatten()
    }

    /// Sets the route that was taken.
    pub fn set_route_taken(&mut self, route: DeliveryRoute) {
        self.route_code = route.into();
        route.name().clone_into(&mut self.route);
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::DeliveryProgressed {
    /// Name of the stage; `unknown` for a stage of a newer peer.
    pub fn stage_name(&self) -> &'static str {
        displayed_name(&DeliveryStage::read(self.stage_code, &self.stage))
    }

    /// Writes the code and the name that older readers compare.
    pub fn set_delivery_stage(&mut self, stage: DeliveryStage) {
        self.stage_code = stage.into();
        stage.name().clone_into(&mut self.stage);
    }
}

/// The task of a work message in a platform's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliveryTask {
    /// Continue the delivery according to its record.
    Continue,
    /// Begin a delivery of stored files.
    New(v1::NewDelivery),
    /// Show this sentence.
    Notice(String),
}

#[expect(deprecated, reason = "old work is written and read here alone")]
impl v1::DeliverFiles {
    /// The task of the work message. In messages of the previous version, the set fields determine it.
    pub fn delivery_task(&self) -> DeliveryTask {
        use v1::deliver_files::Task;
        match &self.task {
            Some(Task::NewDelivery(new)) => DeliveryTask::New(new.clone()),
            Some(Task::Notice(notice)) => DeliveryTask::Notice(notice.text.clone()),
            None if !self.files.is_empty() => DeliveryTask::New(v1::NewDelivery {
                message: self.message.clone(),
                flags: self.flags,
                files: self.files.clone(),
                turn: self.turn.clone(),
            }),
            None if !self.message.is_empty() => DeliveryTask::Notice(self.message.clone()),
            Some(Task::ContinueDelivery(v1::ContinueDelivery {})) | None => DeliveryTask::Continue,
        }
    }

    /// The same work with this task. The fields of the previous version are set too, if it has such a task.
    #[must_use]
    pub fn with_task(mut self, task: DeliveryTask) -> Self {
        use v1::deliver_files::Task;
        self.task = Some(match task {
            DeliveryTask::Continue => Task::ContinueDelivery(v1::ContinueDelivery {}),
            DeliveryTask::New(new) => {
                self.message.clone_from(&new.message);
                self.flags = new.flags;
                self.files.clone_from(&new.files);
                self.turn.clone_from(&new.turn);
                Task::NewDelivery(new)
            }
            DeliveryTask::Notice(text) => {
                self.message.clone_from(&text);
                Task::Notice(v1::UserNotice { text })
            }
        });
        self
    }
}

#[expect(deprecated, reason = "names are written and read here alone")]
impl v1::SandboxEntry {
    /// The kind of the path. An unset kind and one of a newer peer become [`SandboxEntryKind::Other`].
    pub fn entry_kind(&self) -> SandboxEntryKind {
        SandboxEntryKind::read(self.kind_code, &self.kind)
            .ok()
            .flatten()
            .unwrap_or(SandboxEntryKind::Other)
    }

    /// The same entry with this kind.
    #[must_use]
    pub fn with_kind(mut self, kind: SandboxEntryKind) -> Self {
        self.kind_code = kind.into();
        kind.name().clone_into(&mut self.kind);
        self
    }
}

#[cfg(test)]
mod tests;
