//! Tests of tools that are deployments (quickapps 24, 25.2).

use std::sync::Arc;

use dray_agent::event::Event;
use dray_agent::manifest::toolset::DialDeployment;
use dray_dial::fake::{FakeDial, ScriptedChat};
use dray_dial::{DialPort, Error, ErrorKind};
use dray_tool::{
    EventSink, HandledFailure, StageWriter, Tool, ToolFailure, ToolOutput, ToolsetResult,
};
use serde_json::{Value, json};

use super::fixture::{FakeFileStorage, ScriptedDial as _, call, caller, end, text, turn};
use crate::{DeploymentFacts, build_deployments};

pub(super) fn described(extra: Value) -> Value {
    let mut tool = json!({
        "type": "deployment-tool",
        "open_ai_tool": { "type": "function", "function": { "name": "ask", "description": "Asks." } },
        "deployment": { "deployment_id": "d" },
    });
    for (name, value) in extra.as_object().unwrap() {
        tool[name] = value.clone();
    }
    tool
}

async fn build_toolset(fixture: &Arc<FakeDial>, tools: Value) -> ToolsetResult {
    let set: DialDeployment =
        serde_json::from_value(json!({ "name": "set", "tools": tools })).unwrap();
    let dial: Arc<dyn DialPort> = Arc::<FakeDial>::clone(fixture);
    build_deployments(&set, &dial, &caller("k")).await
}

pub(super) async fn tool(fixture: &Arc<FakeDial>, extra: Value) -> Arc<dyn Tool> {
    let built = build_toolset(fixture, json!([described(extra)])).await;
    assert_eq!(built.issues, []);
    built.tools.into_iter().next().unwrap()
}

fn fixture(facts: DeploymentFacts) -> Arc<FakeDial> {
    Arc::new(FakeDial::default().knows("k", "d", facts))
}

async fn ask_deployment(
    fixture: &Arc<FakeDial>,
    arguments: Value,
    response: ScriptedChat,
) -> (Result<ToolOutput, ToolFailure>, Arc<FakeFileStorage>) {
    let storage = Arc::default();
    let tool = tool(fixture, json!({})).await;
    fixture.answers(Ok(response));
    let turn = turn(json!([]), &storage);
    let outcome = tool
        .call(call(arguments, StageWriter::hidden()), &turn)
        .await;
    (outcome, storage)
}

async fn fail_deployment(response: Result<ScriptedChat, Error>) -> HandledFailure {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(&fixture, json!({})).await;
    fixture.answers(response);
    let turn = turn(json!([]), &Arc::default());
    match tool
        .call(call(json!({ "query": "q" }), StageWriter::hidden()), &turn)
        .await
    {
        Err(ToolFailure::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_described_tool_gets_the_two_arguments_and_keeps_its_own() {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(
        &fixture,
        json!({ "open_ai_tool": { "type": "function", "function": { "name": "ask it", "parameters": {
            "type": "object", "required": ["tone"],
            "properties": { "tone": { "type": "string", "display": { "stage": { "ignore": true } } } },
        }}}}),
    )
    .await;
    let declaration = tool.declaration();
    assert_eq!(declaration.name, "set_ask_it");
    assert_eq!(declaration.parameters["required"], json!(["tone"]));
    assert_eq!(
        declaration.parameters["properties"]["tone"],
        json!({ "type": "string" })
    );
    assert_eq!(
        declaration.parameters["properties"]["query"]["type"],
        "string"
    );
    assert_eq!(
        declaration.parameters["properties"]["attachment_urls"]["type"],
        "array"
    );
    assert_eq!(tool.rules().label, "Calling ask it application");
    assert_eq!(tool.rules().by_reference, ["attachment_urls"]);
    assert!(
        tool.rules().parameters["tone"]
            .stage
            .as_ref()
            .unwrap()
            .ignore
    );
}

#[tokio::test]
async fn the_request_has_prompt_query_files_and_only_the_named_headers() {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(
        &fixture,
        json!({
            "system_prompt": "Be brief.",
            "content_propagation": { "propagate_headers": ["x-tenant"] },
            "deployment": { "deployment_id": "d", "parameters": { "temperature": 0.5 } },
        }),
    )
    .await;
    fixture.answers(Ok(vec![end()]));
    let arguments = json!({ "query": "sum", "attachment_urls": ["file:base64::files/b/a.txt"] });
    let turn = turn(json!([]), &Arc::default());
    tool.call(call(arguments, StageWriter::hidden()), &turn)
        .await
        .unwrap();
    assert_eq!(
        fixture.body(),
        json!({ "temperature": 0.5, "stream": true, "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "sum", "custom_content": { "attachments": [
                { "type": "text/plain", "title": "a.txt", "url": "files/b/a.txt" },
            ]}},
        ]})
    );
    let chats = fixture.chats.lock().unwrap();
    assert_eq!(chats[0].headers, Some(vec!["x-tenant".to_owned()]));
}

