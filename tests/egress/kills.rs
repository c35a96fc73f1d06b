//! The forward proxy as a process that is killed at random moments, while programs open tunnels and fetches fill the
//! cache.
//!
//! For every fetch with a response, its event must be in the file. For every connection through which the target
//! received a byte, the event `opened` must be in the file and in the stream, even if the process was killed right
//! after that byte. No tunnel may survive the process, every line of the file must be complete, and the cache may
//! contain only complete files. The suite has a short run; `cargo xtask soak -- proxy` kills the process 200 times.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_bus::{Bus, EventFilter, Meta, NatsOptions, Topology, test_bus};
use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::embedded::EmbeddedS3;
use dray_store::{Store, StoreOptions};
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::port::unassigned_address;
use dray_testkit::tls::Authority;
use dray_types::{ByteSize, Clock, Deadline, Secret, SessionId, Sha256Digest, TenantId};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http2_client::{Http2Route, PROXY_NAME};
use super::target::{EgressTarget, TARGET_NAME, create_proxy_authority};
use super::tunnel_client::{Http2Client, TunnelClient};
use crate::support;
use crate::support::service_process::ServiceProcess;

/// Key with which the service signs tokens of the proxy.
const TOKEN_KEY: &str = "the key of these tokens, 32 bytes or more";
/// Number of clients that open tunnels without a pause.
const TUNNEL_CLIENTS: usize = 4;
/// Longest time from the readiness of a process to its kill, in milliseconds.
const MAX_KILL_DELAY_MS: u64 = 400;
/// Bytes of a file, larger than what one message carries.
const FILE_BYTES: u64 = 3_000_000;
/// Timeout of one fetch; a killed process does not respond.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Space for the streams. A full audit stream discards its oldest events, which the check would report as missing.
const STORE_BYTES: u64 = 8 << 30;
/// Time without an event after which the stream counts as read to its end.
const EVENT_TIMEOUT: Duration = Duration::from_secs(3);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyKillRun {
    pub(crate) protocol: ClientProtocol,
    pub(crate) kills: usize,
    pub(crate) seed: u64,
}

/// How clients speak with the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    /// A connection for each tunnel.
    Http1,
    /// A connection over TLS for each client, with a stream for each tunnel.
    Http2,
}

struct KillFixture {
    nats: NatsServer,
    bus: Bus,
    store: Store,
    options: StoreOptions,
    target: EgressTarget,
    listen: SocketAddr,
    /// The route over HTTP/2, if clients speak it.
    http2: Option<Http2Route>,
    home: tempfile::TempDir,
    /// The operations of the fetches that were answered.
    answered: Mutex<HashSet<String>>,
    _s3: EmbeddedS3,
}

impl KillFixture {
    async fn start(protocol: ClientProtocol) -> Self {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let listen = unassigned_address();
        let http2 = (protocol == ClientProtocol::Http2).then(|| {
            let issued = authority.issue(&[PROXY_NAME], false).unwrap();
            let write = |name, text| std::fs::write(home.path().join(name), text).unwrap();
            write("proxy.pem", issued.certificate);
            write("proxy.key", issued.private_key);
            Http2Route::new(listen, &authority)
        });
        let target = EgressTarget::start(&authority, home.path());
        std::fs::write(home.path().join("roots.pem"), authority.pem()).unwrap();
        create_proxy_authority(home.path());
        let nats = NatsServer::start();
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        test_bus::provision(&bus, &Topology::new(1, STORE_BYTES)).await;
        let (s3, options) = EmbeddedS3::start(home.path()).await.unwrap();
        let store = Store::open_in_process(&s3, &options, Clock::system())
            .await
            .unwrap();
        let fixture = Self {
            nats,
            bus,
            store,
            options,
            target,
            listen,
            http2,
            home,
            answered: Mutex::default(),
            _s3: s3,
        };
        fixture.write_configuration();
        fixture
    }

    fn write_configuration(&self) {
        let home = self.home.path();
        let policy = format!(
            "default = \"deny\"\n[[intercept]]\nname = \"files\"\nhosts = [\"{TARGET_NAME}\"]\n\
             [[role]]\nname = \"all\"\n[[role.rule]]\nname = \"ports\"\noutcome = \"allow\"\nports = [80, 443, 8443]\n"
        );
        std::fs::write(home.join("policy.toml"), policy).unwrap();
        let (address, listen, directory) = (self.target.address, self.listen, home.display());
        let configuration = format!(
            r#"
            [limits]
            free_disk_percent = 0
            [egress-fetcher]
            enabled = true
            audit_required = true
            private_cidrs = ["{address}/32"]
            dns_servers = ["{}"]
            ca_bundle = "{directory}/roots.pem"
            policy_path = "{directory}/policy.toml"
            [egress-fetcher.cache]
            enabled = true
            [egress-fetcher.audit_file]
            path = "{directory}/audit.jsonl"
            max_bytes = "1GiB"
            [egress-fetcher.proxy]
            listen = "{listen}"
            token_key = "{TOKEN_KEY}"
            connect_ports = "443,8443"
            plain_ports = "443"
            [egress-fetcher.proxy.interception]
            certificate = "{directory}/proxy-ca.pem"
            key_file = "{directory}/proxy-ca.key"
            "#,
            self.target.name_server
        );
        let tls = match self.http2 {
            None => String::new(),
            Some(_) => format!(
                "[egress-fetcher.proxy.tls]\ncertificate = \"{directory}/proxy.pem\"\n\
                 private_key = \"{directory}/proxy.key\"\n"
            ),
        };
        std::fs::write(home.join("dray.toml"), configuration + &tls).unwrap();
    }

