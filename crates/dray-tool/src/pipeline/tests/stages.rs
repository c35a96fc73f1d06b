//! Tests when stages open and close, and which of them are shown to a client.

use super::*;

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
        let result = call_with(&tool, r#"{"a": 1}"#, StageLevel::Info, &resolve).await;
        assert_eq!(closes(&result.events), expected);
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
async fn levels_decide_the_stages_and_never_the_result() {
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
        let result = call_with(&both[kind], r#"{"a": 1}"#, level, &resolve).await;
        assert_eq!(!result.events.is_empty(), is_seen, "{kind} {level:?}");
        assert_eq!(result.text(), "The tool call failed with an error: x");
        if is_seen {
            assert!(result.stage_text().starts_with("> ##### Request:\n"));
            assert_eq!(result.status(), Some(StageStatus::Failed));
        }
    }
    let good = FakeTool::named("t").rules(rules(json!({}))).says("done");
    let result = call_with(&good, "{}", StageLevel::Error, &resolve).await;
    assert!(result.events.is_empty());
}
