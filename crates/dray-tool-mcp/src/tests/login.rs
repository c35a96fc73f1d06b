//! Tests of tool sets of DIAL: what is reported if they are not available, sign-in, files.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::DialMcp;
use dray_dial::DialPort;
use dray_dial::fake::FakeDial;
use dray_dial::signin::SignIn;
use dray_http::fake_server::FakeServer;
use dray_tool::{ToolFailure, ToolsetResult};
use dray_types::Secret;
use serde_json::{Value, json};

use super::support::{
    FakeAction, FakeMcpServer, MemoryStorage, call_as, dial_mcp, fake_server, messages, named,
    options, streamable,
};
use crate::{McpToolset, connect_all, connect_set};

fn caller(channel: Option<&str>) -> Caller {
    Caller {
        api_key: Some(Secret::new("per-request")),
        channel: channel.map(str::to_owned),
        ..Caller::default()
    }
}

fn core(server: &FakeServer<FakeMcpServer>, outcomes: Vec<SignIn>) -> Arc<FakeDial> {
    let mut core = FakeDial::at(&server.shared().url());
    core.sign_in_outcomes = outcomes;
    Arc::new(core)
}

async fn connect_one(core: &Arc<FakeDial>, caller: &Caller) -> ToolsetResult {
    let mut options = options();
    let dial: Arc<dyn DialPort> = Arc::<FakeDial>::clone(core);
    options.dial = Some(dial);
    connect_set(McpToolset::Dial(&dial_mcp("t")), caller, &options).await
}

#[tokio::test]
async fn an_unauthorised_set_reports_the_outcome_of_its_sign_in() {
    for (channel, outcome, text) in [
        (
            None,
            SignIn::Done,
            "Toolset 't' requires sign-in, but no client channel is available",
        ),
        (
            Some("c"),
            SignIn::Denied,
            "Sign-in was denied for toolset 't'",
        ),
        (
            Some("c"),
            SignIn::TimedOut,
            "Sign-in timed out for toolset 't'",
        ),
        (Some("c"), SignIn::Failed, "Sign-in failed for toolset 't'"),
        (
            Some("c"),
            SignIn::Done,
            "Sign-in succeeded but toolset 't' initialization still failed",
        ),
    ] {
        let refuse = Some((401, 99));
        let server = fake_server(FakeMcpServer {
            refuse,
            ..FakeMcpServer::default()
        })
        .await;
        let core = core(&server, vec![outcome]);
        let built = connect_one(&core, &caller(channel)).await;
        assert_eq!(messages(&built), [text]);
        let batches = usize::from(channel.is_some());
        assert_eq!(core.sign_ins.lock().unwrap().len(), batches);
    }
}

#[tokio::test]
async fn all_unauthorised_sets_are_signed_in_to_with_one_batch() {
    let refuse = Some((401, 2));
    let server = fake_server(FakeMcpServer {
        refuse,
        ..FakeMcpServer::default()
    })
    .await;
    let core = core(&server, vec![SignIn::Done, SignIn::Denied]);
    let mut options = options();
    let dial: Arc<dyn DialPort> = Arc::<FakeDial>::clone(&core);
    options.dial = Some(dial);
    let (a, b) = (dial_mcp("a"), dial_mcp("b"));
    let built = connect_all(
        &[McpToolset::Dial(&a), McpToolset::Dial(&b)],
        &caller(Some("c")),
        &options,
    )
    .await;
    assert_eq!(*core.sign_ins.lock().unwrap(), [["a", "b"]]);
    assert_eq!((built[0].tools.len(), built[0].issues.len()), (1, 0));
    assert_eq!(messages(&built[1]), ["Sign-in was denied for toolset 'b'"]);
}

#[tokio::test]
async fn a_call_signs_in_once_and_a_second_401_is_a_failure() {
    for (acts, works) in [
        (vec![FakeAction::Status(401)], true),
        (
            vec![FakeAction::Status(401), FakeAction::Status(401)],
            false,
        ),
    ] {
        let server = fake_server(FakeMcpServer {
            acts,
            ..FakeMcpServer::default()
        })
        .await;
        let core = core(&server, vec![SignIn::Done]);
        let built = connect_one(&core, &caller(Some("c"))).await;
        let tool = named(&built, "t_echo0");
        let outcome = call_as(&tool, json!({}), caller(Some("c")), &Arc::default()).await;
        assert_eq!(outcome.is_ok(), works, "{outcome:?}");
        assert_eq!(core.sign_ins.lock().unwrap().len(), 1);
        assert_eq!(server.shared().lock().calls.len(), 2);
    }
}

