//! Converts events of the bus to rows: the outcome of the operation and its evidence, for each kind of event.

use dray_bus::ObservedEvent;
use dray_bus::headers::{
    OPERATION_HEADER, SCHEMA_HEADER, SESSION_HEADER, TRACEPARENT_HEADER, TRACESTATE_HEADER,
};
use dray_presentation::size::human_size;
use dray_proto::NamedCode as _;
use dray_proto::contract::schema_name;
use dray_proto::v1::{
    self, DeliveryStage, EgressAnswer, EgressQuestionStage, FileState, SandboxCommandStage,
    SandboxCommandState, TicketAction,
};
use dray_types::TraceContext;
use dray_types::hex::hex_digits;
use prost::{Message, Name};

use super::row::{EventRow, EventSource, RowOutcome};
use super::{policy, turns};
use crate::text::shown;

/// Files of one event that are named.
const MAX_NAMED_FILES: usize = 3;

/// Converts an event to a row. The row of an event that cannot be decoded, or whose kind this version does not know,
/// shows only the kind.
pub(super) fn read_row(event: &ObservedEvent, source: EventSource) -> EventRow {
    let header = |name| event.headers.get(name).unwrap_or_default();
    let trace = TraceContext::new(header(TRACEPARENT_HEADER), header(TRACESTATE_HEADER));
    // `dray.event.<area>.v1.<past>.<tenant>`
    let mut parts = event.subject.split('.').skip(2);
    let area = parts.next().unwrap_or_default();
    let past = parts.nth(1).unwrap_or_default();
    let mut row = EventRow {
        time_ms: event.time_ms,
        source,
        sequence: event.sequence,
        kind: shown(format!("{area}.{past}")),
        service: service_of(area),
        operation: shown(header(OPERATION_HEADER)),
        session: shown(header(SESSION_HEADER)),
        trace: trace.trace_id().unwrap_or_default().to_owned(),
        ..EventRow::default()
    };
    if !fill_row(&mut row, event, header(SCHEMA_HEADER)) {
        "An event that this version does not know.".clone_into(&mut row.summary);
    }
    row.summary = shown(&row.summary);
    let details = row.turn.iter_mut().flat_map(|turn| &mut turn.details);
    for (_, value) in row.proofs.iter_mut().chain(details) {
        *value = shown(&*value);
    }
    row
}

/// The service that publishes events of an area.
fn service_of(area: &str) -> &'static str {
    match area {
        "toolcall" => "file-resolver",
        "egress" | "question" | "policy" => "egress-fetcher",
        "sandbox" | "preview" => "sandbox-transfer",
        "console" => "console",
        "approval" | "turn" | "turncall" => "orchestrator",
        "inbound" => "platform-delivery",
        "ticket" => "tickets",
        _ if area.starts_with("delivery") => "platform-delivery",
        _ => "",
    }
}

/// Decodes the message of an event; `None` if it has another type or is malformed.
fn decode<M: Message + Name + Default>(event: &ObservedEvent, schema: &str) -> Option<M> {
    (schema == schema_name::<M>())
        .then(|| event.decode::<M>().ok())
        .flatten()
}

/// Fills in what the message says; returns whether its type is known.
fn fill_row(row: &mut EventRow, event: &ObservedEvent, schema: &str) -> bool {
    if let Some(done) = decode::<v1::ToolCallResolved>(event, schema) {
        tool_call_resolved(row, &done);
    } else if let Some(rejected) = decode::<v1::ToolCallRejected>(event, schema) {
        let tool = shown(&rejected.tool);
        rejection(row, &format!("Tool call {tool}"), rejected.fault.as_ref());
    } else if let Some(done) = decode::<v1::DeliveryDone>(event, schema) {
        delivery_done(row, &done.report.unwrap_or_default());
    } else if let Some(rejected) = decode::<v1::DeliveryRejected>(event, schema) {
        set_session(row, &rejected.session);
        rejection(row, "Delivery", rejected.fault.as_ref());
    } else if let Some(progress) = decode::<v1::DeliveryProgressed>(event, schema) {
        delivery_progress(row, &progress);
    } else if let Some(placed) = decode::<v1::UploadPlaced>(event, schema) {
        upload_placed(row, &placed.upload.unwrap_or_default());
    } else if let Some(refused) = decode::<v1::UploadRefused>(event, schema) {
        set_session(row, &refused.session);
        rejection(row, "Upload into the sandbox", refused.fault.as_ref());
    } else if let Some(received) = decode::<v1::MessageReceived>(event, schema) {
        message_received(row, &received);
    } else if let Some(refused) = decode::<v1::MessageRefused>(event, schema) {
        rejection(row, "Message of a user", refused.fault.as_ref());
    } else if let Some(begun) = decode::<v1::TurnBegun>(event, schema) {
        turns::turn_begun(row, &begun);
    } else if let Some(ended) = decode::<v1::TurnEnded>(event, schema) {
        turns::turn_ended(row, &ended);
    } else if let Some(begun) = decode::<v1::TurnCallBegun>(event, schema) {
        turns::call_begun(row, &begun);
    } else if let Some(ended) = decode::<v1::TurnCallEnded>(event, schema) {
        turns::call_ended(row, &ended);
    } else if let Some(dead) = decode::<v1::WorkDeadLettered>(event, schema) {
        rejection(row, "Work was given up", dead.fault.as_ref());
        row.prove("subject", dead.subject);
    } else {
        return fill_audit(row, event, schema);
    }
    true
}

