//! `send_file` and `receipts`: files to the chat of the session, and their outcome.

use std::time::{Duration, Instant};

use dray_proto::{NamedCode as _, v1};
use dray_types::{Fault, FaultCode, OperationId, whole_millis};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use super::files::digest_text;
use super::{ToolCall, ToolOutcome, extended, next_call, structured_result};
use crate::arguments::{ReceiptsArguments, SendArguments};
use crate::client::{SHORT_TIMEOUT, ServiceClient};
use crate::confirm::SendDecision;
use crate::failure;
use crate::location::Location;
use crate::options::ToolName;
use crate::tasks::TASK_AFTER;

/// Most files of one call.
const MAX_FILES: usize = 20;
/// How long a call waits for the end of a delivery unless the caller sets a time.
const DEFAULT_WAIT: Duration = Duration::from_mins(1);
/// Longest wait for the end of a delivery.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// How long one request for the outcome waits at the service.
const OUTCOME_WAIT: Duration = Duration::from_secs(2);
/// Deliveries in one result unless the caller sets a limit.
const DEFAULT_RECEIPTS: u32 = 20;
/// Most deliveries in one result.
const MAX_RECEIPTS: u32 = 100;

impl ToolCall<'_> {
    pub(super) async fn send_file(&mut self, send: SendArguments) -> Result<ToolOutcome, Fault> {
        if send.files.is_empty() || send.files.len() > MAX_FILES {
            return Err(failure::invalid(
                format!("`files` has {} entries.", send.files.len()),
                format!("Name 1 to {MAX_FILES} files."),
            )
            .detail("arguments_invalid"));
        }
        let mut operation = operation_id(send.delivery_id.as_deref())?;
        let locations = self.locations(&send)?;
        // The user is asked before a file is stored: the call has no effect until the user agrees.
        let (chats, confirm) = (&self.options.offered_chats, self.options.confirm_send);
        let questions = self.questions.as_ref().ok_or_else(Fault::internal)?;
        match questions.ask(&send, chats, confirm).await? {
            SendDecision::Send(Some(confirmed)) if send.delivery_id.is_none() => {
                operation = confirmed;
            }
            SendDecision::Send(_) => {}
            SendDecision::Pending(result) => return Ok(ToolOutcome::Pending(result)),
            SendDecision::Refused(error) => return Ok(ToolOutcome::Refused(error)),
        }
        let default_wait = if self.accepts_tasks {
            TASK_AFTER
        } else {
            DEFAULT_WAIT
        };
        let wait = send.wait_seconds.map_or(default_wait, Duration::from_secs);
        let mut request = self.send_request(&send, locations).await?;
        request.message = send.message;
        self.progress.step("sending").await;
        let client = &self.access.client;
        let accepted = client.call_as(operation, SHORT_TIMEOUT, &request).await?;
        let report = self
            .wait_for_end(&accepted.delivery_id, wait.min(MAX_WAIT))
            .await?;
        if self.accepts_tasks && !report.finished {
            return Ok(ToolOutcome::Running(Box::new(report)));
        }
        Ok(report_result(&report).into())
    }

    /// Parses the places of all files before the first is stored, so that nothing is stored if one is not valid.
    fn locations(&self, send: &SendArguments) -> Result<Vec<Location>, Fault> {
        let files = send.files.iter();
        files.map(|file| self.access.parse(file)).collect()
    }

    /// The request for the files. Files of the sandbox are copied later by the delivery.
    async fn send_request(
        &mut self,
        send: &SendArguments,
        locations: Vec<Location>,
    ) -> Result<v1::SendFileRequested, Fault> {
        let mut request = v1::SendFileRequested {
            session: self.access.client.session.as_str().to_owned(),
            flags: Some(v1::DeliveryFlags {
                as_document: send.as_document,
                ..v1::DeliveryFlags::default()
            }),
            ..v1::SendFileRequested::default()
        };
        for location in locations {
            if let Location::Sandbox(path) = location {
                request.paths.push(path.into_bytes());
                continue;
            }
            let stored = self.access.store(&location, &mut self.progress).await?;
            request.claims.push(stored.claim.into());
        }
        Ok(request)
    }

    async fn wait_for_end(
        &mut self,
        delivery_id: &str,
        wait: Duration,
    ) -> Result<v1::DeliveryReport, Fault> {
        let started_at = Instant::now();
        loop {
            let remaining = wait.saturating_sub(started_at.elapsed());
            let client = &self.access.client;
            let report = match outcome(client, delivery_id, remaining.min(OUTCOME_WAIT)).await {
                Ok(report) => report,
                // The delivery was accepted, but no worker has started it.
                Err(fault) if fault.code == FaultCode::NotFound => v1::DeliveryReport {
                    delivery_id: delivery_id.to_owned(),
                    session: client.session.as_str().to_owned(),
                    begun_at_ms: client.clock.now_ms(),
                    ..v1::DeliveryReport::default()
                },
                Err(fault) => return Err(fault),
            };
            if report.finished || started_at.elapsed() >= wait {
                return Ok(report);
            }
            self.progress.step("waiting for the platform").await;
        }
    }

    pub(super) async fn receipts(
        &mut self,
        receipts: ReceiptsArguments,
    ) -> Result<CallToolResult, Fault> {
        let client = &self.access.client;
        if let Some(delivery_id) = &receipts.delivery_id {
            let report = outcome(client, delivery_id, Duration::ZERO).await?;
            return Ok(structured_result(
                json!({"deliveries": [report_json(&report)], "truncated": false}),
            ));
        }
        let limit = receipts
            .limit
            .unwrap_or(DEFAULT_RECEIPTS)
            .clamp(1, MAX_RECEIPTS);
        let request = v1::ListReceiptsRequest {
            session: client.session.as_str().to_owned(),
            open_only: receipts.open_only,
            limit,
            ..v1::ListReceiptsRequest::default()
        };
        let reply = client.call(SHORT_TIMEOUT, &request).await?;
        let deliveries: Vec<Value> = reply.reports.iter().map(report_json).collect();
        let mut value = json!({"deliveries": deliveries, "truncated": reply.truncated});
        if reply.truncated && limit < MAX_RECEIPTS {
            let arguments = json!({"open_only": receipts.open_only, "limit": MAX_RECEIPTS});
            value = extended(
                value,
                json!({"next": next_call(ToolName::Receipts, &arguments)}),
            );
        }
        Ok(structured_result(value))
    }
}

