//! A file that `egress-fetcher` fetches and `platform-delivery` sends, both in one process: the record of the
//! fetch decides about the delivery, under any name of the file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_bus::{Bus, Meta, NatsOptions, Topology, test_bus};
use dray_platform_telegram::fake_server::FakeTelegram;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::tls::Authority;
use dray_types::{Clock, Deadline, OperationId, Sha256Digest, TenantId};

use super::target::EgressTarget;
use crate::support;
use crate::support::service_process::ServiceProcess;

/// Bytes of the file: more than one message of the bus carries, so that the file is stored.
const FILE_BYTES: u64 = 3_000_000;
/// Space for the streams.
const STORE_BYTES: u64 = 1 << 30;

struct ProvenanceFixture {
    _nats: NatsServer,
    bus: Bus,
    target: EgressTarget,
    telegram: FakeTelegram,
    /// Chat of the operator's own people.
    staff_chat: i64,
    /// Chat of other people.
    outside_chat: i64,
    _process: ServiceProcess,
    _home: tempfile::TempDir,
}

impl ProvenanceFixture {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let target = EgressTarget::start(&authority, home.path());
        let nats = NatsServer::start();
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        test_bus::provision(&bus, &Topology::new(1, STORE_BYTES)).await;
        let telegram = FakeTelegram::start().await.unwrap();
        let (staff_chat, outside_chat) = (telegram.chat(), telegram.chat());
        let configuration = format!(
            r#"
            [limits]
            free_disk_percent = 0
            [egress-fetcher]
            enabled = true
            origin_required = true
            private_cidrs = ["{}/32"]
            dns_servers = ["{}"]
            [platform-delivery]
            allow_targets = true
            [platform-delivery.accounts.tg.telegram]
            token = "{}"
            base_url = "{}"
            [[platform-delivery.web_files]]
            name = "staff"
            outcome = "allow"
            targets = ["telegram:{staff_chat}"]
            [[platform-delivery.web_files]]
            name = "outside"
            "#,
            target.address,
            target.name_server,
            telegram.token().expose(),
            telegram.url(),
        );
        std::fs::write(home.path().join("dray.toml"), configuration).unwrap();
        Self {
            _process: start_services(home.path(), &nats.url()).await,
            _nats: nats,
            bus,
            target,
            telegram,
            staff_chat,
            outside_chat,
            _home: home,
        }
    }

    /// Fetches a file of the target into the store.
    async fn fetch(&self, name: &str) -> v1::Claim {
        let request = v1::FetchRequest {
            url: format!("http://{}/{FILE_BYTES}/{name}", self.target.address),
            size_limit_bytes: FILE_BYTES,
            ..v1::FetchRequest::default()
        };
        let reply = self.bus.call(&meta("fetch"), &request).await.unwrap();
        match reply.content.unwrap().body.unwrap() {
            v1::content::Body::Claim(claim) => claim,
            v1::content::Body::Inline(_) => panic!("{name} is too large for a message"),
        }
    }

    /// Sends a stored file to a chat, and returns its receipt.
    async fn send(&self, id: &str, claim: v1::Claim, chat: i64) -> v1::DeliveredFile {
        let target = v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: chat.to_string(),
            ..v1::ChatTarget::default()
        };
        let work = v1::SendFileRequested {
            claims: vec![claim],
            target: Some(target),
            ..v1::SendFileRequested::default()
        };
        self.bus.publish_work(&meta(id), &work).await.unwrap();
        let report = eventually("the end of the delivery", async || {
            let request = v1::DeliveryOutcomeRequest {
                delivery_id: id.to_owned(),
                wait_ms: 1000,
            };
            let report = self.bus.call(&meta("outcome"), &request).await.ok()?;
            report.finished.then_some(report)
        })
        .await;
        assert_eq!(report.files.len(), 1, "{report:?}");
        report.files.into_iter().next().unwrap()
    }
}

/// Starts both services in one process, with the configuration in `home`.
async fn start_services(home: &Path, nats_url: &str) -> ServiceProcess {
    let mut command = Command::new(support::dray());
    command
        .env_clear()
        .env("HOME", home)
        .args(["up", "--json", "--only", "egress-fetcher"])
        .args(["--only", "platform-delivery"])
        .args(["--http", "127.0.0.1:0", "--nats", nats_url])
        .arg("--state")
        .arg(home.join("state"))
        .arg("--config")
        .arg(home.join("dray.toml"))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    ServiceProcess::spawn(&mut command).await
}

fn meta(operation: &str) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_mins(2));
    Meta::new(TenantId::default(), deadline).with_operation(OperationId::new(operation).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetched_file_reaches_the_staff_and_no_outside_chat_when_one_process_fetches_and_delivers()
 {
    let fixture = ProvenanceFixture::start().await;
    let claim = fixture.fetch("table").await;
    let digest = Sha256Digest::try_from(claim.artifact.as_ref().unwrap().sha256.as_slice());
    let digest = digest.unwrap();
    let mut renamed = claim.clone();
    // The name and media type that the sender gives do not count.
    let artifact = renamed.artifact.as_mut().unwrap();
    artifact.name = "holiday.jpg".to_owned();
    artifact.media_type = "image/jpeg".to_owned();
    for (id, claim) in [("as-fetched", claim.clone()), ("renamed", renamed)] {
        let file = fixture.send(id, claim, fixture.outside_chat).await;
        assert_eq!(file.refused_by, "outside", "{file:?}");
        assert_eq!(file.web_hosts, [fixture.target.address.to_string()]);
    }
    let file = fixture.send("to-staff", claim, fixture.staff_chat).await;
    assert_eq!(file.state_code(), v1::FileState::Delivered, "{file:?}");
    let shown = |chat: i64| {
        let messages = fixture.telegram.visible_messages(chat).into_iter();
        let files = messages.filter_map(|message| message.file);
        files.filter(|file| file.sha256 == digest).count()
    };
    assert_eq!(
        (shown(fixture.staff_chat), shown(fixture.outside_chat)),
        (1, 0)
    );
}
