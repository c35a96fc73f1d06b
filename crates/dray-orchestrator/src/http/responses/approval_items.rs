//! Questions about approvals and answers to them, as items of `/v1/responses`: `mcp_approval_request` and
//! `mcp_approval_response`, which the API has for tools of MCP servers. In messages they are a call of the function
//! `request_approval` and its result.

use dray_agent::event::ApprovalRequest;
use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value, json};

use super::items::text_of;
use super::request::invalid;
use crate::http::contract::APPROVAL_TOOL;

/// How ids of questions begin on the wire.
const ITEM_PREFIX: &str = "mcpr_";
/// How the ids of the same calls begin in messages.
const CALL_PREFIX: &str = "dray_";

/// The item of a question.
pub(super) fn approval_item(request: &ApprovalRequest) -> Value {
    json!({
        "id": item_id(&request.id),
        "type": "mcp_approval_request",
        "server_label": request.source,
        "name": request.tool,
        "arguments": request.arguments,
    })
}

/// The call for a question that the client sent back.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn approval_call(
    field: &str,
    item: &Map<String, Value>,
) -> Result<Value, RequestFailure> {
    let id = call_id(&text_of(field, item, "id")?);
    let arguments = text_of(field, item, "arguments")?;
    let shown = json!({
        "tool": text_of(field, item, "name")?,
        "arguments": serde_json::from_str::<Map<String, Value>>(&arguments)
            .map_err(|_| invalid(&format!("{field}.arguments"), "It must be the text of a JSON object."))?,
    });
    Ok(json!({
        "id": id,
        "type": "function",
        "function": {"name": APPROVAL_TOOL, "arguments": shown.to_string()},
    }))
}

/// The result of a question, and the id of its call.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn approval_result(
    field: &str,
    item: &Map<String, Value>,
) -> Result<(Value, String), RequestFailure> {
    let id = call_id(&text_of(field, item, "approval_request_id")?);
    let Some(approve) = item.get("approve").and_then(Value::as_bool) else {
        return Err(invalid(
            &format!("{field}.approve"),
            "It must be true or false.",
        ));
    };
    let reason = match item.get("reason") {
        None | Some(Value::String(_)) => item.get("reason"),
        Some(_) => return Err(invalid(&format!("{field}.reason"), "It must be a string.")),
    };
    let answer = json!({ "approve": approve, "reason": reason });
    let result = json!({"role": "tool", "tool_call_id": id, "content": answer.to_string()});
    Ok((result, id))
}

/// The id of the item of a question.
pub(super) fn item_id(call_id: &str) -> String {
    let token = call_id.strip_prefix(CALL_PREFIX);
    format!("{ITEM_PREFIX}{}", token.unwrap_or(call_id))
}

fn call_id(item_id: &str) -> String {
    match item_id.strip_prefix(ITEM_PREFIX) {
        Some(token) => format!("{CALL_PREFIX}{token}"),
        None => item_id.to_owned(),
    }
}
