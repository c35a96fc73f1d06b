//! A delivery service with its own bus and store, a scripted platform, and fake sessions and sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, EventFilter, Meta, test_bus};
use dray_platform::DuplicateProtection;
use dray_proto::codes::DeliveryTask;
use dray_proto::contract::call_subject;
use dray_proto::{NamedCode as _, v1};
use dray_service::ServiceContext;
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store, StoreOptions};
use dray_testkit::s3::FaultyS3;
use dray_types::{Claim, Clock, Deadline, Fault, FaultCode, OperationId, TenantId};
use futures_util::FutureExt as _;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fake::FakePlatform;
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::config::Config;
use crate::deliver::WorkEnd;
use crate::delivery_service::DeliveryService;
use crate::error::DeliveryError;
use crate::link::LinkPolicy;
use crate::reconciler::RecentPublishes;
use crate::record::{DeliveryRecord, DeliveryStart, FileRecord, FileState};

/// 2026-11-20T00:00:00Z.
pub(crate) const NOW_MS: u64 = 1_795_132_800_000;

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

/// A new bus with all streams and buckets, and a manual clock.
pub(crate) async fn in_process() -> (Bus, Clock) {
    let clock = Clock::manual(NOW_MS);
    (provisioned(&clock).await, clock)
}

pub(crate) async fn provisioned(clock: &Clock) -> Bus {
    test_bus::in_process(clock).await
}

pub(crate) struct DeliveryFixture {
    pub(crate) replica: Arc<DeliveryService>,
    pub(crate) fake: Arc<FakePlatform>,
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) sandbox: FakeSandbox,
    directory: TempDir,
    s3: EmbeddedS3,
}

impl DeliveryFixture {
    pub(crate) async fn new() -> Self {
        Self::with(DuplicateProtection::Unknown, |_| {}).await
    }

    pub(crate) async fn with(
        ambiguity: DuplicateProtection,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        Self::at(Clock::manual(NOW_MS), ambiguity, change).await
    }

    /// A fixture with this clock. Tests of signed URLs need the real time, because the store checks them by the
    /// machine's clock.
    pub(crate) async fn at(
        clock: Clock,
        ambiguity: DuplicateProtection,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let bus = provisioned(&clock).await;
        Self::start_on(bus, clock, ambiguity, change).await
    }

    /// A fixture on this bus.
    pub(crate) async fn start_on(
        bus: Bus,
        clock: Clock,
        ambiguity: DuplicateProtection,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (s3, options) = EmbeddedS3::with_capacity(&directory.path().join("s3"), u64::MAX)
            .await
            .unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let fake = FakePlatform::with("telegram", ambiguity);
        let mut config = Config {
            links: LinkPolicy::Always,
            ..Config::default()
        };
        change(&mut config);
        let cx = context(&bus, &store, &clock);
        let accounts = accounts(&fake);
        Self {
            replica: service_with_short_retries(config, accounts, &cx),
            sandbox: FakeSandbox::start(&bus).await,
            fake,
            bus,
            store,
            clock,
            directory,
            s3,
        }
    }

    /// A fixture whose store is behind a proxy that injects faults.
    pub(crate) async fn with_faulty_store(change: impl FnOnce(&mut Config)) -> (Self, FaultyS3) {
        let mut fixture = Self::with(DuplicateProtection::Unknown, change).await;
        let proxy = FaultyS3::start(fixture.s3.address()).await.unwrap();
        let options = dray_store::embedded::serving_options(&fixture.directory().join("s3"));
        let proxied_options = StoreOptions {
            endpoint: proxy.endpoint(),
            ..options.unwrap()
        };
        let store = Store::open(&proxied_options, fixture.clock.clone()).await;
        fixture.store = store.unwrap();
        fixture.restart();
        (fixture, proxy)
    }

    /// Replaces the service by a new one on the same bus and store, as after a crash.
    pub(crate) fn restart(&mut self) {
        let cx = context(&self.bus, &self.store, &self.clock);
        let accounts = accounts(&self.fake);
        self.replica = service_with_short_retries(
            self.replica.inbound.config.get().as_ref().clone(),
            accounts,
            &cx,
        );
    }