    /// Starts the service and waits until it is ready.
    async fn up(&self) -> ServiceProcess {
        let mut command = Command::new(support::dray());
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.home.path().join("dray.log"));
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("DRAY_STORE__MODE", "s3")
            .env("DRAY_STORE__S3__ENDPOINT", &self.options.endpoint)
            .env("DRAY_STORE__S3__BUCKET", &self.options.bucket)
            .env(
                "DRAY_STORE__S3__ACCESS_KEY",
                self.options.access_key.expose(),
            )
            .env(
                "DRAY_STORE__S3__SECRET_KEY",
                self.options.secret_key.expose(),
            )
            .args(["up", "--json", "--only", "egress-fetcher"])
            .args(["--http", "127.0.0.1:0", "--nats", &self.nats.url()])
            .arg("--config")
            .arg(self.home.path().join("dray.toml"))
            .stdin(Stdio::null())
            .stderr(log.unwrap());
        ServiceProcess::spawn(&mut command).await
    }

    fn token() -> String {
        let keys = TokenKeys::new(&Secret::new(TOKEN_KEY), None).unwrap();
        let now_s = Clock::system().now_ms() / 1000;
        let identity = ProxyIdentity {
            tenant: TenantId::default(),
            session: SessionId::new("kills").unwrap(),
            app: None,
            expires_s: now_s + 24 * 3600,
            allow: None,
            certificate: None,
        };
        keys.mint(&identity).unwrap()
    }

    fn client(&self) -> TunnelClient {
        TunnelClient {
            listen: self.listen,
            http2: self.http2.clone().map(Http2Client::new),
            token: Self::token(),
            proxy_authority: self.home.path().join("proxy-ca.pem").display().to_string(),
            counts: Arc::default(),
        }
    }

    /// Fetches a file of the target; `None` when the service was killed meanwhile.
    async fn fetch(&self, name: &str) -> Option<v1::FetchReply> {
        let request = v1::FetchRequest {
            url: format!("http://{}/{FILE_BYTES}/{name}", self.target.address),
            size_limit_bytes: FILE_BYTES,
            ..v1::FetchRequest::default()
        };
        let meta = meta(FETCH_TIMEOUT);
        let reply = self.bus.call(&meta, &request).await.ok()?;
        let operation = meta.operation.to_string();
        self.answered.lock().unwrap().insert(operation);
        Some(reply)
    }

    /// The number of events `opened` in the file by the local port of the connection; each line must be complete.
    fn opened_in_file(&self) -> HashMap<u16, usize> {
        let text = std::fs::read_to_string(self.home.path().join("audit.jsonl")).unwrap();
        assert!(text.ends_with('\n'), "the last line is not complete");
        let mut ports = HashMap::new();
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            if event["proxy_stage"] == "opened" {
                let port = event["hops"][0]["local_port"].as_u64().unwrap();
                *ports.entry(u16::try_from(port).unwrap()).or_default() += 1;
            }
        }
        ports
    }

    /// The operations of all events in the file; an event about a policy has none.
    fn operations_in_file(&self) -> HashSet<String> {
        let text = std::fs::read_to_string(self.home.path().join("audit.jsonl")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        events
            .filter_map(|event: Value| event["operation_id"].as_str().map(str::to_owned))
            .collect()
    }

    /// The number of events `opened` in the stream by the local port of the connection.
    async fn opened_in_stream(&self) -> HashMap<u16, usize> {
        // All audit events, because the first ones are about the policy.
        let filter = EventFilter::new("dray.audit.>").from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let (mut ports, mut last_sequence) = (HashMap::new(), 0);
        while let Ok(event) = tokio::time::timeout(EVENT_TIMEOUT, events.next()).await {
            let event = event.unwrap();
            assert!(
                last_sequence > 0 || event.sequence == 1,
                "the stream has discarded its first events"
            );
            last_sequence = event.sequence;
            if !event.subject.starts_with("dray.audit.egress.v1.fetched.") {
                continue;
            }
            let event: v1::EgressAudit = event.decode().unwrap();
            if event.proxy_stage == "opened" {
                let port = u16::try_from(event.hops[0].local_port).unwrap();
                *ports.entry(port).or_default() += 1;
            }
        }
        ports
    }
}

