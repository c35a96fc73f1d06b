//! The destination of an upload beyond the store: a sandbox, or the chat of its session.

use std::time::Duration;

use dray_bus::{Bus, Meta, Permissions};
use dray_proto::v1::FileState;
use dray_proto::{NamedCode as _, v1};
use dray_store::ArtifactLabel;
use dray_types::{
    Claim, Deadline, Fault, FaultCode, SessionId, Sha256Digest, TenantId, whole_millis,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::problem::{DestinationFailure, TicketProblem};
use crate::receive;
use crate::record::{StoredContent, TicketLease, TicketRecord, TicketState};
use crate::records::TICKET_BUCKET;
use crate::service::LoadedTicket;
use crate::{Principal, TicketService};

/// Longest time for a copy into a sandbox.
const PUT_TIMEOUT: Duration = Duration::from_mins(10);
/// Longest time until a delivery is accepted.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the end of a delivery that was accepted. It continues without the request.
const OUTCOME_WAIT: Duration = Duration::from_secs(20);
/// Longest time for the check of a directory when a ticket is made.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Details of faults that say that policy does not permit a path.
const DENIED_DIRECTORY: [&str; 2] = ["outside_root", "denied_path"];
/// Longest directory, in bytes.
const MAX_DIRECTORY_BYTES: usize = 4_096;
/// Longest message beside a file, in bytes.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// Adds the permissions of an endpoint on the bus: for the records of tickets, and for the calls of sources and
/// destinations.
#[must_use]
pub fn declare_rights(identity: Permissions) -> Permissions {
    identity
        .lists_keys(TICKET_BUCKET)
        .publishes_audit::<v1::TicketAudit>()
        .calls::<v1::StatSandboxRequest>()
        .calls::<v1::GetSandboxFileRequest>()
        .calls::<v1::PutSandboxFileRequest>()
        .calls::<v1::SendFileRequested>()
        .calls::<v1::DeliveryOutcomeRequest>()
}

/// Destination of an upload after it is stored. The sandbox and the chat belong to the ticket's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TicketDestination {
    /// A new file in the sandbox. Existing files are not replaced; a name that is taken gets a number.
    Sandbox {
        /// Directory, relative to the session's working directory or absolute; empty means its uploads directory.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        directory: String,
    },
    /// A message in the chat.
    Chat {
        /// Text beside the file; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
}

impl TicketDestination {
    /// The word for people and programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sandbox { .. } => "sandbox",
            Self::Chat { .. } => "chat",
        }
    }

    pub(crate) fn check(&self) -> Result<(), TicketProblem> {
        let is_valid = match self {
            Self::Sandbox { directory } => {
                directory.len() <= MAX_DIRECTORY_BYTES && !directory.contains('\0')
            }
            Self::Chat { message } => message.len() <= MAX_MESSAGE_BYTES,
        };
        if is_valid {
            return Ok(());
        }
        Err(TicketProblem::Invalid(
            "the directory or the message of the destination is not valid",
        ))
    }
}

/// The calls of one delivery.
struct DestinationCall<'a> {
    bus: &'a Bus,
    meta: Meta,
    session: SessionId,
    claim: Claim,
}

impl TicketService {
    /// Brings stored content to the destination of its ticket, and ends the ticket. When it fails, the content is
    /// kept and the ticket stays, so that the same operation can be tried again.
    ///
    /// The future must not be dropped before it completes, so it runs in a separate task.
    pub(crate) async fn deliver(
        &self,
        mut ticket: LoadedTicket,
    ) -> Result<TicketRecord, TicketProblem> {
        let now_ms = self.inner.clock.now_ms();
        // A second request at the end of the same upload would call the destination twice.
        if ticket.record.is_leased(now_ms) {
            return Err(TicketProblem::InUse);
        }
        let lease = TicketLease {
            finishing: true,
            ..receive::new_lease(now_ms)
        };
        let holder = lease.holder.clone();
        ticket.record.lease = Some(lease);
        match self.save(&mut ticket).await {
            Err(TicketProblem::Superseded) => return Err(TicketProblem::InUse),
            other => other?,
        }
        let record = ticket.record.clone();
        let call = self.send_to_destination(&record);
        match self.run_leased(&mut ticket, call).await {
            Ok(receipt) => {
                ticket.record.receipt = Some(receipt);
                let state = TicketState::Complete;
                let ended = self.end_as_holder(ticket, state, Some(&holder)).await?;
                Ok(ended.record)
            }
            Err(fault) => {
                tracing::info!(code = %fault.code, detail = %fault.detail, "a destination failed");
                let problem = destination_problem(&ticket.record, &fault);
                // The lease is released immediately, so that the client can retry without waiting for the end of the
                // lease.
                ticket.record.lease = None;
                self.save_as_holder(&mut ticket, Some(&holder)).await?;
                Err(problem)
            }
        }
    }