    pub(crate) fn meta(&self, operation: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_hours(24));
        Meta::new(tenant(), deadline).with_operation(OperationId::new(operation).unwrap())
    }

    /// Stores a file.
    pub(crate) async fn claim(&self, name: &str, bytes: &[u8]) -> Claim {
        let label = ArtifactLabel::new("application/octet-stream", name);
        self.store
            .put(
                &tenant(),
                &OperationId::mint(),
                Bytes::copy_from_slice(bytes),
                label,
            )
            .await
            .unwrap()
    }

    /// Stores a file in the cache.
    pub(crate) async fn cached_claim(&self, name: &str, bytes: &[u8]) -> Claim {
        let operation = OperationId::mint();
        let mut writer = self.store.writer(&tenant(), &operation, 1).cached();
        writer.write(Bytes::copy_from_slice(bytes)).await.unwrap();
        let label = ArtifactLabel::new("application/octet-stream", name);
        writer.finish(label).await.unwrap()
    }

    /// A delivery of new stored files to the chat `42`.
    pub(crate) async fn files(&self, id: &str, files: &[(&str, &[u8])]) -> DeliveryStart {
        let mut stored = Vec::new();
        for (name, bytes) in files {
            stored.push(FileRecord::stored(self.claim(name, bytes).await.into()));
        }
        DeliveryStart {
            delivery_id: id.to_owned(),
            session: "s".to_owned(),
            target: Some(chat("42")),
            files: stored,
            turn: "t".to_owned(),
            ..DeliveryStart::default()
        }
    }

    /// Runs the work of this delivery once.
    pub(crate) async fn deliver(&self, start: &DeliveryStart) -> Result<WorkEnd, DeliveryError> {
        let cancel = CancellationToken::new();
        self.replica
            .sender
            .deliver(&self.meta(&start.delivery_id), &start_work(start), &cancel)
            .await
    }

    /// Runs the work of this delivery, which must end it.
    pub(crate) async fn delivered(&self, start: &DeliveryStart) -> DeliveryRecord {
        match self.deliver(start).await.unwrap() {
            WorkEnd::Finished(record) => record,
            WorkEnd::Waiting(record) => panic!("the delivery waits for {:?}", record.waiting),
        }
    }

    /// Runs the work of this delivery until the platform simulates a crash, then restarts the service.
    pub(crate) async fn crash_in(&mut self, start: &DeliveryStart) {
        {
            let crashing = self.deliver(start);
            tokio::pin!(crashing);
            tokio::select! {
                ended = &mut crashing => panic!("the work ended without a crash: {ended:?}"),
                () = self.fake.crashed() => {}
            }
        }
        self.restart();
    }

    /// Runs the reconciler once.
    pub(crate) async fn sweep(&self) {
        self.replica.receipts.log.index.refresh().await.unwrap();
        self.replica
            .reconciler
            .sweep(&mut RecentPublishes::new())
            .await;
    }

    pub(crate) async fn record(&self, id: &str) -> DeliveryRecord {
        let key = crate::records::record_key(&tenant(), &OperationId::new(id).unwrap());
        self.replica
            .receipts
            .log
            .records
            .read(&key)
            .await
            .unwrap()
            .unwrap()
            .record
    }

    /// Runs the work that continues a delivery after its wait.
    pub(crate) async fn resume(&self, id: &str) -> Result<WorkEnd, DeliveryError> {
        let report = self.record(id).await;
        let meta = crate::reconciler::round_meta(&report).unwrap();
        let work = crate::reconciler::round_work(&report);
        let cancel = CancellationToken::new();
        self.replica.sender.deliver(&meta, &work, &cancel).await
    }

    /// Operations of all work of this kind in the stream.
    pub(crate) async fn published(&self, kind: &str) -> Vec<String> {
        let filter = EventFilter::new(format!("dray.work.{kind}.>")).from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let mut operations = Vec::new();
        while let Some(Ok(event)) = events.next().now_or_never() {
            let operation = event.headers.get("Dray-Operation");
            operations.push(operation.unwrap_or_default().to_owned());
        }
        operations
    }

    /// Number, file and cause of each failed attempt that was reported.
    pub(crate) async fn failed_attempts(&self) -> Vec<String> {
        let filter = EventFilter::of::<v1::DeliveryProgressed>().from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let mut attempts = Vec::new();
        while let Some(Ok(event)) = events.next().now_or_never() {
            let progress: v1::DeliveryProgressed = event.decode().unwrap();
            if progress.stage_code() == v1::DeliveryStage::AttemptFailed {
                let (number, cause) = (progress.attempt, progress.error_code().name());
                attempts.push(format!("{number} {} {cause}", progress.name));
            }
        }
        attempts
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}

