//! The client that the official conformance suite of MCP starts.
//!
//! It connects to the server as an agent's tool set, lists the tools, and calls each of them. Arguments are those that
//! the scenario gives, or values that the tool's schema allows. Its fake user accepts every form with the defaults, and
//! signs in wherever a page redirects without a question. It has no model.
#![expect(
    clippy::print_stderr,
    reason = "the suite shows the errors of a client that failed"
)]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::Mcp;
use dray_agent::message::Attachment;
use dray_dial::signin::SignIn;
use dray_http::{HttpClient, HttpTimeouts};
use dray_tool::{
    FileStorage, StageWriter, Tool, ToolCall, ToolFailure, ToolsetResult, Turn, UrlClass,
    UserAnswer, UserQuestion,
};
use dray_tool_mcp::{
    IssuerTrust, McpOptions, McpToolset, OAuthOptions, QuestionPort, SignInPage, SignInPort,
    WorkloadToken, connect_set,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// Name of the tool set, with which the name of every tool begins.
const SET_NAME: &str = "suite";
/// Longest wait for the server's response to a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest file of a call, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files of results are discarded, because scenarios only check requests.
#[derive(Debug)]
struct DiscardingStorage;

#[async_trait]
impl FileStorage for DiscardingStorage {
    fn classify(&self, _url: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _url: &str) -> Result<Attachment, ToolFailure> {
        Err(ToolFailure::parameter(parameter, "there are no files"))
    }

    async fn keep(&self, name: &str, kind: &str, _bytes: Bytes) -> Result<Attachment, ToolFailure> {
        Ok(Attachment {
            kind: Some(kind.to_owned()),
            url: Some(format!("discarded/{name}")),
            ..Attachment::default()
        })
    }
}

/// The address to which the suite redirects the browser. No program listens there: the address itself contains the
/// code.
const REDIRECT_URI: &str = "http://localhost:3000/callback";
/// The id of a client with a metadata document, as the suite knows it.
const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";
/// The beginning of the names of scenarios whose client has its own credentials.
const CLIENT_CREDENTIALS_PREFIX: &str = "auth/client-credentials";

/// The scenario whose client has a token of its platform.
const WORKLOAD_SCENARIO: &str = "auth/wif-jwt-bearer";
/// Name of this token.
const WORKLOAD_TOKEN_NAME: &str = "platform";

/// A fake user who accepts everything.
#[derive(Debug)]
struct WillingPerson {
    browser: HttpClient,
}

#[async_trait]
impl QuestionPort for WillingPerson {
    async fn ask(&self, _: &str, _: &UserQuestion, _: &Caller) -> UserAnswer {
        UserAnswer::Accepted(Map::new())
    }
}

#[async_trait]
impl SignInPort for WillingPerson {
    fn redirect_uri(&self) -> &str {
        REDIRECT_URI
    }

    async fn authorize(&self, _: &Caller, page: &SignInPage) -> Result<String, SignIn> {
        let opened = self.browser.get(&page.url).send(&|_| {}).await;
        let opened = opened.map_err(|_| SignIn::Failed)?;
        // The page of the suite redirects the browser without a question.
        opened
            .header("location")
            .map(str::to_owned)
            .ok_or(SignIn::Denied)
    }
}

/// Arguments: the name of the scenario; its context as JSON, or an empty text; the URL of the server.
#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, context, url] = arguments.as_slice() else {
        eprintln!("usage: mcp-client SCENARIO CONTEXT URL");
        return ExitCode::FAILURE;
    };
    match Box::pin(run_scenario(scenario, context, url)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_scenario(
    scenario: &str,
    context: &str,
    url: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let context: Value = match context {
        "" => Value::Null,
        context => serde_json::from_str(context)?,
    };
    let set = tool_set(scenario, &context, url)?;
    let client = HttpClient::new(HttpTimeouts::default(), None)?;
    let person = Arc::new(WillingPerson {
        browser: client.clone(),
    });
    let mut options = McpOptions::new(client);
    options.questions = Some(Arc::clone(&person) as Arc<dyn QuestionPort>);
    options.oauth = OAuthOptions {
        port: Some(person),
        client_metadata_url: Some(CLIENT_METADATA_URL.to_owned()),
        // The servers of the suite are all on this machine, each with a separate port.
        issuer_trust: IssuerTrust::Any,
        ..OAuthOptions::default()
    };
    // The value removes its file when the scenario is over.
    let workload = workload_token(&context, url)?;
    if let Some((_, token)) = &workload {
        let tokens = &mut options.oauth.workload_tokens;
        tokens.insert(WORKLOAD_TOKEN_NAME.to_owned(), token.clone());
    }
    let caller = Caller::default();
    let connecting = connect_set(McpToolset::Mcp(&set), &caller, &options);
    let connected: ToolsetResult = Box::pin(connecting).await;
    for issue in &connected.issues {
        eprintln!("{}", issue.message);
    }
    let turn = Turn::new(
        Caller::default(),
        "conformance",
        Vec::new(),
        Arc::new(DiscardingStorage),
        MAX_FILE_BYTES,
    );
    for (tool, arguments) in planned_calls(&connected.tools, &context) {
        let call = ToolCall {
            id: "1".to_owned(),
            written: arguments.clone(),
            arguments,
            stage: StageWriter::hidden(),
            deadline: Instant::now() + CALL_TIMEOUT,
        };
        let name = &tool.declaration().name;
        // A failing tool does not mean that the client fails.
        match tool.call(call, &turn).await {
            Ok(output) => eprintln!("{name}: {}", output.content),
            Err(failure) => eprintln!("{name}: {failure:?}"),
        }
    }
    if connected.tools.is_empty() {
        return Err("there are no tools".into());
    }
    Ok(())
}

/// The tool set of the scenario's server.
fn tool_set(scenario: &str, context: &Value, url: &str) -> serde_json::Result<Mcp> {
    let mut info = json!({"url": url, "protocol": "streamable_http"});
    if scenario.starts_with("auth/")
        && let Some(members) = info.as_object_mut()
    {
        let authorization = authorization(scenario, context);
        members.insert("authorization".to_owned(), authorization);
    }
    serde_json::from_value(json!({"name": SET_NAME, "mcp_server_info": info}))
}

/// The token of the platform that the scenario gives, in a file. Its audience is the authorization server.
fn workload_token(
    context: &Value,
    server: &str,
) -> Result<Option<(tempfile::NamedTempFile, WorkloadToken)>, Box<dyn std::error::Error>> {
    let Some(token) = context.get("valid_jwt").and_then(Value::as_str) else {
        return Ok(None);
    };
    let claims = token.split('.').nth(1).ok_or("the token has no claims")?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    let issuer = claims.get("aud").and_then(Value::as_str);
    let issuer = issuer.ok_or("the token has no audience")?;
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(token.as_bytes())?;
    let workload = WorkloadToken {
        file: file.path().to_owned(),
        servers: vec![server.to_owned()],
        token_endpoints: vec![format!("{}/token", issuer.trim_end_matches('/'))],
    };
    Ok(Some((file, workload)))
}

/// The client as the scenario registers it.
fn authorization(scenario: &str, context: &Value) -> Value {
    let mut authorization = Map::from_iter([("type".to_owned(), json!("oauth"))]);
    if scenario.starts_with(CLIENT_CREDENTIALS_PREFIX) {
        authorization.insert("grant".to_owned(), json!("client_credentials"));
    }
    if scenario == WORKLOAD_SCENARIO {
        authorization.insert("grant".to_owned(), json!("jwt_bearer"));
        authorization.insert("workload_token".to_owned(), json!(WORKLOAD_TOKEN_NAME));
    }
    let members = [
        ("client_id", "client_id"),
        ("client_secret", "client_secret"),
        ("private_key_pem", "private_key"),
    ];
    for (given, member) in members {
        if let Some(value) = context.get(given) {
            authorization.insert(member.to_owned(), value.clone());
        }
    }
    Value::Object(authorization)
}

type PlannedCall<'a> = (&'a Arc<dyn Tool>, Map<String, Value>);

