//! State for clients of `OpenAI`'s API between requests: small records in a bucket of the bus, and content in the
//! store, to which records refer by digest.
//!
//! The key of a record contains the tenant and a digest of the principal, so a request can name only records of its own
//! caller. An id of another caller's record gets the same response as an id that does not exist.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_agent::failure::RequestFailure;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_store::Store;
use dray_types::{Claim, Clock, Sha256Digest, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::faults::FaultInjector;

mod conflicts;
mod documents;
mod faults;
mod listing;

pub(crate) use conflicts::wait_after_conflict;
pub(crate) use documents::put_when_free;
#[cfg(test)]
pub(crate) use faults::{FaultPlan, RecordFault};
pub(crate) use listing::RecordChange;

/// Bucket of what clients store over the public API: responses, conversations, files, approvals and their indexes.
pub(crate) const RECORD_BUCKET: &str = "dray_client_state";
/// Longest time for a write to the store, and for a read from it.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most documents that are read or written concurrently, as many as the store takes by default. Others wait in their
/// order: in the store, a request that waits for a permit for 10 s fails.
const MAX_CONCURRENT_DOCUMENTS: usize = 16;
/// Most bytes of one record; the bucket takes messages of 256 KiB, headers included.
const MAX_RECORD_BYTES: usize = 200 << 10;
/// Most characters of an id in a request.
const MAX_ID_CHARS: usize = 64;

/// The kind of a record; the first part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A file, see [`crate::client_files`].
    File,
    /// The caller who keeps a file with some content; its key has the digest of the content in place of a caller.
    FileHolder,
    /// A file that comes in parts, see [`crate::client_uploads`].
    Upload,
    /// A response, see [`crate::responses`].
    Response,
    /// A conversation, see [`crate::responses`].
    Conversation,
    /// An approval of a call, see [`crate::approvals`].
    Approval,
    /// The principal of an approval that a chat decides about.
    ChatQuestion,
    /// A sign-in page that is open, see [`crate::sign_ins`].
    SignInPage,
    /// The newest page of a conversation for a server.
    SignInNewest,
    /// A sign-in that waits for its code.
    SignInCode,
    /// Access and refresh token that a completed sign-in returned.
    SignInTokens,
    /// The permission to renew tokens, which one replica has at a time.
    SignInRenewal,
    /// The use of a conversation or a caller, see [`crate::budgets`].
    Usage,
    /// The progress of a response in the background, see [`crate::progress`].
    Progress,
    /// A response in the background, for replicas that look for those without a process.
    BackgroundRun,
    /// The list of the events of a response in the background.
    ResponseEvents,
}

impl RecordKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::FileHolder => "file-holder",
            Self::Upload => "upload",
            Self::Response => "response",
            Self::Conversation => "conversation",
            Self::Approval => "approval",
            Self::ChatQuestion => "chat-question",
            Self::SignInPage => "sign-in-page",
            Self::SignInNewest => "sign-in-newest",
            Self::SignInCode => "sign-in-code",
            Self::SignInTokens => "sign-in-tokens",
            Self::SignInRenewal => "sign-in-renewal",
            Self::Usage => "usage",
            Self::Progress => "progress",
            Self::BackgroundRun => "background-run",
            Self::ResponseEvents => "response-events",
        }
    }
}

/// A record and the revision to change it by.
#[derive(Clone, Debug)]
pub(crate) struct RevisedRecord<T> {
    pub(crate) value: T,
    pub(crate) revision: u64,
}

/// The value of a record as this version reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredValue<T> {
    /// The value was decoded.
    Readable(T),
    /// The value is damaged, or was written by a later version that knows more fields.
    Unreadable,
}

impl<T: DeserializeOwned> StoredValue<T> {
    fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).map_or(Self::Unreadable, Self::Readable)
    }
}

impl<T> StoredValue<T> {
    /// The value, unless it cannot be read.
    pub(crate) fn readable(self) -> Option<T> {
        match self {
            Self::Readable(value) => Some(value),
            Self::Unreadable => None,
        }
    }
}

/// Content in the store, by digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContentRef {
    sha256: String,
    size: u64,
}

impl ContentRef {
    /// The content of a claim.
    pub(crate) fn of(claim: &Claim) -> Self {
        Self {
            sha256: claim.artifact.sha256.to_hex(),
            size: claim.artifact.size,
        }
    }

    /// Size in bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256 in hexadecimal digits.
    pub(crate) fn sha256_hex(&self) -> &str {
        &self.sha256
    }

    fn sha256(&self) -> Option<Sha256Digest> {
        self.sha256.parse().ok()
    }
}

/// The reason why a record was not written.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// The record was changed since it was read, or exists already.
    Stale,
    /// The request fails with this error.
    Failed(RequestFailure),
}

impl From<RecordError> for RequestFailure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Failed(failure) => failure,
            RecordError::Stale => Self::new(
                409,
                "Another request changed the object at the same time. Try again.",
            ),
        }
    }
}

/// Records and documents of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CallerRecords {
    keys: KeyValue,
    store: Store,
    tenant: TenantId,
    clock: Clock,
    /// Permits of documents that are read or written.
    documents: Arc<Semaphore>,
    faults: FaultInjector,
}