/// Kills the proxy as often as `run` says while clients use it, and checks the audit events and the cache.
pub(crate) async fn kill_proxy(run: ProxyKillRun) {
    println!("{run:?}");
    let fixture = KillFixture::start(run.protocol).await;
    let client = fixture.client();
    let mut random = StdRng::seed_from_u64(run.seed);
    let (stop, clients) = (CancellationToken::new(), TaskTracker::new());
    start_clients(&fixture, &client, run.seed, &stop, &clients);
    for round in 0..run.kills {
        let process = fixture.up().await;
        let name = format!("file-{round}");
        let delay = Duration::from_millis(random.random_range(0..=MAX_KILL_DELAY_MS));
        // The kill happens while the file is fetched and stored, or while it is read from the cache.
        let fetching = async {
            while !stop.is_cancelled() {
                check_file(&fixture, &name).await;
            }
        };
        let kill_delay = tokio::time::timeout(delay, std::future::pending::<()>());
        tokio::select! {
            () = fetching => {}
            _ = kill_delay => {}
        }
        process.kill9();
        eventually("the end of all tunnels", async || {
            (fixture.target.open_count() == 0).then_some(())
        })
        .await;
    }
    let process = fixture.up().await;
    eventually("each kind of client", async || {
        let counts = &client.counts;
        let counts = [&counts.exchanged, &counts.refused, &counts.intercepted];
        let is_used = |count: &&AtomicUsize| count.load(Ordering::Relaxed) > 0;
        counts.iter().all(is_used).then_some(())
    })
    .await;
    stop.cancel();
    clients.close();
    clients.wait().await;
    // A killed process has stored a file completely or not at all; a missing file is fetched again.
    for round in 0..run.kills {
        let name = format!("file-{round}");
        assert!(check_file(&fixture, &name).await, "{name} was not fetched");
    }
    check_audit(&fixture, run).await;
    process.kill9();
}

fn start_clients(
    fixture: &KillFixture,
    client: &TunnelClient,
    seed: u64,
    stop: &CancellationToken,
    clients: &TaskTracker,
) {
    let allowed = format!("{}:443", fixture.target.address);
    let refused = [
        "169.254.169.254:443".to_owned(),
        format!("{}:22", fixture.target.address),
    ];
    for index in 0..TUNNEL_CLIENTS {
        let (client, allowed, stop) = (client.clone(), allowed.clone(), stop.clone());
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(index as u64));
        clients.spawn(async move {
            while !stop.is_cancelled() {
                let messages = random.random_range(1..50);
                // A failure means that the process was killed or does not listen yet.
                let _ = client.use_tunnel(&allowed, messages).await;
                tokio::task::yield_now().await;
            }
        });
    }
    for authority in refused {
        let (client, stop) = (client.clone(), stop.clone());
        clients.spawn(async move {
            while !stop.is_cancelled() {
                client.try_refused(&authority).await;
            }
        });
    }
    let (client, stop) = (client.clone(), stop.clone());
    clients.spawn(async move {
        while !stop.is_cancelled() {
            client.request_intercepted().await;
        }
    });
}

/// Fetches a file and checks its content in the store. Returns whether the service responded.
async fn check_file(fixture: &KillFixture, name: &str) -> bool {
    let Some(reply) = fixture.fetch(name).await else {
        return false;
    };
    let size = usize::try_from(FILE_BYTES).unwrap();
    let expected: Vec<u8> = name.bytes().cycle().take(size).collect();
    let digest = Sha256Digest::of(&expected);
    assert_eq!(
        (reply.size, &reply.sha256[..]),
        (FILE_BYTES, &digest.as_bytes()[..]),
        "{name}"
    );
    let content = ContentSource::try_from(reply.content.unwrap()).unwrap();
    let ContentSource::Claim(claim) = content else {
        panic!("{name} is too large for a message");
    };
    let deadline = Deadline::after(Clock::system().now_ms(), FETCH_TIMEOUT);
    let tenant = TenantId::default();
    let reader = fixture.store.read(&tenant, &claim, deadline).await.unwrap();
    let stored = reader.read_all(ByteSize::bytes(FILE_BYTES)).await.unwrap();
    assert!(stored == expected, "{name} in the store");
    true
}

/// Checks that every connection that carried a byte is in the file and in the stream.
async fn check_audit(fixture: &KillFixture, run: ProxyKillRun) {
    let mut received: HashMap<u16, usize> = HashMap::new();
    for port in fixture.target.received_ports() {
        *received.entry(port).or_default() += 1;
    }
    assert!(received.len() >= run.kills, "{run:?}: {received:?}");
    let answered = fixture.answered.lock().unwrap().clone();
    let in_file = fixture.operations_in_file();
    let missing: Vec<_> = answered.difference(&in_file).collect();
    assert!(
        missing.is_empty(),
        "{run:?}: answered, and not in the file: {missing:?}"
    );
    let recorded = [
        ("file", fixture.opened_in_file()),
        ("stream", fixture.opened_in_stream().await),
    ];
    for (record, opened) in recorded {
        for (port, count) in &received {
            let events = opened.get(port).copied().unwrap_or_default();
            assert!(
                events >= *count,
                "{run:?}: {count} connections of port {port} carried bytes, {events} are in the {record}"
            );
        }
    }
}

fn meta(timeout: Duration) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), timeout);
    Meta::new(TenantId::default(), deadline)
}
