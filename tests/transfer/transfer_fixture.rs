//! The fixture of the transfer tests: a real nats-server, a store behind a proxy that injects faults, fake
//! servers of all platforms, a directory as the sandbox, and services as processes that can be killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dray_bus::{Bus, Meta, NatsOptions, Topology, test_bus};
use dray_proto::v1;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::nats::NatsServer;
use dray_testkit::s3::FaultyS3;
use dray_types::{Clock, Deadline, OperationId, Sha256Digest, TenantId};
use prost::Message as _;
use serde_json::Value;

use super::platforms::FakePlatforms;
use crate::support;
use crate::support::leases::{self, LEDGER_BUCKET};
use crate::support::service_process::ServiceProcess;

/// The services that the tests start.
pub(crate) const SERVICE_NAMES: [&str; 3] = ["sandbox-transfer", "platform-delivery", "sweeper"];
/// Bucket of the records of deliveries.
const DELIVERY_BUCKET: &str = "dray_deliveries";

/// The servers of one test, and the settings for processes of services.
pub(crate) struct TransferFixture {
    pub(crate) nats: NatsServer,
    pub(crate) store: FaultyS3,
    pub(crate) platforms: FakePlatforms,
    pub(crate) bus: Bus,
    options: dray_store::StoreOptions,
    _s3: EmbeddedS3,
    directory: tempfile::TempDir,
}

