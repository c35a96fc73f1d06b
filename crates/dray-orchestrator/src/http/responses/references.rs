//! `item_reference` in the input of a response: clients send back the ids of stored items in place of the items. The id
//! of an item contains that of its response, so no index is needed.

use std::collections::HashSet;

use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use serde_json::{Value, json};

use super::items::MAX_ITEMS;
use super::request::invalid;
use crate::http::permit::ChatPermit;
use crate::responses::ResponseStore;

/// Prefix of the ids of responses.
const RESPONSE_PREFIX: &str = "resp_";
/// Hexadecimal digits in the id of a response.
const RESPONSE_DIGITS: usize = 32;
/// Most responses that the references of one request lead to. Neighbouring items of one response count once.
const MAX_RESPONSES: usize = 64;

/// The id of an item of a response, `number` in the order in which they begin.
pub(super) fn item_id(prefix: &str, response_id: &str, number: usize) -> String {
    let digits = response_id.strip_prefix(RESPONSE_PREFIX);
    format!("{prefix}{}{number:04x}", digits.unwrap_or(response_id))
}

/// The id of the response of an item; `None` for items of requests, whose ids hold none.
fn response_of(item_id: &str) -> Option<String> {
    let (_, rest) = item_id.split_once('_')?;
    let digits = rest.split('_').next().filter(|digits| is_place(digits))?;
    let response = digits.get(..RESPONSE_DIGITS)?;
    Some(format!("{RESPONSE_PREFIX}{response}"))
}

/// Whether a part of an id is the place that [`item_id`] writes: the digits of a response and a number.
pub(super) fn is_place(part: &str) -> bool {
    part.len() > RESPONSE_DIGITS && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Replaces the references in the input of a request by the items of earlier responses of the same caller.
///
/// # Errors
///
/// 404 for an item that is not stored, or another caller's; 400 for more than [`MAX_RESPONSES`], 413 for items of more
/// than `limit` together, 503 while the store or the bus fails or other requests use the memory.
pub(super) async fn resolve_references(
    responses: &ResponseStore,
    principal: &str,
    body: &mut Value,
    limit: ByteSize,
    permit: &mut ChatPermit,
) -> Result<(), RequestFailure> {
    let Some(Value::Array(items)) = body.get_mut("input") else {
        return Ok(());
    };
    // The number is checked before any item is read; more items would be refused afterwards in any case.
    if items.len() > MAX_ITEMS {
        return Err(invalid(
            "input",
            format!("It has more than {MAX_ITEMS} items."),
        ));
    }
    let (mut reads, mut bytes) = (0, 0);
    let mut resolved = HashSet::new();
    // One response at a time, because its items can be large. References to it mostly stand beside each other.
    let mut read: Option<(String, (Vec<Value>, _))> = None;
    for (index, item) in items.iter_mut().enumerate() {
        let Some(id) = referenced_id(item).map(str::to_owned) else {
            continue;
        };
        if !resolved.insert(id.clone()) {
            // The item is there already. `read_items` leaves out the reference.
            *item = json!({"type": "item_reference", "id": id});
            continue;
        }
        let field = format!("input.{index}.id");
        let Some(response) = response_of(&id) else {
            return Err(missing_item(&field, &id));
        };
        if read.as_ref().is_none_or(|(known, _)| *known != response) {
            reads += 1;
            if reads > MAX_RESPONSES {
                let message =
                    format!("The references lead to more than {MAX_RESPONSES} responses.");
                return Err(invalid(&field, message));
            }
            // A request that holds the memory of one response must not wait for that of another.
            drop(read.take());
            // Items that were deleted from the conversation of the response are missing here.
            let output = responses.remaining_output(principal, &response).await;
            let output = output.map_err(|failure| match failure.status {
                404 => missing_item(&field, &id),
                _ => failure,
            })?;
            read = Some((response, output));
        }
        let (_, (output, _)) = read.as_ref().ok_or_else(RequestFailure::unexpected)?;
        let found = output.iter().find(|found| found["id"] == id.as_str());
        let found = found.ok_or_else(|| missing_item(&field, &id))?;
        let item_bytes = found.to_string().len() as u64;
        bytes += item_bytes;
        if bytes > limit.as_u64() {
            let message = format!("The items that the input refers to are larger than {limit}.");
            return Err(RequestFailure::new(413, message));
        }
        permit.grow_body(item_bytes)?;
        *item = found.clone();
    }
    Ok(())
}

/// The id in a reference. Clients may leave out its type.
fn referenced_id(item: &Value) -> Option<&str> {
    let members = item.as_object()?;
    let kind = members.get("type").filter(|kind| !kind.is_null());
    let is_reference = match kind {
        Some(kind) => kind == "item_reference",
        None => members.keys().all(|name| name == "id" || name == "type"),
    };
    members.get("id")?.as_str().filter(|_| is_reference)
}

fn missing_item(field: &str, id: &str) -> RequestFailure {
    let mut failure = crate::responses::missing_failure("item", id);
    failure.param = Some(field.to_owned().into());
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_item_leads_to_its_response_and_other_ids_to_none() {
        let response = crate::records::random_id(RESPONSE_PREFIX);
        for number in [0, 300, 70_000] {
            let id = item_id("msg_", &response, number);
            assert_eq!(response_of(&id), Some(response.clone()), "{id}");
        }
        // The id of an approval has the name of its record behind the place.
        let id = format!("{}_wait_0", item_id("mcpr_", &response, 1));
        assert_eq!(response_of(&id), Some(response));
        let of_request = crate::records::random_id("msg_");
        for id in [of_request.as_str(), "msg_1", "", "apr_x", "msg_é"] {
            assert_eq!(response_of(id), None, "{id}");
        }
    }

    #[test]
    fn references_are_recognized_with_and_without_their_type() {
        for (item, id) in [
            (json!({"type": "item_reference", "id": "a_1"}), Some("a_1")),
            (json!({"type": null, "id": "a_1"}), Some("a_1")),
            (json!({"id": "a_1"}), Some("a_1")),
            (json!({"id": "a_1", "role": "user", "content": "x"}), None),
            (json!({"type": "message", "id": "a_1"}), None),
            (json!({"type": "item_reference"}), None),
            (json!("a_1"), None),
        ] {
            assert_eq!(referenced_id(&item), id, "{item}");
        }
    }
}