#[tokio::test]
async fn without_a_channel_a_401_during_a_call_is_a_failure() {
    let acts = vec![FakeAction::Status(401)];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let core = core(&server, vec![SignIn::Done]);
    let tool = named(&connect_one(&core, &caller(None)).await, "t_echo0");
    let outcome = call_as(&tool, json!({}), caller(None), &Arc::default()).await;
    assert!(matches!(outcome, Err(ToolFailure::Failed(failed)) if failed.status == Some(401)));
    assert_eq!(core.sign_ins.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn metadata_that_dial_refuses_are_an_issue() {
    for (status, text) in [
        (404, "Toolset 't' not found"),
        (403, "Access to toolset 't' is forbidden"),
        (401, "Authentication required for toolset 't'"),
        (500, "HTTP error for t: 500 Internal Server Error"),
    ] {
        let mut core = FakeDial::default();
        core.toolset_refusal = Some(status);
        let built = connect_one(&Arc::new(core), &caller(None)).await;
        assert_eq!(messages(&built), [text]);
    }
}

#[tokio::test]
async fn an_endpoint_of_dial_gets_the_key_of_the_request() {
    let server = fake_server(FakeMcpServer::default()).await;
    let built = connect_one(&core(&server, Vec::new()), &caller(None)).await;
    assert_eq!(built.tools.len(), 1);
    let key = ("api-key".to_owned(), "per-request".to_owned());
    let state = server.shared().lock();
    assert!(state.headers.iter().all(|headers| headers.contains(&key)));
}

#[tokio::test]
async fn dial_core_gives_metadata_sign_in_and_grants() {
    let refuse = Some((401, 1));
    let server = fake_server(FakeMcpServer {
        refuse,
        ..takes_files()
    })
    .await;
    let url = server.shared().url();
    let core = dray_dial::DialClient::new(dray_dial::DialOptions::new(url.as_str(), "v")).unwrap();
    let mut options = options();
    options.dial = Some(Arc::new(core));
    options.login_timeout = std::time::Duration::from_secs(20);
    let caller = caller(Some("c"));
    let set: DialMcp = serde_json::from_value(json!({"dial_id": "toolsets/b/t"})).unwrap();
    let built = connect_set(McpToolset::Dial(&set), &caller, &options).await;
    let tool = named(&built, "Shown_echo0");
    let file = json!({"one": "files/b/a%20b.pdf"});
    let output = call_as(&tool, file, caller, &Arc::default()).await.unwrap();
    assert!(
        output.content.contains("files/b/a%20b.pdf"),
        "{}",
        output.content
    );
    let state = server.shared().lock();
    let paths: Vec<_> = state.asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/openai/toolsets/toolsets/b/t",
            "/v1/ops/client-channel/interact",
            "/v1/ops/resource/per-request-permissions/grant",
        ]
    );
    assert_eq!(state.asked[1].1[0]["params"]["toolsetId"], "toolsets/b/t");
    assert_eq!(
        state.asked[2].1,
        json!({
            "resourcePermissions": [{"url": "files/b/a%20b.pdf", "permissions": ["READ"]}],
            "receiver": "toolsets/b/t",
        })
    );
}

fn takes_files() -> FakeMcpServer {
    FakeMcpServer {
        schema: Some(json!({"type": "object", "properties": {
            "one": {"type": "string", "dial_url": true},
            "many": {"type": "array", "items": {"type": "string"}, "dial_url": true},
            "other": {"type": "string"},
        }})),
        ..FakeMcpServer::default()
    }
}