/// The calls of the scenario, or one call of each tool.
fn planned_calls<'a>(tools: &'a [Arc<dyn Tool>], context: &Value) -> Vec<PlannedCall<'a>> {
    let Some(calls) = context["toolCalls"].as_array() else {
        let schemas: Vec<_> = tools
            .iter()
            .map(|tool| &tool.declaration().parameters)
            .collect();
        let of_schema = tools.iter().map(|tool| {
            let arguments = sample_arguments(&tool.declaration().parameters, schemas.first());
            (tool, arguments)
        });
        return of_schema.collect();
    };
    calls
        .iter()
        .filter_map(|call| {
            let name = format!("{SET_NAME}_{}", call["name"].as_str()?);
            let tool = tools.iter().find(|tool| tool.declaration().name == name)?;
            Some((tool, call["arguments"].as_object()?.clone()))
        })
        .collect()
}

/// A value for each property of a schema. A property `schema` gets the schema of the first tool, which the suite
/// compares with the one that it sent.
fn sample_arguments(schema: &Value, first: Option<&&Value>) -> Map<String, Value> {
    let properties = schema["properties"].as_object();
    let properties = properties.into_iter().flatten();
    properties
        .map(|(name, property)| {
            let value = match property["type"].as_str() {
                Some("number" | "integer") => json!(2),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") if name == "schema" => json!(first),
                Some("object") => json!({}),
                _ => json!("text"),
            };
            (name.clone(), value)
        })
        .collect()
}
