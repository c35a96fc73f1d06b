//! The state of `/v1/responses` and `/v1/conversations`: a record for each response and conversation, and documents in
//! the store with their content.
//!
//! A response that runs has a lease, which its process renews. Once the lease has expired, the process counts as ended:
//! every replica reports such a response as failed, and its tools are not called again. Each change of a record is a
//! compare-and-set, so a response ends once: by its own process, by a cancellation, or by the end of its lease.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_types::{ByteSize, Period};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::conversation_ends::is_lasting;
use self::reads::{ReadLimit, ReadPermit};
use crate::progress::ConnectedRun;
use crate::records::{CallerRecords, ContentRef, RecordError, RecordKind, RevisedRecord};

mod conversation_ends;
mod conversation_items;
mod conversations;
mod deletions;
mod events;
mod history;
mod reads;
mod recorded;
mod running;
mod runs;
mod takeover;

pub(crate) use conversations::ConversationRecord;
pub(crate) use events::{EventLog, EventLogError, MAX_BATCHES, TAKEOVER_GAP, sequence_of};
pub(crate) use history::History;
pub(crate) use recorded::RecordedEvents;
pub(crate) use running::RunningResponse;
pub(crate) use runs::{BackgroundRun, RunState, note_run};
pub(crate) use takeover::{TakenResponse, is_over};

/// Most bytes that are kept of one response: its request, its items and the state of its turn.
pub(crate) const MAX_DOCUMENT_BYTES: ByteSize = ByteSize::mib(32);
/// Most bytes of all responses that one continues.
const MAX_HISTORY_BYTES: u64 = 64 << 20;
/// Most responses that one continues.
const MAX_HISTORY: usize = 1_000;
/// Documents that are read concurrently.
const CONCURRENT_READS: usize = 4;
/// Age from which the lifetime of a document is extended when a conversation continues.
const RENEWAL_AGE_MS: u64 = 24 * 3600 * 1000;
/// Renewals of a response's lease per lease time, so that several may fail.
const RENEWALS_PER_LEASE: u32 = 6;
/// Attempts to change a record that others change as well.
const MAX_ATTEMPTS: usize = 16;
/// Most characters of an id of the client in a message. Ids of questions about approvals have about 115.
const MAX_SHOWN_ID_CHARS: usize = 128;
/// Error message of a response whose process has ended.
const INTERRUPTED_MESSAGE: &str = "The process that made this response ended before the response did. What the agent's tools have \
     done is done, and no tool was called again.";
/// Error message of a response whose end could not be stored.
const NOT_STORED: &str = "The response has ended, but it could not be stored.";

/// The state of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResponseStatus {
    /// The response is running.
    InProgress,
    /// The model ended the response.
    Completed,
    /// A limit or a filter ended it.
    Incomplete,
    /// A fault ended it.
    Failed,
    /// The client cancelled the response.
    Cancelled,
}

impl ResponseStatus {
    /// The name on the wire.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a conversation can continue after it.
    const fn can_continue(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete)
    }
}

/// The stored document of a response. In one with items that were added to a conversation directly, `response` and
/// `answer` are absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ResponseDocument {
    /// The response as its client gets it.
    pub(crate) response: Option<Value>,
    /// The items of its request.
    pub(crate) input: Vec<Value>,
    /// The answer as a message of chat completions, with the state of the turn.
    pub(crate) answer: Option<Value>,
    /// While the response runs: the data with which another replica can finish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<StoredRequest>,
}

/// The request of a response, except for what the response and its input contain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    /// The body of chat completions, without messages.
    pub(crate) chat: Map<String, Value>,
    /// Instructions for this response alone.
    pub(crate) instructions: Option<String>,
    /// Name of the agent.
    pub(crate) model: String,
}

/// A document of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct HistoryEntry {
    content: ContentRef,
    /// Start of its lifetime, in Unix milliseconds.
    stored_ms: u64,
    /// The conversation from which its items can be deleted, in the history of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
}

/// The stored form of one response of `/v1/responses`, which names its document in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of the stored form"
)]
pub(crate) struct ResponseRecord {
    pub(crate) status: ResponseStatus,
    /// Whether the response runs without its client.
    pub(crate) in_background: bool,
    /// Whether the client of a response in the foreground knows its id before the end, so that another replica may
    /// finish it.
    #[serde(default)]
    is_known_to_client: bool,
    document: ContentRef,
    history: Vec<HistoryEntry>,
    conversation: Option<String>,
    created_ms: u64,
    expires_ms: u64,
    /// Unix milliseconds at which the lease of its process ends, while it runs.
    lease_ms: u64,
    /// Whether its process ended before the response did.
    #[serde(default)]
    interrupted: bool,
    /// How often a replica has taken it over.
    #[serde(default)]
    takeovers: u32,
    /// Whether its events are kept, see [`events`].
    #[serde(default)]
    has_events: bool,
    /// Whether its conversation awaits it, see [`conversation_ends`].
    #[serde(default)]
    awaits_conversation: bool,
}