#[tokio::test]
async fn text_is_written_to_the_stage_as_it_arrives_and_nested_stages_are_not() {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(&fixture, json!({})).await;
    fixture.answers(Ok(vec![
        text("one "),
        Ok(json!({ "choices": [{ "delta": { "custom_content": {
            "stages": [{ "index": 0, "name": "inner", "content": "secret" }],
            "attachments": [{ "index": 0, "type": "image/png", "url": "files/b/x.png" }],
            "state": { "a": { "x": 1 } } } } }] })),
        Ok(json!({ "choices": [{ "delta": { "custom_content": {
            "attachments": [{ "index": 1, "reference_url": "http://e/r" }],
            "state": { "a": { "y": 2 } } } } }] })),
        text("two"),
        end(),
        Ok(json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } })),
    ]));
    let (sink, mut events) = EventSink::new();
    let stage = sink.open(None).await.unwrap();
    let turn = turn(json!([]), &Arc::default());
    let output = tool
        .call(call(json!({ "query": "q" }), stage), &turn)
        .await
        .unwrap();
    drop(sink);
    let mut streamed = String::new();
    while let Some(event) = events.recv().await {
        if let Event::StageContent { content, .. } = event {
            streamed.push_str(&content);
        }
    }
    assert_eq!(
        (streamed.as_str(), output.content.as_str()),
        ("one two", "one two")
    );
    assert!(output.streamed);
    assert_eq!(output.content_type, "text/markdown");
    assert_eq!(output.state, Some(json!({ "a": { "x": 1, "y": 2 } })));
    let urls: Vec<_> = output
        .attachments
        .iter()
        .map(|file| file.url.as_deref())
        .collect();
    assert_eq!(urls, [Some("files/b/x.png"), Some("http://e/r")]);
    assert_eq!(
        (
            output.usage[0].model.as_str(),
            output.usage[0].tokens.completion
        ),
        ("d", 4)
    );
}

#[tokio::test]
async fn the_model_learns_that_an_answer_is_not_complete() {
    let fixture = fixture(DeploymentFacts::default());
    for (reason, remark) in [("length", "a limit"), ("content_filter", "A filter")] {
        let cut = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
        let response = vec![text("half"), Ok(cut)];
        let (output, _) = ask_deployment(&fixture, json!({ "query": "q" }), response).await;
        let content = output.unwrap().content;
        let (shown, rest) = content.split_at(4);
        assert!(shown == "half" && rest.contains(remark), "{content}");
    }
}

#[tokio::test]
async fn tokens_by_model_win_over_the_sum() {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 9 }, "statistics": { "usage_per_model": [
        { "index": 0, "model": "m", "prompt_tokens": 1, "completion_tokens": 2 } ] } });
    let fixture = fixture(DeploymentFacts::default());
    let (output, _) =
        ask_deployment(&fixture, json!({ "query": "q" }), vec![end(), Ok(usage)]).await;
    let usage = output.unwrap().usage;
    assert_eq!(
        (usage.len(), usage[0].model.as_str(), usage[0].tokens.prompt),
        (1, "m", 1)
    );
}