impl CallerRecords {
    /// Records on this bus, with content in this store.
    pub(crate) fn new(bus: &Bus, store: Store, tenant: TenantId, clock: Clock) -> Self {
        Self {
            keys: bus.key_value(RECORD_BUCKET),
            store,
            tenant,
            clock,
            documents: Arc::new(Semaphore::new(MAX_CONCURRENT_DOCUMENTS)),
            faults: FaultInjector::default(),
        }
    }

    /// Faults of the writes of this process.
    #[cfg(test)]
    pub(crate) fn faults(&self) -> &FaultPlan {
        &self.faults.plan
    }

    /// The records of another tenant in the same bucket and store.
    pub(crate) fn for_tenant(&self, tenant: TenantId) -> Self {
        Self {
            tenant,
            ..self.clone()
        }
    }

    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The store in which content is.
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    /// The tenant of all records.
    pub(crate) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    fn prefix(&self, kind: RecordKind, principal: &str) -> String {
        // 128 bits: the operator chooses names of principals, so callers cannot create two with one digest.
        let owner = digest_prefix(principal, 32);
        format!("{}.{}.{owner}", kind.as_str(), self.tenant.token())
    }

    fn key(&self, kind: RecordKind, principal: &str, id: &str) -> String {
        format!("{}.{id}", self.prefix(kind, principal))
    }

    /// A record of this principal. `None` for an id that no record can have, and for a record that this version cannot
    /// read: a record of a later version counts as missing, not as damaged.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
    ) -> Result<Option<RevisedRecord<T>>, RequestFailure> {
        let found = self.find(kind, principal, id).await?;
        Ok(found.and_then(|found| {
            Some(RevisedRecord {
                value: found.value.readable()?,
                revision: found.revision,
            })
        }))
    }

    /// Like [`CallerRecords::get`], for callers that must not take a record that cannot be read for a missing one.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
    ) -> Result<Option<RevisedRecord<StoredValue<T>>>, RequestFailure> {
        if !is_id(id) {
            return Ok(None);
        }
        let entry = self.keys.get(&self.key(kind, principal, id)).await;
        let entry = entry.map_err(|error| bus_failure(&error))?;
        Ok(entry.map(|entry| RevisedRecord {
            value: StoredValue::parse(&entry.value),
            revision: entry.revision,
        }))
    }

    /// Creates a record.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub(crate) async fn create<T: Serialize + Sync>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        value: &T,
    ) -> Result<u64, RecordError> {
        let bytes = record_bytes(value)?;
        let key = self.key(kind, principal, id);
        let write = async { self.keys.create(&key, bytes).await.map_err(record_error) };
        self.faults.write(kind, write).await
    }

    /// Replaces a record of exactly this revision.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub(crate) async fn update<T: Serialize + Sync>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        record: &RevisedRecord<T>,
    ) -> Result<u64, RecordError> {
        let bytes = record_bytes(&record.value)?;
        let key = self.key(kind, principal, id);
        let write = async {
            let updated = self.keys.update(&key, bytes, record.revision).await;
            updated.map_err(record_error)
        };
        self.faults.write(kind, write).await
    }

    /// Deletes a record of exactly this revision.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub(crate) async fn delete(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        revision: u64,
    ) -> Result<(), RecordError> {
        let key = self.key(kind, principal, id);
        self.keys.delete(&key, revision).await.map_err(record_error)
    }
}

/// A new id for a record: the prefix and 122 random bits.
pub(crate) fn random_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple())
}

/// The first characters of a digest of a text, in hexadecimal; each is 4 bits.
pub(crate) fn digest_prefix(text: &str, characters: usize) -> String {
    let mut digest = Sha256Digest::of(text.as_bytes()).to_hex();
    digest.truncate(characters);
    digest
}

/// Whether a text of a request can be an id. Keys of the bus have parts, and an id must not add one.
fn is_id(id: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn record_bytes<T: Serialize>(value: &T) -> Result<Bytes, RecordError> {
    let bytes =
        serde_json::to_vec(value).map_err(|_| RecordError::Failed(RequestFailure::unexpected()))?;
    if bytes.len() > MAX_RECORD_BYTES {
        let message = "The object has grown too large to be stored. Start a new one.";
        return Err(RecordError::Failed(RequestFailure::new(413, message)));
    }
    Ok(bytes.into())
}

fn record_error(error: KeyError) -> RecordError {
    match error {
        KeyError::Stale | KeyError::Exists => RecordError::Stale,
        error => RecordError::Failed(bus_failure(&error)),
    }
}

fn bus_failure(error: &KeyError) -> RequestFailure {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "a record of a client was not read or written"
    );
    unavailable_failure()
}

/// The failure of a request whose content could not be read from the store or written to it.
pub(crate) fn store_failure(error: &(dyn std::error::Error + 'static)) -> RequestFailure {
    tracing::warn!(error, "content of a client was not read or written");
    unavailable_failure()
}

/// The failure of a request while the bus or the store fails.
pub(crate) fn unavailable_failure() -> RequestFailure {
    let text = "Stored data is not available right now.";
    RequestFailure::new(503, text).display(format!("{text} Please try again later."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_adds_no_part_to_a_key() {
        assert!(is_id(&random_id("file-")));
        for invalid_id in ["", "a.b", "*", ">", "a b", "ü", &"x".repeat(65)] {
            assert!(!is_id(invalid_id), "{invalid_id}");
        }
    }
}
