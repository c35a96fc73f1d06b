//! A resolver with all dependencies, whose conversions run in the built service: its own bus and store, a fake DIAL
//! Core, and a fake fetcher and sandbox whose responses a test sets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::task::JoinSet;

use dray_bus::{Bus, Meta, test_bus};
use dray_file_resolver::FileResolver;
use dray_proto::contract::{Call, call_subject};
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, RunningHost, Settings};
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store};
use dray_testkit::dial::DialCore;
use dray_types::{ByteSize, Claim, Clock, Deadline, Fault, FaultCode, TenantId};

pub(crate) const TEST_TENANT: &str = "acme";

pub(crate) struct ReadingFixture {
    pub(crate) core: DialCore,
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) directory: TempDir,
    /// The claim of each path of the sandbox, or the fault for it.
    pub(crate) sandbox: Shared<Result<Claim, Fault>>,
    /// The real paths of written files by their requested paths; by default they are equal.
    pub(crate) places: Shared<String>,
    /// The real paths of directories in the sandbox; a directory without an entry does not exist.
    pub(crate) directories: Shared<String>,
    /// The fetcher's response.
    pub(crate) outside: Shared<Result<v1::FetchReply, Fault>>,
    /// The number of requests to the fetcher.
    pub(crate) fetches: Arc<AtomicUsize>,
    clock: Clock,
    _running: RunningHost,
    _tasks: JoinSet<()>,
    _s3: EmbeddedS3,
}

type Shared<T> = Arc<Mutex<HashMap<String, T>>>;

pub(crate) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadingFixture {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A fixture whose resolver is configured with these keys on top.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let core = DialCore::start().await.unwrap();
        core.add_key("key", "b");
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let (s3, options) = EmbeddedS3::with_capacity(&directory.path().join("s3"), u64::MAX)
            .await
            .unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        let workspace = directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let roots = format!("[\"{}\"]", workspace.display());
        let mut all = Settings::embedded(directory.path())
            .set("limits.free_disk_percent", "0")
            .set("file-resolver.dial_url", core.url())
            .set("file-resolver.reading.roots", roots)
            .set("file-resolver.reading.worker", counting(&directory))
            .bus(bus.clone())
            .store(store.clone());
        for (key, value) in settings {
            all = all.set(*key, *value);
        }
        let mut tasks = JoinSet::new();
        let (sandbox, places) = (Shared::default(), Shared::default());
        let (directories, outside) = (Shared::default(), Shared::default());
        let fetches = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&fetches);
        let counted = move |request: &v1::FetchRequest, table: &_| {
            count.fetch_add(1, Ordering::SeqCst);
            fetch_from(request, table)
        };
        serve(&bus, "egress-fetcher", &mut tasks, &outside, counted).await;
        serve(&bus, "sandbox-transfer", &mut tasks, &sandbox, got).await;
        serve(&bus, "sandbox-transfer", &mut tasks, &places, place_file).await;
        serve(
            &bus,
            "sandbox-transfer",
            &mut tasks,
            &directories,
            stat_from,
        )
        .await;
        let running = Host::new(all).with::<FileResolver>().start().await.unwrap();
        Self {
            core,
            bus,
            store,
            directory,
            sandbox,
            places,
            directories,
            outside,
            fetches,
            clock,
            _running: running,
            _tasks: tasks,
            _s3: s3,
        }
    }

    pub(crate) fn meta(&self) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_mins(1));
        Meta::new(TenantId::new(TEST_TENANT).unwrap(), deadline)
    }

    pub(crate) async fn ask<C: Call>(&self, request: &C) -> Result<C::Reply, Fault> {
        Ok(self.bus.call(&self.meta(), request).await?)
    }

    pub(crate) async fn read(&self, content: Option<v1::Content>) -> String {
        let bytes = match ContentSource::try_from(content.unwrap()).unwrap() {
            ContentSource::Inline(bytes) => bytes,
            ContentSource::Claim(claim) => {
                let tenant = TenantId::new(TEST_TENANT).unwrap();
                let deadline = self.meta().deadline;
                let reader = self.store.read(&tenant, &claim, deadline).await.unwrap();
                reader.read_all(ByteSize::mib(64)).await.unwrap()
            }
        };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// Stores a file of the tenant.
    pub(crate) async fn put(&self, name: &str, bytes: impl Into<Bytes>) -> Claim {
        let tenant = TenantId::new(TEST_TENANT).unwrap();
        let operation = self.meta().operation;
        let label = ArtifactLabel::new("application/octet-stream", name);
        let stored = self.store.put(&tenant, &operation, bytes.into(), label);
        stored.await.unwrap()
    }

    /// Number of conversions that ran.
    pub(crate) fn conversions(&self) -> usize {
        let log = std::fs::read_to_string(self.directory.path().join("conversions"));
        log.map_or(0, |log| log.lines().count())
    }
}

