//! Tests of clients that sign in with the identity of their workload.

use std::path::Path;

use dray_http::fake_server::FakeServer;
use serde_json::json;

use super::oauth::{ProtectedServer, connected, protected};
use super::support::{call, messages, named, options};
use crate::{McpOptions, WorkloadToken};

/// Options with one workload token, which may be used for the server.
fn workload_options(server: &FakeServer<ProtectedServer>, file: &Path) -> McpOptions {
    let url = server.shared().url();
    let token = WorkloadToken {
        file: file.to_owned(),
        servers: vec![format!("{url}/mcp")],
        token_endpoints: vec![format!("{url}/token")],
    };
    let mut options = options();
    options
        .oauth
        .workload_tokens
        .insert("platform".to_owned(), token);
    options
}

#[tokio::test]
async fn a_client_presents_the_token_of_its_platform_which_is_read_at_each_sign_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "first.workload.jwt\n").unwrap();
    let server = protected(ProtectedServer::default()).await;
    let client = json!({"client_id": "c", "client_secret": "not-sent", "grant": "jwt_bearer",
        "workload_token": "platform", "scope": "files"});
    let built = connected(&server, &client, &workload_options(&server, &file)).await;
    assert_eq!(messages(&built), [""; 0]);
    let tool = named(&built, "s_echo");
    assert_eq!(call(&tool, json!({})).await.unwrap().content, "files");
    std::fs::write(&file, "second.workload.jwt").unwrap();
    server.shared().lock().revoked = 1;
    assert_eq!(call(&tool, json!({})).await.unwrap().content, "files");
    let url = server.shared().url();
    let forms = server.shared().lock().exchanges.clone();
    for (form, assertion) in forms
        .iter()
        .zip(["first.workload.jwt", "second.workload.jwt"])
    {
        let mut form = form.clone();
        form.sort();
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            field("assertion", assertion),
            field("client_id", "c"),
            field("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            field("resource", &format!("{url}/mcp")),
            field("scope", "files"),
        ];
        assert_eq!(form, expected);
    }
    assert_eq!(forms.len(), 2);
}

/// The change that a case makes to the operator's settings.
type Change = fn(&mut WorkloadToken);

#[tokio::test]
async fn a_token_of_the_platform_goes_only_where_the_operator_permits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "workload.jwt").unwrap();
    let named = json!({"grant": "jwt_bearer", "workload_token": "platform"});
    let not_offered = "the operator offers no such `workload_token` for this server";
    let keep: Change = |_| {};
    let cases: [(_, Change, _); 6] = [
        (
            json!({"grant": "jwt_bearer"}),
            keep,
            "the grant `jwt_bearer` needs a `workload_token`",
        ),
        (
            json!({"grant": "jwt_bearer", "workload_token": "other"}),
            keep,
            not_offered,
        ),
        (
            named.clone(),
            |token| token.servers = vec!["https://mcp.example/mcp".to_owned()],
            not_offered,
        ),
        (
            named.clone(),
            |token| token.token_endpoints = vec!["https://login.example/token".to_owned()],
            "the operator does not permit the workload token at this token endpoint",
        ),
        (
            named.clone(),
            |token| token.file = token.file.join("missing"),
            "the workload token cannot be read",
        ),
        (
            named,
            |token| std::fs::write(&token.file, " \n").unwrap(),
            "the workload token cannot be read",
        ),
    ];
    for (client, change, reason) in cases {
        let server = protected(ProtectedServer::default()).await;
        let mut options = workload_options(&server, &file);
        options.oauth.workload_tokens.values_mut().for_each(change);
        let built = connected(&server, &client, &options).await;
        let text = format!("Sign-in failed for toolset 's': {reason}");
        assert_eq!(messages(&built), [text]);
        assert!(server.shared().lock().exchanges.is_empty());
    }
}

/// The messages of a sign-in during which the server closes the connection at each of these paths once.
async fn messages_with_closed_connections(file: &Path, closing: &[&'static str]) -> Vec<String> {
    let server = protected(ProtectedServer::default()).await;
    server.shared().lock().closing = closing.to_vec();
    let client = json!({"grant": "jwt_bearer", "workload_token": "platform"});
    let built = connected(&server, &client, &workload_options(&server, file)).await;
    assert_eq!(server.shared().lock().closing, [""; 0]);
    messages(&built).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn metadata_is_requested_again_after_a_closed_connection_and_a_token_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "workload.jwt").unwrap();
    let metadata = [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
    ];
    let none = messages_with_closed_connections(&file, &metadata).await;
    assert_eq!(none, [""; 0]);
    let failed = messages_with_closed_connections(&file, &["/token"]).await;
    assert_eq!(failed, ["Sign-in failed for toolset 's'"]);
}
