//! One machine with a nats-server, a store behind a proxy that injects faults, a fake DIAL Core, and services as
//! processes.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, EventFilter, EventStream, Meta, NatsOptions, Topology, test_bus};
use dray_proto::convert::ContentSource;
use dray_proto::{Event, v1};
use dray_store::embedded::EmbeddedS3;
use dray_testkit::dial::DialCore;
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::s3::FaultyS3;
use dray_types::{Clock, Deadline, Fault, TenantId};
use serde_json::Value;

use crate::support;
use crate::support::leases;
use crate::support::service_process::ServiceProcess;

const TENANT_KEY: &str = "acme-key";
/// The tenants; all use [`TENANT_KEY`] at DIAL Core.
pub(crate) const TENANTS: [&str; 3] = ["acme", "python", "typescript"];
/// Longest wait: longer than a lease (45 s) and the redelivery after it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(150);

/// The servers of one test, and the settings for processes of services.
pub(crate) struct ProcessFixture {
    pub(crate) nats: NatsServer,
    pub(crate) store: FaultyS3,
    pub(crate) dial: DialCore,
    options: dray_store::StoreOptions,
    pub(crate) bus: Bus,
    _s3: EmbeddedS3,
    _directory: tempfile::TempDir,
}

impl ProcessFixture {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let nats = NatsServer::start();
        let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let store = FaultyS3::start(s3.address()).await.unwrap();
        let dial = DialCore::start().await.unwrap();
        dial.add_key(TENANT_KEY, "acme");
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        let fixture = Self {
            nats,
            store,
            dial,
            options,
            bus,
            _s3: s3,
            _directory: directory,
        };
        fixture.provision(None).await;
        fixture
    }

    /// Applies the standard topology with a publisher for each tenant, with another ack wait if there is one.
    pub(crate) async fn provision(&self, ack_wait: Option<Duration>) {
        let tenants = TENANTS.map(|name| TenantId::new(name).unwrap());
        let topology = Topology::new(1, 256 << 20).with_publishers(&tenants);
        leases::apply_topology(&self.bus, topology, ack_wait).await;
    }

    fn command(&self) -> Command {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("DRAY_BUS__MODE", "nats")
            .env("DRAY_BUS__NATS__SERVERS", self.nats.url())
            .env("DRAY_STORE__MODE", "s3")
            .env("DRAY_STORE__S3__ENDPOINT", self.store.endpoint())
            .env("DRAY_STORE__S3__BUCKET", &self.options.bucket)
            .env(
                "DRAY_STORE__S3__ACCESS_KEY",
                self.options.access_key.expose(),
            )
            .env(
                "DRAY_STORE__S3__SECRET_KEY",
                self.options.secret_key.expose(),
            )
            .stdin(Stdio::null());
        command
    }

    /// Starts these services in one process and waits until they serve.
    pub(crate) async fn up(&self, services: &[&str]) -> ServiceProcess {
        let mut command = self.command();
        command
            .env("DRAY_HTTP__LISTEN", "127.0.0.1:0")
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .env("DIAL_URL", self.dial.url())
            .env("EXTERNAL_URL_FETCH_ENABLED", "true")
            .args(["up", "--json"]);
        for tenant in TENANTS {
            let key = format!("file-resolver.tenants.{tenant}.api_key={TENANT_KEY}");
            command.args(["--set", &key]);
        }
        for service in services {
            command.args(["--only", service]);
        }
        ServiceProcess::spawn(&mut command).await
    }

    /// Runs a command to its end.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Status and printed documents of a command that restarts dead letters.
    pub(crate) fn restarts(&self, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
        let output = self.ask(arguments);
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        (output.status.code(), lines.collect())
    }

    /// Publishes a tool call with these arguments; returns its operation id.
    pub(crate) async fn publish(&self, arguments: &Value) -> String {
        self.publish_for(arguments, WAIT_TIMEOUT).await
    }

    /// Like [`Self::publish`] with another time until the deadline.
    pub(crate) async fn publish_for(&self, arguments: &Value, timeout: Duration) -> String {
        let meta = meta(timeout);
        let work = v1::ToolCallRequested {
            tool: "tool".to_owned(),
            arguments: Some(ContentSource::Inline(Bytes::from(arguments.to_string())).into()),
            ..v1::ToolCallRequested::default()
        };
        self.bus.publish_work(&meta, &work).await.unwrap();
        meta.operation.to_string()
    }

    /// Publishes a payload that is not a tool call in a valid envelope; returns its operation id.
    pub(crate) async fn publish_garbage(&self) -> String {
        let meta = meta(WAIT_TIMEOUT);
        let client = async_nats::connect(self.nats.url()).await.unwrap();
        let mut headers = async_nats::HeaderMap::new();
        for (name, value) in meta
            .headers(&dray_proto::contract::schema_name::<v1::ToolCallRequested>())
            .iter()
        {
            headers.append(name, value);
        }
        let subject =
            dray_proto::contract::work_subject(&v1::ToolCallRequested::default(), &meta.tenant);
        client
            .publish_with_headers(subject, headers, Bytes::from_static(&[0xff; 16]))
            .await
            .unwrap();
        client.flush().await.unwrap();
        meta.operation.to_string()
    }

    /// Resolves these arguments by a call, and returns the result.
    pub(crate) async fn resolve(&self, arguments: &Value, time: Duration) -> Result<Value, Fault> {
        let request = v1::ResolveRequest {
            arguments: Some(ContentSource::Inline(Bytes::from(arguments.to_string())).into()),
            credentials: Some(v1::DialCredentials {
                api_key: TENANT_KEY.to_owned(),
                authorization: String::new(),
            }),
            ..v1::ResolveRequest::default()
        };
        let reply = self
            .bus
            .call(&meta(time), &request)
            .await
            .map_err(Fault::from)?;
        match reply.outcome.unwrap() {
            v1::resolve_reply::Outcome::Invalid(invalid) => Err(invalid.fault.unwrap().into()),
            v1::resolve_reply::Outcome::Resolved(resolved) => {
                match ContentSource::try_from(resolved.arguments.unwrap()) {
                    Ok(ContentSource::Inline(bytes)) => Ok(serde_json::from_slice(&bytes).unwrap()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Waits until the fake DIAL Core gets a request for this file.
    pub(crate) async fn wait_until_asked(&self, path: &str) {
        eventually("a request to DIAL Core", async || {
            self.dial
                .requests()
                .iter()
                .any(|request| request.contains(path))
                .then_some(())
        })
        .await;
    }

    /// Stops the nats-server and starts it again on the same address.
    pub(crate) fn restart_nats(&mut self) {
        self.nats.restart();
    }

    /// Waits for the event of a resolved operation.
    pub(crate) async fn event_of(&self, operation: &str) -> v1::ToolCallResolved {
        self.wait_for(|event: &v1::ToolCallResolved| event.operation_id == operation)
            .await
    }

    /// Waits for the event of a rejected operation.
    pub(crate) async fn rejection_of(&self, operation: &str) -> v1::ToolCallRejected {
        self.wait_for(|event: &v1::ToolCallRejected| event.operation_id == operation)
            .await
    }

    /// The first event of a type, from the beginning of the stream, for which `matches` returns true.
    async fn wait_for<E: Event>(&self, matches: impl Fn(&E) -> bool) -> E {
        let mut events = self.events(EventFilter::of::<E>().from_start()).await;
        let result = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                let event: E = events.next().await.unwrap().decode().unwrap();
                if matches(&event) {
                    return event;
                }
            }
        });
        result
            .await
            .unwrap_or_else(|_| panic!("no event {} arrived", E::PAST_PARTICIPLE))
    }

    async fn events(&self, filter: EventFilter) -> EventStream {
        self.bus.events(filter).await.unwrap()
    }

    /// The number of final events of the operation.
    pub(crate) async fn count_events_of(&self, operation: &str) -> usize {
        let counts = self.count_events().await;
        counts.get(operation).copied().unwrap_or_default()
    }

    /// The number of final events of each operation. A marker published after them shows where the stream ends.
    pub(crate) async fn count_events(&self) -> BTreeMap<String, usize> {
        let marker = meta(WAIT_TIMEOUT);
        let end = v1::ToolCallResolved {
            operation_id: marker.operation.to_string(),
            ..Default::default()
        };
        self.bus.publish_event(&marker, &end).await.unwrap();
        let mut events = self
            .events(EventFilter::new("dray.event.toolcall.>").from_start())
            .await;
        let mut counts = BTreeMap::new();
        loop {
            let event = events.next().await.unwrap();
            let operation = event.headers.get("Dray-Operation").unwrap_or_default();
            if operation == marker.operation.as_str() {
                return counts;
            }
            *counts.entry(operation.to_owned()).or_default() += 1;
        }
    }

    /// The dead letter of an operation, as the command line lists it.
    pub(crate) async fn dead_letter_of(&self, operation: &str) -> Value {
        eventually("a dead letter", async || {
            let listed = self.ask(&["dlq", "list", "--json"]);
            assert!(listed.status.success(), "{listed:?}");
            String::from_utf8_lossy(&listed.stdout)
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap())
                .find(|letter| letter["operation"] == operation)
        })
        .await
    }
}

fn meta(time: Duration) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), time);
    Meta::new(TenantId::new("acme").unwrap(), deadline)
}
