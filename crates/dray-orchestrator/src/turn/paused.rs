//! Turns that wait for tools of the client. The results of the server's own calls are stored under the ids of the
//! client's calls: every client has to send these back, even one that drops `custom_content`.
//!
//! An id is `dray_<token>_<number>`. The token names a record by digest and size, and a MAC binds it to the tenant and
//! the principal: no other caller's request restores the record, and no caller can name content that it did not get.
//! Records are immutable and in the store that all replicas share, so any replica handles the next request, and a
//! repeated request finds the same record. A turn without calls of the server itself has no record, and its ids are the
//! model's.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role};
use dray_store::{ArtifactLabel, ReadError, Store};
use dray_types::{Artifact, ByteSize, Claim, Clock, Sha256Digest, TenantId, whole_millis};
use futures_util::StreamExt as _;
use hmac::Hmac;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::approvals::ApprovalStore;
use crate::records::{STORE_TIMEOUT, digest_prefix, put_when_free};

mod answers;
mod deleted;
mod record;
mod token;

use answers::{AnsweredQuestions, earlier_outcomes};
use deleted::remove_deleted_texts;
pub(super) use record::{DecidedCall, PausedApproval, PausedTurn, ResumedCalls, ResumedRecord};
use token::mac_key;

/// Prefix of the ids of calls that name a record.
const ID_PREFIX: &str = "dray_";
/// Most bytes of one record.
pub(super) const MAX_RECORD_BYTES: u32 = 32 << 20;
/// Most bytes of all records of one request; the newest come first.
const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// Most records that are read concurrently.
const MAX_CONCURRENT_READS: usize = 4;
/// Result of a call for which a client sent none.
const MISSING_RESULT: &str = "The client gave no result for this call.";
/// Result of a call that waited, and about which the client was not asked.
const NOT_ASKED: &str = "The user was not asked about this call, and it did not continue.";
/// Code of failures for records that are gone.
const EXPIRED_CODE: &str = "tool_calls_expired";

/// The reason why a record was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PausedTurnError {
    /// The paused turn has expired, or it does not belong to this caller.
    Expired,
    /// The store does not respond.
    Store,
    /// The records of the request are too large together.
    TooLarge,
}

/// Stores and restores records. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PausedTurns {
    store: Store,
    tenant: TenantId,
    clock: Clock,
    /// Keys of MACs, the one of new tokens first.
    keys: Vec<Hmac<Sha256>>,
    lifetime: Duration,
}

impl std::fmt::Debug for PausedTurns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PausedTurns").finish_non_exhaustive()
    }
}

impl PausedTurns {
    /// Records in this store; after `lifetime` a turn does not continue.
    pub(crate) fn new(store: Store, tenant: TenantId, clock: Clock, lifetime: Duration) -> Self {
        // The same in all replicas, which read each other's records.
        let keys = store.derive_keys("orchestrator paused turns");
        Self {
            keys: keys.accepted().map(mac_key).collect(),
            store,
            tenant,
            clock,
            lifetime,
        }
    }

