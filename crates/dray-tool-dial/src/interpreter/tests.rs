//! Tests of the interpreter against a fake DIAL with scripted responses.
#![expect(clippy::unnecessary_wraps, reason = "scripts hold outcomes")]

use std::sync::Arc;

use dray_agent::manifest::tool::Common;
use dray_dial::fake::FakeDial;
use dray_dial::{DialPort, Error, ErrorKind, InterpreterAction};
use dray_tool::{StageWriter, Tool, ToolFailure, ToolOutput, Turn};
use serde_json::{Value, json};

use super::{InterpreterOptions, TOOL_NAME, new_interpreter};
use crate::tests::fixture::{FakeFileStorage, ScriptedDial as _, call, turn};

fn tool(fixture: &Arc<FakeDial>, options: InterpreterOptions) -> Arc<dyn Tool> {
    let common: Common = serde_json::from_value(json!({})).unwrap();
    let dial: Arc<dyn DialPort> = Arc::<FakeDial>::clone(fixture);
    new_interpreter(&common, &dial, options)
}

fn answer() -> Result<Value, Error> {
    Ok(
        json!({ "status": "SUCCESS", "stdout": "", "stderr": "", "result": { "text/plain": "3" }, "display": [] }),
    )
}

fn opens(fixture: &FakeDial, id: &str) {
    fixture.on(
        InterpreterAction::OpenSession,
        Ok(json!({ "sessionId": id })),
    );
}

async fn run(tool: &Arc<dyn Tool>, turn: &Turn, extra: Value) -> Result<ToolOutput, ToolFailure> {
    let mut arguments = json!({ "code": "1+2" });
    for (name, value) in extra.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    tool.call(call(arguments, StageWriter::hidden()), turn)
        .await
}

fn talk(files: &[&str]) -> Value {
    let files: Vec<_> = files.iter().map(|url| json!({ "url": url })).collect();
    json!([{ "role": "user", "content": "x", "custom_content": { "attachments": files } }])
}

#[tokio::test]
async fn a_session_is_opened_once_and_kept_for_the_turn() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    assert_eq!(tool.declaration().name, TOOL_NAME);
    assert_eq!(TOOL_NAME, "internal_code_execution_python_interpreter");
    opens(&fixture, "s1");
    fixture.on(InterpreterAction::ExecuteCode, answer());
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(json!([]), &Arc::default());
    let output = run(&tool, &turn, json!({})).await.unwrap();
    run(&tool, &turn, json!({})).await.unwrap();
    assert!(
        output.content.starts_with("\n```json\n{"),
        "{}",
        output.content
    );
    assert!(output.content.ends_with("}\n```\n"));
    assert_eq!(turn.interpreter().as_deref(), Some("s1"));
    assert_eq!(
        fixture.operations(),
        [
            InterpreterAction::OpenSession,
            InterpreterAction::ExecuteCode,
            InterpreterAction::ExecuteCode
        ]
    );
}

#[test]
fn r_13_the_limit_of_the_tool_wins_over_that_of_its_set() {
    let dial: Arc<dyn DialPort> = Arc::new(FakeDial::default());
    for (common, seconds) in [(json!({"timeout_seconds": 5}), 5), (json!({}), 900)] {
        let common: Common = serde_json::from_value(common).unwrap();
        let options = InterpreterOptions {
            set_timeout_seconds: Some(900.0),
            ..InterpreterOptions::default()
        };
        let tool = new_interpreter(&common, &dial, options);
        assert_eq!(tool.rules().timeout.unwrap().as_secs(), seconds);
    }
}

