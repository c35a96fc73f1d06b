//! Tests of the console over real HTTP, an in-process bus, and fake services.

mod acts;
mod checks;
mod files;
mod guard;
mod live;
mod oidc;
mod outage;
mod pages;
mod playground;
mod questions;
mod replay;
mod sandbox;
mod turns;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, test_bus};
use dray_proto::Call;
use dray_proto::contract::call_subject;
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_types::{Clock, Deadline, Fault, OperationId, TenantId};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    AgentEndpoint, BucketPolicy, ConfigValue, ConsoleRole, ConsoleServer, ConsoleSettings,
    ConsoleSystem, LoginLink, PolicyBucketReader,
};

/// Longest time for one step of a test, on a slow machine.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Status line of each page while all parts work.
const ALL_WORKING: &str = "Working: the bus, the store and the reader of events.";
/// Key of login links.
const LINK_KEY: [u8; 32] = [7; 32];

/// Digest of the policy of [`FakePolicyBucket`].
const BUCKET_DIGEST: &str = "d1";

/// A bucket with one policy.
#[derive(Debug)]
struct FakePolicyBucket;

impl PolicyBucketReader for FakePolicyBucket {
    fn read(&self) -> BoxFuture<'_, Result<BucketPolicy, String>> {
        Box::pin(std::future::ready(Ok(BucketPolicy {
            bucket: "dray_egress_policy",
            revision: 43,
            time_ms: Some(1_767_225_600_000),
            written_by: Some("<ada>".to_owned()),
            rules_digest: Ok(BUCKET_DIGEST.to_owned()),
        })))
    }
}

/// A console with its own bus and store.
struct ConsoleFixture {
    bus: Bus,
    store: Store,
    clock: Clock,
    address: SocketAddr,
    base_url: String,
    responders: JoinSet<()>,
    _directory: TempDir,
    s3: Option<EmbeddedS3>,
    _stop: DropGuard,
    _serving: JoinSet<()>,
}

/// A response as received.
#[derive(Clone, Debug)]
struct TestResponse {
    status: u16,
    head: String,
    body: String,
}