/// The context of the replica, which is the same after a restart.
fn context(bus: &Bus, store: &Store, clock: &Clock) -> ServiceContext {
    ServiceContext {
        instance: "replica".to_owned(),
        ..ServiceContext::new(bus.clone(), store.clone(), clock.clone())
    }
}

pub(crate) fn accounts(fake: &Arc<FakePlatform>) -> AccountRegistry {
    AccountRegistry::new([PlatformAccount::new("bot", fake.clone())
        .with_inbox(fake.clone())
        .with_tenant(Some(tenant()))])
}

/// A service that retries after a millisecond.
fn service_with_short_retries(
    config: Config,
    accounts: AccountRegistry,
    cx: &ServiceContext,
) -> Arc<DeliveryService> {
    let retry_unit = Duration::from_millis(1);
    Arc::new(DeliveryService::with_retry_unit(
        config, accounts, cx, retry_unit,
    ))
}

/// The states of all files.
pub(crate) fn states(record: &DeliveryRecord) -> Vec<FileState> {
    record.files.iter().map(|file| file.state).collect()
}

/// The work that begins a delivery.
pub(crate) fn start_work(start: &DeliveryStart) -> v1::DeliverFiles {
    let work = v1::DeliverFiles {
        delivery_id: start.delivery_id.clone(),
        session: start.session.clone(),
        target: start.target.clone(),
        ..v1::DeliverFiles::default()
    };
    work.with_task(DeliveryTask::New(v1::NewDelivery {
        message: start.message.clone(),
        flags: start.flags,
        files: start.files.iter().map(Into::into).collect(),
        turn: start.turn.clone(),
    }))
}

pub(crate) fn chat(chat: &str) -> v1::ChatTarget {
    v1::ChatTarget {
        platform: "telegram".to_owned(),
        chat: chat.to_owned(),
        ..v1::ChatTarget::default()
    }
}

type Files = HashMap<Vec<u8>, Result<(String, Option<v1::Claim>), Fault>>;

#[derive(Default)]
struct SandboxState {
    files: Files,
    session: Option<v1::Session>,
    session_fault: Option<Fault>,
    /// What the receipts of single files report about their text.
    content_warning: String,
}

/// Fake sessions and one fake sandbox.
pub(crate) struct FakeSandbox {
    shared: Arc<Mutex<SandboxState>>,
    _tasks: JoinSet<()>,
}

