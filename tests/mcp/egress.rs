//! The egress corpus through the tools of the MCP server, over the real fetcher with a scripted network: `fetch`
//! returns the verdicts of the fetcher, and `policy_check` returns the same verdicts as `fetch`.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use dray_egress_fetcher::dial::{DialedStream, Dialer};
use dray_egress_fetcher::resolve::{DnsError, Resolver};
use dray_egress_fetcher::{EgressFetcher, NetworkAccess};
use dray_guard::{CanonicalName, DnsAnswer, Judge, PinnedAddr};
use dray_mcp::{McpServer, ServerOptions, ServiceClient};
use dray_service::{Host, RunningHost, Settings};
use dray_testkit::egress::{EGRESS_CASES, EGRESS_NAMES};
use dray_testkit::http::{ResponseScript, ScriptedResponder, serve_request};
use dray_types::{SessionId, TenantId};
use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock};
use rmcp::service::{RoleClient, RoleServer, RunningService};
use rmcp::{ServiceExt as _, model::JsonObject};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

/// The names and servers of the corpus. Records the dialled addresses.
#[derive(Clone)]
struct CorpusNetwork {
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    tasks: TaskTracker,
}

impl Resolver for CorpusNetwork {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        _judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            let entry = EGRESS_NAMES
                .iter()
                .find(|(known_name, _)| *known_name == name.as_str());
            let (_, addresses) = entry.ok_or(DnsError::NotFound)?;
            Ok(DnsAnswer {
                name: name.clone(),
                cnames: Vec::new(),
                addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
                dnssec: dray_guard::DnssecStatus::NotKnown,
            })
        })
    }
}

impl Dialer for CorpusNetwork {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let peer = to.socket_addr();
            self.dialled.lock().unwrap().push(peer);
            let (near, far) = tokio::io::duplex(64 * 1024);
            self.tasks.spawn(async move {
                let responder = ScriptedResponder::always(ResponseScript::ok("hello"));
                // A client that closes early is not a failure of the test.
                let _ = serve_request(far, &responder).await;
            });
            Ok(DialedStream {
                upstream_proxy: None,
                io: Box::new(near),
                peer,
                local: SocketAddr::from(([192, 0, 2, 1], 40_000)),
            })
        })
    }
}

/// The fetcher on a separate host, and an MCP client of a server that uses it.
pub(super) struct EgressFixture {
    network: CorpusNetwork,
    client: RunningService<RoleClient, ()>,
    _serving: RunningService<RoleServer, McpServer>,
    running: RunningHost,
    _directory: tempfile::TempDir,
}

impl EgressFixture {
    pub(super) async fn start() -> Self {
        let network = CorpusNetwork {
            dialled: Arc::default(),
            tasks: TaskTracker::new(),
        };
        let access = NetworkAccess {
            resolver: Arc::new(network.clone()),
            dialer: Arc::new(network.clone()),
        };
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings::embedded(directory.path()).set("egress-fetcher.enabled", "true");
        let running = Host::new(settings)
            .with_start::<EgressFetcher, _, _>(move |config, cx| {
                EgressFetcher::start_with(config, cx, access)
            })
            .start()
            .await
            .unwrap();
        let context = running.context();
        let services = ServiceClient {
            bus: context.bus.clone(),
            store: context.store.clone(),
            clock: context.clock.clone(),
            tenant: TenantId::default(),
            session: SessionId::new("corpus").unwrap(),
        };
        let server = McpServer::new(services, None, ServerOptions::default());
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (serving, client) = tokio::join!(server.serve(near), ().serve(far));
        Self {
            network,
            client: client.unwrap(),
            _serving: serving.unwrap(),
            running,
            _directory: directory,
        }
    }

    pub(super) async fn call(&self, tool: &'static str, arguments: &Value) -> CallToolResult {
        let arguments: JsonObject = arguments.as_object().cloned().unwrap();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.client.call_tool(params).await.unwrap()
    }

    pub(super) async fn stop(self) {
        self.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetched_file_is_named_by_its_url_where_its_server_names_none() {
    let fixture = Box::pin(EgressFixture::start()).await;
    for (path, name) in [
        ("/docs/page.html?a=b", "page.html"),
        ("/r%C3%A9sum%C3%A9.txt", "résumé.txt"),
        ("/..%2Fpasswd", "passwd"),
        ("/", "files.example.org.txt"),
    ] {
        let url = format!("http://files.example.org{path}");
        let fetched = fixture.call("fetch", &json!({"url": url})).await;
        let link = fetched.content.iter().find_map(|block| match block {
            ContentBlock::ResourceLink(link) => Some(link.name.clone()),
            _ => None,
        });
        assert_eq!(link.as_deref(), Some(name), "{fetched:?}");
        assert_eq!(fetched.structured_content.unwrap()["name"], name, "{url}");
    }
    fixture.stop().await;
}

/// The reason in the result of a failed tool; empty for a success.
fn refusal_of(result: &CallToolResult) -> String {
    let meta = serde_json::to_value(&result.meta).unwrap();
    match result.is_error {
        Some(true) => meta["drayage/fault"]["detail"].as_str().unwrap().to_owned(),
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_egress_corpus_has_the_same_verdicts_through_the_tools() {
    let fixture = Box::pin(EgressFixture::start()).await;
    for (url, code) in EGRESS_CASES {
        let check = json!({"url": url, "resolve": true});
        let checked = fixture.call("policy_check", &check).await;
        let dialled = fixture.network.dialled.lock().unwrap().clone();
        assert_eq!(dialled, [], "{url:?}: policy_check connects to nothing");
        let checked = checked.structured_content.unwrap();
        let verdict = if code.is_empty() {
            "allowed"
        } else {
            "refused"
        };
        assert_eq!(checked["verdict"], verdict, "{url:?}: {checked}");
        assert_eq!(
            checked["code"].as_str().unwrap_or_default(),
            code,
            "{url:?}"
        );

        let fetched = fixture.call("fetch", &json!({"url": url})).await;
        let refusal = refusal_of(&fetched);
        // The tool itself refuses a text that does not look like a URL, without a call of the fetcher.
        let expected = if refusal == "url_invalid" || refusal == "location_invalid" {
            assert!(
                ["invalid_url", "unsupported_scheme"].contains(&code),
                "{url:?}"
            );
            continue;
        } else {
            code
        };
        assert_eq!(refusal, expected, "{url:?}: {fetched:?}");
        let mut dialled = fixture.network.dialled.lock().unwrap();
        assert_eq!(dialled.is_empty(), !code.is_empty(), "{url:?}");
        dialled.clear();
    }
    fixture.stop().await;
}
