//! One call through the pipeline.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::event::{Event, StageStatus, TokenUsage};
use dray_agent::manifest::call::{AttachmentRules, Fallback, ToolDisplay, ToolStage};
use dray_agent::message::Content as Text;
use serde_json::json;

use super::*;
use crate::double::{AMPLE_TIMEOUT, FakeResolver, FakeTool, test_turn};
use crate::{CallRules, HandledFailure, StageStyle};

/// What became of a call, and what the client saw of it.
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

    fn shown(&self) -> String {
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
    let seen = call(&tool, "{}").await;
    let ran = seen.ran();
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
    let shown: Vec<_> = seen
        .events
        .iter()
        .filter(|event| matches!(event, Event::StageAttachment { .. }))
        .collect();
    assert_eq!(shown.len(), 1, "files without an address are not shown");
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
async fn the_stage_tells_request_response_and_time() {
    let tool = FakeTool::named("look")
        .rules(rules(json!({})))
        .gives(ToolOutput::text(r#"{"b":1}"#, "application/json"));
    let seen = call(&tool, r#"{"q": "x"}"#).await;
    assert_eq!(
        seen.shown(),
        "> ##### Request:\n```json\n{\n    \"q\": \"x\"\n}\n```\n\n> ##### Response:\n```json\n{\n    \"b\": 1\n}\n```\n"
    );
    let stage = 0;
    let name = Some("Look".to_owned());
    assert_eq!(seen.events[0], Event::StageOpened { stage, name });
    let name = " [0.00s]".to_owned();
    assert!(seen.events.contains(&Event::StageName { stage, name }));
    assert_eq!(seen.status(), Some(StageStatus::Completed));
}

#[tokio::test]
async fn a_deployment_streams_below_its_heading_and_is_not_written_twice() {
    let tool = FakeTool::named("ask").rules(CallRules {
        style: StageStyle::Deployment,
        ..rules(json!({}))
    });
    let seen = call(&tool.streams("hello"), r#"{"query": "hi"}"#).await;
    assert_eq!(
        seen.shown(),
        "> #### Request:\n\r***query:*** hi\n\r> #### Response:\nhello"
    );
    assert_eq!(seen.text(), "hello");
}

#[tokio::test]
async fn r_10_malformed_arguments_are_answered_and_nothing_at_all_is_fine() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).says("done");
    for wrong in ["{", "[1]", "\"x\"", "null", "{} {}"] {
        let seen = call(&tool, wrong).await;
        assert!(seen.ran().failed);
        assert!(
            seen.text()
                .starts_with("The arguments of the tool call `look` are not a JSON object: "),
            "{wrong}"
        );
        assert_eq!(seen.status(), Some(StageStatus::Failed));
    }
    assert!(tool.calls.lock().unwrap().is_empty());
    for empty in ["", " \n", "{}"] {
        assert_eq!(call(&tool, empty).await.text(), "done");
    }
    // Names that collide with the inner ones of others are names like any other.
    let seen = call(&tool, r#"{"tool_call_id": 1, "stage_level": "x"}"#).await;
    assert_eq!(seen.text(), "done");
    assert_eq!(tool.calls.lock().unwrap()[3].arguments.len(), 2);
}

#[test]
fn r_10_an_unknown_tool_is_answered_with_the_names_of_those_that_there_are() {
    let ran = unknown_tool_call("call_1", "lok\n", &["look", "see"]);
    assert!(ran.failed);
    let wire = serde_json::to_value(&ran.message).unwrap();
    assert_eq!(
        wire,
        json!({"role": "tool", "tool_call_id": "call_1", "content": "There is no tool `lok `. Valid tools: look, see."})
    );
    let ran = unknown_tool_call("call_1", &"x".repeat(1000), &[]);
    let Some(Text::Text(text)) = ran.message.content else {
        panic!("text");
    };
    assert!(text.len() < 120 && text.ends_with("There are no tools."));
}

#[tokio::test]
async fn r_12_an_invalid_parameter_bypasses_the_strategies_and_fails_the_stage() {
    let tool = FakeTool::named("look")
        .rules(rules(json!({"strategies": [{"type": "stop"}]})))
        .fails(|| ToolFailure::parameter("file", "no such file"));
    let seen = call(&tool, "{}").await;
    let text =
        "Parameter file is invalid, try to call the tool again with fixed exception: no such file";
    assert_eq!(seen.text(), text);
    assert_eq!(seen.ran().content_type, "text/markdown");
    assert_eq!(seen.shown(), format!("> ##### Error:\n{text}\n"));
    assert_eq!(seen.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn strategies_decide_whether_the_request_goes_on() {
    let fails = || ToolFailure::from(HandledFailure::new("no stock").status(409));
    let tool = |strategies| {
        let rules = rules(json!({ "strategies": strategies }));
        FakeTool::named("look").rules(rules).fails(fails)
    };
    let told = call(&tool(json!([{"type": "continue"}])), "{}").await;
    assert_eq!(told.text(), "The tool call failed with an error: no stock");
    let stopped = call(&tool(json!([{"type": "stop"}])), "{}").await;
    let text = fallback::STOPPED_MESSAGE.to_owned();
    assert_eq!(stopped.ended, Err(RequestEnd::Stopped { text }));
    assert_eq!(stopped.status(), Some(StageStatus::Failed));
    let raised = call(&tool(json!([])), "{}").await;
    let failure = failure::RequestFailure::new(500, "no stock");
    assert_eq!(failure.kind, "runtime_error");
    assert_eq!(raised.ended, Err(RequestEnd::Failed(failure)));
    assert_eq!(raised.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn a_stage_says_only_what_it_may() {
    let shown =
        || ToolFailure::from(HandledFailure::new("inner").shown("> ##### Status Code:\n500\n"));
    let hidden = FakeTool::named("look")
        .rules(rules(json!({"display_error_in_stage": false})))
        .fails(shown);
    let seen = call(&hidden, "{}").await;
    assert_eq!(seen.shown(), "An error occurred while executing the tool.");
    assert!(
        seen.text().contains("inner"),
        "the model is told all the same"
    );
    let told = FakeTool::named("look").rules(rules(json!({}))).fails(shown);
    let seen = call(&told, "{}").await;
    assert_eq!(seen.shown(), "> ##### Status Code:\n500\n");
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_13_a_tool_that_hangs_is_dropped_at_its_own_limit() {
    let own = CallRules {
        timeout: Some(Duration::from_secs(3)),
        ..rules(json!({"display_error_in_stage": false}))
    };
    let tool = FakeTool::named("look").rules(own).hangs();
    let seen = call(&tool, "{}").await;
    let text = timeout::timeout_message("look", Duration::from_secs(3));
    assert_eq!(seen.text(), text);
    assert_eq!(seen.shown(), format!("> ##### Error:\n{text}\n"));
    assert_eq!(seen.ran().milliseconds, 3000);
    assert_eq!(*tool.dropped.lock().unwrap(), 1);
    assert_eq!(seen.status(), Some(StageStatus::Failed));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_trigger_may_pre_empt_a_timeout() {
    let trigger = json!({"type": "contains", "value": "timed out"});
    let strategies = json!([{"type": "stop"}, {"type": "hard_stop", "trigger_on": trigger}]);
    let tool = FakeTool::named("look").rules(rules(json!({ "strategies": strategies })));
    let seen = call(&tool.hangs(), "{}").await;
    assert!(matches!(seen.ended, Err(RequestEnd::Stopped { .. })));
    let untriggered =
        FakeTool::named("look").rules(rules(json!({"strategies": [{"type": "stop"}]})));
    let seen = call(&untriggered.hangs(), "{}").await;
    assert!(seen.text().contains("timed out after 600 seconds"));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_resolver_that_hangs_or_fails_ends_the_call_alone() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).says("done");
    let written = r#"{"f": "file:base64::files/B/a"}"#;
    let hangs = FakeResolver {
        hangs: true,
        ..FakeResolver::default()
    };
    let seen = call_with(&tool, written, StageLevel::Info, &hangs).await;
    assert!(seen.text().contains("timed out"));
    let fails = FakeResolver {
        fails: Some(|| ToolFailure::parameter("f", "not found")),
        ..FakeResolver::default()
    };
    let seen = call_with(&tool, written, StageLevel::Info, &fails).await;
    assert!(seen.text().ends_with("not found"));
    assert!(seen.shown().contains("file:base64::files/B/a\""));
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
    let seen = call_with(&tool, written, StageLevel::Info, &resolve).await;
    assert!(seen.shown().contains("file:base64::files/B/a (4 bytes)"));
    assert!(!seen.shown().contains("QUJD"));
    let calls = tool.calls.lock().unwrap();
    assert_eq!(calls[0].arguments["f"], "QUJDRA==");
    assert_eq!(calls[0].written["f"], "file:base64::files/B/a");
}

#[tokio::test]
async fn arguments_that_take_references_never_take_content() {
    let by_reference = vec!["urls".to_owned()];
    let tool = FakeTool::named("look").rules(CallRules {
        by_reference,
        ..rules(json!({}))
    });
    let tool = tool.says("done");
    let resolve = FakeResolver::default();
    let written =
        r#"{"urls": ["/FILE:base64::files/B/a", "file:url::x", "files/B/c"], "q": "file: me"}"#;
    let seen = call_with(&tool, written, StageLevel::Info, &resolve).await;
    assert!(!seen.ran().failed);
    let given = tool.calls.lock().unwrap()[0].arguments["urls"].clone();
    assert_eq!(given, json!(["files/B/a", "x", "files/B/c"]));
    assert_eq!(resolve.asked.lock().unwrap().len(), 1);
    assert!(!resolve.asked.lock().unwrap()[0].contains_key("urls"));
    call_with(&tool, r#"{"q": "plain"}"#, StageLevel::Info, &resolve).await;
    assert_eq!(resolve.asked.lock().unwrap().len(), 1, "nothing to ask");
}

#[tokio::test]
async fn a_panic_is_a_failure_like_any_other() {
    let tool = FakeTool::named("look").rules(rules(json!({}))).panics();
    let seen = call(&tool, "{}").await;
    assert_eq!(
        seen.text(),
        "The tool call failed with an error: The tool failed unexpectedly."
    );
    assert_eq!(seen.status(), Some(StageStatus::Failed));
}

#[tokio::test]
async fn r_17_a_client_that_goes_ends_the_call_at_once() {
    let tool = FakeTool::named("look").rules(CallRules::default()).hangs();
    let (sink, end) = EventSink::new();
    let settings = PipelineSettings {
        level: StageLevel::None,
        timeout: AMPLE_TIMEOUT,
    };
    let request = ToolRequest {
        id: "1",
        arguments: "{}",
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

#[tokio::test]
async fn a_stage_stays_open_until_the_end_of_the_answer_when_the_manifest_says_so() {
    let deferred = CallRules {
        display: ToolDisplay {
            stage: Some(ToolStage {
                name: None,
                body: None,
                show: true,
                defer_close: Some(true),
            }),
        },
        ..rules(json!({}))
    };
    let closes = |events: &[Event]| {
        let closed = |event: &&Event| matches!(event, Event::StageClosed { .. });
        events.iter().filter(closed).count()
    };
    let resolve = FakeResolver::default();
    for (rules, expected) in [(rules(json!({})), 1), (deferred, 0)] {
        let tool = FakeTool::named("t").rules(rules).says("done");
        let seen = call_with(&tool, r#"{"a": 1}"#, StageLevel::Info, &resolve).await;
        assert_eq!(closes(&seen.events), expected);
    }
    let (sink, mut end) = EventSink::new();
    let stage = sink.open(None).await.unwrap();
    stage.defer_close(StageStatus::Failed);
    sink.close_deferred().await.unwrap();
    sink.close_deferred().await.unwrap();
    drop((stage, sink));
    let mut events = Vec::new();
    while let Some(event) = end.recv().await {
        events.push(event);
    }
    assert_eq!(closes(&events), 1, "{events:?}");
}

#[tokio::test]
async fn levels_decide_what_is_seen_and_never_what_is_told() {
    let hidden = CallRules {
        display: ToolDisplay {
            stage: Some(ToolStage {
                name: None,
                body: None,
                show: false,
                defer_close: None,
            }),
        },
        ..rules(json!({}))
    };
    let fails = || ToolFailure::from(HandledFailure::new("x"));
    let both: BTreeMap<_, Arc<FakeTool>> = BTreeMap::from([
        (
            "shown",
            FakeTool::named("t").rules(rules(json!({}))).fails(fails),
        ),
        ("hidden", FakeTool::named("t").rules(hidden).fails(fails)),
    ]);
    let resolve = FakeResolver::default();
    for (kind, level, is_seen) in [
        ("shown", StageLevel::None, false),
        ("shown", StageLevel::Error, true),
        ("shown", StageLevel::Info, true),
        ("hidden", StageLevel::Error, false),
        ("hidden", StageLevel::Info, false),
        ("hidden", StageLevel::Debug, true),
    ] {
        let seen = call_with(&both[kind], r#"{"a": 1}"#, level, &resolve).await;
        assert_eq!(!seen.events.is_empty(), is_seen, "{kind} {level:?}");
        assert_eq!(seen.text(), "The tool call failed with an error: x");
        if is_seen {
            assert!(seen.shown().starts_with("> ##### Request:\n"));
            assert_eq!(seen.status(), Some(StageStatus::Failed));
        }
    }
    let good = FakeTool::named("t").rules(rules(json!({}))).says("done");
    let seen = call_with(&good, "{}", StageLevel::Error, &resolve).await;
    assert!(seen.events.is_empty());
}
