//! Delivery of files to the user: through platform-delivery if the session has a chat, otherwise attached to the
//! response.
//!
//! Only proven files count as delivered: size and SHA-256 of the file from the sandbox must equal those of the stored
//! one.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::message::{Attachment, Message};
use dray_media_type::kind;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, FileState};
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::{Claim, whole_millis};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ask::PeerService;
use super::export::copy_out;
use super::scope::TurnScope;
use super::sent_files::{DeliveredFiles, SentFiles};
use super::session::SessionBinding;
use super::storage::{TurnStorage, media_type};

/// Longest wait for the end of a delivery in one request.
const MAX_OUTCOME_WAIT: Duration = Duration::from_secs(10);
/// Time for the response after that wait.
const RESPONSE_GRACE: Duration = Duration::from_secs(3);

/// Files for the user, from the sandbox or the store.
#[derive(Clone, Debug, Default)]
pub(super) struct OutgoingFiles {
    /// Paths in the sandbox.
    pub(super) paths: Vec<Vec<u8>>,
    /// Stored files with their names.
    pub(super) claims: Vec<(Claim, String)>,
    /// Text that is shown with the files.
    pub(super) message: String,
    /// Options for the platform, such as sending as documents.
    pub(super) flags: v1::DeliveryFlags,
}

/// The outcome of sending files.
#[derive(Clone, Debug, Default)]
pub(super) struct SendOutcome {
    /// The result for the model: JSON of platform-delivery 2.3, or a sentence.
    pub(super) result_text: String,
    /// Files for the response, without a chat.
    pub(super) attachments: Vec<Attachment>,
    /// Whether any file arrived or may still arrive.
    pub(super) may_have_arrived: bool,
    /// Notice for the user; may be empty.
    pub(super) notice: String,
}

/// Sends files to the user of one turn, and records which have arrived.
#[derive(Debug)]
pub struct FileDelivery {
    scope: Arc<TurnScope>,
    session: Arc<SessionBinding>,
    storage: Arc<TurnStorage>,
    /// Files that were or are being sent to the user in this turn.
    pub(super) sent: SentFiles,
}

impl FileDelivery {
    /// Creates a delivery of an agent that has sent nothing. `delivered` are the files of other agents of the turn.
    pub(super) fn new(
        scope: Arc<TurnScope>,
        session: Arc<SessionBinding>,
        storage: Arc<TurnStorage>,
        delivered: DeliveredFiles,
    ) -> Self {
        Self {
            scope,
            session,
            storage,
            sent: SentFiles::new(delivered),
        }
    }

    /// Records the files that the rounds after the user's last message sent, in an earlier request or by another agent.
    pub fn note_rounds(&self, messages: &[Message]) {
        self.sent.note_rounds(messages);
    }

    /// Records the files that an earlier agent of the turn sent.
    pub fn take_over(&self, earlier: &Self) {
        self.sent.note(earlier.sent.paths());
    }

    /// Sends files. `step` identifies the call within the turn, so that a repeated turn does not send a file twice.
    pub(super) async fn dispatch(
        &self,
        step: &str,
        outgoing: OutgoingFiles,
        end: Instant,
    ) -> Result<SendOutcome, ToolFailure> {
        // The chat is checked for each call, because an operator may bind a chat between two turns.
        if self.session.has_chat().await {
            self.deliver(step, outgoing, end).await
        } else {
            self.attach(step, outgoing, end).await
        }
    }

    /// Passes files to the session's chat and waits until the platform confirms them.
    async fn deliver(
        &self,
        step: &str,
        outgoing: OutgoingFiles,
        end: Instant,
    ) -> Result<SendOutcome, ToolFailure> {
        let services = &self.scope.services;
        let operation = self.scope.operation(step);
        let claims = outgoing.claims.into_iter().map(|(mut claim, name)| {
            claim.artifact.name = name;
            claim.into()
        });
        let request = v1::SendFileRequested {
            session: self.scope.session_text(),
            paths: outgoing.paths,
            message: outgoing.message,
            flags: Some(outgoing.flags),
            claims: claims.collect(),
            turn: self.scope.turn.clone(),
            ..v1::SendFileRequested::default()
        };
        let remaining = || end.saturating_duration_since(Instant::now());
        let call_timeout = services.config.call_timeout.as_duration();
        // With this id a repeated turn finds its first delivery and does not create a second one.
        let meta = self
            .scope
            .meta(remaining().min(call_timeout))
            .with_operation(operation);
        let accepted = services.ask(PeerService::Delivery, &meta, &request).await?;
        // From now on the files may arrive, even if their outcome is never learned.
        let new_paths = self.sent.note_accepted(&request.paths);
        let id = accepted.delivery_id;
        loop {
            // The last wait ends before the timeout of the tool, so that the model gets a result and not a timeout.
            let wait = remaining()
                .saturating_sub(RESPONSE_GRACE)
                .min(MAX_OUTCOME_WAIT);
            let outcome_request = v1::DeliveryOutcomeRequest {
                delivery_id: id.clone(),
                wait_ms: whole_millis(wait),
            };
            let meta = self.scope.meta((wait + RESPONSE_GRACE).min(remaining()));
            let reply = services.ask(PeerService::Delivery, &meta, &outcome_request);
            match reply.await {
                Ok(report) if report.finished => {
                    if !is_about(&report, &request) {
                        self.sent.forget(new_paths);
                        return Err(other_delivery_failure());
                    }
                    let failed = report.files.iter().filter(|file| has_failed(file));
                    let failed = failed.map(|file| file.path.clone());
                    // An earlier delivery of the turn may have shown the same file.
                    self.sent
                        .forget(failed.filter(|path| new_paths.contains(path)));
                    return self.check_report(&report);
                }
                Ok(_) if remaining() > RESPONSE_GRACE => {}
                // An unknown outcome is not a failure: the work is in the stream and continues.
                Ok(_) | Err(_) => {
                    return Ok(SendOutcome {
                        result_text: pending_result(&id),
                        may_have_arrived: true,
                        ..SendOutcome::default()
                    });
                }
            }
        }
    }