#[tokio::test]
async fn files_of_all_parameters_are_granted_with_one_call() {
    let server = fake_server(takes_files()).await;
    let core = core(&server, Vec::new());
    let tool = named(&connect_one(&core, &caller(None)).await, "t_echo0");
    assert_eq!(tool.rules().by_reference, ["one", "many"]);
    assert_eq!(tool.rules().file_ids, dray_tool::FileIds::Links);
    let arguments = json!({
        "one": "files/b/a%20b.pdf",
        "many": [format!("{}/v1/files/b/c.pdf", server.shared().url()), "files/b/a%20b.pdf"],
        "other": "https://x.example/",
    });
    let output = call_as(&tool, arguments, caller(None), &Arc::default())
        .await
        .unwrap();
    let passed: Value = serde_json::from_str(&output.content).unwrap();
    assert_eq!(passed["one"], "files/b/a%20b.pdf");
    assert_eq!(
        passed["many"],
        json!(["files/b/c.pdf", "files/b/a%20b.pdf"])
    );
    assert_eq!(passed["other"], "https://x.example/");
    let urls = ["files/b/a%20b.pdf", "files/b/c.pdf"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(*core.grants.lock().unwrap(), [(urls, "t".to_owned())]);
}

#[tokio::test]
async fn files_in_nested_arguments_are_granted_too() {
    let file = json!({"type": "string", "dial_url": true});
    let schema = json!({
        "type": "object",
        "$defs": {"Part": {"type": "object", "properties": {
            "file": file, "next": {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}]}}}},
        "properties": {
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "options": {"type": "object", "properties": {"covers": {"type": "array", "items": file}}},
        },
    });
    let server = fake_server(FakeMcpServer {
        schema: Some(schema),
        ..FakeMcpServer::default()
    })
    .await;
    let core = core(&server, Vec::new());
    let tool = named(&connect_one(&core, &caller(None)).await, "t_echo0");
    let arguments = json!({
        "parts": [{"file": "files/b/1.pdf", "next": {"file": format!("{}/v1/files/b/2.pdf", server.shared().url()), "next": null}}],
        "options": {"covers": ["file:url::files/b/3.pdf", "files/b/1.pdf"], "other": "files/b/4.pdf"},
    });
    let output = call_as(&tool, arguments, caller(None), &Arc::default()).await;
    let passed: Value = serde_json::from_str(&output.unwrap().content).unwrap();
    assert_eq!(passed["parts"][0]["next"]["file"], "files/b/2.pdf");
    assert_eq!(
        passed["options"]["covers"],
        json!(["files/b/3.pdf", "files/b/1.pdf"])
    );
    let mut granted = core.grants.lock().unwrap()[0].0.clone();
    granted.sort();
    assert_eq!(granted, ["files/b/1.pdf", "files/b/2.pdf", "files/b/3.pdf"]);
    let outside = json!({"parts": [{"file": "https://x.example/a"}]});
    let error = call_as(&tool, outside, caller(None), &Arc::default())
        .await
        .unwrap_err();
    let start = "Parameter parts.file is invalid: Parameter `parts.file` requires a DIAL file";
    assert!(error.to_string().starts_with(start), "{error}");
}

#[tokio::test]
async fn other_urls_than_those_of_dial_are_invalid_parameters() {
    let server = fake_server(takes_files()).await;
    let core = core(&server, Vec::new());
    let tool = named(&connect_one(&core, &caller(None)).await, "t_echo0");
    for (url, start) in [
        (
            "https://u:p@x.example/a?sig=1",
            "Parameter `one` requires a DIAL file but received an external URL",
        ),
        (
            "ftp://x",
            "Parameter `one` requires a DIAL file but received an unsupported URL: ftp://x.",
        ),
    ] {
        let storage: Arc<MemoryStorage> = Arc::default();
        let outcome = call_as(&tool, json!({"one": url}), caller(None), &storage).await;
        let Err(ToolFailure::Parameter { name, message }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(name, "one");
        assert!(message.starts_with(start), "{message}");
        assert!(
            !message.contains("sig") && !message.contains("u:p"),
            "{message}"
        );
        assert!(url.starts_with("ftp") || message.contains("file:base64::"));
    }
    assert_eq!(server.shared().lock().calls.len(), 0);
    assert_eq!(core.grants.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_set_without_an_id_cannot_be_given_files() {
    let server = fake_server(takes_files()).await;
    let set = streamable(&server.shared().url());
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let tool = named(&built, "s_echo0");
    let files = json!({"one": "files/b/a"});
    let outcome = call_as(&tool, files, Caller::default(), &Arc::default()).await;
    let Err(ToolFailure::Parameter { name, message }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (name.as_str(), message.as_str()),
        (
            "file_url",
            "Files cannot be shared because dial_toolset_id is not configured."
        )
    );
}
