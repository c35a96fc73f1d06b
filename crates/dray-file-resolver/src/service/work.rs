//! Tool calls as work: submitted by publishers, completed by events, looked up by id.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;

use dray_bus::{WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::contract;
use dray_proto::convert::{ContentSource, InvalidMessage};
use dray_proto::v1::{self, TerminalState, tool_call_outcome};
use dray_service::Request;
use dray_store::ReadError;
use dray_types::{Deadline, Fault, FaultCode, OperationId, TenantId};

use super::{FileResolver, REPLY_LIMITS, report_error};
use crate::error::ResolveError;
use crate::resolver::{ResolveJob, ResolveOutcome};

/// Longest tool name and tool call id, in bytes; both are copied into every event.
const MAX_NAME_BYTES: usize = 512;

/// Time before the deadline that a worker reserves for its report.
const REPORT_MARGIN: Duration = Duration::from_millis(250);

impl FileResolver {
    /// Publishes a tool call as work. The operation id comes from the caller; the same id means the same work (C-1).
    pub async fn submit(
        self: Arc<Self>,
        request: Request<v1::ToolCallRequested>,
    ) -> Result<v1::ToolCallAccepted, Fault> {
        let Request { mut meta, body } = request;
        check_names(&body)?;
        check_owner(&body, &meta.tenant)?;
        let settings = self.settings.get();
        let now = settings.resolver.clock.now_ms();
        let work_deadline = Deadline::after(now, settings.config.work_deadline.as_duration());
        let call_deadline = meta.deadline;
        // The work may last longer than the call that submits it.
        meta.deadline = work_deadline.max(call_deadline);
        let remaining_time = call_deadline.earlier(REPORT_MARGIN).remaining(now);
        let published = tokio::time::timeout(
            remaining_time,
            settings.resolver.bus.publish_work(&meta, &body),
        );
        match published.await {
            Ok(Ok(published)) => Ok(v1::ToolCallAccepted {
                operation_id: meta.operation.to_string(),
                duplicate: published.duplicate,
            }),
            Ok(Err(error)) => {
                tracing::warn!(%error, "tool call not published");
                Err(error.into())
            }
            // A timeout means "unknown": the message may be stored after a reconnect.
            Err(_) => Err(unconfirmed_fault()),
        }
    }

    /// Returns the state of a submitted tool call. A tenant gets only its own.
    pub async fn outcome(
        self: Arc<Self>,
        request: Request<v1::ToolCallOutcomeRequest>,
    ) -> Result<v1::ToolCallOutcome, Fault> {
        let Request { meta, body } = request;
        let operation = OperationId::new(body.operation_id)
            .map_err(|error| InvalidMessage::field("operation_id", error))?;
        let settings = self.settings.get();
        let ledger = settings.resolver.bus.ledger();
        let found = ledger
            .find::<v1::ToolCallRequested>(&meta.tenant, &operation)
            .await?;
        let Some(record) = found else {
            // An unknown id looks like work that has not begun; other tenants' ids look the same.
            return Ok(v1::ToolCallOutcome::default());
        };
        Ok(v1::ToolCallOutcome {
            state: record.terminal,
            outcome: record.result.and_then(|event| recorded_outcome(&event)),
        })
    }

    /// Resolves a tool call that was submitted as work, with the credentials that the operator configured for its
    /// tenant (E-4).
    pub async fn work(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta,
            work,
            epoch,
            cancel,
            ..
        } = delivery;
        let operation_id = meta.operation.to_string();
        // The names are checked again, because publishers may write to the stream without `submit`.
        if let Err(fault) = check_names(&work) {
            let event = rejected_event(operation_id, &work, fault.clone(), None);
            return Err(WorkFailure::with_event(fault, &event));
        }
        let settings = self.settings.get();
        let job = ResolveJob {
            epoch,
            work_until: meta.deadline.earlier(REPORT_MARGIN),
            tool: work.tool.clone(),
            arguments: work.arguments.clone(),
            options: work.options.clone().unwrap_or_default(),
            credentials: settings.config.credentials(&meta.tenant),
            reply_limits: REPLY_LIMITS,
            meta,
        };
        let outcome = tokio::select! {
            outcome = settings.resolver.resolve(job) => outcome.map_err(report_error)?,
            // The lease was lost or the process stops; the work is delivered again.
            () = cancel.cancelled() => return Err(cancelled_fault().into()),
        };
        match outcome {
            ResolveOutcome::Resolved(resolved) => Ok(WorkCompleted::event(&v1::ToolCallResolved {
                operation_id,
                tool_call_id: work.tool_call_id,
                tool: work.tool,
                resolved: Some(resolved),
            })),
            ResolveOutcome::Invalid(invalid) => {
                let fault = Fault::from(invalid.fault.clone().unwrap_or_default());
                // The model has to change the call, so the same work is not attempted again.
                let fault = Fault {
                    retry: dray_types::RetryAdvice::Never,
                    ..fault
                };
                let event = rejected_event(operation_id, &work, fault.clone(), Some(invalid));
                Err(WorkFailure::with_event(fault, &event))
            }
        }
    }
}