impl TransferFixture {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("box")).unwrap();
        std::fs::create_dir(directory.path().join("here")).unwrap();
        let nats = NatsServer::start();
        let (s3, options) = EmbeddedS3::start(&directory.path().join("store"))
            .await
            .unwrap();
        let store = FaultyS3::start(s3.address()).await.unwrap();
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        let fixture = Self {
            nats,
            store,
            platforms: FakePlatforms::start().await,
            bus,
            options,
            _s3: s3,
            directory,
        };
        fixture.configure("");
        fixture.provision(None).await;
        fixture
    }

    /// The directory that serves as the sandbox.
    pub(crate) fn sandbox(&self) -> PathBuf {
        self.directory.path().join("box").canonicalize().unwrap()
    }

    /// The address of the sandbox, as on the command line.
    pub(crate) fn address(&self) -> String {
        format!("local:{}", self.sandbox().display())
    }

    /// The working directory of commands.
    pub(crate) fn working_directory(&self) -> PathBuf {
        self.directory.path().join("here")
    }

    /// Writes a file into the sandbox and returns its digest.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Sha256Digest {
        std::fs::write(self.sandbox().join(name), bytes).unwrap();
        Sha256Digest::of(bytes)
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("dray.toml")
    }

    /// Writes the configuration with further sections. Services that run read it again.
    pub(crate) fn configure(&self, sections: &str) {
        self.configure_roots(&[&self.sandbox()], sections);
    }

    /// Like [`Self::configure`], with these directories as sandboxes.
    pub(crate) fn configure_roots(&self, roots: &[&Path], sections: &str) {
        let text = format!(
            "[platform-delivery]\nallow_targets = true\n\
             [sandbox-transfer]\nkinds = [\"local\"]\n\
             [sandbox-transfer.local]\nroots = {roots:?}\n{}{sections}",
            self.platforms.configuration()
        );
        std::fs::write(self.config(), text).unwrap();
    }

    /// Applies the standard topology, with another ack wait.
    async fn provision(&self, ack_wait: Option<Duration>) {
        leases::apply_topology(&self.bus, Topology::new(1, 512 << 20), ack_wait).await;
    }

    /// Makes the leases of killed workers expire, as after a minute, so that their messages are delivered again. Call
    /// it while the services that had work are down, and call [`TransferFixture::shorten_ack_wait`] once they are
    /// running again.
    pub(crate) async fn expire_leases(&self) {
        leases::expire_leases(&self.bus).await;
    }

    /// How many units of work a second worker claimed after the first one had stopped.
    pub(crate) async fn taken_over(&self) -> usize {
        leases::count_taken_over(&self.bus).await
    }

    /// The highest number of attempts of any unit of work of a delivery.
    pub(crate) async fn attempts(&self, id: &str) -> u32 {
        let keys = self.bus.key_value(LEDGER_BUCKET);
        let token = OperationId::new(id).unwrap().ledger_token();
        let entries = keys.list("", usize::MAX).await.unwrap().entries;
        let own_entries = entries.into_iter().filter(|(key, _)| {
            let last = key.rsplit('.').next().unwrap_or_default();
            last == token || last.ends_with(&format!("-{token}"))
        });
        own_entries
            .map(|(_, entry)| v1::LedgerRecord::decode(entry.value).unwrap().attempts)
            .max()
            .unwrap_or_default()
    }

    /// The record of a delivery; `None` before there is one.
    pub(crate) async fn record(&self, id: &str) -> Option<v1::DeliveryRecord> {
        let keys = self.bus.key_value(DELIVERY_BUCKET);
        let token = OperationId::new(id).unwrap().ledger_token();
        let key = format!("{}.{token}", TenantId::default().token());
        let entry = keys.get(&key).await.ok()??;
        v1::DeliveryRecord::decode(entry.value).ok()
    }

    /// Shortens the ack wait, so that the server delivers messages again: the second step after
    /// [`TransferFixture::expire_leases`], once the services are ready and have checked the topology.
    pub(crate) async fn shorten_ack_wait(&self) {
        self.provision(Some(Duration::from_secs(1))).await;
    }

    /// A command for the bus and the store of the fixture, run in [`TransferFixture::working_directory`].
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("HOME", self.directory.path())
            .env("DRAY_STORE__S3__BUCKET", &self.options.bucket)
            .env(
                "DRAY_STORE__S3__ACCESS_KEY",
                self.options.access_key.expose(),
            )
            .env(
                "DRAY_STORE__S3__SECRET_KEY",
                self.options.secret_key.expose(),
            )
            .current_dir(self.working_directory())
            .args(["--nats", &self.nats.url(), "--s3", &self.store.endpoint()])
            .args(["--config".as_ref(), self.config().as_os_str()])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The one document that a command prints with `--json`; it must succeed.
    #[track_caller]
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        let mut documents = self.lines(arguments);
        assert_eq!(documents.len(), 1, "{arguments:?}: {documents:?}");
        documents.remove(0)
    }

    /// The documents that a command prints with `--json`, one on each line; it must succeed.
    #[track_caller]
    pub(crate) fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let text = support::stdout(self.command(arguments).arg("--json"));
        parse(&text)
    }

    /// The document that a command prints with `--json`; it must fail with status 1.
    #[track_caller]
    pub(crate) fn ask_failing(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let mut documents = parse(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(documents.len(), 1, "{arguments:?}: {documents:?}");
        documents.remove(0)
    }

    /// Starts one service as a separate process and waits until it serves.
    pub(crate) async fn up(&self, service: &str) -> ServiceProcess {
        self.up_with(service, &[]).await
    }

    /// Like [`Self::up`], with further flags.
    pub(crate) async fn up_with(&self, service: &str, flags: &[&str]) -> ServiceProcess {
        // Services refuse to start on another topology than the standard one.
        self.provision(None).await;
        let arguments = ["up", "--json", "--only", service, "--http", "127.0.0.1:0"];
        let mut command = self.command(&arguments);
        command
            .args(flags)
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .env("DRAY_STATE__DIRECTORY", self.state(service));
        ServiceProcess::spawn(&mut command).await
    }

    fn state(&self, service: &str) -> PathBuf {
        self.directory.path().join("state").join(service)
    }

    /// Starts all services, each as its own process.
    pub(crate) async fn all_up(&self) -> Vec<ServiceProcess> {
        let mut running = Vec::new();
        for service in SERVICE_NAMES {
            running.push(self.up(service).await);
        }
        running
    }

    /// Publishes work to send a file of the sandbox, as the service that accepts it does.
    pub(crate) async fn submit(&self, id: &str, path: &str, target: v1::ChatTarget) {
        let work = v1::SendFileRequested {
            paths: vec![path.as_bytes().to_vec()],
            sandbox: self.address(),
            target: Some(target),
            ..v1::SendFileRequested::default()
        };
        let meta = meta(Duration::from_hours(1)).with_operation(OperationId::new(id).unwrap());
        let published = self.bus.publish_work(&meta, &work).await.unwrap();
        assert!(!published.duplicate, "{id}");
    }

    /// The outcome of a delivery that has ended; `None` while it continues, or while the service does not respond.
    pub(crate) async fn outcome(&self, id: &str) -> Option<v1::DeliveryReport> {
        let request = v1::DeliveryOutcomeRequest {
            delivery_id: id.to_owned(),
            wait_ms: 1000,
        };
        let report = self
            .bus
            .call(&meta(Duration::from_secs(10)), &request)
            .await;
        report.ok().filter(|report| report.finished)
    }

    /// The only file of a delivery that ends within `timeout`.
    pub(crate) async fn wait_for_file(&self, id: &str, timeout: Duration) -> v1::DeliveredFile {
        let ending = async {
            loop {
                if let Some(report) = self.outcome(id).await {
                    return report;
                }
                tokio::task::yield_now().await;
            }
        };
        let report = tokio::time::timeout(timeout, ending)
            .await
            .unwrap_or_else(|_| panic!("{id} did not end in {timeout:?}"));
        assert_eq!(report.files.len(), 1, "{id}: {report:?}");
        report.files.into_iter().next().unwrap()
    }

    /// The number of requests to Telegram that began to send a document.
    pub(crate) fn count_started_sends(&self) -> usize {
        let requests = self.platforms.telegram.requests().into_iter();
        requests.filter(|request| request == "sendDocument").count()
    }

    /// Number of times that a Telegram chat shows a file.
    pub(crate) fn shown_in(&self, chat: i64, digest: Sha256Digest) -> usize {
        let files = self.platforms.telegram.visible_messages(chat).into_iter();
        let files = files.filter_map(|message| message.file);
        files.filter(|file| file.sha256 == digest).count()
    }
}

/// A chat as the target of a delivery.
pub(crate) fn target(platform: &str, chat: &(impl ToString + ?Sized)) -> v1::ChatTarget {
    v1::ChatTarget {
        platform: platform.to_owned(),
        chat: chat.to_string(),
        ..v1::ChatTarget::default()
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str()
        .expect("directories of tests have names in UTF-8")
}

#[track_caller]
fn parse(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

/// The tenant of the command line, and a deadline.
pub(crate) fn meta(timeout: Duration) -> Meta {
    Meta::new(
        TenantId::default(),
        Deadline::after(Clock::system().now_ms(), timeout),
    )
}
