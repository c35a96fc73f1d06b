//! A server over HTTP with tokens, and services that the tests simulate.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dray_bus::{Bus, test_bus};
use dray_mcp::{
    AuthOptions, BearerToken, Caller, HttpEndpoint, HttpOptions, KeyLocation, LocalRoot, McpServer,
    OAuthOptions, Permissions, ScopeSet, ServerOptions, ServiceClient, StaticToken,
};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_types::{Clock, SessionId, TenantId};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{RawResponse, call};
use crate::issuer::{FakeIssuer, ISSUER_URL, JWKS_URL, RESOURCE_URL};

/// A static token of the tests.
pub(crate) const STATIC_TOKEN: &str = "a-static-token-of-the-tests";

/// The origin whose pages may call the server.
pub(crate) const PAGE_ORIGIN: &str = "https://app.example.org";

/// A server over an in-process bus whose only service is the fake one that fetches keys.
pub(crate) struct HttpFixture {
    pub(crate) issuer: FakeIssuer,
    pub(crate) bus: Bus,
    pub(crate) address: SocketAddr,
    clock: Clock,
    pub(crate) directory: tempfile::TempDir,
    _tasks: JoinSet<()>,
    _s3: EmbeddedS3,
}

impl HttpFixture {
    pub(crate) async fn new() -> Self {
        Self::with_keys(KeyLocation::Url(JWKS_URL.to_owned())).await
    }

    pub(crate) async fn with_keys(keys: KeyLocation) -> Self {
        Self::with(keys, ServerOptions::default()).await
    }

    /// A server whose tools may have effects.
    pub(crate) async fn with(keys: KeyLocation, options: ServerOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // This clock is not the one of tokens and of the bus, so that a test can let the cache of keys grow old. It is
        // an hour ahead, so that no deadline passes while a test runs.
        let clock = Clock::manual(Clock::system().now_ms() + 3_600_000);
        let (s3, store) = EmbeddedS3::start(&directory.path().join("s3"))
            .await
            .unwrap();
        let client = ServiceClient {
            bus: test_bus::without_streams(&Clock::system()),
            store: Store::open(&store, clock.clone()).await.unwrap(),
            clock: clock.clone(),
            tenant: TenantId::new("own").unwrap(),
            session: SessionId::new("s1").unwrap(),
        };
        let (issuer, mut tasks) = (FakeIssuer::new(), JoinSet::new());
        issuer.serve(&client.bus, &mut tasks).await;
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("a.txt"), "hello").unwrap();
        let options = ServerOptions {
            permissions: Permissions {
                write: true,
                send: true,
            },
            ..options
        };
        let bus = client.bus.clone();
        let server = McpServer::new(client, Some(LocalRoot::open(&data).unwrap()), options);
        let endpoint = HttpEndpoint::bind(HttpOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            auth: auth_options(keys),
            allowed_hosts: Vec::new(),
            allowed_origins: vec![PAGE_ORIGIN.to_owned()],
        })
        .await
        .unwrap();
        let url = endpoint.url();
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
        let address = address.parse().unwrap();
        tasks.spawn(async move {
            endpoint.serve(server, CancellationToken::new()).await;
        });
        Self {
            issuer,
            bus,
            address,
            clock,
            directory,
            _tasks: tasks,
            _s3: s3,
        }
    }

    /// The response to a list of tools with this token.
    pub(crate) async fn list(&self, token: &str) -> RawResponse {
        call(self.address, Some(token), "tools/list", json!({})).await
    }

    pub(crate) async fn tool(&self, token: &str, name: &str, arguments: Value) -> RawResponse {
        let params = json!({"name": name, "arguments": arguments});
        call(self.address, Some(token), "tools/call", params).await
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

fn auth_options(keys: KeyLocation) -> AuthOptions {
    AuthOptions {
        tokens: vec![StaticToken {
            token: BearerToken::new(STATIC_TOKEN).unwrap(),
            caller: Caller {
                tenant: TenantId::new("own").unwrap(),
                session: SessionId::new("ci").unwrap(),
                scopes: ScopeSet::from_list("read"),
                subject: "token:ci".to_owned(),
                expires_at_ms: None,
            },
        }],
        oauth: Some(OAuthOptions {
            issuer: ISSUER_URL.to_owned(),
            resource: RESOURCE_URL.to_owned(),
            audiences: vec![RESOURCE_URL.to_owned()],
            keys,
            tenant_claim: "tenant".to_owned(),
            default_tenant: None,
            session_claim: "session".to_owned(),
        }),
    }
}
