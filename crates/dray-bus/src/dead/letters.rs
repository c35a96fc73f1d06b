//! Reads and redrives dead letters. These are tools of an operator; no service uses them automatically.

use std::time::Duration;

use dray_proto::{MAX_MESSAGE_BYTES, v1};
use dray_types::{Deadline, Fault, OperationId};
use prost::Message as _;

use super::state::{DeadLetterSummary, LetterFilter, LetterState};
use crate::backend::{OutgoingMessage, StoredMessage};
use crate::bus_core::Bus;
use crate::cloud_event;
use crate::error::{PublishError, TransportError};
use crate::headers::{self, MessageHeaders};
use crate::ids;
use crate::ledger::{LedgerError, LedgerKey};
use crate::publish::PublishReceipt;
use crate::subject::{self, SubjectParts};
use crate::topology::{DEAD_LETTER_STREAM, WORK_STREAM};

/// Time for redriven work if the operator sets no deadline.
const DEFAULT_REDRIVE_TIME: Duration = Duration::from_mins(10);

/// The dead letters of a bus. Reads with `$JS.API.STREAM.MSG.GET`, which is an operator's right.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    bus: Bus,
}

/// A dead letter with everything in it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterDetails {
    /// The line of the letter in a list.
    pub summary: DeadLetterSummary,
    /// The decoded letter with the original's headers and payload.
    pub letter: v1::DeadLetter,
}