fn fill_audit(row: &mut EventRow, event: &ObservedEvent, schema: &str) -> bool {
    if let Some(audit) = decode::<v1::EgressAudit>(event, schema) {
        egress_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::DeliveryAudit>(event, schema) {
        delivery_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::ConsoleAudit>(event, schema) {
        console_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::ApprovalAudit>(event, schema) {
        approval_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::PreviewAudit>(event, schema) {
        preview_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::SandboxCommandAudit>(event, schema) {
        command_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::TicketAudit>(event, schema) {
        ticket_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::EgressQuestionAudit>(event, schema) {
        question_audit(row, &audit);
    } else if let Some(audit) = decode::<v1::EgressPolicyAudit>(event, schema) {
        policy::policy_audit(row, &audit);
    } else {
        return false;
    }
    true
}

fn preview_audit(row: &mut EventRow, audit: &v1::PreviewAudit) {
    let preview = audit.preview.clone().unwrap_or_default();
    set_session(row, &preview.session);
    row.outcome = RowOutcome::Done;
    let path = [preview.directory.as_slice(), b"/", &preview.file].concat();
    row.summary = format!("Preview {}: {}", audit.action().name(), shown(path));
    row.prove("preview", preview.preview_id);
}

fn command_audit(row: &mut EventRow, audit: &v1::SandboxCommandAudit) {
    set_session(row, &audit.session);
    row.outcome = match (audit.stage(), audit.state()) {
        (SandboxCommandStage::Refused, _) => RowOutcome::Refused,
        (SandboxCommandStage::Started, _) => RowOutcome::Working,
        (_, SandboxCommandState::Failed) => RowOutcome::Failed,
        _ => RowOutcome::Done,
    };
    let program = audit.argv.join(&b' ');
    row.summary = format!("Program {}: {}", audit.stage().name(), shown(program));
    if audit.stage() == SandboxCommandStage::Ended {
        row.prove("state", audit.state().name());
        row.prove("exit_code", audit.exit_code.to_string());
    }
}

fn ticket_audit(row: &mut EventRow, audit: &v1::TicketAudit) {
    set_session(row, &audit.session);
    row.outcome = match audit.action() {
        TicketAction::Issued => RowOutcome::Working,
        TicketAction::Completed | TicketAction::Revoked => RowOutcome::Done,
        TicketAction::Refused => RowOutcome::Refused,
        TicketAction::Unspecified => RowOutcome::Unknown,
    };
    row.summary = format!(
        "Ticket for {} {}: {}",
        audit.direction().name(),
        audit.action().name(),
        human_size(audit.moved_bytes)
    );
    row.prove("ticket", audit.ticket_id.as_str());
    // The page of a file finds its tickets by this.
    row.prove("sha256", hex_digits(&audit.sha256));
}

fn question_audit(row: &mut EventRow, audit: &v1::EgressQuestionAudit) {
    let question = audit.question.clone().unwrap_or_default();
    set_session(row, &question.session);
    row.outcome = match (audit.stage(), question.answer()) {
        (EgressQuestionStage::Asked, _) => RowOutcome::Working,
        (EgressQuestionStage::Answered, EgressAnswer::Allow) => RowOutcome::Done,
        (EgressQuestionStage::Answered, EgressAnswer::Deny) => RowOutcome::Refused,
        _ => RowOutcome::Unknown,
    };
    row.summary = format!(
        "Host {}:{} {}",
        shown(&question.host),
        question.port,
        audit.stage().name()
    );
    if audit.stage() == EgressQuestionStage::Answered {
        let by = shown(&question.answered_by);
        row.summary = format!("{}: {} by {by}", row.summary, question.answer().name());
    }
    row.prove("question", question.id.as_str());
    row.prove("rule", question.rule.as_str());
}

pub(super) fn set_session(row: &mut EventRow, session: &str) {
    if row.session.is_empty() {
        // Most events carry the same session in a header, which was read first.
        row.session = shown(session);
    }
}

fn rejection(row: &mut EventRow, description: &str, fault: Option<&v1::Fault>) {
    let fault = fault.cloned().unwrap_or_default();
    row.outcome = if fault.code() == v1::FaultCode::Denied {
        RowOutcome::Refused
    } else {
        RowOutcome::Failed
    };
    row.summary = format!("{description}: {}", fault.message);
    row.prove("detail", fault.detail);
}

fn tool_call_resolved(row: &mut EventRow, done: &v1::ToolCallResolved) {
    let files = done
        .resolved
        .as_ref()
        .map_or(&[][..], |resolved| &resolved.files);
    row.outcome = RowOutcome::Done;
    row.summary = format!(
        "Tool call {}: {} files resolved",
        shown(&done.tool),
        files.len()
    );
    for file in files.iter().take(MAX_NAMED_FILES) {
        row.prove("reference", file.reference.as_str());
        row.prove("sha256", hex_digits(&file.sha256));
    }
}

fn delivery_done(row: &mut EventRow, report: &v1::DeliveryReport) {
    set_session(row, &report.session);
    let states = || report.files.iter().map(v1::DeliveredFile::file_state);
    let arrived = states().filter(|state| state.is_shown()).count();
    row.outcome = if report.success {
        RowOutcome::Done
    } else if states().any(|state| state == FileState::Unknown) {
        RowOutcome::Unknown
    } else {
        RowOutcome::Failed
    };
    row.summary = format!("Delivery ended: {arrived} of {} files", report.files.len());
    row.duration_ms = report.ended_at_ms.checked_sub(report.begun_at_ms);
    for file in report.files.iter().take(MAX_NAMED_FILES) {
        row.prove("message", file.platform_message_id.as_str());
        row.prove("sha256", hex_digits(&file.sha256));
    }
}

fn delivery_progress(row: &mut EventRow, progress: &v1::DeliveryProgressed) {
    set_session(row, &progress.session);
    row.outcome = RowOutcome::Working;
    let stage = progress.stage_code().name();
    let name = shown(&progress.name);
    let bytes = match (progress.bytes, progress.total) {
        (0, 0) => String::new(),
        (bytes, 0) => format!(", {}", human_size(bytes)),
        (bytes, total) => format!(", {} of {}", human_size(bytes), human_size(total)),
    };
    row.summary = format!("Delivery {stage} {name}{bytes}");
    if progress.stage_code() == DeliveryStage::AttemptFailed {
        let (attempt, kind) = (progress.attempt, progress.error_code().name());
        row.summary = format!("Delivery attempt {attempt} of {name} failed: {kind}");
        row.prove("code", shown(&progress.platform_code));
    }
}

fn upload_placed(row: &mut EventRow, upload: &v1::Upload) {
    set_session(row, &upload.session);
    row.outcome = match upload.state.as_str() {
        "placed" => RowOutcome::Done,
        "waiting" => RowOutcome::Working,
        _ => RowOutcome::Failed,
    };
    row.summary = format!("Upload {}: {}", shown(&upload.name), upload.state);
    row.prove("path", shown(&upload.path));
    if let Some(receipt) = &upload.receipt {
        row.duration_ms = Some(receipt.milliseconds);
        row.prove("sha256", hex_digits(&receipt.sha256));
        row.prove("integrity", receipt.integrity.as_str());
    }
}

fn message_received(row: &mut EventRow, received: &v1::MessageReceived) {
    set_session(row, &received.session);
    row.outcome = RowOutcome::Done;
    let platform = received.chat.as_ref().map_or("", |chat| &chat.platform);
    row.summary = format!(
        "Message of a user on {platform} with {} files",
        received.uploads.len()
    );
    row.prove("message", received.message_id.as_str());
}

fn egress_audit(row: &mut EventRow, audit: &v1::EgressAudit) {
    set_session(row, &audit.session_id);
    row.duration_ms = Some(audit.duration_ms);
    let description = match (audit.lookup_only, audit.proxy_stage.as_str()) {
        (true, _) => "Look-up",
        (false, "") => "Fetch",
        (false, _) => "Proxy connection",
    };
    row.outcome = match (audit.verdict.as_str(), audit.proxy_stage.as_str()) {
        ("allow", "opened") => RowOutcome::Working,
        ("allow", _) if audit.code.is_empty() => RowOutcome::Done,
        ("deny", _) => RowOutcome::Refused,
        _ => RowOutcome::Failed,
    };
    let received_bytes = match audit.proxy_stage.as_str() {
        "" => audit.stored_bytes,
        _ => audit.down_bytes,
    };
    let end = match (audit.code.as_str(), audit.http_status) {
        ("", 0) => String::new(),
        ("", status) => format!(", status {status}, {}", human_size(received_bytes)),
        (code, _) => format!(": {code} in {}", audit.phase),
    };
    row.summary = format!(
        "{description} of {}://{}:{} {}{end}",
        audit.url_scheme, audit.url_host, audit.url_port, audit.verdict
    );
    row.prove("rule", audit.rule.as_str());
    row.prove("decided by", audit.decided_by.as_str());
    row.prove("reported by", audit.reported_by.as_str());
    if let Some(hop) = audit.hops.last() {
        row.prove("DNSSEC", hop.dnssec.as_str());
        row.prove("HTTP version", hop.http_version.as_str());
        row.prove("pinned address", hop.chosen_address.as_str());
        row.prove("peer address", hop.peer_address.as_str());
        row.prove("upstream proxy", hop.upstream_proxy.as_str());
    }
    row.prove("sha256", audit.sha256.as_str());
}

fn delivery_audit(row: &mut EventRow, audit: &v1::DeliveryAudit) {
    set_session(row, &audit.session);
    // A code of a newer service is an unknown outcome and never a success.
    let state = FileState::try_from(audit.state_code).unwrap_or(FileState::Unknown);
    row.outcome = match state {
        // A file from a user has no state code, only the word `stored`.
        FileState::Unspecified if audit.state == "stored" => RowOutcome::Done,
        FileState::Unspecified | FileState::Failed | FileState::Rejected => RowOutcome::Failed,
        FileState::Queued | FileState::Sending => RowOutcome::Working,
        FileState::Delivered
        | FileState::DeliveredAsLink
        | FileState::DeliveredAsPreview
        | FileState::Copied => RowOutcome::Done,
        FileState::Unknown => RowOutcome::Unknown,
    };
    row.summary = format!(
        "File {} {} {}: {}",
        shown(&audit.name),
        if audit.direction == "in" {
            "from"
        } else {
            "to"
        },
        audit.platform,
        audit.state
    );
    row.prove("message", audit.platform_message_id.as_str());
    row.prove("content_warning", audit.content_warning.as_str());
    row.prove("sha256", hex_digits(&audit.sha256));
}

fn console_audit(row: &mut EventRow, audit: &v1::ConsoleAudit) {
    row.outcome = match audit.stage() {
        v1::ConsoleStage::Begun => RowOutcome::Working,
        v1::ConsoleStage::Done => RowOutcome::Done,
        v1::ConsoleStage::Failed => RowOutcome::Failed,
        v1::ConsoleStage::Unspecified => RowOutcome::Unknown,
    };
    row.summary = format!(
        "Console: {} {} {}",
        audit.action().name(),
        audit.target,
        audit.stage().name()
    );
    row.prove("login", audit.login.as_str());
    row.prove("person", audit.person.as_str());
    row.prove("name", audit.person_name.as_str());
    row.prove("failure", audit.failure.as_str());
}

fn approval_audit(row: &mut EventRow, audit: &v1::ApprovalAudit) {
    let choice = match audit.choice() {
        v1::ApprovalChoice::Approved => {
            row.outcome = RowOutcome::Done;
            "approved"
        }
        v1::ApprovalChoice::Refused => {
            row.outcome = RowOutcome::Refused;
            "refused"
        }
        v1::ApprovalChoice::Unspecified => {
            row.outcome = RowOutcome::Unknown;
            "decided"
        }
    };
    row.summary = format!(
        "Call of {} {choice} by {}",
        shown(&audit.tool),
        shown(&audit.principal)
    );
    row.prove("approval", audit.approval_id.as_str());
    row.prove("sha256 of the call", audit.call_sha256.as_str());
}

#[cfg(test)]
mod tests;