#[tokio::test]
async fn the_session_of_the_history_wins_over_the_configured_session() {
    let history = json!([{ "role": "assistant", "content": "x",
        "custom_content": { "state": { "py_interpreter_state": { "session_id": "old" } } } }]);
    for (history, expected) in [(history, "old"), (json!([]), "default")] {
        let fixture = Arc::new(FakeDial::default());
        let options = InterpreterOptions {
            default_session: Some("default".to_owned()),
            ..InterpreterOptions::default()
        };
        let tool = tool(&fixture, options);
        fixture.on(InterpreterAction::GetSession, Ok(json!({})));
        fixture.on(InterpreterAction::ListFiles, Ok(json!({ "files": [] })));
        fixture.on(InterpreterAction::ExecuteCode, answer());
        let turn = turn(history, &Arc::default());
        run(&tool, &turn, json!({})).await.unwrap();
        let operations = fixture.interpreter_requests.lock().unwrap();
        assert_eq!(operations[0].1, json!({ "sessionId": expected }));
        assert_eq!(
            operations[2].1,
            json!({ "sessionId": expected, "code": "1+2" })
        );
    }
}

#[tokio::test]
async fn a_session_that_is_no_longer_valid_is_opened_again() {
    let fixture = Arc::new(FakeDial::default());
    let options = InterpreterOptions {
        default_session: Some("default".to_owned()),
        ..InterpreterOptions::default()
    };
    let tool = tool(&fixture, options);
    fixture.on(InterpreterAction::GetSession, Err(Error::refused(404)));
    opens(&fixture, "new");
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(json!([]), &Arc::default());
    run(&tool, &turn, json!({})).await.unwrap();
    assert_eq!(turn.interpreter().as_deref(), Some("new"));
}

#[tokio::test]
async fn a_session_that_closes_during_a_run_is_opened_again_with_its_files() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    for id in ["s1", "s2"] {
        opens(&fixture, id);
        fixture.on(InterpreterAction::TransferInputFile, Ok(json!({})));
        fixture.on(InterpreterAction::ExecuteCode, Err(Error::refused(404)));
    }
    let turn = turn(talk(&["files/b/a.csv"]), &Arc::default());
    let output = run(
        &tool,
        &turn,
        json!({ "attachment_urls": ["files/b/a.csv"] }),
    )
    .await;
    assert_eq!(
        output.unwrap().content,
        "Python Code Interpreter session has been closed. Open a new session to work with Python Code Interpreter."
    );
    assert_eq!(fixture.operations().len(), 6);
}

#[tokio::test]
async fn errors_of_the_service_are_returned_as_content() {
    for (status, start) in [
        (
            400,
            "Something wrong with state passed to Python Code Interpreter. Details: bad",
        ),
        (401, "Something wrong with the user API key"),
        (429, "Too many Python Code Interpreter sessions"),
    ] {
        let fixture = Arc::new(FakeDial::default());
        let tool = tool(&fixture, InterpreterOptions::default());
        opens(&fixture, "s");
        let refused = Error::refused(status).with_messages(Some("bad"), None);
        fixture.on(InterpreterAction::ExecuteCode, Err(refused));
        let turn = turn(json!([]), &Arc::default());
        let output = run(&tool, &turn, json!({})).await.unwrap();
        assert!(output.content.starts_with(start), "{}", output.content);
    }
}

#[tokio::test]
async fn errors_without_a_message_of_the_service_are_failures() {
    for (refused, timed_out) in [
        (Error::refused(500), false),
        (Error::new(ErrorKind::Broken, "gone"), false),
        (Error::new(ErrorKind::Timeout, "slow"), true),
    ] {
        let fixture = Arc::new(FakeDial::default());
        let tool = tool(&fixture, InterpreterOptions::default());
        fixture.on(InterpreterAction::OpenSession, Err(refused));
        let turn = turn(json!([]), &Arc::default());
        let failure = run(&tool, &turn, json!({})).await.unwrap_err();
        assert_eq!(matches!(failure, ToolFailure::TimedOut), timed_out);
    }
}