/// The reason why a dead letter was not read or started again.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// No dead letter has this sequence number; it may have been removed.
    #[error("the dead letter {0} does not exist")]
    NotFound(u64),
    /// The message is not a dead letter.
    #[error("message {sequence} of the dead-letter stream does not decode")]
    Corrupt {
        /// Sequence in the dead-letter stream.
        sequence: u64,
        /// The cause.
        #[source]
        source: prost::DecodeError,
    },
    /// The original was too large to keep and has left the work stream.
    #[error(
        "dead letter {0} holds only the beginning of its original, which is gone from the work stream"
    )]
    Incomplete(u64),
    /// The work of the letter was started again before, and continues or has a later letter.
    #[error("the work of dead letter {0} was started again before")]
    AlreadyRestarted(u64),
    /// The work of the letter is done.
    #[error("the work of dead letter {0} is done")]
    AlreadyResolved(u64),
    /// The ledger could not be read.
    #[error("the state of the work cannot be read")]
    Ledger(#[source] LedgerError),
    /// The original was not work with an operation id; so it cannot be restarted.
    #[error("the original of dead letter {0} cannot be started again: its envelope is not valid")]
    NotWork(u64),
    /// The bus failed; no work was restarted.
    #[error("the dead letters cannot be reached")]
    Transport(#[source] TransportError),
    /// The restart was not (provably) published.
    #[error("the work was not published again")]
    Publish(#[source] PublishError),
}

/// A part of the letters that a filter admits.
#[derive(Clone, Debug)]
pub struct DeadLetterPart {
    /// The letters, oldest first.
    pub letters: Vec<DeadLetterSummary>,
    /// The sequence at which the next part begins; `None` if no letter follows.
    pub next: Option<u64>,
}

impl DeadLetters {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone() }
    }

    /// Up to `limit` letters, oldest first, beginning at sequence `from`. Letters that do not decode are skipped
    /// with a warning.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn list(
        &self,
        from: u64,
        limit: usize,
    ) -> Result<Vec<DeadLetterSummary>, LetterError> {
        self.find(&LetterFilter::default(), from, limit).await
    }

    /// Up to `limit` letters that a filter admits, oldest first, beginning at sequence `from`.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn find(
        &self,
        filter: &LetterFilter,
        from: u64,
        limit: usize,
    ) -> Result<Vec<DeadLetterSummary>, LetterError> {
        let part = self.find_part(filter, from, limit, usize::MAX).await?;
        Ok(part.letters)
    }

    /// Like [`Self::find`], but examines at most `max_examined` letters, because reading the state of each costs a
    /// request.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn find_part(
        &self,
        filter: &LetterFilter,
        from: u64,
        limit: usize,
        max_examined: usize,
    ) -> Result<DeadLetterPart, LetterError> {
        let subject = filter.subject();
        let mut summaries = Vec::new();
        // Sequences begin at 1.
        let mut next = from.max(1);
        let mut examined = 0;
        while summaries.len() < limit && examined < max_examined {
            let found = self
                .bus
                .inner
                .backend
                .read_next(DEAD_LETTER_STREAM, &subject, next)
                .await
                .map_err(LetterError::Transport)?;
            let Some(stored) = found else {
                return Ok(DeadLetterPart {
                    letters: summaries,
                    next: None,
                });
            };
            examined += 1;
            next = stored.sequence + 1;
            match open_letter(&stored) {
                // The ledger is read only for letters that pass the cheap tests: it costs a request for each.
                Ok(mut details) if filter.admits(&details.summary) => {
                    details.summary.state = self.work_of(&details.letter).await?.state;
                    if filter.admits_state(details.summary.state) {
                        summaries.push(details.summary);
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a dead letter is skipped"
                ),
            }
        }
        Ok(DeadLetterPart {
            letters: summaries,
            next: Some(next),
        })
    }

    /// One letter.
    ///
    /// # Errors
    /// See [`LetterError`].
    pub async fn show(&self, sequence: u64) -> Result<DeadLetterDetails, LetterError> {
        let (details, _) = self.read(sequence).await?;
        Ok(details)
    }

    /// One letter, and how often its work was started again.
    async fn read(&self, sequence: u64) -> Result<(DeadLetterDetails, u32), LetterError> {
        let stored = self
            .bus
            .inner
            .backend
            .read_at(DEAD_LETTER_STREAM, sequence)
            .await
            .map_err(LetterError::Transport)?
            .ok_or(LetterError::NotFound(sequence))?;
        let mut details = open_letter(&stored)?;
        let work = self.work_of(&details.letter).await?;
        details.summary.state = work.state;
        Ok((details, work.redrives))
    }

    /// The work of a letter by the ledger; `Unknown` if the original is not work.
    async fn work_of(&self, letter: &v1::DeadLetter) -> Result<LetterWork, LetterError> {
        let Some(original) = OriginalWork::read(letter) else {
            return Ok(LetterWork {
                state: LetterState::Unknown,
                redrives: 0,
            });
        };
        let entry = self.bus.ledger().read(&original.key()).await;
        let entry = entry.map_err(LetterError::Ledger)?;
        let record = entry.as_ref().map(|entry| &entry.record);
        Ok(LetterWork {
            state: LetterState::of(original.redrives, record),
            redrives: record.map_or(0, |record| record.redrives),
        })
    }

    /// Publishes the original again as a deliberate restart: its id has the next restart count, attempts begin at zero,
    /// operation and trace are the same, and the deadline is `deadline` (10 minutes by default). A letter can be
    /// restarted again only after a restart that ended without a later letter. Until a worker takes the restarted message, [`PublishReceipt::duplicate`] reports a second
    /// restart.
    ///
    /// # Errors
    /// See [`LetterError`].
    pub async fn redrive(
        &self,
        sequence: u64,
        deadline: Option<Deadline>,
    ) -> Result<PublishReceipt, LetterError> {
        let (DeadLetterDetails { summary, letter }, redrives) = self.read(sequence).await?;
        match summary.state {
            // This check is not a lock: two operators may pass it concurrently. Their restarts have the same id, so the
            // stream stores one message.
            LetterState::Restarted => return Err(LetterError::AlreadyRestarted(sequence)),
            LetterState::Resolved => return Err(LetterError::AlreadyResolved(sequence)),
            LetterState::Open | LetterState::Unknown => {}
        }
        let now_ms = self.bus.now_ms();
        let deadline = deadline.unwrap_or_else(|| Deadline::after(now_ms, DEFAULT_REDRIVE_TIME));
        let payload = self.original(sequence, &letter).await?;
        let headers = restart_headers(sequence, &letter, redrives, deadline)?;
        let message = OutgoingMessage {
            subject: letter.subject,
            headers,
            payload: payload.into(),
        };
        self.bus
            .publish_message(WORK_STREAM, message, MAX_MESSAGE_BYTES, deadline)
            .await
            .map_err(LetterError::Publish)
    }

    async fn original(
        &self,
        sequence: u64,
        letter: &v1::DeadLetter,
    ) -> Result<Vec<u8>, LetterError> {
        if letter.payload_complete {
            return Ok(letter.payload.clone());
        }
        let stored = self
            .bus
            .inner
            .backend
            .read_at(WORK_STREAM, letter.stream_sequence)
            .await
            .map_err(LetterError::Transport)?;
        stored
            .map(|mut stored| {
                cloud_event::adopt_envelope(&mut stored);
                stored
            })
            // A recreated stream counts from 1 again, so the sequence alone may name another message.
            .filter(|stored| {
                stored.subject == letter.subject && stored.payload.starts_with(&letter.payload)
            })
            .map(|stored| stored.payload.to_vec())
            .ok_or(LetterError::Incomplete(sequence))
    }
}