impl ResponseRecord {
    /// Whether another replica may finish the response, if it has a checkpoint.
    const fn can_be_taken_over(&self) -> bool {
        self.in_background || self.is_known_to_client
    }
}

/// A response that was read.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    /// The response as its client gets it.
    pub(crate) response: Value,
    /// The items of its request.
    pub(crate) input: Vec<Value>,
    /// Memory of both.
    _permit: ReadPermit,
}

/// The parameters of a new response.
#[derive(Debug)]
pub(crate) struct NewResponse<'a> {
    pub(crate) principal: &'a str,
    pub(crate) id: &'a str,
    pub(crate) in_background: bool,
    /// For a response in the foreground that another replica may finish.
    pub(crate) connected: Option<Arc<ConnectedRun>>,
    /// Whether its events are kept.
    pub(crate) has_events: bool,
    pub(crate) conversation: Option<String>,
    pub(crate) history: History,
}

/// Responses and conversations of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ResponseStore {
    records: CallerRecords,
    lifetime: Period,
    /// How long a process may be silent before its responses count as interrupted.
    lease: Period,
    /// The events that this process records.
    recorded: RecordedEvents,
    /// Memory for the documents that requests read.
    reads: ReadLimit,
}

impl ResponseStore {
    /// Responses that are kept for `lifetime` after their end, and conversations after their last change.
    /// A response counts as interrupted when its process does not renew its lease within `lease`.
    pub(crate) fn new(records: CallerRecords, lifetime: Period, lease: Period) -> Self {
        Self {
            records,
            lifetime,
            lease,
            recorded: RecordedEvents::default(),
            reads: ReadLimit::new(),
        }
    }

    /// The events that this process records.
    pub(crate) const fn recorded_events(&self) -> &RecordedEvents {
        &self.recorded
    }

