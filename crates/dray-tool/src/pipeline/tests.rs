//! One call through the pipeline.

mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::event::{Event, StageStatus, TokenUsage};
use dray_agent::manifest::call::{AttachmentRules, Fallback, ToolDisplay, ToolStage};
use dray_agent::message::Content as Text;
use serde_json::{Value, json};

use super::*;
use crate::fakes::{AMPLE_TIMEOUT, FakeResolver, FakeTool, test_turn};
use crate::{CallRules, FileIds, HandledFailure, StageStyle};

/// The outcome of a call, and what the client received.
struct CallResult {
    ended: Result<CompletedCall, RequestEnd>,
    events: Vec<Event>,
}

impl CallResult {
    fn ran(&self) -> &CompletedCall {
        self.ended.as_ref().unwrap()
    }

    fn text(&self) -> &str {
        match &self.ran().message.content {
            Some(Text::Text(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    fn stage_text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::StageContent { content, .. } => Some(content.as_str()),
            _ => None,
        });
        texts.collect()
    }

    fn status(&self) -> Option<StageStatus> {
        match self.events.last() {
            Some(Event::StageClosed { status, .. }) => Some(*status),
            _ => None,
        }
    }
}

async fn call_with(
    tool: &FakeTool,
    arguments: &str,
    level: StageLevel,
    resolve: &FakeResolver,
) -> CallResult {
    let (sink, mut end) = EventSink::new();
    let request = ToolRequest {
        id: "call_1",
        arguments,
        answered: None,
    };
    let settings = PipelineSettings {
        level,
        timeout: AMPLE_TIMEOUT,
    };
    let ended = run_call(tool, request, &test_turn(), resolve, &settings, &sink).await;
    let mut events = Vec::new();
    while let Ok(event) = end.try_recv() {
        events.push(event);
    }
    CallResult { ended, events }
}

async fn call(tool: &FakeTool, arguments: &str) -> CallResult {
    call_with(tool, arguments, StageLevel::Info, &FakeResolver::default()).await
}

fn rules(fallback: serde_json::Value) -> CallRules {
    CallRules {
        label: "Look".to_owned(),
        style: StageStyle::Api,
        fallback: serde_json::from_value::<Fallback>(fallback).unwrap(),
        ..CallRules::default()
    }
}

fn file(kind: &str, url: Option<&str>) -> Attachment {
    Attachment {
        kind: Some(kind.to_owned()),
        url: url.map(str::to_owned),
        data: url.is_none().then(|| "AAAA".to_owned()),
        ..Attachment::default()
    }
}

#[tokio::test]
async fn a_result_becomes_a_message_with_files_state_and_usage() {
    let usage = ModelUsage {
        model: "m".to_owned(),
        tokens: TokenUsage {
            prompt: 1,
            completion: 2,
            ..TokenUsage::default()
        },
    };
    let tool = FakeTool::named("look").gives(ToolOutput {
        attachments: vec![
            file("image/png", Some("files/B/a.png")),
            file("text/csv", None),
        ],
        state: Some(json!({"k": null})),
        usage: vec![usage.clone()],
        ..ToolOutput::text("done", "")
    });
    let result = call(&tool, "{}").await;
    let ran = result.ran();
    assert_eq!(
        serde_json::to_value(&ran.message).unwrap(),
        json!({
            "role": "tool", "tool_call_id": "call_1", "content": "done", "custom_content": {
                "attachments": [
                    {"type": "image/png", "url": "files/B/a.png"}, {"type": "text/csv", "data": "AAAA"},
                ],
                "state": {"k": null},
            },
        })
    );
    assert_eq!(ran.propagate, [file("image/png", Some("files/B/a.png"))]);
    assert_eq!(ran.usage, [usage]);
    assert_eq!(
        (ran.content_type.as_str(), ran.failed),
        ("text/plain", false)
    );
    let shown_files: Vec<_> = result
        .events
        .iter()
        .filter(|event| matches!(event, Event::StageAttachment { .. }))
        .collect();
    assert_eq!(
        shown_files.len(),
        1,
        "files without an address are not shown"
    );
}

#[tokio::test]
async fn files_of_other_types_are_dropped() {
    let rules = CallRules {
        attachments: AttachmentRules {
            supported_types: Some(vec!["text/*".to_owned()]),
            ..AttachmentRules::default()
        },
        ..CallRules::default()
    };
    let tool = FakeTool::named("look").rules(rules).gives(ToolOutput {
        attachments: vec![file("image/png", Some("files/B/a.png"))],
        ..ToolOutput::text("done", "")
    });
    assert_eq!(call(&tool, "{}").await.ran().message.custom_content, None);
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_stage_shows_request_response_and_time() {
    let tool = FakeTool::named("look")
        .rules(rules(json!({})))
        .gives(ToolOutput::text(r#"{"b":1}"#, "application/json"));
    let result = call(&tool, r#"{"q": "x"}"#).await;
    assert_eq!(
        result.stage_text(),
        "> ##### Request:\n```json\n{\n    \"q\": \"x\"\n}\n```\n\n> ##### Response:\n```json\n{\n    \"b\": 1\n}\n```\n"
    );
    let stage = 0;
    let name = Some("Look".to_owned());
    assert_eq!(result.events[0], Event::StageOpened { stage, name });
    let name = " [0.00s]".to_owned();
    assert!(result.events.contains(&Event::StageName { stage, name }));
    assert_eq!(result.status(), Some(StageStatus::Completed));
}

#[tokio::test]
async fn a_deployment_streams_below_its_heading_and_is_not_written_twice() {
    let tool = FakeTool::named("ask").rules(CallRules {
        style: StageStyle::Deployment,
        ..rules(json!({}))
    });
    let result = call(&tool.streams("hello"), r#"{"query": "hi"}"#).await;
    assert_eq!(
        result.stage_text(),
        "> #### Request:\n\r***query:*** hi\n\r> #### Response:\nhello"
    );
    assert_eq!(result.text(), "hello");
}

#[tokio::test]
async fn the_stage_of_a_streaming_tool_shows_its_files() {
    let tool = FakeTool::named("ask").rules(CallRules {
        style: StageStyle::Deployment,
        ..rules(json!({}))
    });
    let tool = tool.gives(ToolOutput {
        attachments: vec![file("image/png", Some("files/B/a.png"))],
        streamed: true,
        ..ToolOutput::text("hello", "text/markdown")
    });
    let result = call(&tool, r#"{"query": "hi"}"#).await;
    let shown = result
        .events
        .iter()
        .filter(|event| matches!(event, Event::StageAttachment { .. }));
    assert_eq!(shown.count(), 1, "{:?}", result.events);
    // The tool wrote it as received, so the pipeline did not.
    assert!(!result.stage_text().contains("hello"));
}

#[tokio::test]
async fn r_10_malformed_arguments_are_refused_and_empty_ones_accepted() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).says("done");
    for wrong in ["{", "[1]", "\"x\"", "null", "{} {}"] {
        let result = call(&tool, wrong).await;
        assert!(result.ran().failed);
        assert!(
            result
                .text()
                .starts_with("The arguments of the tool call `look` are not a JSON object: "),
            "{wrong}"
        );
        assert_eq!(result.status(), Some(StageStatus::Failed));
    }
    assert!(tool.calls.lock().unwrap().is_empty());
    for empty in ["", " \n", "{}"] {
        assert_eq!(call(&tool, empty).await.text(), "done");
    }
    // Arguments whose names equal internal names are handled like any others.
    let result = call(&tool, r#"{"tool_call_id": 1, "stage_level": "x"}"#).await;
    assert_eq!(result.text(), "done");
    assert_eq!(tool.calls.lock().unwrap()[3].arguments.len(), 2);
}

#[test]
fn r_10_the_result_for_an_unknown_tool_names_the_tools_that_exist() {
    let ran = unknown_tool_call("call_1", "lok\n", &["look", "see"]);
    assert!(ran.failed);
    let wire = serde_json::to_value(&ran.message).unwrap();
    assert_eq!(
        wire,
        json!({"role": "tool", "tool_call_id": "call_1", "content": "The tool `lok ` does not exist. Valid tools: look, see."})
    );
    let ran = unknown_tool_call("call_1", &"x".repeat(1000), &[]);
    let Some(Text::Text(text)) = ran.message.content else {
        panic!("the message must have a text");
    };
    assert!(text.len() < 120 && text.ends_with("This agent has no tools."));
}

#[tokio::test]
async fn r_12_an_invalid_parameter_bypasses_the_strategies_and_fails_the_stage() {
    let tool = FakeTool::named("look")
        .rules(rules(json!({"strategies": [{"type": "stop"}]})))
        .fails(|| ToolFailure::parameter("file", "no such file"));
    let result = call(&tool, "{}").await;
    let text =
        "Parameter file is invalid, try to call the tool again with fixed exception: no such file";
    assert_eq!(result.text(), text);
    assert_eq!(result.ran().content_type, "text/markdown");
    assert_eq!(result.stage_text(), format!("> ##### Error:\n{text}\n"));
    assert_eq!(result.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn strategies_decide_whether_the_request_continues() {
    let fails = || ToolFailure::from(HandledFailure::new("no stock").status(409));
    let tool = |strategies| {
        let rules = rules(json!({ "strategies": strategies }));
        FakeTool::named("look").rules(rules).fails(fails)
    };
    let result = call(&tool(json!([{"type": "continue"}])), "{}").await;
    assert_eq!(
        result.text(),
        "The tool call failed with an error: no stock"
    );
    let stopped = call(&tool(json!([{"type": "stop"}])), "{}").await;
    let text = fallback::STOPPED_MESSAGE.to_owned();
    let failure = CallFailure::Tool(Some(409));
    assert_eq!(stopped.ended, Err(RequestEnd::Stopped { text, failure }));
    assert_eq!(stopped.status(), Some(StageStatus::Failed));
    let raised = call(&tool(json!([])), "{}").await;
    let failure = failure::RequestFailure::new(500, "no stock");
    assert_eq!(failure.kind, "runtime_error");
    assert_eq!(raised.ended, Err(RequestEnd::Failed(failure)));
    assert_eq!(raised.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn a_stage_shows_only_the_text_that_its_level_allows() {
    let failure =
        || ToolFailure::from(HandledFailure::new("inner").shown("> ##### Status Code:\n500\n"));
    let hidden = FakeTool::named("look")
        .rules(rules(json!({"display_error_in_stage": false})))
        .fails(failure);
    let result = call(&hidden, "{}").await;
    assert_eq!(
        result.stage_text(),
        "An error occurred while executing the tool."
    );
    assert!(
        result.text().contains("inner"),
        "the model gets it nevertheless"
    );
    let visible = FakeTool::named("look")
        .rules(rules(json!({})))
        .fails(failure);
    let result = call(&visible, "{}").await;
    assert_eq!(result.stage_text(), "> ##### Status Code:\n500\n");
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_13_a_tool_that_hangs_is_dropped_at_its_own_limit() {
    let own = CallRules {
        timeout: Some(Duration::from_secs(3)),
        ..rules(json!({"display_error_in_stage": false}))
    };
    let tool = FakeTool::named("look").rules(own).hangs();
    let result = call(&tool, "{}").await;
    let text = timeout::timeout_message("look", Duration::from_secs(3));
    assert_eq!(result.text(), text);
    assert_eq!(result.stage_text(), format!("> ##### Error:\n{text}\n"));
    assert_eq!(result.ran().milliseconds, 3000);
    assert_eq!(*tool.dropped.lock().unwrap(), 1);
    assert_eq!(result.status(), Some(StageStatus::Failed));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_trigger_may_pre_empt_a_timeout() {
    let trigger = json!({"type": "contains", "value": "timed out"});
    let strategies = json!([{"type": "stop"}, {"type": "hard_stop", "trigger_on": trigger}]);
    let tool = FakeTool::named("look").rules(rules(json!({ "strategies": strategies })));
    let result = call(&tool.hangs(), "{}").await;
    assert!(matches!(result.ended, Err(RequestEnd::Stopped { .. })));
    let untriggered =
        FakeTool::named("look").rules(rules(json!({"strategies": [{"type": "stop"}]})));
    let result = call(&untriggered.hangs(), "{}").await;
    assert!(result.text().contains("timed out after 600 seconds"));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_resolver_that_hangs_or_fails_ends_the_call_alone() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).says("done");
    let written = r#"{"f": "file:base64::files/B/a"}"#;
    let hangs = FakeResolver {
        hangs: true,
        ..FakeResolver::default()
    };
    let result = call_with(&tool, written, StageLevel::Info, &hangs).await;
    assert!(result.text().contains("timed out"));
    let fails = FakeResolver {
        fails: Some(|| ToolFailure::parameter("f", "not found")),
        ..FakeResolver::default()
    };
    let result = call_with(&tool, written, StageLevel::Info, &fails).await;
    assert!(result.text().ends_with("not found"));
    assert!(result.stage_text().contains("file:base64::files/B/a\""));
    assert!(tool.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn r_8_the_stage_shows_the_reference_and_its_size() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).says("done");
    let resolve = FakeResolver {
        text: "QUJDRA==",
        ..FakeResolver::default()
    };
    let written = r#"{"f": "file:base64::files/B/a", "n": 1}"#;
    let result = call_with(&tool, written, StageLevel::Info, &resolve).await;
    assert!(
        result
            .stage_text()
            .contains("file:base64::files/B/a (4 bytes)")
    );
    assert!(!result.stage_text().contains("QUJD"));
    let calls = tool.calls.lock().unwrap();
    assert_eq!(calls[0].arguments["f"], "QUJDRA==");
    assert_eq!(calls[0].written["f"], "file:base64::files/B/a");
}

#[tokio::test]
async fn arguments_that_accept_references_never_accept_content() {
    let by_reference = vec!["urls".to_owned()];
    let tool = FakeTool::named("look").rules(CallRules {
        by_reference,
        ..rules(json!({}))
    });
    let tool = tool.says("done");
    let resolve = FakeResolver::default();
    let written =
        r#"{"urls": ["/FILE:base64::files/B/a", "file:url::x", "files/B/c"], "q": "file: me"}"#;
    let result = call_with(&tool, written, StageLevel::Info, &resolve).await;
    assert!(!result.ran().failed);
    let urls = tool.calls.lock().unwrap()[0].arguments["urls"].clone();
    assert_eq!(urls, json!(["files/B/a", "x", "files/B/c"]));
    assert_eq!(resolve.resolved.lock().unwrap().len(), 1);
    assert!(!resolve.resolved.lock().unwrap()[0].contains_key("urls"));
    call_with(&tool, r#"{"q": "plain"}"#, StageLevel::Info, &resolve).await;
    assert_eq!(resolve.resolved.lock().unwrap().len(), 1, "nothing to ask");
}

#[tokio::test]
async fn a_tool_that_takes_files_gets_addresses_in_place_of_ids() {
    let tool = FakeTool::named("look").rules(CallRules {
        file_ids: FileIds::Addresses,
        by_reference: vec!["urls".to_owned()],
        ..rules(json!({}))
    });
    let tool = tool.says("done");
    let written = r#"{"urls": ["file:url::a1-0", "files/B/c"], "q": ["a1-0"]}"#;
    call_with(&tool, written, StageLevel::Info, &FakeResolver::default()).await;
    let arguments = Value::Object(tool.calls.lock().unwrap()[0].arguments.clone());
    let expected = json!({"urls": ["files/B/a", "files/B/c"], "q": ["a1-0"]});
    assert_eq!(arguments, expected);
}

#[tokio::test]
async fn a_tool_that_takes_links_gets_them_in_place_of_ids_and_the_stage_shows_the_id() {
    let written = r#"{"doc": "a1-0", "content": "file:text::files/B/a", "own": "a1-0"}"#;
    let resolve = FakeResolver {
        // Content that is an id is content.
        text: "a1-0",
        ..FakeResolver::default()
    };
    let link = "https://files.example/a";
    for (file_ids, doc) in [(FileIds::Links, link), (FileIds::Kept, "a1-0")] {
        let tool = FakeTool::named("look").rules(CallRules {
            file_ids,
            by_reference: vec!["own".to_owned()],
            ..rules(json!({}))
        });
        let tool = tool.says("done");
        let result = call_with(&tool, written, StageLevel::Info, &resolve).await;
        assert!(!result.ran().failed);
        assert!(!result.stage_text().contains("https://"));
        let arguments = tool.calls.lock().unwrap()[0].arguments.clone();
        assert_eq!(
            Value::Object(arguments),
            json!({"doc": doc, "content": "a1-0", "own": "a1-0"})
        );
    }
}

#[tokio::test]
async fn a_call_whose_links_cannot_be_made_fails_without_a_call_of_the_tool() {
    let tool = FakeTool::named("look").rules(CallRules {
        file_ids: FileIds::Links,
        ..rules(json!({}))
    });
    let tool = tool.says("done");
    let fails = FakeResolver {
        fails: Some(|| crate::HandledFailure::new("no reader").into()),
        ..FakeResolver::default()
    };
    let result = call_with(&tool, r#"{"doc": "a1-0"}"#, StageLevel::Info, &fails).await;
    assert!(result.ran().failed && result.text().contains("no reader"));
    assert!(tool.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_panic_is_reported_as_a_failure() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).panics();
    let result = call(&tool, "{}").await;
    assert_eq!(
        result.text(),
        "The tool call failed with an error: The tool failed unexpectedly."
    );
    assert_eq!(result.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn r_17_a_client_that_disconnects_ends_the_call() {
    let tool = FakeTool::named("look").rules(CallRules::default()).hangs();
    let (sink, end) = EventSink::new();
    let settings = PipelineSettings {
        level: StageLevel::None,
        timeout: AMPLE_TIMEOUT,
    };
    let request = ToolRequest {
        id: "1",
        arguments: "{}",
        answered: None,
    };
    let (turn, resolve) = (test_turn(), FakeResolver::default());
    let leaving = async {
        while tool.calls.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        drop(end);
    };
    let running = run_call(tool.as_ref(), request, &turn, &resolve, &settings, &sink);
    let (ended, ()) = tokio::join!(running, leaving);
    assert_eq!(ended, Err(RequestEnd::Gone(ClientGone)));
    assert_eq!(*tool.dropped.lock().unwrap(), 1);
}
