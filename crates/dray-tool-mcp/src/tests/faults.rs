//! Tests of servers that misbehave, and of what each side learns.

use std::time::Duration;

use dray_agent::caller::Caller;
use dray_http::fake_server::FakeServer;
use dray_tool::{HandledFailure, ToolFailure, ToolsetResult};
use dray_types::Secret;
use serde_json::json;

use super::support::{
    FakeAction, FakeMcpServer, call, fake_server, mcp, messages, named, options, streamable,
};
use crate::{McpToolset, connect_set};

async fn build_toolset(server: &FakeServer<FakeMcpServer>) -> ToolsetResult {
    let set = streamable(&server.shared().url());
    connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await
}

async fn fails(act: FakeAction) -> HandledFailure {
    let server = fake_server(FakeMcpServer {
        acts: vec![act],
        ..FakeMcpServer::default()
    })
    .await;
    let built = build_toolset(&server).await;
    let tool = named(&built, "s_echo0");
    let outcome = call(&tool, json!({"a": 1})).await;
    let Err(ToolFailure::Failed(failed)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(server.shared().lock().calls.len(), 1, "called twice");
    let next = call(&tool, json!({"a": 2})).await.unwrap();
    assert_eq!(next.content, r#"{"a":2}"#);
    assert!(!failed.text.contains("127.0.0.1") && !failed.text.contains("secret"));
    failed
}

#[tokio::test]
async fn a_failed_call_is_reported_once_and_the_next_one_works() {
    for (act, text) in [
        (
            FakeAction::Status(500),
            "the server answered with HTTP status 500",
        ),
        (
            FakeAction::Status(403),
            "the server answered with HTTP status 403",
        ),
        (
            FakeAction::Cut,
            "the connection ended before the answer came",
        ),
        (
            FakeAction::Closed,
            "the connection ended before the answer came",
        ),
        (
            FakeAction::WrongJson,
            "the server does not respond as an MCP server: not JSON",
        ),
        (
            FakeAction::NoMessage,
            "the server does not respond as an MCP server: its response is not a JSON-RPC message",
        ),
        (
            FakeAction::OtherId,
            "the server does not respond as an MCP server: the response is to another request",
        ),
        (
            FakeAction::Accepted,
            "the server does not respond as an MCP server: its response is neither JSON nor events",
        ),
        (FakeAction::Code(-32602), "says no"),
    ] {
        let failed = fails(act.clone()).await;
        let expected = format!("Error calling MCP tool 'echo0': {text}");
        assert_eq!(failed.text, expected, "{act:?}");
    }
}

#[tokio::test]
async fn an_answer_of_50_megabytes_is_refused() {
    for act in [FakeAction::Huge, FakeAction::HugeEvents] {
        let failed = fails(act).await;
        assert_eq!(
            failed.text,
            "Error calling MCP tool 'echo0': the answer is longer than 16777216 bytes"
        );
    }
}

#[tokio::test]
async fn a_lost_session_is_begun_again_and_the_call_repeated_once() {
    let acts = vec![FakeAction::Status(404)];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let tool = named(&build_toolset(&server).await, "s_echo0");
    assert_eq!(
        call(&tool, json!({"a": 1})).await.unwrap().content,
        r#"{"a":1}"#
    );
    let state = server.shared().lock();
    assert_eq!((state.started, state.calls.len()), (2, 2));
    let session = ("mcp-session-id".to_owned(), "session-2".to_owned());
    assert!(
        state
            .headers
            .iter()
            .any(|headers| headers.contains(&session))
    );
}

#[tokio::test]
async fn a_session_that_is_lost_twice_is_a_failure() {
    let acts = vec![FakeAction::Status(404), FakeAction::Status(404)];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let tool = named(&build_toolset(&server).await, "s_echo0");
    let Err(ToolFailure::Failed(failed)) = call(&tool, json!({})).await else {
        panic!("two lost sessions gave a result");
    };
    assert_eq!(failed.status, Some(404));
    assert_eq!(server.shared().lock().calls.len(), 2);
}

#[tokio::test]
async fn a_stream_that_ends_after_an_event_with_an_id_is_resumed_there() {
    let acts = vec![FakeAction::Resumable, FakeAction::Batch];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let tool = named(&build_toolset(&server).await, "s_echo0");
    let resumed = call(&tool, json!({})).await.unwrap();
    assert_eq!(resumed.content, "resumed");
    assert_eq!(server.shared().lock().calls.len(), 1);
    let batch = call(&tool, json!({})).await.unwrap();
    assert_eq!(batch.content, "one of two");
}

#[tokio::test]
async fn code_408_is_a_timeout() {
    let acts = vec![FakeAction::Code(408)];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let tool = named(&build_toolset(&server).await, "s_echo0");
    assert!(matches!(
        call(&tool, json!({})).await,
        Err(ToolFailure::TimedOut)
    ));
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_the_session_ended_with_its_tools() {
    let acts = vec![FakeAction::Hang];
    let server = fake_server(FakeMcpServer {
        acts,
        ..FakeMcpServer::default()
    })
    .await;
    let built = build_toolset(&server).await;
    let tool = named(&built, "s_echo0");
    {
        let calling = call(&tool, json!({}));
        tokio::pin!(calling);
        let began = until(&server, |state| state.calls.len() == 1);
        tokio::select! {
            outcome = &mut calling => panic!("{outcome:?}"),
            () = began => {}
        }
    }
    until(&server, |state| state.cancelled == 1).await;
    assert!(call(&tool, json!({})).await.is_ok());
    drop((tool, built));
    until(&server, |state| state.ended == 1).await;
}

/// Waits until the fake server got something.
async fn until(server: &FakeServer<FakeMcpServer>, seen: impl Fn(&FakeMcpServer) -> bool) {
    let look = async || seen(&server.shared().lock()).then_some(());
    dray_testkit::eventually("what the fake server sees", look).await;
}

#[tokio::test]
async fn a_set_that_cannot_be_reached_is_an_issue_with_the_contracts_text() {
    for (status, text) in [
        (401, "Authentication required for toolset 's'"),
        (
            404,
            "MCP endpoint for toolset 's' did not respond as an MCP server (session terminated — the upstream may \
             have returned 404)",
        ),
        (503, "HTTP error for s: 503 Service Unavailable"),
        (302, "HTTP error for s: 302 Found"),
    ] {
        let refuse = Some((status, 99));
        let server = fake_server(FakeMcpServer {
            refuse,
            ..FakeMcpServer::default()
        })
        .await;
        let built = build_toolset(&server).await;
        assert_eq!((messages(&built), built.tools.len()), (vec![text], 0));
    }
}

#[tokio::test]
async fn servers_that_cannot_be_used_are_reported() {
    for (url, text) in [
        (
            "http://127.0.0.1:1/mcp",
            "MCP error for s: the server cannot be reached",
        ),
        (
            "ftp://x.example/",
            "MCP error for s: the address of the server is neither http nor https",
        ),
        (
            "stdio:rm",
            "MCP error for s: the operator offers no server `rm`",
        ),
    ] {
        let set = streamable(url);
        let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
        assert_eq!(messages(&built), [text]);
    }
}

#[tokio::test]
async fn a_server_that_never_answers_ends_set_up_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let set = streamable(&format!("http://{}/", listener.local_addr().unwrap()));
    let mut options = options();
    options.setup = Duration::from_millis(200);
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    assert_eq!(
        messages(&built),
        ["MCP error for s: the server did not answer in time"]
    );
}

#[tokio::test]
async fn a_list_of_pages_is_read_to_its_end_and_an_endless_one_is_cut() {
    let server = fake_server(FakeMcpServer {
        cursors: vec!["a", "b"],
        ..FakeMcpServer::default()
    })
    .await;
    let whole = build_toolset(&server).await;
    assert_eq!((whole.tools.len(), whole.issues.len()), (3, 0));
    let server = fake_server(FakeMcpServer {
        cursors: vec!["a", "a"],
        ..FakeMcpServer::default()
    })
    .await;
    let endless = build_toolset(&server).await;
    assert_eq!(endless.tools.len(), 2);
    assert_eq!(
        messages(&endless),
        ["MCP error for s: the list of its tools does not end or is too long, and was cut"]
    );
}

#[tokio::test]
async fn a_list_that_is_too_long_as_a_whole_is_cut_though_each_page_is_short() {
    let server = fake_server(FakeMcpServer {
        cursors: vec!["a", "b", "c", "d", "e", "f", "g"],
        schema: Some(json!({"type": "object", "description": "x".repeat(1000)})),
        ..FakeMcpServer::default()
    })
    .await;
    let set = streamable(&server.shared().url());
    let mut options = options();
    options.max_response_bytes = 4_000;
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    assert_eq!(built.tools.len(), 3);
    assert_eq!(
        messages(&built),
        ["MCP error for s: the list of its tools does not end or is too long, and was cut"]
    );
}

#[tokio::test]
async fn a_list_whose_cursors_are_too_long_together_is_cut() {
    let cursors = ["a", "b", "c"].map(|name| &*name.repeat(1500).leak());
    let server = fake_server(FakeMcpServer {
        cursors: cursors.to_vec(),
        ..FakeMcpServer::default()
    })
    .await;
    let set = streamable(&server.shared().url());
    let mut options = options();
    options.max_response_bytes = 4_000;
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    assert_eq!(built.tools.len(), 3);
    assert_eq!(
        messages(&built),
        ["MCP error for s: the list of its tools does not end or is too long, and was cut"]
    );
}

#[tokio::test]
async fn a_list_of_many_pages_without_tools_is_cut() {
    let cursors = (0..200).map(|number: usize| &*number.to_string().leak());
    let server = fake_server(FakeMcpServer {
        cursors: cursors.collect(),
        tools: Some(json!([])),
        ..FakeMcpServer::default()
    })
    .await;
    let built = build_toolset(&server).await;
    assert_eq!(
        messages(&built),
        ["MCP error for s: the list of its tools does not end or is too long, and was cut"]
    );
    let requests = server.shared().lock().headers.len();
    assert!(requests < 50, "{requests}");
}

#[tokio::test]
async fn a_session_in_an_unknown_version_is_refused() {
    for version in ["2099-01-01", "1.0.0", ""] {
        let server = fake_server(FakeMcpServer {
            version: Some(version),
            ..FakeMcpServer::default()
        })
        .await;
        let built = build_toolset(&server).await;
        let text = format!(
            "MCP error for s: the server begins a session in version `{version}` of MCP, which is not known here"
        );
        assert_eq!((messages(&built), built.tools.len()), (vec![&*text], 0));
        assert_eq!(server.shared().lock().started, 1, "begun again");
    }
}

#[tokio::test]
async fn responses_to_other_requests_and_second_responses_are_left_out() {
    let server = fake_server(FakeMcpServer {
        acts: vec![FakeAction::Responses],
        ..FakeMcpServer::default()
    })
    .await;
    let tool = named(&build_toolset(&server).await, "s_echo0");
    assert_eq!(call(&tool, json!({})).await.unwrap().content, "own");
    let next = call(&tool, json!({"a": 2})).await.unwrap();
    assert_eq!(next.content, r#"{"a":2}"#);
}

#[tokio::test]
async fn a_tool_whose_arguments_are_not_an_object_is_left_out_and_reported() {
    for (schema, parameters) in [
        (json!({}), Some(json!({"type": "object"}))),
        (json!({"type": "array"}), None),
        (json!({"type": ["object", "null"]}), None),
    ] {
        let server = fake_server(FakeMcpServer {
            schema: Some(schema.clone()),
            ..FakeMcpServer::default()
        })
        .await;
        let built = build_toolset(&server).await;
        let tools = built.tools.iter();
        let declared: Vec<_> = tools.map(|tool| &tool.declaration().parameters).collect();
        assert_eq!(declared, Vec::from_iter(&parameters), "{schema}");
        let text = "MCP error for s: the arguments of the tool 'echo0' are not an object";
        let issues: &[&str] = if parameters.is_some() { &[] } else { &[text] };
        assert_eq!(messages(&built), issues, "{schema}");
    }
}

#[tokio::test]
async fn only_allowed_tools_are_offered_and_an_empty_list_allows_all() {
    let server = fake_server(FakeMcpServer {
        cursors: vec!["a", "b"],
        ..FakeMcpServer::default()
    })
    .await;
    for (allowed, count) in [(json!(["echo1"]), 1), (json!([]), 3), (json!(null), 3)] {
        let info = json!({"url": server.shared().url(), "protocol": "streamable_http"});
        let set = mcp(json!({"name": "s", "mcp_server_info": info, "allowed_tools": allowed}));
        let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
        assert_eq!(built.tools.len(), count, "{allowed}");
    }
}

#[tokio::test]
async fn r_2_a_foreign_server_gets_listed_headers_and_no_credentials_of_the_caller() {
    let server = fake_server(FakeMcpServer::default()).await;
    let info = json!({
        "url": server.shared().url(), "protocol": "streamable_http",
        "authorization": {"type": "api_key", "key": "configured", "name": "X-Key"},
    });
    let set = mcp(json!({"name": "s", "mcp_server_info": info}));
    let forwarded = [("x-tenant", "t"), ("x-secret", "no"), ("x-key", "no")];
    let caller = Caller {
        api_key: Some(Secret::new("no")),
        authorization: Some(Secret::new("Bearer no")),
        forwarded: forwarded
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..Caller::default()
    };
    let mut options = options();
    options.forward_headers = vec!["X-Tenant".to_owned(), "X-Key".to_owned()];
    let built = connect_set(McpToolset::Mcp(&set), &caller, &options).await;
    assert_eq!(built.tools.len(), 1);
    let state = server.shared().lock();
    assert!(state.headers.len() >= 3);
    for headers in &state.headers {
        assert!(headers.contains(&("x-tenant".to_owned(), "t".to_owned())));
        assert!(headers.contains(&("x-key".to_owned(), "configured".to_owned())));
        assert!(
            headers.iter().all(|(_, value)| !value.contains("no")),
            "{headers:?}"
        );
    }
}
