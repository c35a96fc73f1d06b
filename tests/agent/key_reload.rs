//! Tests of keys that change while the orchestrator runs: a turn under way ends with the keys with which it began, a
//! revoked key of a client is refused, and later turns use the new keys.

use std::path::PathBuf;
use std::sync::Arc;

use dray_http::RequestBuilder;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_testkit::eventually;
use dray_testkit::tls::Authority;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::crashes::send;
use super::fixture::{AgentFixture, AgentSetup, user};
use super::process::ServiceProcess;
use super::rest_endpoint::order_tool_set;

const RELOADS_METRIC: &str = "dray_orchestrator_config_reloads_total{";
const STALE_METRIC: &str = "dray_orchestrator_config_stale";

/// A tool that responds after `release`, and counts its calls.
async fn gated_tool(release: CancellationToken) -> (FakeServer<usize>, Value) {
    let server = FakeServer::start(
        0,
        move |shared: Arc<SharedState<usize>>, _: ReceivedRequest| {
            let release = release.clone();
            async move {
                *shared.lock() += 1;
                release.cancelled().await;
                Ok::<Reply, ConnectionClosed>(fake_server::json_reply(
                    200,
                    &json!({"ordered": true}),
                ))
            }
            .boxed()
        },
    );
    let server = server.await.unwrap();
    let tools = order_tool_set(&server.shared().url(), "post");
    (server, tools)
}

/// An orchestrator process with a file of its keys.
struct KeyedAgent {
    fixture: AgentFixture,
    process: ServiceProcess,
    file: PathBuf,
}

impl KeyedAgent {
    /// An agent that calls this tool and says `answer`.
    async fn start(tools: Value, (tool, answer): (&str, &str), section: &str) -> Self {
        let rules = json!([
            {"when": {"tool_result_of": tool}, "reply": {"say": answer}},
            {"reply": {"call": [{"name": tool, "arguments": {}}]}},
        ]);
        let setup = AgentSetup::new(json!([tools]), rules).distributed();
        let fixture = setup.without("orchestrator").start().await;
        let file = fixture.directory().join("keys.toml");
        std::fs::write(&file, section).unwrap();
        let process = fixture.process_of("orchestrator", &[], Some(&file)).await;
        Self {
            fixture,
            process,
            file,
        }
    }

    fn configure(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap();
    }

    /// A chat with this key, for [`send`].
    fn chat(&self, key: &str) -> RequestBuilder {
        let body = json!({"model": "agent", "messages": [user("Order.")]});
        let request = self.fixture.post_to(&self.process, "/v1/chat/completions");
        let request = request.header("authorization", &format!("Bearer {key}"));
        request.json(&body)
    }

    async fn status(&self, key: &str) -> u16 {
        send(self.chat(key)).await.0
    }

    /// The keys that the model got, one for each request.
    fn model_keys(&self) -> Vec<String> {
        let requests = self.fixture.model.received_requests().into_iter();
        requests
            .map(|request| {
                request.headers["authorization"]
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }
}

fn content(body: &Value) -> &Value {
    &body["choices"][0]["message"]["content"]
}

/// The keys of one client and of the model.
fn section(client: &str, model: &str) -> String {
    format!("[orchestrator]\nmodel_key = '{model}'\n[orchestrator.clients]\napp = '{client}'\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_with_the_keys_of_its_beginning_and_later_ones_need_the_new_keys() {
    let release = CancellationToken::new();
    let (tool, tools) = gated_tool(release.clone()).await;
    let called = ("shop_order", "Ordered.");
    let agent = KeyedAgent::start(tools, called, &section("first-key", "model-one")).await;

    // A turn waits for its tool when the key of its client is revoked, and the key of the model is replaced.
    let mut turn = JoinSet::new();
    turn.spawn(send(agent.chat("first-key")));
    eventually("a call of the tool", async || {
        (*tool.shared().lock() == 1).then_some(())
    })
    .await;
    agent.configure(&section("second-key", "model-two"));
    agent.process.wait_for_metric(RELOADS_METRIC, "1").await;
    assert_eq!(agent.status("first-key").await, 401);
    release.cancel();
    let (status, body) = turn.join_next().await.unwrap().unwrap();
    assert_eq!(status, 200, "{body}");
    assert_eq!(content(&body), "Ordered.");
    assert_eq!(agent.model_keys(), ["Bearer model-one"; 2]);

    assert_eq!(agent.status("second-key").await, 200);
    assert_eq!(agent.model_keys()[2..], ["Bearer model-two"; 2]);

    // A file that is not valid changes nothing: the earlier key is accepted, and the new one is refused.
    let invalid = section("third-key", "model-three");
    agent.configure(&format!("{invalid}[orchestrator.budgets]\nprcies = 1\n"));
    agent.process.wait_for_metric(STALE_METRIC, "1").await;
    assert_eq!(agent.status("third-key").await, 401);
    assert_eq!(agent.status("second-key").await, 200);

    // A setting that needs a restart does not keep the others from being applied.
    agent.configure(&invalid.replace("[orchestrator]\n", "[orchestrator]\nmax_chats = 7\n"));
    agent.process.wait_for_metric(STALE_METRIC, "0").await;
    assert_eq!(agent.status("second-key").await, 401);
    assert_eq!(agent.status("third-key").await, 200);
    assert_eq!(agent.model_keys().last().unwrap(), "Bearer model-three");
    agent.fixture.stop().await;
}

/// An MCP server whose tool `key` returns the credential in its environment.
const KEYED_PROGRAM: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"key","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"$TOOL_KEY\"}]}";;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"; continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_next_turn_of_a_conversation_starts_a_program_with_its_changed_credential() {
    let info = json!({"url": "stdio:vault", "protocol": "stdio"});
    let tools = json!({"type": "mcp", "name": "vault", "mcp_server_info": info});
    let with_key = |key: &str| {
        let program = "[orchestrator.mcp_servers.vault]\ncommand = '/bin/sh'";
        let keys = section("app-key", "model-key");
        format!(
            "{keys}{program}\nargs = ['-c', '''{KEYED_PROGRAM}''']\nenv = {{ TOOL_KEY = '{key}' }}\n"
        )
    };
    let called = ("vault_key", "It has {result}.");
    let agent = KeyedAgent::start(tools, called, &with_key("one")).await;
    // The program of a session is kept from one turn to the next.
    let turn = || send(agent.chat("app-key").header("x-dray-session", "s-1"));
    assert_eq!(content(&turn().await.1), "It has one.");
    agent.configure(&with_key("two"));
    agent.process.wait_for_metric(RELOADS_METRIC, "1").await;
    assert_eq!(content(&turn().await.1), "It has two.");
    agent.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_of_authorities_is_a_change_of_the_setting_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let write = || std::fs::write(&file, Authority::new().unwrap().pem()).unwrap();
    write();
    let settings = format!(
        "[orchestrator]\ndial_url = 'https://localhost:1'\ndial_ca_file = '{}'\n",
        file.display()
    );
    let section = section("app-key", "model-key").replace("[orchestrator]\n", &settings);
    let (_tool, tools) = gated_tool(CancellationToken::new()).await;
    let agent = KeyedAgent::start(tools, ("shop_order", "Ordered."), &section).await;
    write();
    agent.process.wait_for_metric(RELOADS_METRIC, "1").await;
    // A file without a certificate of an authority is refused, and the refusal is reported.
    std::fs::write(
        &file,
        "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    agent.process.wait_for_metric(STALE_METRIC, "1").await;
    agent.fixture.stop().await;
}
