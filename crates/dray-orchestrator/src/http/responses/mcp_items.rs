//! Lists and calls of MCP tools as items of a response (`mcp_list_tools`, `mcp_call`), with their events. Calls of one
//! round run concurrently, so each item gets its index in the output when its call begins.

use dray_agent::event::{McpCallEnd, McpCallStart, McpToolList};
use serde_json::{Value, json};

/// Events of a stream: the type of each, and its members.
type ItemEvents = Vec<(&'static str, Value)>;

/// Calls that have begun and not ended, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenMcpCalls {
    open: Vec<OpenMcpCall>,
}

#[derive(Debug)]
struct OpenMcpCall {
    call_id: String,
    output_index: usize,
}

/// The item of a list of tools, and its events except `response.output_item.done`.
pub(super) fn list_item(id: &str, list: McpToolList, output_index: usize) -> (Value, ItemEvents) {
    let tools: Vec<_> = list
        .tools
        .into_iter()
        .map(|tool| {
            json!({
                "name": tool.name, "description": tool.description, "input_schema": tool.input_schema,
                "annotations": null,
            })
        })
        .collect();
    let item = |tools: &[Value]| {
        json!({
            "id": id, "type": "mcp_list_tools", "server_label": list.server, "tools": tools, "error": list.error,
        })
    };
    let item_fields = json!({"item_id": id, "output_index": output_index});
    let ending = if list.error.is_some() {
        "response.mcp_list_tools.failed"
    } else {
        "response.mcp_list_tools.completed"
    };
    let events = vec![
        (
            "response.output_item.added",
            json!({"output_index": output_index, "item": item(&[])}),
        ),
        ("response.mcp_list_tools.in_progress", item_fields.clone()),
        (ending, item_fields),
    ];
    (item(&tools), events)
}

impl OpenMcpCalls {
    /// Whether the call continues one that began in this response and has not ended.
    pub(super) fn is_open(&self, call: &McpCallStart) -> bool {
        call.continues
            && self
                .open
                .iter()
                .any(|open_call| open_call.call_id == call.call_id)
    }

    /// Begins a call. `id` is the id of its item. Returns the item for the output, and the events.
    pub(super) fn begin(
        &mut self,
        id: &str,
        call: McpCallStart,
        output_index: usize,
    ) -> (Value, ItemEvents) {
        let approval_id = call.approval_id;
        let item = |arguments: &str| {
            json!({
                "id": id, "type": "mcp_call", "status": "in_progress", "server_label": call.server, "name": call.tool,
                "arguments": arguments, "output": null, "error": null, "approval_request_id": approval_id,
            })
        };
        let item_fields =
            |name: &str| json!({"item_id": id, "output_index": output_index, name: call.arguments});
        let events = vec![
            (
                "response.output_item.added",
                json!({"output_index": output_index, "item": item("")}),
            ),
            (
                "response.mcp_call.in_progress",
                json!({"item_id": id, "output_index": output_index}),
            ),
            ("response.mcp_call_arguments.delta", item_fields("delta")),
            ("response.mcp_call_arguments.done", item_fields("arguments")),
        ];
        let shown = item(&call.arguments);
        self.open.push(OpenMcpCall {
            call_id: call.call_id,
            output_index,
        });
        (shown, events)
    }

    /// Ends a call and completes its item in the output. Among calls with the same id, the oldest ends.
    pub(super) fn end(&mut self, end: &McpCallEnd, output: &mut [Value]) -> ItemEvents {
        // Models reuse ids of calls within a response, so the first open one is meant.
        let index = self
            .open
            .iter()
            .position(|call| call.call_id == end.call_id);
        let Some(index) = index else {
            return Vec::new();
        };
        let call = self.open.remove(index);
        let Some(item) = output.get_mut(call.output_index) else {
            return Vec::new();
        };
        let (status, kind, member) = if end.failed {
            ("failed", "response.mcp_call.failed", "error")
        } else {
            ("completed", "response.mcp_call.completed", "output")
        };
        set_members(
            item,
            &[("status", json!(status)), (member, json!(end.text))],
        );
        let item_fields = json!({"item_id": item.get("id"), "output_index": call.output_index});
        let done = json!({"output_index": call.output_index, "item": item});
        vec![(kind, item_fields), ("response.output_item.done", done)]
    }