    /// Now, in Unix milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Stores a record, and returns the token that names it.
    ///
    /// # Errors
    ///
    /// 500 for a record above [`MAX_RECORD_BYTES`], 503 while the store fails.
    pub(super) async fn save(
        &self,
        principal: &str,
        record: &PausedTurn,
    ) -> Result<String, RequestFailure> {
        let bytes = serde_json::to_vec(record).map_err(|_| RequestFailure::unexpected())?;
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if size > MAX_RECORD_BYTES {
            let limit = ByteSize::bytes(MAX_RECORD_BYTES.into());
            let message = format!(
                "The results of the agent's own tools are larger than {limit} together, which is too large to wait for \
                 tools of the client."
            );
            return Err(RequestFailure::new(500, message.clone()).display(message));
        }
        let label = ArtifactLabel::new("application/json", "");
        let bytes = Bytes::from(bytes);
        let stored = put_when_free(&self.store, &self.tenant, &bytes, &label);
        let claim = match tokio::time::timeout(STORE_TIMEOUT, stored).await {
            Ok(Ok(claim)) => claim,
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a turn that waits for its client was not stored"
                );
                return Err(store_failure());
            }
            Err(_elapsed) => return Err(store_failure()),
        };
        Ok(self.token(principal, &claim.artifact.sha256, size))
    }

    /// Inserts the stored rounds of the server into the conversation, in place of the calls that name them. The calls
    /// of the client get the model's ids again. Returns the calls that the request decides about; their results are
    /// still empty.
    ///
    /// # Errors
    ///
    /// 400 when the record of the turn that the request continues has expired, or an approval is not valid; 503 while
    /// the store fails. Expired records of earlier turns are left out.
    pub(super) async fn restore(
        &self,
        principal: &str,
        messages: &mut Vec<Message>,
        approvals: &ApprovalStore,
    ) -> Result<ResumedCalls, RequestFailure> {
        let tokens = record_tokens(messages);
        if tokens.is_empty() {
            return Ok(ResumedCalls::default());
        }
        let waiting = waiting_token(messages);
        let newest = newest_token(messages);
        let read = self.read_all(principal, tokens).await;
        let (mut records, mut resumed) = (HashMap::new(), ResumedCalls::default());
        for (token, read) in read {
            match read {
                Ok(record) => {
                    let results = if newest.as_ref() == Some(&token) {
                        let answered = AnsweredQuestions::new(&token, &record, messages);
                        let answers = answered.decisions(principal, approvals).await?;
                        let results = answers.results;
                        resumed.decided = answers.decided;
                        resumed.later.clone_from(&record.later);
                        resumed.later.extend(answers.waiting);
                        resumed.repeated.clone_from(&record.repeated);
                        resumed.record = Some(ResumedRecord {
                            token: token.clone(),
                            state: record.state.clone(),
                            first_call: record.round.calls().first().map(|call| call.id.clone()),
                        });
                        results
                    } else {
                        earlier_outcomes(principal, &record, approvals).await?
                    };
                    records.insert(token, (record, results));
                }
                Err(PausedTurnError::Store) => return Err(store_failure()),
                Err(error) if waiting.as_ref() == Some(&token) => {
                    return Err(lost_record_failure(error));
                }
                Err(error) => {
                    tracing::warn!(?error, "a conversation continues without an earlier round");
                }
            }
        }
        *messages = rebuild_conversation(std::mem::take(messages), records);
        Ok(resumed)
    }

    /// The records of these tokens, in any order.
    async fn read_all(
        &self,
        principal: &str,
        tokens: Vec<String>,
    ) -> Vec<(String, Result<PausedTurn, PausedTurnError>)> {
        let mut budget = MAX_REQUEST_BYTES;
        // Records are read from the newest on: if records are too large together, the old ones are left out.
        let reads: Vec<_> = tokens
            .into_iter()
            .rev()
            .map(|token| {
                let named = self.check_token(principal, &token);
                let named = named.and_then(|(sha256, size)| {
                    budget = budget
                        .checked_sub(u64::from(size))
                        .ok_or(PausedTurnError::TooLarge)?;
                    Ok((sha256, size))
                });
                async move {
                    let read = match named {
                        Ok((sha256, size)) => self.read(sha256, size).await,
                        Err(error) => Err(error),
                    };
                    (token, read)
                }
            })
            .collect();
        futures_util::stream::iter(reads)
            .buffer_unordered(MAX_CONCURRENT_READS)
            .collect()
            .await
    }

    async fn read(&self, sha256: Sha256Digest, size: u32) -> Result<PausedTurn, PausedTurnError> {
        let claim = Claim {
            artifact: Artifact {
                tenant: self.tenant.clone(),
                sha256,
                size: size.into(),
                media_type: String::new(),
                name: String::new(),
            },
            store: self.store.alias().to_owned(),
            version_id: None,
            created_at_ms: 0,
            expires_at_ms: u64::MAX,
        };
        let deadline = self.store.deadline_after(STORE_TIMEOUT);
        let limit = ByteSize::bytes(MAX_RECORD_BYTES.into());
        let read = async {
            let reader = self.store.read(&self.tenant, &claim, deadline).await?;
            reader.read_all(limit).await
        };
        let bytes = read.await.map_err(|error| match error {
            ReadError::Missing => PausedTurnError::Expired,
            error => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a turn that waits for its client was not read"
                );
                PausedTurnError::Store
            }
        })?;
        let record: PausedTurn =
            serde_json::from_slice(&bytes).map_err(|_| PausedTurnError::Expired)?;
        let age_ms = self.clock.now_ms().saturating_sub(record.created_ms);
        if age_ms > whole_millis(self.lifetime) {
            return Err(PausedTurnError::Expired);
        }
        Ok(record)
    }
}

/// The id of a call of a paused turn.
pub(super) fn call_id(token: &str, number: usize) -> String {
    format!("{ID_PREFIX}{token}_{number}")
}

/// Token and number in an id. A token may have underscores of its own.
fn id_parts(id: &str) -> Option<(&str, usize)> {
    let (token, number) = id.strip_prefix(ID_PREFIX)?.rsplit_once('_')?;
    Some((token, number.parse().ok()?))
}

/// The tokens in calls, each once, in the order of the conversation.
fn record_tokens(messages: &[Message]) -> Vec<String> {
    let mut known = HashSet::new();
    let calls = messages.iter().flat_map(Message::calls);
    calls
        .filter_map(|call| id_parts(&call.id))
        .filter(|(token, _)| known.insert(*token))
        .map(|(token, _)| token.to_owned())
        .collect()
}

/// The token of the turn that a request continues.
fn waiting_token(messages: &[Message]) -> Option<String> {
    if messages.last()?.role != Role::Tool {
        return None;
    }
    let caller = messages
        .iter()
        .rev()
        .find(|message| message.role != Role::Tool)?;
    let mut parts = caller.calls().iter().filter_map(|call| id_parts(&call.id));
    parts.next().map(|(token, _)| token.to_owned())
}