    /// The outcome that platform-delivery reports, after its proof was checked.
    fn check_report(&self, report: &v1::DeliveryReport) -> Result<SendOutcome, ToolFailure> {
        let shown = |file: &&v1::DeliveredFile| file.file_state().is_shown();
        let unproven: Vec<_> = report
            .files
            .iter()
            .filter(shown)
            .filter(|file| !is_proven_delivery(file))
            .map(|file| dray_presentation::name::shown_name(&file.name))
            .collect();
        // This is an error and not a result: the model must not report an unproven file as delivered.
        if !unproven.is_empty() {
            return Err(HandledFailure::new(format!(
                "The delivery cannot be proved for {}; ask the user whether it arrived before you send it again.",
                unproven.join(", ")
            ))
            .into());
        }
        self.sent.note(
            report
                .files
                .iter()
                .filter(shown)
                .map(|file| file.path.clone()),
        );
        let is_unknown = |file: &v1::DeliveredFile| file.file_state() == FileState::Unknown;
        Ok(SendOutcome {
            result_text: report.result_json.clone(),
            may_have_arrived: report
                .files
                .iter()
                .any(|file| shown(&file) || is_unknown(file)),
            notice: report.notice.clone(),
            attachments: Vec::new(),
        })
    }

    /// Attaches files to the response. A file that is not available does not affect the others.
    async fn attach(
        &self,
        step: &str,
        outgoing: OutgoingFiles,
        end: Instant,
    ) -> Result<SendOutcome, ToolFailure> {
        let mut sent = SendOutcome::default();
        let (mut entries, mut failed_names) = (Vec::new(), Vec::new());
        for path in &outgoing.paths {
            let remaining = end.saturating_duration_since(Instant::now());
            let outcome = match copy_out(&self.scope, &self.session, path, remaining).await {
                Ok(copied) => {
                    let mut attached = self.attach_claim(&copied.claim, &copied.name, path).await;
                    if let Ok((_, entry)) = &mut attached {
                        note_content_warning(entry, &copied.content_warning);
                        // Both spellings are noted: the model may use either in a `MEDIA:` tag later in the turn.
                        self.sent.note([path.clone(), copied.real_path]);
                    }
                    attached
                }
                // A failed file never affects the others.
                Err(failure) => Err(failure),
            };
            collect_outcome(outcome, path, &mut sent, &mut entries, &mut failed_names);
        }
        for (claim, name) in &outgoing.claims {
            let outcome = self.attach_claim(claim, name, b"").await;
            collect_outcome(
                outcome,
                name.as_bytes(),
                &mut sent,
                &mut entries,
                &mut failed_names,
            );
        }
        sent.may_have_arrived = !sent.attachments.is_empty();
        if !failed_names.is_empty() {
            sent.notice = format!("Could not be attached: {}.", failed_names.join(", "));
        }
        let result = json!({
            "success": failed_names.is_empty(),
            "delivery_id": self.scope.operation(step).as_str(),
            "files": entries,
        });
        sent.result_text = result.to_string();
        Ok(sent)
    }

    /// Stores a file as an attachment and reports it.
    async fn attach_claim(
        &self,
        claim: &Claim,
        name: &str,
        path: &[u8],
    ) -> Result<(Attachment, Value), ToolFailure> {
        let head = self.scope.services.head(claim, kind::HEAD_BYTES).await?;
        let media_type = media_type(&head, name, claim.artifact.size);
        let attached = self.storage.keep_claim(claim, name, media_type).await?;
        let mut entry = json!({
            "path": String::from_utf8_lossy(path),
            "name": attached.attachment.title,
            "size": claim.artifact.size,
            "mime": media_type,
            "sha256": claim.artifact.sha256.to_hex(),
            "state": attached_state(attached.ends_at_ms.is_some()).name(),
            "route": "attachment",
        });
        if let (Some(ends), Some(entry)) = (attached.ends_at_ms, entry.as_object_mut()) {
            entry.insert("url_expires_at_ms".to_owned(), ends.into());
        }
        Ok((attached.attachment, entry))
    }
}