#[tokio::test]
async fn files_are_found_by_the_end_of_their_url_and_transferred_once() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    opens(&fixture, "s");
    fixture.on(InterpreterAction::TransferInputFile, Ok(json!({})));
    fixture.on(InterpreterAction::TransferInputFile, Ok(json!({})));
    fixture.on(InterpreterAction::ExecuteCode, answer());
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(
        talk(&["files/b/my%20a.csv", "https://e/x.pdf"]),
        &Arc::default(),
    );
    let files = json!({ "attachment_urls": ["my a.csv", "x.pdf"] });
    run(&tool, &turn, files.clone()).await.unwrap();
    run(&tool, &turn, files).await.unwrap();
    let operations = fixture.interpreter_requests.lock().unwrap();
    assert_eq!(
        operations[1].1,
        json!({ "sessionId": "s", "sourceUrl": "files/b/my%20a.csv", "targetPath": "my a.csv" })
    );
    assert_eq!(operations[2].1["sourceUrl"], "files/b/promoted");
    assert_eq!(operations.len(), 5);
}

#[tokio::test]
async fn files_that_the_session_already_has_are_not_transferred() {
    let fixture = Arc::new(FakeDial::default());
    let options = InterpreterOptions {
        default_session: Some("s".to_owned()),
        ..InterpreterOptions::default()
    };
    let tool = tool(&fixture, options);
    fixture.on(InterpreterAction::GetSession, Ok(json!({})));
    fixture.on(
        InterpreterAction::ListFiles,
        Ok(json!({ "files": [{ "path": "/mnt/data/a.csv", "size": 1 }] })),
    );
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(talk(&["files/b/a.csv"]), &Arc::default());
    run(&tool, &turn, json!({ "attachment_urls": ["a.csv"] }))
        .await
        .unwrap();
}

#[tokio::test]
async fn files_that_tools_returned_in_this_turn_are_found() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    opens(&fixture, "s");
    fixture.on(InterpreterAction::TransferInputFile, Ok(json!({})));
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(json!([]), &Arc::default());
    let result = json!({ "role": "tool", "tool_call_id": "c", "content": "",
        "custom_content": { "attachments": [{ "url": "files/b/report.csv" }] } });
    turn.add_files(&serde_json::from_value(result).unwrap());
    run(&tool, &turn, json!({ "attachment_urls": ["report.csv"] }))
        .await
        .unwrap();
    let operations = fixture.interpreter_requests.lock().unwrap();
    assert_eq!(operations[1].1["sourceUrl"], "files/b/report.csv");
}

#[tokio::test]
async fn another_file_replaces_that_of_the_same_name_in_the_session() {
    let fixture = Arc::new(FakeDial::default());
    let options = InterpreterOptions {
        default_session: Some("s".to_owned()),
        ..InterpreterOptions::default()
    };
    let tool = tool(&fixture, options);
    fixture.on(InterpreterAction::GetSession, Ok(json!({})));
    fixture.on(
        InterpreterAction::ListFiles,
        Ok(json!({ "files": [{ "path": "/mnt/data/a.csv" }] })),
    );
    fixture.on(InterpreterAction::TransferInputFile, Ok(json!({})));
    fixture.on(InterpreterAction::ExecuteCode, answer());
    let turn = turn(
        talk(&["files/b/1/a.csv", "files/b/2/a.csv"]),
        &Arc::default(),
    );
    run(&tool, &turn, json!({ "attachment_urls": ["a.csv"] }))
        .await
        .unwrap();
    let operations = fixture.interpreter_requests.lock().unwrap();
    assert_eq!(
        operations[2].1,
        json!({ "sessionId": "s", "sourceUrl": "files/b/2/a.csv", "targetPath": "a.csv" })
    );
}

#[tokio::test]
async fn two_files_of_one_name_in_one_call_are_refused() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    let turn = turn(json!([]), &Arc::default());
    let urls = json!({ "attachment_urls": ["files/b/1/a.csv", "files/b/2/a.csv"] });
    let Err(ToolFailure::Parameter { message, .. }) = run(&tool, &turn, urls).await else {
        panic!("one file would replace the other");
    };
    assert!(message.starts_with("Two of the files have the name a.csv."));
    assert_eq!(fixture.operations(), []);
}