impl TestResponse {
    /// The first value of a header; names are compared without case.
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }

    /// The path of the link with this `rel` on this page of a list.
    fn link(&self, rel: &str) -> Option<String> {
        let (before, _) = self.body.split_once(&format!("\" rel=\"{rel}\""))?;
        let (_, path) = before.rsplit_once("href=\"")?;
        Some(path.replace("&amp;", "&"))
    }

    /// The value of the hidden field in every form of this page.
    fn form_token(&self) -> String {
        let (_, rest) = self.body.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// A logged-in browser: its cookie and the token of its forms.
#[derive(Clone, Debug)]
struct Login {
    cookie: String,
    form_token: String,
}

impl ConsoleFixture {
    /// A console whose logins may act.
    async fn new() -> Self {
        Self::with(Self::acting()).await
    }

    fn acting() -> ConsoleSettings {
        ConsoleSettings {
            highest_role: ConsoleRole::Act,
            ..ConsoleSettings::default()
        }
    }

    async fn with(settings: ConsoleSettings) -> Self {
        Self::start_on(empty_bus().await, settings).await
    }

    /// A console on this bus.
    async fn start_on(bus: Bus, settings: ConsoleSettings) -> Self {
        Self::start_with_agents(bus, settings, None).await
    }

    /// A console on this bus, whose playground sends to `agents`.
    async fn start_with_agents(
        bus: Bus,
        settings: ConsoleSettings,
        agents: Option<AgentEndpoint>,
    ) -> Self {
        Self::start_with_clock(bus, settings, agents, Clock::system()).await
    }

    /// A console on this bus, with this clock.
    async fn start_with_clock(
        bus: Bus,
        settings: ConsoleSettings,
        agents: Option<AgentEndpoint>,
        clock: Clock,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (s3, options) = EmbeddedS3::start(&directory.path().join("s3"))
            .await
            .unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let server = ConsoleServer::bind(([127, 0, 0, 1], 0).into(), settings, clock.clone());
        let server = server.await.unwrap();
        let (address, base_url) = (server.address(), server.base_url());
        let system = ConsoleSystem {
            bus: bus.clone(),
            store: Some(store.clone()),
            tenant: TenantId::default(),
            config: vec![ConfigValue {
                key: "egress-fetcher.enabled".to_owned(),
                value: "true".to_owned(),
                source: "variable DRAY_EGRESS_FETCHER__ENABLED".to_owned(),
            }],
            agents,
            policy_bucket: Some(Arc::new(FakePolicyBucket)),
            link_keys: LINK_KEY.into(),
        };
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let served = server.serve(system, stop.clone());
        serving.spawn(served);
        Self {
            bus,
            store,
            clock,
            address,
            base_url,
            responders: JoinSet::new(),
            _directory: directory,
            s3: Some(s3),
            _stop: stop.drop_guard(),
            _serving: serving,
        }
    }

    /// Starts a fake service that handles all calls of this kind until the fixture is dropped.
    async fn respond<C: Call>(
        &mut self,
        respond: impl Fn(C) -> Result<C::Reply, Fault> + Send + 'static,
    ) {
        let mut responder = self
            .bus
            .respond_to(&call_subject::<C>(), "test")
            .await
            .unwrap();
        self.responders.spawn(async move {
            while let Some(incoming) = responder.next().await {
                let request: C = incoming.decode().unwrap();
                incoming.answer(respond(request)).await;
            }
        });
    }

    /// The path of a new login link.
    fn link_path(&self, role: ConsoleRole) -> String {
        let link = LoginLink::new(&TenantId::default(), role, self.clock.now_ms());
        link.url("", &LINK_KEY)
    }

    async fn log_in(&self, role: ConsoleRole) -> Login {
        let response = self.get(&self.link_path(role), None).await;
        assert_eq!(response.status, 200, "{response:?}");
        let cookie = response.header("set-cookie").unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let mut login = Login {
            cookie,
            form_token: String::new(),
        };
        login.form_token = self.get("/policy", Some(&login)).await.form_token();
        login
    }

    async fn get(&self, path: &str, login: Option<&Login>) -> TestResponse {
        let cookie = login.map_or(String::new(), |login| {
            format!("Cookie: {}\r\n", login.cookie)
        });
        let host = self.address;
        self.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\n\r\n"
        ))
        .await
    }

    /// Sends a form with the token of the login and, unless `fields` has one, with a new operation.
    async fn post(&self, path: &str, login: &Login, fields: &str) -> TestResponse {
        let operation = OperationId::mint();
        let body = format!("csrf={}&{fields}&operation={operation}", login.form_token);
        let origin = format!("Origin: {}\r\n", self.base_url);
        self.post_raw(path, login, &origin, &body).await
    }

    async fn post_raw(&self, path: &str, login: &Login, headers: &str, body: &str) -> TestResponse {
        self.send(self.form_request(path, login, headers, body))
            .await
    }

    /// The request of a form.
    fn form_request(&self, path: &str, login: &Login, headers: &str, body: &str) -> String {
        let (host, length, cookie) = (self.address, body.len(), &login.cookie);
        format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n{headers}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }

    /// Sends a form with files, whose boundary is `b`.
    async fn post_multipart(&self, path: &str, login: &Login, form: &str) -> TestResponse {
        let (host, origin, cookie) = (self.address, &self.base_url, &login.cookie);
        let length = form.len();
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\n\
             Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{form}"
        ))
        .await
    }

    /// Sends a raw request and reads until the console closes the connection.
    async fn send(&self, request: impl AsRef<[u8]>) -> TestResponse {
        let exchange = async {
            let mut connection = self.connect().await;
            connection.write_all(request.as_ref()).await.unwrap();
            let mut received = Vec::new();
            connection.read_to_end(&mut received).await.unwrap();
            parse_response(&received)
        };
        tokio::time::timeout(TEST_TIMEOUT, exchange).await.unwrap()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the client of a test connects to the server of the test"
    )]
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Publishes an event of the default tenant.
    async fn publish<E: dray_proto::Event>(&self, operation: &str, event: &E) {
        self.publish_as(&TenantId::default(), operation, event)
            .await;
    }

    async fn publish_as<E: dray_proto::Event>(
        &self,
        tenant: &TenantId,
        operation: &str,
        event: &E,
    ) {
        let deadline = Deadline::after(self.clock.now_ms(), TEST_TIMEOUT);
        let meta = dray_bus::Meta::new(tenant.clone(), deadline)
            .with_operation(operation.parse().unwrap());
        self.bus.publish_event(&meta, event).await.unwrap();
    }

    /// Requests a page repeatedly until it contains a text.
    async fn wait_for(&self, path: &str, login: &Login, text: &str) -> TestResponse {
        let waiting = async {
            loop {
                let page = self.get(path, Some(login)).await;
                if page.body.contains(text) {
                    return page;
                }
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        waited.unwrap_or_else(|_| panic!("{path} never showed {text:?}"))
    }
}

/// An in-process bus with all streams.
async fn empty_bus() -> Bus {
    test_bus::in_process(&Clock::system()).await
}

/// A form with fields and files (name and content), as a browser sends it.
fn multipart_form(fields: &[(&str, &str)], files: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(name, value)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    });
    let files = files.iter().map(|(name, content)| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: text/plain\r\n\r\n{content}\r\n"
        )
    });
    let parts: Vec<String> = fields.chain(files).collect();
    format!("{}--b--\r\n", parts.concat())
}

fn parse_response(received: &[u8]) -> TestResponse {
    let text = Bytes::copy_from_slice(received);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    TestResponse {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