    /// Runs work for a ticket while its lease is renewed.
    pub(crate) async fn run_leased<T>(
        &self,
        ticket: &mut LoadedTicket,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        let holder = ticket.record.holder().map(str::to_owned);
        loop {
            let renewal = tokio::time::sleep(receive::LEASE_RENEWAL_INTERVAL);
            tokio::select! {
                outcome = &mut work => return outcome,
                () = renewal => {
                    let now_ms = self.inner.clock.now_ms();
                    receive::renew_lease(&mut ticket.record, now_ms);
                    let renewed = self.save_as_holder(ticket, holder.as_deref()).await;
                    if let Err(problem) = renewed {
                        // The work continues: because of the operation id, a second call by another process counts as
                        // the same call.
                        tracing::warn!(%problem, "could not renew the lease of an upload");
                    }
                }
            }
        }
    }

    /// Refuses a directory that policy does not permit, so that the maker of the ticket learns it and not the person
    /// who uploads. The upload checks the directory again. After any other failure, such as a sandbox that is
    /// not available, the ticket is not refused, because the cause may be gone at the time of the upload.
    pub(crate) async fn check_directory(
        &self,
        principal: &Principal,
        directory: &str,
    ) -> Result<(), TicketProblem> {
        let Some(bus) = self.inner.bus.as_ref().filter(|_| !directory.is_empty()) else {
            return Ok(());
        };
        let deadline = Deadline::after(self.inner.clock.now_ms(), CHECK_TIMEOUT);
        let meta =
            Meta::new(principal.tenant.clone(), deadline).with_session(principal.session.clone());
        let request = v1::StatSandboxRequest {
            sandbox: Some(session_sandbox(&principal.session)),
            path: directory.as_bytes().to_vec(),
            follow: true,
            with_change_marker: false,
        };
        match bus.call_once(&meta, &request).await.map_err(Fault::from) {
            Err(fault) if DENIED_DIRECTORY.contains(&fault.detail.as_str()) => {
                Err(TicketProblem::DirectoryDenied(Box::new(fault)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn send_to_destination(&self, record: &TicketRecord) -> Result<Value, Fault> {
        let inner = &self.inner;
        let (Some(bus), Some(destination), Some(content)) =
            (&inner.bus, &record.destination, &record.content)
        else {
            return Err(Fault::internal());
        };
        let tenant = record.tenant().ok_or_else(Fault::internal)?;
        let session: SessionId = record.session.parse().map_err(|_| Fault::internal())?;
        let operation = record.operation().ok_or_else(Fault::internal)?;
        let claim = self.content_claim(&tenant, content).await?;
        let deadline = Deadline::after(inner.clock.now_ms(), PUT_TIMEOUT);
        // Every attempt has the same operation id, so that the services recognise work that they have already done.
        let meta = Meta::new(tenant, deadline)
            .with_session(session.clone())
            .with_operation(operation);
        let call = DestinationCall {
            bus,
            meta,
            session,
            claim,
        };
        match destination {
            TicketDestination::Sandbox { directory } => call.put(directory, content).await,
            TicketDestination::Chat { message } => call.send(message, inner.clock.now_ms()).await,
        }
    }

    async fn content_claim(
        &self,
        tenant: &TenantId,
        content: &StoredContent,
    ) -> Result<Claim, Fault> {
        let sha256: Sha256Digest = content.sha256.parse().map_err(|_| Fault::internal())?;
        let label = ArtifactLabel::new(content.media_type.as_str(), visible_name(content));
        let found = self.inner.store.claim(tenant, sha256, label).await?;
        found.ok_or_else(|| {
            Fault::new(FaultCode::NotFound, "The stored content is gone.").detail("claim_missing")
        })
    }
}

impl DestinationCall<'_> {
    async fn put(self, directory: &str, content: &StoredContent) -> Result<Value, Fault> {
        let request = v1::PutSandboxFileRequest {
            sandbox: Some(session_sandbox(&self.session)),
            claim: Some(self.claim.into()),
            directory: directory.as_bytes().to_vec(),
            name: visible_name(content).into_bytes(),
            // The sender cannot be asked, and an existing file must not be lost.
            collision: "rename".to_owned(),
            mode: 0,
        };
        // The service is called once: after a lost response, the ledger of sandbox-transfer has the outcome for the
        // client's next request.
        let placed = self.bus.call_once(&self.meta, &request).await?;
        let receipt = placed.receipt.unwrap_or_default();
        Ok(json!({
            "kind": "sandbox",
            "operation_id": receipt.operation_id,
            "path": format!("sandbox:{}", String::from_utf8_lossy(&placed.path)),
            "size": placed.size,
            "sha256": digest_text(&placed.sha256),
            "renamed": placed.renamed,
            "existed": placed.existed,
            "integrity": receipt.integrity,
        }))
    }

    async fn send(self, message: &str, now_ms: u64) -> Result<Value, Fault> {
        let request = v1::SendFileRequested {
            session: self.session.as_str().to_owned(),
            claims: vec![self.claim.into()],
            message: message.to_owned(),
            ..v1::SendFileRequested::default()
        };
        let mut meta = self.meta;
        // Short: acceptance only stores the work. The second deadline leaves time for the wait.
        meta.deadline = Deadline::after(now_ms, ACCEPT_TIMEOUT);
        let accepted = self.bus.call(&meta, &request).await?;
        let request = v1::DeliveryOutcomeRequest {
            delivery_id: accepted.delivery_id,
            wait_ms: whole_millis(OUTCOME_WAIT),
        };
        meta.deadline = Deadline::after(now_ms, ACCEPT_TIMEOUT.saturating_add(OUTCOME_WAIT));
        let report = self.bus.call(&meta, &request).await?;
        delivery_receipt(&report)
    }
}

/// The receipt of a delivery. An accepted transfer that has not finished continues, so it is a success with a state.
fn delivery_receipt(report: &v1::DeliveryReport) -> Result<Value, Fault> {
    // A delivery that is not finished is a success here: its work is stored and continues.
    let mut states = report.files.iter().map(v1::DeliveredFile::file_state);
    // After a lost response the platform may have shown the file, so this is neither a refusal nor a reason to send the
    // file again.
    let is_unknown = states.clone().any(|state| state == FileState::Unknown)
        && states.all(|state| state.is_shown() || state == FileState::Unknown);
    if report.finished && !report.success && !is_unknown {
        let mut errors = report.files.iter().map(|file| file.error_message.as_str());
        let reason = errors.find(|text| !text.is_empty());
        let reason = reason.unwrap_or("no reason was given");
        let text = format!("The platform did not take the file: {reason}");
        return Err(Fault::new(FaultCode::Unavailable, text).detail("delivery_failed"));
    }
    let files: Vec<Value> = report
        .files
        .iter()
        .map(|file| match file.file_state() {
            FileState::Unknown => json!({
                "name": file.name,
                "state": FileState::Unknown.name(),
                "message": file.error_message,
            }),
            state => json!({"name": file.name, "state": state.name()}),
        })
        .collect();
    Ok(json!({
        "kind": "chat",
        "operation_id": report.delivery_id,
        "delivery_id": report.delivery_id,
        "finished": report.finished,
        "files": files,
    }))
}

/// The sandbox of a session, as services name it.
pub(crate) fn session_sandbox(session: &SessionId) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Session(
            session.as_str().to_owned(),
        )),
    }
}

/// The visible name of a file: its own, or `upload` with the usual extension of its type.
fn visible_name(content: &StoredContent) -> String {
    if !content.name.is_empty() {
        return content.name.clone();
    }
    match dray_media_type::usual_extension(&content.media_type) {
        Some(extension) => format!("upload.{extension}"),
        None => "upload".to_owned(),
    }
}

fn digest_text(bytes: &[u8]) -> String {
    Sha256Digest::try_from(bytes)
        .map(Sha256Digest::to_hex)
        .unwrap_or_default()
}

fn destination_problem(record: &TicketRecord, fault: &Fault) -> TicketProblem {
    let kind = record.destination.as_ref().map(TicketDestination::kind);
    TicketProblem::DestinationFailed(Box::new(DestinationFailure {
        kind: kind.unwrap_or_default(),
        code: fault.code.as_str().to_owned(),
        detail: fault.detail.clone(),
        message: fault.message.clone(),
        advice: fault.advice.clone(),
        is_retryable: fault.is_retryable(),
        operation_id: record.operation.clone(),
        content: record.content.clone(),
    }))
}
