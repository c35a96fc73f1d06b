//! Tests of successful chats.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::agent::{AnswerScript, FakeAgent, custom, delta, done, end, says};
use super::process::{check, err, events, file, out, run};

#[tokio::test]
async fn answers_go_to_standard_output_and_stages_to_standard_error() {
    let steps = vec![
        delta(&json!({"role": "assistant"})),
        custom(&json!({"stages": [{"index": 0, "name": "Search", "status": null}]})),
        custom(
            &json!({"stages": [{"index": 0, "content": "two\nlines\u{1b}[2J", "status": null}]}),
        ),
        custom(&json!({"stages": [{"index": 1, "name": "Fetch", "status": null}]})),
        custom(&json!({"stages": [{"index": 0, "name": " [1.23s]", "status": null}]})),
        custom(&json!({"stages": [{"index": 0, "status": "completed"}]})),
        delta(&json!({"content": "Crane 4"})),
        custom(&json!({"stages": [{"index": 1, "status": "failed"}]})),
        delta(&json!({"content": " is back."})),
        end(),
        done(),
    ];
    let script = AnswerScript::Stream(steps);
    let agent = FakeAgent::start(vec![script.clone(), script.clone(), script]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let shown = run(home.path(), &["when?", "--url", &url], b"").await;
    check(&shown, 0, "Crane 4 is back.\n");
    assert_eq!(err(&shown), "✓ Search [1.23s]\n✗ Fetch\n");
    let asked = &agent.asked()[0];
    assert_eq!(
        asked.body,
        json!({"messages": [{"role": "user", "content": "when?"}], "stream": true, "model": "harbour"})
    );
    assert_eq!(
        (&asked.path[..], &asked.api_key),
        ("/v1/chat/completions", &None)
    );
    let more = run(home.path(), &["when?", "--url", &url, "--verbose"], b"").await;
    assert_eq!(
        err(&more),
        "✓ Search [1.23s]\n    two\n    lines[2J\n✗ Fetch\n"
    );
    let less = run(
        home.path(),
        &["-", "--url", &url, "--no-stages"],
        b"when?\n",
    )
    .await;
    assert_eq!(err(&less), "");
    assert_eq!(agent.asked()[2].body, asked.body);
}

#[tokio::test]
async fn requests_to_dial_use_its_path_and_its_key_header() {
    let agent = FakeAgent::start(vec![
        AnswerScript::Stream(says("hello")),
        AnswerScript::Stream(says("you")),
    ])
    .await;
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("key"), "k-1\n").unwrap();
    let url = agent.url();
    let dial = ["hi", "--url", &url, "--deployment", "quick apps/2"];
    let without = run(home.path(), &dial, b"").await;
    check(&without, 2, "");
    let with = run(
        home.path(),
        &[&dial[..], &["--api-key-file", "key"]].concat(),
        b"",
    )
    .await;
    check(&with, 0, "hello\n");
    let plain = ["hi", "--url", &url, "--model", "m", "--key", "k-2"];
    check(&run(home.path(), &plain, b"").await, 0, "you\n");
    let asked = agent.asked();
    assert_eq!(
        asked[0].path,
        "/openai/deployments/quick%20apps/2/chat/completions"
    );
    assert_eq!(
        (asked[0].api_key.as_deref(), &asked[0].authorization),
        (Some("k-1"), &None)
    );
    assert_eq!(asked[1].authorization.as_deref(), Some("Bearer k-2"));
    assert_eq!(
        (&asked[1].body["model"], &asked[1].api_key),
        (&json!("m"), &None)
    );
}

#[tokio::test]
async fn the_key_of_the_environment_is_sent_only_to_the_origin_of_dial() {
    let agent = FakeAgent::start(vec![
        AnswerScript::Stream(says("a")),
        AnswerScript::Stream(says("b")),
    ])
    .await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    for dial in ["http://127.0.0.1:1", &url] {
        let mut command = super::process::dray(home.path(), &["hi", "--url", &url]);
        command.env("DIAL_URL", dial).env("DIAL_API_KEY", "k-3");
        assert!(command.output().await.unwrap().status.success());
    }
    let asked = agent.asked();
    assert_eq!(asked[0].authorization, None);
    assert_eq!(asked[1].authorization.as_deref(), Some("Bearer k-3"));
}

#[tokio::test]
async fn a_conversation_continues_through_a_pipe_and_in_the_next_process() {
    let state = json!({"tool_execution_history": [{"role": "tool", "content": "x"}], "orchestrator_state": null});
    let first = vec![
        delta(&json!({"content": "one"})),
        custom(&json!({"state": state})),
        end(),
        done(),
    ];
    let scripts = vec![
        AnswerScript::Stream(first),
        AnswerScript::Stream(says("two")),
        AnswerScript::Stream(says("three")),
    ];
    let agent = FakeAgent::start(scripts).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let conversation = home.path().join("talk.json");
    let arguments = ["--url", &url, "--conversation", "talk.json"];
    let lines = b"first\n\n//etc is what?\r\n/save copy.json\n/quit\nnever\n";
    let piped = run(home.path(), &arguments, lines).await;
    check(&piped, 0, "one\ntwo\n");
    assert_eq!(
        std::fs::metadata(&conversation)
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    assert_eq!(file(&conversation), file(&home.path().join("copy.json")));
    check(
        &run(home.path(), &[&["third"][..], &arguments].concat(), b"").await,
        0,
        "three\n",
    );
    let messages = json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one", "custom_content": {"state": state}},
        {"role": "user", "content": "/etc is what?"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "third"},
    ]);
    let asked = agent.asked();
    assert_eq!(asked[2].body["messages"], messages);
    assert_eq!(
        file(&conversation)["messages"][5],
        json!({"role": "assistant", "content": "three"})
    );
    assert_eq!(file(&conversation)["version"], 1);
}