/// The token of the turn after which no answer followed: a request may contain a message of the user beside results.
fn newest_token(messages: &[Message]) -> Option<String> {
    let last = messages
        .iter()
        .rfind(|message| message.role == Role::Assistant)?;
    let mut parts = last.calls().iter().filter_map(|call| id_parts(&call.id));
    parts.next().map(|(token, _)| token.to_owned())
}

/// A record, and the results of its calls that waited for approval.
type RestoredTurn = (PausedTurn, Vec<Message>);

/// The conversation with records in place of the calls that lead to them.
fn rebuild_conversation(
    messages: Vec<Message>,
    mut records: HashMap<String, RestoredTurn>,
) -> Vec<Message> {
    let known: HashSet<String> = records.keys().cloned().collect();
    let replaced: HashSet<String> = records
        .values()
        .filter_map(|(record, _)| record.replaces.clone())
        .collect();
    let is_known = |id: &str| id_parts(id).is_some_and(|(token, _)| known.contains(token));
    remove_deleted_texts(&messages, &mut records);
    let (mut results, mut others) = (HashMap::new(), Vec::with_capacity(messages.len()));
    for message in messages {
        match &message.tool_call_id {
            Some(id) if message.role == Role::Tool && is_known(id) => {
                results.insert(id.clone(), message);
            }
            _ => others.push(message),
        }
    }
    let mut rebuilt = Vec::with_capacity(others.len());
    for mut message in others {
        let tokens: Vec<_> = message
            .calls()
            .iter()
            .filter_map(|call| id_parts(&call.id).map(|(token, _)| token.to_owned()))
            .filter(|token| known.contains(token))
            .collect();
        for token in &tokens {
            if replaced.contains(token) {
                records.remove(token);
            }
            // Some clients send each call in a message of its own: the first one brings the whole round back.
            if let Some(record) = records.remove(token) {
                push_record(&mut rebuilt, token, record, &mut results);
            }
        }
        if let Some(calls) = &mut message.tool_calls {
            calls.retain(|call| !is_known(&call.id));
        }
        if !tokens.is_empty() && message.calls().is_empty() {
            continue;
        }
        shorten_ids(&mut message);
        rebuilt.push(message);
    }
    rebuilt
}

fn push_record(
    rebuilt: &mut Vec<Message>,
    token: &str,
    (record, approved): RestoredTurn,
    results: &mut HashMap<String, Message>,
) {
    let mut round = record.round;
    // The rounds in the state are inserted before this message, as with a state that a client sends (quickapps 11.3).
    round.custom_content.get_or_insert_default().state = Some(record.state);
    rebuilt.push(round);
    rebuilt.extend(record.results);
    for (number, original) in record.pending.into_iter().enumerate() {
        let result = results.remove(&call_id(token, number));
        let mut result = result.unwrap_or_else(|| Message::new(Role::Tool, MISSING_RESULT));
        result.tool_call_id = Some(original);
        rebuilt.push(result);
    }
    for (paused, mut result) in record.approvals.into_iter().zip(approved) {
        result.tool_call_id = Some(paused.waiting.call.id);
        rebuilt.push(result);
    }
    let later = record.later.into_iter().map(|waiting| waiting.call);
    for call in later.chain(record.repeated) {
        let mut result = Message::new(Role::Tool, NOT_ASKED);
        result.tool_call_id = Some(call.id);
        rebuilt.push(result);
    }
}

/// The messages that lead to a checkpoint, after those of the request.
pub(crate) fn checkpoint_messages(token: &str) -> [Value; 2] {
    let id = call_id(token, 0);
    let call = json!({"id": id, "type": "function", "function": {"name": "checkpoint", "arguments": "{}"}});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": ""}),
    ]
}

/// Gives calls without a record an id that every model accepts.
fn shorten_ids(message: &mut Message) {
    let short = |id: &mut String| {
        if id_parts(id).is_some() {
            *id = format!("call_{}", digest_prefix(id, 24));
        }
    };
    message.tool_call_id.as_mut().map(short);
    for call in message.tool_calls.iter_mut().flatten() {
        short(&mut call.id);
    }
}

fn store_failure() -> RequestFailure {
    let text =
        "What the agent did before its client's tools ran cannot be kept or read at the moment.";
    RequestFailure::new(503, text).display(format!("{text} Please try again later."))
}

fn lost_record_failure(error: PausedTurnError) -> RequestFailure {
    let text = match error {
        PausedTurnError::TooLarge => "The rounds of this conversation are too large together.",
        PausedTurnError::Expired | PausedTurnError::Store => {
            "These tool calls are not waiting for a result: they have expired, or are of another caller. Start again \
             from the last message of the user."
        }
    };
    RequestFailure::of_parameter("messages", EXPIRED_CODE, text)
}

#[cfg(test)]
mod tests;
