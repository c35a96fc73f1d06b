//! A response that another process began, by its recorded events: its items keep their places, and the numbers of its
//! events continue.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ResponseWriter;

/// Numbers of items that are left out: the process that has ended may have begun items that it did not record.
const ITEM_GAP: usize = 64;

/// Items of a response, by its events.
#[derive(Debug, Default)]
struct RecordedItems {
    complete: BTreeMap<u64, Value>,
    /// Items that were begun, with their texts so far.
    open: BTreeMap<u64, (Value, String)>,
    /// Items that were begun or added.
    begun: usize,
}

impl RecordedItems {
    fn read(events: &[Value]) -> Self {
        let mut items = Self::default();
        for event in events {
            let Some(index) = event.get("output_index").and_then(Value::as_u64) else {
                continue;
            };
            let kind = event
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            match kind {
                "response.output_item.added" => {
                    items.begun += 1;
                    items
                        .open
                        .insert(index, (event["item"].clone(), String::new()));
                }
                "response.output_item.done" => {
                    items.open.remove(&index);
                    items.complete.insert(index, event["item"].clone());
                }
                "response.output_text.delta"
                | "response.refusal.delta"
                | "response.reasoning_summary_text.delta" => {
                    let text = event.get("delta").and_then(Value::as_str);
                    if let Some((_, so_far)) = items.open.get_mut(&index) {
                        so_far.push_str(text.unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
        items
    }
}

/// An item that its process did not end.
fn incomplete(mut item: Value, text: &str) -> Value {
    let kind = text_of(&item, "type").to_owned();
    let Some(members) = item.as_object_mut() else {
        return item;
    };
    members.insert("status".to_owned(), json!("incomplete"));
    match kind.as_str() {
        "reasoning" if !text.is_empty() => {
            let summary = json!([{"type": "summary_text", "text": text}]);
            members.insert("summary".to_owned(), summary);
        }
        "message" if !text.is_empty() => {
            let part =
                json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
            members.insert("content".to_owned(), json!([part]));
        }
        _ => {}
    }
    item
}

/// A member of an event or an item; empty when it has none.
fn text_of<'a>(holder: &'a Value, name: &str) -> &'a str {
    holder.get(name).and_then(Value::as_str).unwrap_or_default()
}

impl ResponseWriter {
    /// Continues a response after the events of a process that has ended. The next event has the number `next`. Items
    /// that it did not end are closed as incomplete.
    pub(in crate::http::responses) fn resume(&mut self, events: &[Value], next: u64) {
        let RecordedItems {
            mut complete,
            open,
            begun,
        } = RecordedItems::read(events);
        self.sequence = next;
        self.begun = begun + ITEM_GAP;
        let mut closing = Vec::new();
        for (index, (item, text)) in open {
            let item = incomplete(item, &text);
            closing.push(json!({"output_index": index, "item": item}));
            complete.insert(index, item);
        }
        // The items are in the order of their indexes, which have no gaps.
        self.output = complete.into_values().collect();
        for done in closing {
            self.emit("response.output_item.done", done);
        }
        let body = json!({ "response": self.response("in_progress") });
        self.emit("response.in_progress", body);
    }
}

#[cfg(test)]
mod tests {
    use dray_types::Clock;
    use serde_json::Map;

    use super::*;

    #[test]
    fn items_keep_their_places_and_open_ones_are_closed_as_incomplete() {
        let event = |kind: &str, index: u64, item: Value| json!({"type": kind, "output_index": index, "item": item});
        let message =
            |id: &str| json!({"id": id, "type": "message", "status": "in_progress", "content": []});
        let delta =
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "Hal"});
        let recorded = [
            json!({"type": "response.created", "response": {}}),
            event("response.output_item.added", 0, message("msg_a")),
            event(
                "response.output_item.done",
                0,
                json!({"id": "msg_a", "type": "message", "status": "completed"}),
            ),
            event("response.output_item.added", 1, message("msg_b")),
            delta.clone(),
            delta,
        ];
        let mut writer = ResponseWriter::new("resp_1", 5, Map::new(), Clock::manual(7000));
        writer.resume(&recorded, 70);
        let events = writer.take_events();
        assert_eq!(
            (&events[0]["type"], &events[0]["sequence_number"]),
            (&json!("response.output_item.done"), &json!(70))
        );
        assert_eq!(
            (&events[0]["output_index"], &events[0]["item"]["status"]),
            (&json!(1), &json!("incomplete"))
        );
        assert_eq!(events[0]["item"]["content"][0]["text"], "HalHal");
        let response = &events[1]["response"];
        assert_eq!(
            (
                events.len(),
                &response["output"][0]["id"],
                &response["output"][1]["id"]
            ),
            (2, &json!("msg_a"), &json!("msg_b"))
        );
        writer.event(dray_agent::event::Event::Content("new".to_owned()));
        let events = writer.take_events();
        assert_eq!(
            (&events[0]["output_index"], &events[0]["sequence_number"]),
            (&json!(2), &json!(72))
        );
    }
}