#[tokio::test]
async fn json_output_has_one_object_for_each_event() {
    let steps = vec![
        custom(&json!({"stages": [{"index": 0, "name": "S", "status": null}]})),
        custom(
            &json!({"stages": [{"index": 0, "name": " [0.10s]", "content": "b", "status": "completed"}]}),
        ),
        delta(&json!({"content": "x"})),
        custom(
            &json!({"attachments": [{"index": 0, "type": "text/csv", "title": "a.csv", "data": "1,2"}]}),
        ),
        custom(&json!({"state": {"k": 1}})),
        end(),
        done(),
    ];
    let agent = FakeAgent::start(vec![AnswerScript::Stream(steps)]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let arguments = ["hi", "--url", &url, "--json", "--downloads", "out"];
    let output = run(home.path(), &arguments, b"").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        events(&output),
        [
            json!({"event": "stage", "index": 0, "name": "S", "status": "running"}),
            json!({"event": "stage", "index": 0, "name": "S [0.10s]", "status": "completed", "content": "b"}),
            json!({"event": "content", "text": "x"}),
            json!({
                "event": "attachment", "type": "text/csv", "title": "a.csv", "url": null,
                "saved_to": "out/a.csv", "size": 3,
            }),
            json!({"event": "state", "state": {"k": 1}}),
            json!({"event": "end", "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
        ]
    );
    assert_eq!(err(&output), "");
}

#[tokio::test]
async fn files_are_sent_and_saved_and_only_links_of_the_agent_are_fetched() {
    let elsewhere = FakeAgent::start(vec![]).await;
    let agent = FakeAgent::start(vec![]).await;
    let (url, other) = (agent.url(), elsewhere.url());
    let files = json!({"attachments": [
        {"index": 0, "type": "image/png", "title": "../p.png", "data": "iVBORw0KGgo="},
        {"index": 1, "title": "a.txt", "url": format!("{url}/store/a?signature=1")},
        {"index": 2, "title": "b.txt", "url": format!("{other}/b.txt")},
        {"index": 3, "title": "a.txt", "url": "data:text/plain;base64,YQ=="},
    ]});
    let first = vec![
        delta(&json!({"content": "here"})),
        custom(&files),
        end(),
        done(),
    ];
    agent.state().scripts = [
        AnswerScript::Stream(first),
        AnswerScript::Stream(says("ok")),
    ]
    .into();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("in.bin"), b"%PDF-1.7\n%").unwrap();
    let arguments = ["--url", &url, "--downloads", "out", "--attach", "in.bin"];
    let lines = b"make\n/attach in.bin\n/files\nand\n/attach none\n";
    let output = run(home.path(), &arguments, lines).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(out(&output), "here\nok\n");
    let message = err(&output);
    for line in [
        "saved to out/p.png",
        "file: a.txt (6 B) saved to out/a.txt",
        &format!("file: b.txt at {other}/b.txt"),
        "saved to out/a (2).txt",
        "to be sent: in.bin (application/pdf)",
        "cannot read none",
    ] {
        assert!(message.contains(line), "{line} is not in\n{message}");
    }
    let saved = |name: &str| std::fs::read(home.path().join("out").join(name)).unwrap();
    assert_eq!(
        (saved("p.png"), saved("a.txt")),
        (b"\x89PNG\r\n\x1a\n".to_vec(), b"stored".to_vec())
    );
    assert_eq!(saved("a (2).txt"), b"a");
    assert_eq!(elsewhere.state().fetched, [""; 0]);
    let sent = json!([{
        "type": "application/pdf", "title": "in.bin", "url": "data:application/pdf;base64,JVBERi0xLjcKJQ==",
    }]);
    let asked = agent.asked();
    assert_eq!(
        asked[0].body["messages"][0]["custom_content"]["attachments"],
        sent
    );
    assert_eq!(
        asked[1].body["messages"][2]["custom_content"]["attachments"],
        sent
    );
}

#[tokio::test]
async fn several_agents_without_a_choice_are_an_error_that_lists_them() {
    let agent = FakeAgent::start(vec![]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    agent.state().models = vec!["crane", "quay"];
    let output = run(home.path(), &["hi", "--url", &url], b"").await;
    check(&output, 2, "");
    assert!(
        err(&output).contains("--manifest: crane, quay"),
        "{output:?}"
    );
    agent.state().models = vec![];
    let output = run(home.path(), &["hi", "--url", &url], b"").await;
    check(&output, 1, "");
    let both = ["hi", "--url", &url, "--manifest", "a", "--model", "b"];
    check(&run(home.path(), &both, b"").await, 2, "");
    assert!(agent.asked().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_shown() {
    let whole = json!({
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "whole"}}],
    });
    let agent = FakeAgent::start(vec![AnswerScript::Status(200, whole)]).await;
    let home = tempfile::tempdir().unwrap();
    let url = format!("{}/v1/", agent.url());
    check(
        &run(home.path(), &["hi", "--url", &url], b"").await,
        0,
        "whole\n",
    );
}