fn rejected_event(
    operation_id: String,
    work: &v1::ToolCallRequested,
    fault: Fault,
    invalid: Option<v1::InvalidParameter>,
) -> v1::ToolCallRejected {
    // A character has at most four bytes.
    let shortened = |name: &str| name.chars().take(MAX_NAME_BYTES / 4).collect();
    let shown = |name: &String| {
        if name.len() > MAX_NAME_BYTES {
            shortened(name)
        } else {
            name.clone()
        }
    };
    v1::ToolCallRejected {
        operation_id,
        tool_call_id: shown(&work.tool_call_id),
        tool: shown(&work.tool),
        state: TerminalState::Failed.into(),
        fault: Some(fault.into()),
        invalid,
    }
}

/// Refuses names that no tool and no conversation has. The id may be empty, for callers outside of conversations.
fn check_names(work: &v1::ToolCallRequested) -> Result<(), Fault> {
    if work.tool.is_empty() {
        return Err(InvalidMessage::Missing("tool").into());
    }
    for (field, value) in [("tool_call_id", &work.tool_call_id), ("tool", &work.tool)] {
        if value.len() > MAX_NAME_BYTES {
            let reason = format!("it is longer than {MAX_NAME_BYTES} bytes");
            return Err(InvalidMessage::field(field, reason).into());
        }
        if value.chars().any(char::is_control) {
            let reason = "it contains a control character";
            return Err(InvalidMessage::field(field, reason).into());
        }
    }
    Ok(())
}

/// Refuses another tenant's claim before it becomes work; the work itself checks it again.
fn check_owner(work: &v1::ToolCallRequested, tenant: &TenantId) -> Result<(), Fault> {
    let content = work
        .arguments
        .clone()
        .ok_or(InvalidMessage::Missing("arguments"))?;
    match ContentSource::try_from(content)? {
        ContentSource::Claim(claim) if claim.artifact.tenant != *tenant => {
            Err(ResolveError::StoredArguments(ReadError::ForeignTenant).into())
        }
        ContentSource::Claim(_) | ContentSource::Inline(_) => Ok(()),
    }
}

/// Decodes the event in the ledger; its schema identifies its type.
fn recorded_outcome(event: &v1::RecordedEvent) -> Option<tool_call_outcome::Outcome> {
    let payload = event.payload.as_slice();
    if event.schema == contract::schema_name::<v1::ToolCallResolved>() {
        let resolved = v1::ToolCallResolved::decode(payload).ok()?;
        return Some(tool_call_outcome::Outcome::Resolved(resolved));
    }
    if event.schema == contract::schema_name::<v1::ToolCallRejected>() {
        let rejected = v1::ToolCallRejected::decode(payload).ok()?;
        return Some(tool_call_outcome::Outcome::Rejected(rejected));
    }
    if event.schema == contract::schema_name::<v1::WorkDeadLettered>() {
        let dead = v1::WorkDeadLettered::decode(payload).ok()?;
        // The names of the tool and of the call were in the message that could not be read.
        return Some(tool_call_outcome::Outcome::Rejected(v1::ToolCallRejected {
            operation_id: dead.operation_id,
            state: TerminalState::DeadLettered.into(),
            fault: dead.fault,
            ..v1::ToolCallRejected::default()
        }));
    }
    None
}

fn cancelled_fault() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "The work on the tool call was interrupted.",
    )
    .detail("interrupted")
    .advice("The work is delivered again automatically.")
    .retry_after(Duration::from_secs(1))
}

fn unconfirmed_fault() -> Fault {
    Fault::new(
        FaultCode::Timeout,
        "It is not known yet whether the tool call was accepted.",
    )
    .detail("unconfirmed")
    .advice("Send it again with the same operation id.")
    .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_could_not_be_read_is_a_rejection_with_the_fault_of_its_dead_letter() {
        let fault = v1::Fault::from(Fault::new(
            FaultCode::InvalidArgument,
            "The message cannot be read.",
        ));
        let dead = v1::WorkDeadLettered {
            operation_id: "op".to_owned(),
            fault: Some(fault.clone()),
            ..v1::WorkDeadLettered::default()
        };
        let event = v1::RecordedEvent {
            schema: contract::schema_name::<v1::WorkDeadLettered>(),
            payload: dead.encode_to_vec(),
            ..v1::RecordedEvent::default()
        };
        let Some(tool_call_outcome::Outcome::Rejected(rejected)) = recorded_outcome(&event) else {
            panic!("no rejection");
        };
        assert_eq!(rejected.operation_id, "op");
        assert_eq!(rejected.state(), TerminalState::DeadLettered);
        assert_eq!(rejected.fault, Some(fault));
    }
}