/// The report of a delivery of this session. Deliveries of other sessions are not found.
pub(crate) async fn outcome(
    client: &ServiceClient,
    delivery_id: &str,
    wait: Duration,
) -> Result<v1::DeliveryReport, Fault> {
    let request = v1::DeliveryOutcomeRequest {
        delivery_id: delivery_id.to_owned(),
        wait_ms: whole_millis(wait),
    };
    let unknown = || {
        Fault::new(
            FaultCode::NotFound,
            "The delivery does not exist in this session.",
        )
        .detail("delivery_not_found")
        .advice("`receipts` without `delivery_id` lists the deliveries of this session.")
    };
    let report = client.call(SHORT_TIMEOUT, &request).await;
    // The fault is the same as for a delivery of another session, so that it does not show whether the delivery exists.
    let report = report.map_err(|fault| match fault.code {
        FaultCode::NotFound => unknown(),
        _ => fault,
    })?;
    // Before its files are stored, a delivery has no record and no session, and its report contains only its id.
    let has_no_record = report.session.is_empty() && report.files.is_empty();
    if report.session == client.session.as_str() || has_no_record {
        return Ok(report);
    }
    Err(unknown())
}

fn operation_id(given: Option<&str>) -> Result<OperationId, Fault> {
    let Some(given) = given else {
        return Ok(OperationId::mint());
    };
    OperationId::new(given).map_err(|error| {
        failure::invalid(
            format!("`delivery_id` is not valid: {error}."),
            "Pass another id, or leave it out.",
        )
        .detail("arguments_invalid")
    })
}

pub(crate) fn report_result(report: &v1::DeliveryReport) -> CallToolResult {
    let mut value = report_json(report);
    if !report.finished {
        let next = next_call(
            ToolName::Receipts,
            &json!({"delivery_id": report.delivery_id}),
        );
        value = extended(value, json!({"next": next}));
    }
    let mut result = structured_result(value);
    // A delivery that still runs did not fail.
    result.is_error = Some(report.finished && !report.success);
    result
}

/// The report on a delivery for an agent. The chat is left out: it belongs to the user.
#[expect(
    deprecated,
    reason = "a field without a name here would not be noticed when the contract gets it"
)]
pub(crate) fn report_json(report: &v1::DeliveryReport) -> Value {
    let v1::DeliveryReport {
        delivery_id,
        files,
        success,
        finished,
        begun_at_ms,
        ended_at_ms,
        notice,
        cancelled,
        // The chat, and what the agent itself wrote.
        session: _,
        target: _,
        turn: _,
        message: _,
        flags: _,
        result_json: _,
        // For operators.
        waiting_code: _,
        waiting: _,
        due_at_ms: _,
        rounds: _,
        deadline_ms: _,
        resend: _,
        // Of the record alone.
        steps: _,
        tenant: _,
        traceparent: _,
        writer: _,
    } = report;
    json!({
        "delivery_id": delivery_id,
        "finished": finished,
        "success": success,
        "cancelled": cancelled,
        "files": files.iter().map(file_json).collect::<Vec<_>>(),
        "notice": notice,
        "begun_at_ms": begun_at_ms,
        "ended_at_ms": ended_at_ms,
    })
}

#[expect(
    deprecated,
    reason = "a field without a name here would not be noticed when the contract gets it"
)]
fn file_json(file: &v1::DeliveredFile) -> Value {
    let v1::DeliveredFile {
        name,
        size,
        media_type,
        sha256,
        state_code: _,
        state: _,
        route_code: _,
        route: _,
        error_code: _,
        error_kind: _,
        error_message,
        transfer,
        // The agent knows its path, and the rest is for operators.
        path: _,
        platform_message_id: _,
        platform_file_id: _,
        platform_code: _,
        url_expires_at_ms: _,
        lossy: _,
        claim: _,
        attempts: _,
        limit: _,
        preview: _,
        web_hosts: _,
        refused_by: _,
        reported_by: _,
    } = file;
    let content_warning = transfer
        .as_ref()
        .map_or("", |transfer| transfer.content_warning.as_str());
    json!({
        "name": name,
        "size": size,
        "media_type": media_type,
        "content_warning": content_warning,
        "sha256": digest_text(sha256),
        "state": file.file_state().name(),
        "route": file.route_name(),
        "error_kind": file.failure().map_or("", |kind| kind.name()),
        "error_message": error_message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_reads_that_a_sent_file_contains_a_token() {
        let file = v1::DeliveredFile {
            transfer: Some(v1::TransferReceipt {
                content_warning: "token:GitHub".to_owned(),
                ..v1::TransferReceipt::default()
            }),
            ..v1::DeliveredFile::default()
        };
        assert_eq!(file_json(&file)["content_warning"], "token:GitHub");
        let plain = v1::DeliveredFile::default();
        assert_eq!(file_json(&plain)["content_warning"], "");
    }
}