    /// Marks all open calls as incomplete, because the response ends before they do.
    pub(super) fn abandon(&mut self, output: &mut [Value]) -> ItemEvents {
        let mut events = Vec::with_capacity(self.open.len());
        // A client that replays the output must not take them for calls that still run.
        for call in self.open.drain(..) {
            let Some(item) = output.get_mut(call.output_index) else {
                continue;
            };
            set_members(item, &[("status", json!("incomplete"))]);
            let done = json!({"output_index": call.output_index, "item": item});
            events.push(("response.output_item.done", done));
        }
        events
    }
}

fn set_members(item: &mut Value, members: &[(&str, Value)]) {
    if let Some(item) = item.as_object_mut() {
        for (name, value) in members {
            item.insert((*name).to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(call_id: &str) -> McpCallStart {
        McpCallStart {
            call_id: call_id.to_owned(),
            server: "bank".to_owned(),
            tool: "bank_pay".to_owned(),
            arguments: r#"{"to":"x"}"#.to_owned(),
            approval_id: None,
            continues: false,
        }
    }

    fn end(call_id: &str, failed: bool) -> McpCallEnd {
        McpCallEnd {
            call_id: call_id.to_owned(),
            text: "result".to_owned(),
            failed,
        }
    }

    #[test]
    fn an_approved_call_has_the_id_of_its_approval_request() {
        let approved = McpCallStart {
            approval_id: Some("mcpr_x_0".to_owned()),
            ..start("a")
        };
        let mut calls = OpenMcpCalls::default();
        let (item, events) = calls.begin("mcp_1", approved, 0);
        assert_eq!(item["approval_request_id"], "mcpr_x_0");
        assert_eq!(events[0].1["item"]["approval_request_id"], "mcpr_x_0");
        let (item, _) = calls.begin("mcp_2", start("b"), 1);
        assert_eq!(item["approval_request_id"], Value::Null);
    }

    #[test]
    fn a_call_that_continues_after_a_question_keeps_its_item_in_the_same_response() {
        let mut calls = OpenMcpCalls::default();
        let continued = McpCallStart {
            continues: true,
            ..start("a")
        };
        assert!(
            !calls.is_open(&continued),
            "it began in an earlier response"
        );
        let (item, _) = calls.begin("mcp_1", start("a"), 0);
        assert!(calls.is_open(&continued) && !calls.is_open(&start("a")));
        let mut output = vec![item];
        calls.end(&end("a", false), &mut output);
        assert_eq!(output[0]["status"], "completed");
        assert!(!calls.is_open(&continued));
    }

    #[test]
    fn concurrent_calls_end_in_any_order_and_keep_their_index() {
        let (mut calls, mut output) = (OpenMcpCalls::default(), Vec::new());
        for id in ["a", "b", "c"] {
            let (item, events) = calls.begin(id, start(id), output.len());
            assert_eq!(events.len(), 4);
            output.push(item);
        }
        let ended = calls.end(&end("b", true), &mut output);
        assert_eq!(ended[0].0, "response.mcp_call.failed");
        assert_eq!(ended[1].1["output_index"], 1);
        calls.end(&end("a", false), &mut output);
        assert_eq!(calls.end(&end("a", false), &mut output), []);
        let left = calls.abandon(&mut output);
        assert_eq!(left[0].1["item"]["status"], "incomplete");
        let shown_items: Vec<_> = output
            .iter()
            .map(|item| (&item["status"], &item["output"], &item["error"]))
            .collect();
        let (text, null) = (json!("result"), Value::Null);
        assert_eq!(
            shown_items,
            [
                (&json!("completed"), &text, &null),
                (&json!("failed"), &null, &text),
                (&json!("incomplete"), &null, &null),
            ]
        );
    }
}
