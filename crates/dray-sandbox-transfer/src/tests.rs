//! The whole service over the in-process bus, with directories of this host as sandboxes and a real store.

mod checks;
mod command_streams;
mod commands;
mod ending;
mod previews;
mod proxied_commands;
mod rate_limits;
mod sessions;
mod store_outages;
mod transfers;
mod uploads;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, Meta, test_bus};
use dray_proto::{Call, v1};
use dray_service::{Host, RunningHost, Settings};
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store};
use dray_testkit::s3::FaultyS3;
use dray_types::{ByteSize, Claim, Clock, Deadline, Fault, OperationId, TenantId};
use tempfile::TempDir;

use crate::SandboxTransfer;

struct TransferFixture {
    bus: Bus,
    store: Store,
    clock: Clock,
    directory: TempDir,
    running: RunningHost,
    s3: EmbeddedS3,
}

impl TransferFixture {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(settings: &[(&str, &str)]) -> Self {
        let (fixture, _) = Self::behind_proxy(settings, false).await;
        fixture
    }

    /// A fixture whose store may be behind a proxy that injects faults.
    async fn behind_proxy(settings: &[(&str, &str)], has_proxy: bool) -> (Self, Option<FaultyS3>) {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let (s3, mut options) = EmbeddedS3::start(&directory.path().join("s3"))
            .await
            .unwrap();
        let mut proxy = None;
        if has_proxy {
            let started = FaultyS3::start(s3.address()).await.unwrap();
            options.endpoint = started.endpoint();
            proxy = Some(started);
        }
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        let boxes = directory.path().join("boxes");
        std::fs::create_dir(&boxes).unwrap();
        let roots = format!("[{:?}]", boxes.to_str().unwrap());
        let mut all = Settings::embedded(directory.path())
            .set("limits.free_disk_percent", "0")
            .set("sandbox-transfer.local.roots", roots)
            .set("sandbox-transfer.address_tenants", "[\"*\"]")
            .bus(bus.clone())
            .store(store.clone());
        for (key, value) in settings {
            all = all.set(*key, *value);
        }
        let running = Host::new(all)
            .with::<SandboxTransfer>()
            .start()
            .await
            .unwrap();
        running.ready().await;
        let fixture = Self {
            bus,
            store,
            clock,
            directory,
            running,
            s3,
        };
        (fixture, proxy)
    }

    async fn end(self) {
        self.running.stop().await;
        self.s3.stop().await;
    }

    /// A directory that is a sandbox, and its address.
    fn sandbox(&self, name: &str) -> (PathBuf, String) {
        let path = self.directory.path().join("boxes").join(name);
        std::fs::create_dir_all(&path).unwrap();
        let path = path.canonicalize().unwrap();
        let address = format!("local:{}", path.display());
        (path, address)
    }

    fn meta(&self, tenant: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(20));
        Meta::new(TenantId::new(tenant).unwrap(), deadline)
    }

    async fn ask<C: Call>(&self, request: &C) -> Result<C::Reply, Fault> {
        self.ask_as("acme", request).await
    }

    async fn ask_as<C: Call>(&self, tenant: &str, request: &C) -> Result<C::Reply, Fault> {
        Ok(self.bus.call(&self.meta(tenant), request).await?)
    }

    async fn store(&self, name: &str, content: &[u8]) -> v1::Claim {
        let tenant = TenantId::new("acme").unwrap();
        let label = ArtifactLabel::new("application/octet-stream", name);
        let bytes = Bytes::copy_from_slice(content);
        let operation = OperationId::mint();
        let claim = self.store.put(&tenant, &operation, bytes, label).await;
        claim.unwrap().into()
    }

    async fn read(&self, claim: v1::Claim) -> Vec<u8> {
        let claim = Claim::try_from(claim).unwrap();
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(20));
        let tenant = TenantId::new("acme").unwrap();
        let reader = self.store.read(&tenant, &claim, deadline).await.unwrap();
        reader.read_all(ByteSize::mib(64)).await.unwrap().to_vec()
    }

    /// Binds a sandbox and a chat to a session.
    async fn bind(&self, session: &str, sandbox: &str, chat: Option<v1::ChatTarget>) {
        let request = v1::BindSessionRequest {
            session: session.to_owned(),
            sandbox: sandbox.to_owned(),
            chat,
            ..v1::BindSessionRequest::default()
        };
        self.ask(&request).await.unwrap();
    }
}

fn address(address: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Address(address.to_owned())),
    }
}

fn session(session: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Session(session.to_owned())),
    }
}

fn chat(chat: &str, thread: &str) -> v1::ChatTarget {
    v1::ChatTarget {
        platform: "telegram".to_owned(),
        chat: chat.to_owned(),
        thread: thread.to_owned(),
        ..v1::ChatTarget::default()
    }
}

fn raw(path: &Path) -> Vec<u8> {
    path.to_str().unwrap().as_bytes().to_vec()
}
