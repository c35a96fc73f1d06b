//! Questions about hosts while the process that asks them, and that records the answers, is killed at random moments.
//!
//! Before a person has allowed the host, no tunnel opens. A host is asked about once, despite all kills. An answer
//! that was confirmed holds after the next start, and none holds without its audit event.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_bus::{Bus, EventFilter, Meta, NatsOptions, Topology, test_bus};
use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_proto::v1;
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::port::unassigned_address;
use dray_testkit::tls::Authority;
use dray_types::{Clock, Deadline, Secret, SessionId, TenantId};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::target::{EgressTarget, TARGET_NAME};
use crate::support;
use crate::support::service_process::ServiceProcess;

const TOKEN_KEY: &str = "the key of these tokens, 32 bytes or more";
/// Space for the streams.
const STORE_BYTES: u64 = 1 << 30;
/// Longest time from the start of a request to the kill, in milliseconds.
const MAX_KILL_DELAY_MS: u64 = 40;
/// Clients of a session that ask concurrently.
const CLIENT_COUNT: usize = 4;
/// Longest time of a call to a process that may be killed.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without an event after which the stream counts as read to its end.
const EVENT_TIMEOUT: Duration = Duration::from_secs(3);

/// The reply to a client that asked for a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TunnelReply {
    Open,
    /// Refused; the id of the question that waits, if the response names one.
    Refused(Option<String>),
    /// The process does not run, or was killed meanwhile.
    Broken,
}

struct HostQuestionFixture {
    nats: NatsServer,
    bus: Bus,
    _target: EgressTarget,
    listen: SocketAddr,
    home: tempfile::TempDir,
}

impl HostQuestionFixture {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let target = EgressTarget::start(&authority, home.path());
        let nats = NatsServer::start();
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        test_bus::provision(&bus, &Topology::new(1, STORE_BYTES)).await;
        let listen = unassigned_address();
        let directory = home.path().display();
        let policy =
            "[[role]]\nname = \"all\"\n[[role.rule]]\nname = \"asked\"\noutcome = \"ask\"\n";
        std::fs::write(home.path().join("policy.toml"), policy).unwrap();
        let configuration = format!(
            r#"
            [limits]
            free_disk_percent = 0
            [egress-fetcher]
            enabled = true
            private_cidrs = ["{}/32"]
            dns_servers = ["{}"]
            policy_path = "{directory}/policy.toml"
            [egress-fetcher.proxy]
            listen = "{listen}"
            token_key = "{TOKEN_KEY}"
            plain_ports = "443"
            "#,
            target.address, target.name_server
        );
        std::fs::write(home.path().join("dray.toml"), configuration).unwrap();
        Self {
            nats,
            bus,
            _target: target,
            listen,
            home,
        }
    }

    async fn up(&self) -> ServiceProcess {
        let mut command = Command::new(support::dray());
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.home.path().join("dray.log"));
        command
            .env_clear()
            .env("HOME", self.home.path())
            .args(["up", "--json", "--only", "egress-fetcher"])
            .args(["--http", "127.0.0.1:0", "--nats", &self.nats.url()])
            .arg("--state")
            .arg(self.home.path().join("state"))
            .arg("--config")
            .arg(self.home.path().join("dray.toml"))
            .stdin(Stdio::null())
            .stderr(log.unwrap());
        ServiceProcess::spawn(&mut command).await
    }

    /// Requests a tunnel for the session.
    async fn request(listen: SocketAddr, session: &str) -> TunnelReply {
        let token = token(session);
        let exchanging = async {
            #[expect(
                clippy::disallowed_methods,
                reason = "the proxy of the test, on loopback"
            )]
            let mut stream = TcpStream::connect(listen).await?;
            let request = format!(
                "CONNECT {TARGET_NAME}:443 HTTP/1.1\r\nHost: {TARGET_NAME}:443\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await?;
            let mut response = Vec::new();
            while !response.starts_with(b"HTTP/1.1 200 ") {
                if stream.read_buf(&mut response).await? == 0 {
                    break;
                }
            }
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&response).into_owned())
        };
        let response = exchanging.await.unwrap_or_default();
        let mut words = response.split_whitespace();
        match words.nth(1) {
            Some("200") => TunnelReply::Open,
            Some("403") => {
                let id = words.find(|word| word.starts_with("egq_"));
                TunnelReply::Refused(id.map(ToOwned::to_owned))
            }
            // A killed process may have sent a part of its response.
            _ => TunnelReply::Broken,
        }
    }

    async fn questions(&self, session: &str) -> Vec<v1::EgressQuestion> {
        let request = v1::ListEgressQuestionsRequest::default();
        let listed = self.bus.call(&meta(), &request).await.unwrap();
        let questions = listed.questions.into_iter();
        questions
            .filter(|question| question.session == session)
            .collect()
    }

    /// Allows the host of a question; returns whether that was confirmed.
    async fn allow(&self, id: &str) -> bool {
        let mut request = v1::AnswerEgressQuestionRequest {
            id: id.to_owned(),
            principal: "ops".to_owned(),
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(v1::EgressAnswer::Allow);
        self.bus.call(&meta(), &request).await.is_ok()
    }

    /// The ids of the questions that have an event about an answer.
    async fn answered_in_stream(&self) -> BTreeSet<String> {
        let filter = EventFilter::new("dray.audit.question.v1.changed.*").from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let mut ids = BTreeSet::new();
        while let Ok(event) = tokio::time::timeout(EVENT_TIMEOUT, events.next()).await {
            let audit: v1::EgressQuestionAudit = event.unwrap().decode().unwrap();
            if audit.stage() == v1::EgressQuestionStage::Answered {
                ids.insert(audit.question.unwrap().id);
            }
        }
        ids
    }
}