#[tokio::test]
async fn one_error_names_all_files_without_a_match() {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    let turn = turn(talk(&["files/b/data.csv"]), &Arc::default());
    let urls = json!({ "attachment_urls": ["ta.csv", "https://unknown/y.txt"] });
    let Err(ToolFailure::Parameter { name, message }) = run(&tool, &turn, urls).await else {
        panic!("an unknown file must be refused");
    };
    assert_eq!(name, "attachment_urls");
    assert_eq!(
        message,
        "Failed to prepare input files:\n- ta.csv: no matching attachment found in conversation\n\
         - y.txt: no matching attachment found in conversation"
    );
    assert_eq!(fixture.operations(), []);
}

async fn shape_response(response: Value, extra: Value, shelf: &Arc<FakeFileStorage>) -> ToolOutput {
    let fixture = Arc::new(FakeDial::default());
    let tool = tool(&fixture, InterpreterOptions::default());
    opens(&fixture, "s");
    fixture.on(InterpreterAction::ExecuteCode, Ok(response));
    run(&tool, &turn(json!([]), shelf), extra).await.unwrap()
}

#[tokio::test]
async fn r_9_displayed_content_becomes_files_with_exact_bytes() {
    let storage = Arc::default();
    let shown = json!({ "display": [
        { "image/png": "iVBO\nRw==", "text/plain": "<Figure>" },
        { "text/csv": "abcd" },
        { "image/jpeg": "not base64!" },
    ]});
    let output = shape_response(shown, json!({}), &storage).await;
    let kept = storage.kept.lock().unwrap();
    assert_eq!(
        (kept[0].1.as_str(), &kept[0].2[..]),
        ("image/png", &b"\x89PNG"[..])
    );
    assert_eq!(
        (kept[1].1.as_str(), &kept[1].2[..]),
        ("text/csv", &b"abcd"[..])
    );
    assert_eq!(kept[0].0.rsplit('.').next(), Some("png"));
    assert_eq!(output.attachments.len(), 2);
    assert_eq!(
        output
            .content
            .matches("Content will be presented as attachment")
            .count(),
        2
    );
    assert!(output.content.contains("<Figure>") && output.content.contains("not base64!"));
}

#[tokio::test]
async fn with_a_full_storage_the_result_is_returned_without_the_file() {
    let storage = Arc::new(FakeFileStorage {
        is_full: true,
        ..FakeFileStorage::default()
    });
    let shown = json!({ "display": [{ "image/png": "iVBORw==", "text/csv": "a,b" }] });
    let output = shape_response(shown, json!({}), &storage).await;
    assert_eq!(output.attachments, []);
    assert!(output.content.contains("The content could not be stored."));
    assert!(output.content.contains("a,b") && !output.content.contains("iVBORw"));
}

#[tokio::test]
async fn long_values_are_reported_page_by_page() {
    let long = json!({ "stdout": format!("{}{}{}", "a".repeat(3000), "é".repeat(3000), "c") });
    let output = shape_response(long.clone(), json!({}), &Arc::default()).await;
    assert!(
        output
            .content
            .contains("(page 0 of 0 to 2, 6001 characters in all)")
    );
    assert!(!output.content.contains('é'));
    let second = shape_response(long.clone(), json!({ "page": 1 }), &Arc::default()).await;
    assert_eq!(second.content.matches('é').count(), 3000);
    let whole = shape_response(long, json!({ "sample_data": false }), &Arc::default()).await;
    assert!(whole.content.len() > 9000);
}

#[tokio::test]
async fn invalid_arguments_are_parameter_errors() {
    for wrong in [
        json!({ "code": " " }),
        json!({ "code": 1 }),
        json!({ "page_size": 0 }),
        json!({ "page": -1 }),
    ] {
        let fixture = Arc::new(FakeDial::default());
        let tool = tool(&fixture, InterpreterOptions::default());
        let outcome = run(&tool, &turn(json!([]), &Arc::default()), wrong).await;
        assert!(
            matches!(outcome, Err(ToolFailure::Parameter { .. })),
            "{outcome:?}"
        );
    }
}