/// The built service as a worker that counts.
fn counting(directory: &TempDir) -> String {
    let path = directory.path().join("worker");
    let log = directory.path().join("conversions");
    let service = env!("CARGO_BIN_EXE_dray-file-resolver");
    let script = format!(
        "#!/bin/sh\necho one >> '{}'\nexec '{service}' \"$@\"\n",
        log.display()
    );
    // Another process writes the file: one that this one started meanwhile would keep the file open for writing, and it
    // could not be run.
    let written = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
            &script,
        ])
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    path.to_string_lossy().into_owned()
}

/// Handles one kind of call with responses from a table.
async fn serve<C: Call, T: Clone + Send + 'static>(
    bus: &Bus,
    queue: &str,
    tasks: &mut JoinSet<()>,
    table: &Shared<T>,
    answer: impl Fn(&C, &HashMap<String, T>) -> Result<C::Reply, Fault> + Send + 'static,
) {
    let mut responder = bus.respond_to(&call_subject::<C>(), queue).await.unwrap();
    let table = Arc::clone(table);
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            let request: C = incoming.decode().unwrap();
            let reply = answer(&request, &lock(&table));
            incoming.answer(reply).await;
        }
    });
}

fn missing() -> Fault {
    Fault::new(FaultCode::NotFound, "The file does not exist.").detail("not_found")
}

fn fetch_from(
    request: &v1::FetchRequest,
    table: &HashMap<String, Result<v1::FetchReply, Fault>>,
) -> Result<v1::FetchReply, Fault> {
    table
        .get(&request.url)
        .cloned()
        .unwrap_or_else(|| Err(missing()))
}

fn got(
    request: &v1::GetSandboxFileRequest,
    table: &HashMap<String, Result<Claim, Fault>>,
) -> Result<v1::SandboxFile, Fault> {
    assert!(request.for_reading, "people do not get what a model reads");
    let path = String::from_utf8(request.path.clone()).unwrap();
    let claim = table
        .get(&path)
        .cloned()
        .unwrap_or_else(|| Err(missing()))?;
    let receipt = v1::TransferReceipt {
        bytes: claim.artifact.size,
        sha256: claim.artifact.sha256.as_bytes().to_vec(),
        ..v1::TransferReceipt::default()
    };
    Ok(v1::SandboxFile {
        claim: Some(claim.into()),
        receipt: Some(receipt),
        ..v1::SandboxFile::default()
    })
}

#[expect(clippy::unnecessary_wraps, reason = "one shape for all answers")]
fn place_file(
    request: &v1::PutSandboxFileRequest,
    table: &HashMap<String, String>,
) -> Result<v1::PlacedFile, Fault> {
    let directory = String::from_utf8(request.directory.clone()).unwrap();
    let path = format!(
        "{directory}/{}",
        String::from_utf8(request.name.clone()).unwrap()
    );
    assert_eq!(request.collision, "overwrite");
    Ok(v1::PlacedFile {
        path: table.get(&path).unwrap_or(&path).clone().into_bytes(),
        ..v1::PlacedFile::default()
    })
}

fn stat_from(
    request: &v1::StatSandboxRequest,
    table: &HashMap<String, String>,
) -> Result<v1::SandboxEntry, Fault> {
    let path = String::from_utf8(request.path.clone()).unwrap();
    let real = table.get(&path).ok_or_else(missing)?;
    Ok(v1::SandboxEntry {
        real_path: real.clone().into_bytes(),
        kind_code: v1::SandboxEntryKind::Directory.into(),
        ..v1::SandboxEntry::default()
    })
}