fn token(session: &str) -> String {
    let keys = TokenKeys::new(&Secret::new(TOKEN_KEY), None).unwrap();
    let identity = ProxyIdentity {
        tenant: TenantId::default(),
        session: SessionId::new(session).unwrap(),
        app: None,
        expires_s: Clock::system().now_ms() / 1000 + 3600,
        allow: None,
        certificate: None,
    };
    keys.mint(&identity).unwrap()
}

fn meta() -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), CALL_TIMEOUT);
    Meta::new(TenantId::default(), deadline)
}

/// Kills the process after a random time while `work` runs, and returns what it did until then.
async fn killed_during<T>(
    process: ServiceProcess,
    random: &mut StdRng,
    work: impl Future<Output = T>,
) -> T {
    let delay = Duration::from_millis(random.random_range(0..=MAX_KILL_DELAY_MS));
    let killing = async {
        // The time of the kill is random on purpose, so there is no condition to wait for.
        let _ = tokio::time::timeout(delay, std::future::pending::<()>()).await;
        process.kill9();
    };
    tokio::join!(work, killing).0
}

/// A session whose process is killed while it asks, and while the answer is recorded. Returns the id of its question.
async fn run_session(fixture: &HostQuestionFixture, session: &str, random: &mut StdRng) -> String {
    let listen = fixture.listen;
    let process = fixture.up().await;
    let asking = async {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENT_COUNT {
            let session = session.to_owned();
            clients.spawn(async move { HostQuestionFixture::request(listen, &session).await });
        }
        clients.join_all().await
    };
    let replies = killed_during(process, random, asking).await;
    let mut named: BTreeSet<String> = replies
        .into_iter()
        .filter_map(|reply| {
            assert_ne!(reply, TunnelReply::Open, "nobody has answered");
            match reply {
                TunnelReply::Refused(id) => id,
                TunnelReply::Open | TunnelReply::Broken => None,
            }
        })
        .collect();
    let process = fixture.up().await;
    let TunnelReply::Refused(Some(id)) = HostQuestionFixture::request(listen, session).await else {
        panic!("a question waits");
    };
    named.insert(id.clone());
    assert_eq!(named.len(), 1, "a host is asked about once: {named:?}");
    assert_eq!(fixture.questions(session).await.len(), 1);
    let is_confirmed = killed_during(process, random, fixture.allow(&id)).await;
    let process = fixture.up().await;
    let reply = HostQuestionFixture::request(listen, session).await;
    if is_confirmed {
        assert_eq!(reply, TunnelReply::Open, "a confirmed answer holds");
    } else if reply != TunnelReply::Open {
        assert_eq!(reply, TunnelReply::Refused(Some(id.clone())));
        eventually("an answer", async || fixture.allow(&id).await.then_some(())).await;
        assert_eq!(
            HostQuestionFixture::request(listen, session).await,
            TunnelReply::Open
        );
    }
    // The answer does not apply to another session of the tenant.
    let other = HostQuestionFixture::request(listen, &format!("{session}-other")).await;
    assert!(matches!(other, TunnelReply::Refused(Some(_))), "{other:?}");
    process.kill9();
    id
}

/// Runs this many sessions.
pub(crate) async fn kill_while_asking(sessions: usize, seed: u64) {
    println!("{sessions} sessions, seed {seed}");
    let fixture = HostQuestionFixture::start().await;
    let mut random = StdRng::seed_from_u64(seed);
    let mut ids = BTreeSet::new();
    for number in 0..sessions {
        ids.insert(run_session(&fixture, &format!("asked-{number}"), &mut random).await);
    }
    assert_eq!(ids.len(), sessions);
    let answered = fixture.answered_in_stream().await;
    assert_eq!(answered, ids, "every answer that held has its event");
}