#[tokio::test]
async fn the_four_branches_of_a_file_keep_the_order_of_the_arguments() {
    for (direct, external) in [
        (
            true,
            json!({ "type": "*/*", "title": "d.pdf", "url": "https://e/x/d.pdf?k=1",
                    "reference_url": "https://e/x/d.pdf?k=1" }),
        ),
        (
            false,
            json!({ "type": "text/plain", "title": "promoted", "url": "files/b/promoted" }),
        ),
    ] {
        let fixture = fixture(DeploymentFacts {
            url_attachments: direct,
            ..DeploymentFacts::default()
        });
        let urls = ["files/b/slow.txt", "https://e/x/d.pdf?k=1", "data:,x"];
        let arguments = json!({ "query": "q", "attachment_urls": urls });
        ask_deployment(&fixture, arguments, vec![end()])
            .await
            .0
            .unwrap();
        let files = fixture.body()["messages"][0]["custom_content"]["attachments"].clone();
        assert_eq!(files[0]["url"], "files/b/slow.txt");
        assert_eq!(files[1], external);
        assert_eq!(files[2]["url"], "files/b/promoted");
    }
}

#[tokio::test]
async fn all_files_are_examined_before_the_first_failure_in_order_is_reported() {
    let fixture = fixture(DeploymentFacts::default());
    let urls = [
        "files/b/a",
        "ftp://u:p@h/x?t=1",
        "files/b/gone",
        "files/b/z",
    ];
    let (outcome, shelf) =
        ask_deployment(&fixture, json!({ "attachment_urls": urls }), vec![end()]).await;
    let Err(ToolFailure::Parameter { name, message }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(name, "attachment_urls");
    assert!(
        message.starts_with("URL scheme not supported: "),
        "{message}"
    );
    assert!(
        message.ends_with(
            ". Only DIAL file paths (e.g. files/bucket/foo.pdf) and http(s) URLs are accepted."
        ),
        "{message}"
    );
    assert!(
        !message.contains("u:p") && !message.contains("t=1"),
        "{message}"
    );
    assert_eq!(shelf.looked.lock().unwrap().len(), 3);
    assert_eq!(fixture.chats.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn files_that_are_not_a_list_of_texts_are_parameter_errors() {
    for wrong in [json!(1), json!({ "a": 1 }), json!(["files/b/a", 2])] {
        let fixture = fixture(DeploymentFacts::default());
        let (outcome, _) =
            ask_deployment(&fixture, json!({ "attachment_urls": wrong }), vec![end()]).await;
        assert!(
            matches!(outcome, Err(ToolFailure::Parameter { .. })),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn each_status_is_shown_with_the_deployments_own_words() {
    for status in [401, 403, 404, 429, 500] {
        let refused = Error::refused(status).with_messages(Some("inner"), Some(" Sorry. "));
        let failed = fail_deployment(Err(refused)).await;
        assert_eq!(
            (failed.text.as_str(), failed.status),
            ("Sorry.", Some(status))
        );
        let shown = format!("> #### Error:\nSorry.\n> #### Status Code:\n{status}\n");
        assert_eq!(failed.shown, Some(shown));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_a_general_exception() {
    let broken = fail_deployment(Ok(vec![
        text("half"),
        Err(Error::new(ErrorKind::Broken, "gone")),
    ]))
    .await;
    let short = fail_deployment(Ok(vec![text("half")])).await;
    for failed in [broken, short] {
        let shown =
            "> #### Exception:\nGeneral exception occurred while calling other DIAL deployment\n";
        assert_eq!(
            (failed.shown.as_deref(), failed.status),
            (Some(shown), None)
        );
    }
}

#[tokio::test]
async fn an_answer_of_fifty_megabytes_is_refused_long_before_its_end() {
    let megabyte = "x".repeat(1 << 20);
    let failed = fail_deployment(Ok((0..50).map(|_| text(&megabyte)).collect())).await;
    assert_eq!(
        failed.text,
        "The answer of the deployment is longer than 8388608 bytes."
    );
}

#[tokio::test]
async fn a_timeout_of_the_client_of_dial_is_a_timeout_of_the_call() {
    let fixture = fixture(DeploymentFacts::default());
    let slow = Error::new(ErrorKind::Timeout, "slow");
    let (outcome, _) = ask_deployment(&fixture, json!({ "query": "q" }), vec![Err(slow)]).await;
    assert!(matches!(outcome, Err(ToolFailure::TimedOut)));
}

#[tokio::test]
async fn r_17_dropping_a_call_that_hangs_drops_its_stream() {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(&fixture, json!({})).await;
    *fixture.chats_hang.lock().unwrap() = true;
    fixture.answers(Ok(vec![text("first")]));
    let turn = turn(json!([]), &Arc::default());
    let mut running = tool.call(call(json!({ "query": "q" }), StageWriter::hidden()), &turn);
    assert!(futures_util::poll!(&mut running).is_pending());
    assert_eq!(Arc::strong_count(&fixture.open_chats), 2);
    drop(running);
    assert_eq!(Arc::strong_count(&fixture.open_chats), 1);
}

#[tokio::test]
async fn r_17_a_client_that_is_gone_ends_the_call() {
    let fixture = fixture(DeploymentFacts::default());
    let tool = tool(&fixture, json!({})).await;
    *fixture.chats_hang.lock().unwrap() = true;
    fixture.answers(Ok(vec![text("first")]));
    let (sink, events) = EventSink::new();
    let stage = sink.open(None).await.unwrap();
    drop(events);
    let turn = turn(json!([]), &Arc::default());
    let outcome = tool.call(call(json!({ "query": "q" }), stage), &turn).await;
    assert!(matches!(outcome, Err(ToolFailure::Failed(_))));
}

#[tokio::test]
async fn r_14_an_answer_that_contradicts_the_metadata_removes_it_from_the_cache() {
    let files = json!({ "query": "q", "attachment_urls": ["files/b/a"] });
    for (status, arguments, forgotten) in [
        (404, json!({ "query": "q" }), 1),
        (400, json!({ "query": "q" }), 0),
        (400, files.clone(), 1),
        (429, files.clone(), 0),
        (500, files, 0),
    ] {
        let fixture = fixture(DeploymentFacts::default());
        let tool = tool(&fixture, json!({})).await;
        fixture.answers(Err(Error::refused(status)));
        let turn = turn(json!([]), &Arc::default());
        tool.call(call(arguments, StageWriter::hidden()), &turn)
            .await
            .unwrap_err();
        assert_eq!(
            fixture.forgotten.lock().unwrap().len(),
            forgotten,
            "{status}"
        );
    }
}

#[tokio::test]
async fn r_14_two_callers_do_not_share_metadata() {
    let own = DeploymentFacts {
        takes_files: true,
        ..DeploymentFacts::default()
    };
    let fixture = FakeDial::default()
        .knows("k", "d", own)
        .with_refusal("other", "d", 403);
    let dial: Arc<dyn DialPort> = Arc::new(fixture);
    let set = json!({ "name": "set", "tools": [{ "type": "dial-deployment-simple", "deployment_id": "d" }] });
    let set: DialDeployment = serde_json::from_value(set).unwrap();
    let mine = build_deployments(&set, &dial, &caller("k")).await;
    let others = build_deployments(&set, &dial, &caller("other")).await;
    assert_eq!((mine.tools.len(), others.tools.len()), (1, 0));
    assert_eq!(
        others.issues[0].message,
        "Access to deployment 'd' is forbidden."
    );
}

#[tokio::test]
async fn tools_fail_alone_and_disabled_ones_are_not_requested() {
    let fixture = Arc::new(
        FakeDial::default()
            .knows("k", "d", DeploymentFacts::default())
            .knows("k", "applications/b/My%20App", DeploymentFacts::default())
            .with_refusal("k", "broken", 500),
    );
    let built = build_toolset(
        &fixture,
        json!([
            { "type": "dial-deployment-simple", "deployment_id": "broken" },
            { "type": "dial-deployment-simple", "deployment_id": "absent" },
            { "type": "dial-deployment-simple", "deployment_id": "off", "enabled": false },
            described(json!({ "enabled": false })),
            { "type": "dial-deployment-simple", "deployment_id": "applications/b/My%20App" },
            described(json!({})),
        ]),
    )
    .await;
    let names: Vec<_> = built
        .tools
        .iter()
        .map(|tool| tool.declaration().name.as_str())
        .collect();
    assert_eq!(names, ["set_My_App_tool", "set_ask"]);
    let issues: Vec<_> = built
        .issues
        .iter()
        .map(|issue| issue.message.as_str())
        .collect();
    assert_eq!(
        issues,
        [
            "The metadata of deployment 'broken' cannot be read: HTTP 500.",
            "Deployment 'absent' was not found."
        ]
    );
    assert_eq!(built.issues[0].tool.as_deref(), Some("broken_tool"));
    assert_eq!(fixture.deployment_requests.lock().unwrap().len(), 4);
}
