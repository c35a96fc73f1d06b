//! Questions about approvals and answers to them, as items of `/v1/responses`: `mcp_approval_request` and
//! `mcp_approval_response`, which the API has for tools of MCP servers. In messages they are a call of the function
//! `request_approval` and its result.

use dray_agent::event::ApprovalRequest;
use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value, json};

use super::items::text_of;
use super::references::is_place;
use super::request::invalid;
use crate::http::contract::APPROVAL_TOOL;

/// How ids of questions begin on the wire.
pub(super) const ITEM_PREFIX: &str = "mcpr_";
/// How the ids of the same calls begin in messages.
const CALL_PREFIX: &str = "dray_";

/// The item of a question. `place` is an id of an item with [`ITEM_PREFIX`], by which a reference finds the response.
pub(super) fn approval_item(place: &str, request: &ApprovalRequest) -> Value {
    let token = request.id.strip_prefix(CALL_PREFIX);
    json!({
        "id": format!("{place}_{}", token.unwrap_or(&request.id)),
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

/// The id of the question's item that the input of a request answers with an approval of this call.
pub(super) fn answered_item_id(input: &[Value], call: &str) -> Option<String> {
    let ids = input.iter().filter_map(|item| {
        let is_answer = item["type"] == "mcp_approval_response";
        item["approval_request_id"].as_str().filter(|_| is_answer)
    });
    let mut ids = ids.filter(|id| call_id(id) == call);
    ids.next_back().map(str::to_owned)
}

/// The id of the call of a question's item. Items of earlier versions have no place in their ids.
pub(super) fn call_id(item_id: &str) -> String {
    let Some(rest) = item_id.strip_prefix(ITEM_PREFIX) else {
        return item_id.to_owned();
    };
    let token = rest.split_once('_').filter(|(place, _)| is_place(place));
    format!("{CALL_PREFIX}{}", token.map_or(rest, |(_, token)| token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_question_leads_to_its_call_with_and_without_a_place() {
        let request = ApprovalRequest {
            id: "dray_to_ken_0".to_owned(),
            source: "shop".to_owned(),
            tool: "shop_order".to_owned(),
            arguments: "{}".to_owned(),
            digest: String::new(),
            expires_ms: 0,
            chat: None,
        };
        let place = format!("{ITEM_PREFIX}{}", "0f".repeat(18));
        let id = approval_item(&place, &request)["id"].clone();
        for id in [id.as_str().unwrap(), "mcpr_to_ken_0", "dray_to_ken_0"] {
            assert_eq!(call_id(id), request.id, "{id}");
        }
        let input = [
            json!({"type": "message", "approval_request_id": "mcpr_to_ken_0"}),
            json!({"type": "mcp_approval_response", "approval_request_id": id}),
        ];
        let answered = answered_item_id(&input, &request.id);
        assert_eq!(answered.as_deref(), id.as_str());
        assert_eq!(answered_item_id(&input, "dray_to_ken_1"), None);
    }
}
