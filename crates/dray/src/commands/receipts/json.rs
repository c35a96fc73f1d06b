//! The report on a delivery as JSON. Each field of the contract is written or named as left out.

use dray_proto::{NamedCode, v1};
use dray_types::hex::hex_digits;
use serde_json::{Value, json};

use super::target_text;
use crate::commands::sandbox;

#[expect(
    deprecated,
    reason = "a field without a name here would not be noticed when the contract gets it"
)]
pub(super) fn report_json(report: &v1::DeliveryReport) -> Value {
    let v1::DeliveryReport {
        delivery_id,
        session,
        target,
        files,
        success,
        finished,
        begun_at_ms,
        ended_at_ms,
        notice,
        turn,
        due_at_ms,
        waiting_code: _,
        waiting: _,
        rounds,
        deadline_ms,
        cancelled,
        resend,
        // For the agent, whose text is not repeated for operators.
        result_json: _,
        message: _,
        flags: _,
        // Of the record alone.
        steps: _,
        tenant: _,
        traceparent: _,
        writer: _,
    } = report;
    json!({
        "delivery_id": delivery_id,
        "session": session,
        "target": target.clone().map(target_text),
        "success": success,
        "finished": finished,
        "cancelled": cancelled,
        "begun_at_ms": begun_at_ms,
        "ended_at_ms": ended_at_ms,
        "waiting": report.waiting_reason().map_or("", |reason| reason.name()),
        "due_at_ms": due_at_ms,
        "rounds": rounds,
        "deadline_ms": deadline_ms,
        "turn": turn,
        "files": files.iter().map(file_json).collect::<Vec<_>>(),
        "resend": resend.map(resend_json),
        "notice": notice,
    })
}

#[expect(
    deprecated,
    reason = "a field without a name here would not be noticed when the contract gets it"
)]
fn file_json(file: &v1::DeliveredFile) -> Value {
    let v1::DeliveredFile {
        path,
        name,
        size,
        media_type,
        sha256,
        state_code: _,
        state: _,
        route_code: _,
        route: _,
        platform_message_id,
        platform_file_id,
        url_expires_at_ms,
        error_code: _,
        error_kind: _,
        error_message,
        platform_code,
        lossy,
        transfer,
        attempts,
        limit,
        preview,
        web_hosts,
        refused_by,
        reported_by,
        // The digest names the stored file.
        claim: _,
    } = file;
    json!({
        "path": sandbox::path_text(path),
        "path_base64": sandbox::exact_path(path),
        "name": name,
        "size": size,
        "media_type": media_type,
        // The former name of `media_type`.
        "mime": media_type,
        "sha256": hex_digits(sha256),
        "state": file.file_state().name(),
        "route": file.route_name(),
        "platform_message_id": platform_message_id,
        "platform_file_id": platform_file_id,
        "url_expires_at_ms": url_expires_at_ms,
        "preview": preview.as_ref().map(preview_json),
        "lossy": lossy,
        "attempts": attempts,
        "error_kind": file.failure().map_or("", NamedCode::name),
        "error_message": error_message,
        "platform_code": platform_code,
        "limit": limit,
        "web_hosts": web_hosts,
        "refused_by": refused_by,
        "reported_by": reported_by,
        "transfer": transfer.as_ref().map(sandbox::receipt_json),
    })
}

fn resend_json(offer: v1::ResendOffer) -> Value {
    let v1::ResendOffer { all, may_repeat } = offer;
    json!({"all": all, "may_repeat": may_repeat})
}

fn preview_json(preview: &v1::PreviewReceipt) -> Value {
    json!({
        "preview_ids": preview.preview_ids,
        "expires_at_ms": preview.expires_at_ms,
        "state": preview.state().name(),
        "counts_known": preview.counts_known,
        "opened_count": preview.opened_count,
        "first_opened_at_ms": preview.first_opened_at_ms,
        "scanned_count": preview.scanned_count,
        "first_scanned_at_ms": preview.first_scanned_at_ms,
        "revoked_at_ms": preview.revoked_at_ms,
    })
}