    /// How long a process may be silent before its responses count as interrupted.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.as_duration()
    }

    /// How often a process renews the lease of a response.
    pub(crate) fn lease_interval(&self) -> Duration {
        self.lease.as_duration() / RENEWALS_PER_LEASE
    }

    fn expires_ms(&self) -> u64 {
        let now = self.records.now_ms();
        now.saturating_add(self.lifetime.as_millis())
    }

    fn lease_ms(&self) -> u64 {
        let now = self.records.now_ms();
        now.saturating_add(self.lease.as_millis())
    }

    async fn store(&self, document: &ResponseDocument) -> Result<ContentRef, RequestFailure> {
        self.records
            .store_document(document, MAX_DOCUMENT_BYTES)
            .await
    }

    /// Keeps a response that begins.
    ///
    /// # Errors
    ///
    /// 413 for a request that is too large to be kept, 503 while the store or the bus fails.
    pub(crate) async fn begin(
        &self,
        new: NewResponse<'_>,
        document: &ResponseDocument,
    ) -> Result<RunningResponse, RequestFailure> {
        let record = ResponseRecord {
            status: ResponseStatus::InProgress,
            in_background: new.in_background,
            is_known_to_client: new.connected.is_some(),
            // The document is stored first, because a record must never name content that is not stored.
            document: self.store(document).await?,
            history: new.history.entries,
            conversation: new.conversation,
            created_ms: self.records.now_ms(),
            expires_ms: self.expires_ms(),
            lease_ms: self.lease_ms(),
            interrupted: false,
            takeovers: 0,
            has_events: new.has_events,
            awaits_conversation: false,
        };
        let (principal, id) = (new.principal.to_owned(), new.id.to_owned());
        let created = self
            .records
            .create(RecordKind::Response, &principal, &id, &record);
        let revision = created.await?;
        if let Some(connected) = &new.connected {
            connected.note_stored();
        }
        Ok(RunningResponse {
            store: self.clone(),
            principal,
            id,
            connected: new.connected,
            record: RevisedRecord {
                value: record,
                revision,
            },
        })
    }

    /// The record of a response. One whose process has ended and that another replica can finish is left to a poll;
    /// every other one counts as failed from now on.
    async fn record(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<RevisedRecord<ResponseRecord>, RequestFailure> {
        self.record_or_report(principal, id, false).await
    }

    /// Like [`ResponseStore::record`]. With `reports` a response whose process has ended counts as failed even where
    /// another replica can finish it: only after [`ResponseStore::take_over`] was not possible.
    async fn record_or_report(
        &self,
        principal: &str,
        id: &str,
        reports: bool,
    ) -> Result<RevisedRecord<ResponseRecord>, RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self
                .records
                .get(RecordKind::Response, principal, id)
                .await?;
            let mut found: RevisedRecord<ResponseRecord> =
                found.ok_or_else(|| missing_failure("response", id))?;
            let (now, record) = (self.records.now_ms(), &mut found.value);
            // The bucket removes expired keys with a delay, and until then they must look gone.
            if record.expires_ms <= now {
                return Err(missing_failure("response", id));
            }
            // Clocks of replicas may differ by less than the lease, which is six renewals long.
            if record.awaits_conversation {
                let added = self.add_to_conversation(principal, id, &mut found).await;
                return match added {
                    Err(failure) if !is_lasting(&failure) => Err(failure),
                    // Without its conversation the response has failed.
                    _ => Ok(found),
                };
            }
            let is_left = record.can_be_taken_over() && !reports;
            if record.status != ResponseStatus::InProgress || now < record.lease_ms || is_left {
                return Ok(found);
            }
            record.status = ResponseStatus::Failed;
            // The state of the response only says that it failed; this adds, for the client, that its tools may have
            // run.
            record.interrupted = true;
            let updated = self
                .records
                .update(RecordKind::Response, principal, id, &found);
            match updated.await {
                Ok(revision) => {
                    found.revision = revision;
                    return Ok(found);
                }
                // The process of the response is running after all, or another replica was first.
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Stale.into())
    }

    /// A response of this caller.
    ///
    /// # Errors
    ///
    /// 404 for a response that does not exist, has expired, or belongs to another caller; 503 while the store or the
    /// bus fails.
    pub(crate) async fn get(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<StoredResponse, RequestFailure> {
        self.poll(principal, id, false).await
    }

    /// Like [`ResponseStore::get`]; `reports` as in [`ResponseStore::record_or_report`].
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::get`].
    pub(crate) async fn poll(
        &self,
        principal: &str,
        id: &str,
        reports: bool,
    ) -> Result<StoredResponse, RequestFailure> {
        let found = self.record_or_report(principal, id, reports).await?;
        let record = found.value;
        let permit = self.reads.acquire(record.document.size()).await?;
        let document = self.records.read_document(&record.document).await?;
        let document: ResponseDocument = document.ok_or_else(|| missing_failure("response", id))?;
        let mut response = document.response.unwrap_or_default();
        if let Some(members) = response.as_object_mut() {
            // The document was written before the end, so its own status may be old.
            members.insert("status".to_owned(), json!(record.status.as_str()));
            let has_error = members.get("error").is_some_and(|error| !error.is_null());
            if record.status == ResponseStatus::Failed && !has_error {
                let message = if record.interrupted {
                    INTERRUPTED_MESSAGE
                } else {
                    NOT_STORED
                };
                let error = json!({"code": "server_error", "message": message});
                members.insert("error".to_owned(), error);
            }
        }
        Ok(StoredResponse {
            response,
            input: document.input,
            _permit: permit,
        })
    }

    /// Ends a response that runs without a client. A response that has ended is not changed.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::get`]; 400 for a response in the foreground, which runs as long as its client is
    /// connected, unless another replica has taken it over.
    pub(crate) async fn cancel(&self, principal: &str, id: &str) -> Result<Value, RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.record(principal, id).await?;
            // OpenAI's API has the same rule: a response with a connection ends with the connection.
            if !record.value.in_background && record.value.takeovers == 0 {
                return Err(RequestFailure::new(
                    400,
                    "Only responses with 'background' can be cancelled. Close the connection of this one.",
                ));
            }
            if record.value.status != ResponseStatus::InProgress {
                break;
            }
            // The process of the response notices this at its next renewal of the lease, which this write makes stale.
            record.value.status = ResponseStatus::Cancelled;
            let updated = self
                .records
                .update(RecordKind::Response, principal, id, &record);
            match updated.await {
                Ok(_) => break,
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.get(principal, id).await?.response)
    }

    /// Removes a response, and ends it if it runs.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::get`].
    pub(crate) async fn delete(&self, principal: &str, id: &str) -> Result<(), RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let record = self.record(principal, id).await?;
            let deleted = self
                .records
                .delete(RecordKind::Response, principal, id, record.revision);
            match deleted.await {
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    // The events are removed here, because replicas look at a response that has ended only when its
                    // events are due.
                    if record.value.has_events && self.forget_events(principal, id).await {
                        self.forget_run(id).await;
                    }
                    return Ok(());
                }
            }
        }
        Err(RecordError::Stale.into())
    }
}

/// 404 for an id that is not known, or another caller's.
pub(crate) fn missing_failure(kind: &str, id: &str) -> RequestFailure {
    let id: String = id
        .chars()
        // The id comes from the client and is shown in terminals and logs.
        .filter(|character| !character.is_control())
        .take(MAX_SHOWN_ID_CHARS)
        .collect();
    let mut failure = RequestFailure::new(404, format!("No {kind} has the id '{id}'."));
    failure.param = Some(format!("{kind}_id").into());
    failure
}
