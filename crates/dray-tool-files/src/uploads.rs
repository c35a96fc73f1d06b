//! Puts files that a person sent into the session's sandbox, before the first call of a tool (platform-delivery 11).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dray_agent::message::{Attachment, Message};
use dray_presentation::line;
use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::Sha256Digest;
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::ask::PeerService;
use super::loader::FileLoader;
use super::scope::TurnScope;
use super::session::SessionBinding;

/// Files that are fetched concurrently.
const CONCURRENT_FETCHES: usize = 4;
/// Most files of one message.
const MAX_FILES: usize = 50;
/// Failed checks after which the turn continues.
const MAX_FAILED_CHECKS: u32 = 2;
/// Longest time for acknowledging uploads, at the end of a turn.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delays between two checks: the first and the longest.
const POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Puts a person's files into the session's sandbox.
#[derive(Clone, Copy, Debug)]
pub struct UploadPlacer<'a> {
    pub(super) scope: &'a TurnScope,
    pub(super) session: &'a SessionBinding,
    pub(super) loader: &'a FileLoader,
    pub(super) reported: &'a Mutex<Vec<String>>,
}

impl UploadPlacer<'_> {
    /// Puts the attachments of a message into the session's sandbox, waits for them for a limited time, and returns one
    /// line for each new file. New files are those of this message and those that arrived through the session's chat.
    /// Without a sandbox it does nothing. Unavailable files are reported; no failure ends the turn.
    pub async fn place_uploads(&self, message: &Message) -> Vec<String> {
        if !self.session.has_sandbox().await {
            return Vec::new();
        }
        let attachments = message.custom_content.as_ref();
        let attachments = attachments.and_then(|custom| custom.attachments.as_deref());
        let attachments = attachments.unwrap_or_default();
        let jobs: Vec<_> = attachments
            .iter()
            .take(MAX_FILES)
            .enumerate()
            .map(|(position, attachment)| self.place(position, attachment))
            .collect();
        let placed: Vec<_> = futures_util::stream::iter(jobs)
            // `buffered` keeps the order of the message, unlike `buffer_unordered`.
            .buffered(CONCURRENT_FETCHES)
            .collect()
            .await;
        let (mut pending, mut lines) = (BTreeMap::new(), Vec::new());
        for outcome in placed {
            match outcome {
                Ok((operation, name)) => {
                    pending.insert(operation, name);
                }
                Err(line) => lines.push(line),
            }
        }
        lines.extend(self.settle(pending).await);
        lines
    }

    /// Takes the uploads that an earlier part of the turn reported, and that its last part acknowledges.
    pub fn take_over(&self, earlier: &UploadPlacer<'_>) {
        let taken = earlier.take_reported();
        self.note_reported(taken);
    }

    fn note_reported(&self, operations: impl IntoIterator<Item = String>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.extend(operations);
    }

    /// Acknowledges the uploads whose lines [`Self::place_uploads`] returned: the turn has ended and its client has the
    /// lines. Otherwise a later turn gets them again.
    pub async fn acknowledge(&self) {
        let acknowledged = self.take_reported();
        if acknowledged.is_empty() {
            return;
        }
        let request = v1::SettleUploadsRequest {
            session: self.scope.session_text(),
            all: false,
            acknowledges: true,
            acknowledged,
        };
        let services = &self.scope.services;
        let meta = self.scope.meta(ACKNOWLEDGE_TIMEOUT);
        if let Err(error) = services
            .call_once(PeerService::Sandbox, &meta, &request)
            .await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "uploads were not acknowledged; the next turn reports them again"
            );
        }
    }

    fn take_reported(&self) -> Vec<String> {
        std::mem::take(&mut *self.reported.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes the work on one file; returns its operation and name, or the line about the failure.
    async fn place(
        &self,
        position: usize,
        attachment: &Attachment,
    ) -> Result<(String, String), String> {
        let mut name = attachment.title.clone().unwrap_or_default();
        let source = self.loader.attached_claim(attachment).await;
        let (claim, unavailable) = match source {
            Ok((claim, found)) => {
                if name.is_empty() {
                    name = found;
                }
                (Some(claim), String::new())
            }
            Err(ToolFailure::Parameter { message, .. }) => (None, message),
            Err(failure) => (None, failure.to_string()),
        };
        let content = match &claim {
            Some(claim) => claim.artifact.sha256.to_hex(),
            None => Sha256Digest::of(unavailable.as_bytes()).to_hex(),
        };
        // The id follows from position and content: a repeated turn publishes the same operation, which is done once.
        let operation = self
            .scope
            .operation(&format!("upload/{position}/{content}"));
        let work = v1::PlaceUpload {
            session: self.scope.session_text(),
            // The event is published without a claim as well: the service then writes the line about the missing file.
            claim: claim.map(Into::into),
            name: name.clone(),
            position: u32::try_from(position).unwrap_or(u32::MAX),
            unavailable,
            ..v1::PlaceUpload::default()
        };
        let time = self.scope.services.config.upload_wait.as_duration();
        let meta = self.scope.meta(time).with_operation(operation.clone());
        match self.scope.services.bus.publish_work(&meta, &work).await {
            Ok(_) => Ok((operation.to_string(), name)),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an upload was not published"
                );
                Err(line::not_available(
                    &name,
                    None,
                    "the sandbox service is not reachable",
                ))
            }
        }
    }

    /// Waits until all of `pending` are settled, at most for the configured time.
    async fn settle(&self, mut pending: BTreeMap<String, String>) -> Vec<String> {
        let config = &self.scope.services.config;
        let end = Instant::now() + config.upload_wait.as_duration();
        let request = v1::SettleUploadsRequest {
            session: self.scope.session_text(),
            all: false,
            acknowledges: true,
            acknowledged: Vec::new(),
        };
        let (mut outcomes, mut pause) = (Vec::<v1::Upload>::new(), POLL_DELAYS.0);
        let mut failed_checks = 0;
        loop {
            let remaining = end.saturating_duration_since(Instant::now());
            let reply = self
                .scope
                .services
                .call_with_heartbeat(PeerService::Sandbox, &self.scope.meta(remaining), &request)
                .await;
            match reply {
                Ok(reply) => {
                    failed_checks = 0;
                    for upload in reply.uploads {
                        // This also settles files that arrived through the session's chat, not only those of this
                        // message.
                        pending.remove(&upload.operation_id);
                        let is_same =
                            |known: &v1::Upload| known.operation_id == upload.operation_id;
                        // An upload is returned until it is acknowledged.
                        if !outcomes.iter().any(is_same) {
                            outcomes.push(upload);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "uploads were not settled"
                    );
                    // Only the reply may have been lost.
                    failed_checks += 1;
                }
            }
            let is_done = pending.is_empty() && failed_checks == 0;
            if is_done || failed_checks == MAX_FAILED_CHECKS || Instant::now() + pause >= end {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_DELAYS.1);
        }
        self.note_reported(outcomes.iter().map(|upload| upload.operation_id.clone()));
        // The outcomes are in the order of the message, not in the order of arrival.
        outcomes.sort_by_key(|upload| upload.position);
        let outcomes = outcomes.into_iter();
        let mut lines: Vec<_> = outcomes.map(|upload| upload.context_line).collect();
        let unsettled = pending.into_values();
        lines.extend(
            unsettled.map(|name| line::not_available(&name, None, "it is not in the sandbox yet")),
        );
        lines
    }
}