impl FakeSandbox {
    #[expect(clippy::too_many_lines, reason = "one handler after the other")]
    pub(crate) async fn start(bus: &Bus) -> Self {
        let shared = Arc::new(Mutex::new(SandboxState::default()));
        let mut tasks = JoinSet::new();
        let state = Arc::clone(&shared);
        serve(bus, &mut tasks, move |_: v1::ShowSessionRequest| {
            let state = lock(&state);
            match state.session_fault.clone() {
                Some(fault) => Err(fault),
                None => state.session.clone().ok_or_else(missing),
            }
        })
        .await;
        let state = Arc::clone(&shared);
        serve(bus, &mut tasks, move |request: v1::FindSessionRequest| {
            let session = lock(&state).session.clone().ok_or_else(missing)?;
            if session.chat == request.chat {
                Ok(session)
            } else {
                Err(missing())
            }
        })
        .await;
        let state = Arc::clone(&shared);
        serve(bus, &mut tasks, move |request: v1::StatSandboxRequest| {
            let found = lock(&state).files.get(&request.path).cloned();
            let (kind, _) = found.unwrap_or_else(|| Err(missing()))?;
            let entry = v1::SandboxEntry {
                path: request.path,
                ..v1::SandboxEntry::default()
            };
            Ok(entry.with_kind(v1::SandboxEntryKind::from_name(&kind).unwrap()))
        })
        .await;
        let state = Arc::clone(&shared);
        serve(
            bus,
            &mut tasks,
            move |request: v1::GetSandboxFileRequest| {
                let state = lock(&state);
                let found = state.files.get(&request.path).cloned();
                let (_, claim) = found.unwrap_or_else(|| Err(missing()))?;
                let receipt = claim.as_ref().map(|claim| v1::TransferReceipt {
                    content_warning: state.content_warning.clone(),
                    ..receipt_of(claim)
                });
                Ok(v1::SandboxFile {
                    receipt,
                    claim,
                    ..v1::SandboxFile::default()
                })
            },
        )
        .await;
        let state = Arc::clone(&shared);
        serve(
            bus,
            &mut tasks,
            move |request: v1::GetSandboxTreeRequest| {
                assert_eq!(request.format, "zip");
                let found = lock(&state).files.get(&request.path).cloned();
                let (_, claim) = found.unwrap_or_else(|| Err(missing()))?;
                Ok(v1::SandboxTree {
                    receipt: claim.as_ref().map(receipt_of),
                    claim,
                    files: 1,
                    ..v1::SandboxTree::default()
                })
            },
        )
        .await;
        Self {
            shared,
            _tasks: tasks,
        }
    }

    /// Assigns a chat to every session.
    pub(crate) fn bind(&self, chat: v1::ChatTarget) {
        lock(&self.shared).session = Some(v1::Session {
            session: "s".to_owned(),
            chat: Some(chat),
            ..v1::Session::default()
        });
    }

    /// Makes every request for the session fail.
    pub(crate) fn refuse_session(&self, fault: Fault) {
        lock(&self.shared).session_fault = Some(fault);
    }

    /// Creates an entry of this kind (`file`, `dir`, `fifo` …) at a path.
    pub(crate) fn put(&self, path: &str, kind: &str, claim: Option<Claim>) {
        let entry = Ok((kind.to_owned(), claim.map(v1::Claim::from)));
        lock(&self.shared)
            .files
            .insert(path.as_bytes().to_vec(), entry);
    }

    /// Makes the receipt of every single file report this about its text.
    pub(crate) fn warn_about_content(&self, warning: &str) {
        warning.clone_into(&mut lock(&self.shared).content_warning);
    }

    /// Makes every request for this path fail.
    pub(crate) fn refuse(&self, path: &str, fault: Fault) {
        lock(&self.shared)
            .files
            .insert(path.as_bytes().to_vec(), Err(fault));
    }
}

/// A receipt for the copy of this file.
fn receipt_of(claim: &v1::Claim) -> v1::TransferReceipt {
    let artifact = claim.artifact.clone().unwrap_or_default();
    v1::TransferReceipt {
        bytes: artifact.size,
        sha256: artifact.sha256,
        ..v1::TransferReceipt::default()
    }
}

fn missing() -> Fault {
    Fault::new(FaultCode::NotFound, "The resource does not exist.")
}

/// Handles one kind of call.
pub(super) async fn serve<C, F>(bus: &Bus, tasks: &mut JoinSet<()>, respond: F)
where
    C: dray_proto::Call,
    F: Fn(C) -> Result<C::Reply, Fault> + Send + 'static,
{
    let mut responder = bus
        .respond_to(&call_subject::<C>(), "sandbox-transfer")
        .await
        .unwrap();
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            let reply = incoming.decode::<C>().and_then(&respond);
            incoming.answer(reply).await;
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