/// Adds what the scan found in the text of a file, under the name that it has in receipts.
fn note_content_warning(entry: &mut Value, warning: &str) {
    if let (false, Some(entry)) = (warning.is_empty(), entry.as_object_mut()) {
        entry.insert("content_warning".to_owned(), warning.into());
    }
}

/// Adds the outcome of one file.
fn collect_outcome(
    outcome: Result<(Attachment, Value), ToolFailure>,
    request: &[u8],
    sent: &mut SendOutcome,
    entries: &mut Vec<Value>,
    failed_names: &mut Vec<String>,
) {
    match outcome {
        Ok((attachment, entry)) => {
            sent.attachments.push(attachment);
            entries.push(entry);
        }
        Err(failure) => {
            let name = dray_presentation::name::shown_name(request);
            entries.push(json!({
                "path": String::from_utf8_lossy(request),
                "name": name,
                "state": FileState::Failed.name(),
                "error": {"message": failure.to_string()},
            }));
            // The notice names files without directories; paths of a sandbox are meaningless to the user.
            failed_names.push(name);
        }
    }
}

/// The state of a file that the response carries.
const fn attached_state(is_link: bool) -> FileState {
    if is_link {
        FileState::DeliveredAsLink
    } else {
        FileState::Delivered
    }
}

/// Whether the report proves that the sent file equals the file from the sandbox: sizes and digests are equal.
fn is_proven_delivery(file: &v1::DeliveredFile) -> bool {
    let copied = file.transfer.as_ref().is_none_or(|receipt| {
        receipt.error.is_empty()
            // The receipt of a tree counts the files, not the archive that was sent.
            && (receipt.operation == "get_tree"
                || (receipt.bytes == file.size && receipt.sha256 == file.sha256))
    });
    let stored = file
        .claim
        .as_ref()
        .and_then(|claim| claim.artifact.as_ref());
    let stored =
        stored.is_none_or(|stored| stored.size == file.size && stored.sha256 == file.sha256);
    // A record of an older version may lack the receipt or the claim; the digest is always required.
    file.sha256.len() == 32 && copied && stored
}

/// Whether a report is about the files of this request, and not about those of an earlier one with the same id.
fn is_about(report: &v1::DeliveryReport, request: &v1::SendFileRequested) -> bool {
    let is_stored_content = |file: &v1::DeliveredFile| {
        let artifacts = request
            .claims
            .iter()
            .filter_map(|claim| claim.artifact.as_ref());
        let mut digests = artifacts.map(|artifact| &artifact.sha256);
        file.sha256.is_empty() || digests.any(|digest| *digest == file.sha256)
    };
    report.files.iter().all(|file| match file.path.as_slice() {
        [] => is_stored_content(file),
        path => request.paths.iter().any(|requested| requested == path),
    })
}

fn other_delivery_failure() -> ToolFailure {
    HandledFailure::new(
        "These files were not sent: a delivery of other files has the same id. Call the tool again.",
    )
    .into()
}

/// Whether a file did not arrive and will not, so that a tag may send it again.
fn has_failed(file: &v1::DeliveredFile) -> bool {
    matches!(file.file_state(), FileState::Failed | FileState::Rejected)
}

fn pending_result(id: &str) -> String {
    json!({
        "success": false,
        "delivery_id": id,
        "state": FileState::Sending.name(),
        "message": "The files are being sent and are not confirmed yet. They are not lost: do not send them again, and do not \
                    say that they have arrived.",
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use dray_types::Sha256Digest;

    use super::*;

    fn delivered_file() -> v1::DeliveredFile {
        let sha256 = Sha256Digest::of(b"abc").as_bytes().to_vec();
        v1::DeliveredFile {
            size: 3,
            sha256: sha256.clone(),
            state_code: FileState::Delivered.into(),
            transfer: Some(v1::TransferReceipt {
                operation: "get".to_owned(),
                bytes: 3,
                sha256,
                ..v1::TransferReceipt::default()
            }),
            ..v1::DeliveredFile::default()
        }
    }

    #[test]
    fn only_equal_digests_and_sizes_are_proof() {
        assert!(is_proven_delivery(&delivered_file()));
        let mut other = delivered_file();
        other.sha256 = Sha256Digest::of(b"abd").as_bytes().to_vec();
        assert!(!is_proven_delivery(&other), "another digest");
        let mut shorter = delivered_file();
        shorter.size = 2;
        assert!(!is_proven_delivery(&shorter), "another size");
        let mut bare = delivered_file();
        bare.sha256.clear();
        bare.transfer = None;
        assert!(!is_proven_delivery(&bare), "no digest at all");
    }
}