/// What the ledger says about the work of a letter.
struct LetterWork {
    state: LetterState,
    /// Deliberate restarts that a worker took.
    redrives: u32,
}

/// The work that a letter is about.
struct OriginalWork<'a> {
    parts: SubjectParts<'a>,
    headers: MessageHeaders,
    operation: OperationId,
    redrives: u32,
}

impl<'a> OriginalWork<'a> {
    /// Reads its envelope; `None` when it was not work with an operation id.
    fn read(letter: &'a v1::DeadLetter) -> Option<Self> {
        let parts = subject::subject_parts(&letter.subject)?;
        let headers: MessageHeaders = letter
            .headers
            .iter()
            .map(|header| (header.name.as_str(), header.value.as_str()))
            .collect();
        let operation = OperationId::new(headers.get(headers::OPERATION_HEADER)?).ok()?;
        let step = format!("{}.{}", parts.area, parts.verb);
        let redrives = headers
            .get(headers::MESSAGE_ID)
            .map_or(0, |id| ids::redrive_count(id, &operation, &step));
        Some(Self {
            parts,
            headers,
            operation,
            redrives,
        })
    }

    fn key(&self) -> LedgerKey {
        let SubjectParts {
            area, verb, tenant, ..
        } = self.parts;
        LedgerKey::new(area, verb, tenant, &self.operation)
    }
}

/// The original's headers, with an id after `redrives` restarts and a deadline that has not passed.
fn restart_headers(
    sequence: u64,
    letter: &v1::DeadLetter,
    redrives: u32,
    deadline: Deadline,
) -> Result<MessageHeaders, LetterError> {
    let OriginalWork {
        parts,
        headers: original,
        operation,
        redrives: before,
    } = OriginalWork::read(letter).ok_or(LetterError::NotWork(sequence))?;
    let step = format!("{}.{}", parts.area, parts.verb);
    // A restart without a letter may have used the next id.
    let next = before.max(redrives).saturating_add(1);
    let mut restart = MessageHeaders::new();
    restart.append(
        headers::MESSAGE_ID,
        ids::message_id(parts.tenant, &operation, &step, next),
    );
    for (name, value) in original.iter() {
        // `Nats-Msg-Id` is replaced above, and other headers of the server would make the restart poison (E-1).
        let controls_server = name.to_ascii_lowercase().starts_with("nats-");
        if !controls_server && name != headers::DEADLINE_HEADER {
            restart.append(name, value);
        }
    }
    restart.append(headers::DEADLINE_HEADER, deadline.unix_ms().to_string());
    Ok(restart)
}

fn open_letter(stored: &StoredMessage) -> Result<DeadLetterDetails, LetterError> {
    let sequence = stored.sequence;
    let letter = v1::DeadLetter::decode(stored.payload.clone())
        .map_err(|source| LetterError::Corrupt { sequence, source })?;
    let operation = letter
        .headers
        .iter()
        .find(|header| header.name == headers::OPERATION_HEADER)
        .map(|header| header.value.clone())
        .unwrap_or_default();
    let summary = DeadLetterSummary {
        sequence,
        subject: letter.subject.clone(),
        operation,
        fault: letter
            .fault
            .clone()
            .map_or_else(Fault::internal, Fault::from),
        attempts: letter.attempts,
        delivered: letter.delivered,
        first_error_ms: letter.first_error_ms,
        last_error_ms: letter.last_error_ms,
        complete: letter.payload_complete,
        state: LetterState::Unknown,
    };
    Ok(DeadLetterDetails { summary, letter })
}
