//! One resolver with all dependencies: its own bus and store, a fake DIAL Core, and a fake fetcher whose responses a
//! test sets.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::task::JoinSet;

use dray_bus::{Bus, Meta, test_bus};
use dray_proto::contract::call_subject;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, RunningHost, Settings};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::dial::DialCore;
use dray_types::{
    ByteSize, Claim, Clock, Deadline, Fault, FaultCode, Secret, Sha256Digest, TenantId,
};

use crate::FileResolver;
use crate::dial::{CallerCredentials, dial_client};
use crate::external::ExternalFetch;
use crate::loader::{FileLoader, LoadScope};

pub(super) const TEST_TENANT: &str = "acme";
const CONFIGURATION_FILE: &str = "dray.toml";

pub(super) struct ResolverFixture {
    pub(super) core: DialCore,
    pub(super) bus: Bus,
    pub(super) store: Store,
    pub(super) egress: FakeEgress,
    pub(super) clock: Clock,
    directory: TempDir,
    running: RunningHost,
    s3: Option<EmbeddedS3>,
}

impl ResolverFixture {
    pub(super) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A fixture whose resolver has no DIAL.
    pub(super) async fn without_dial() -> Self {
        Self::build(DialCore::start().await.unwrap(), &[], u64::MAX).await
    }

    /// A fixture whose store has this capacity in bytes.
    pub(super) async fn with_capacity(bytes: u64) -> Self {
        Self::with_all(&[], bytes).await
    }

    /// A fixture whose resolver has these additional settings.
    pub(super) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::with_all(settings, u64::MAX).await
    }

    async fn with_all(settings: &[(&str, &str)], capacity: u64) -> Self {
        let core = DialCore::start().await.unwrap();
        let url = core.url();
        let all: Vec<_> = [("file-resolver.dial_url", url.as_str())]
            .into_iter()
            .chain(settings.iter().copied())
            .collect();
        Self::build(core, &all, capacity).await
    }

    async fn build(core: DialCore, settings: &[(&str, &str)], capacity: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let place = directory.path().join("s3");
        let (s3, options) = EmbeddedS3::with_capacity(&place, capacity).await.unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        core.add_key("key", "b");
        let mut all = Settings::embedded(directory.path())
            .set("limits.free_disk_percent", "0")
            .bus(bus.clone())
            .store(store.clone());
        let file = directory.path().join(CONFIGURATION_FILE);
        std::fs::write(&file, "").unwrap();
        all.sources = all.sources.file(file);
        for (key, value) in settings {
            all = all.set(*key, *value);
        }
        let running = Host::new(all).with::<FileResolver>().start().await.unwrap();
        Self {
            egress: FakeEgress::start(&bus).await,
            core,
            bus,
            store,
            clock,
            directory,
            running,
            s3: Some(s3),
        }
    }

    /// Replaces the configuration file, which is empty at the start.
    pub(super) fn configure(&self, text: &str) {
        std::fs::write(self.directory.path().join(CONFIGURATION_FILE), text).unwrap();
    }

    /// Waits until a line of the metrics begins with `name` and ends with `value`.
    pub(super) async fn wait_for_metric(&self, name: &str, value: u64) {
        dray_testkit::eventually(name, async || {
            let metrics = self.running.metrics().unwrap();
            let mut lines = metrics.lines();
            lines
                .any(|line| line.starts_with(name) && line.ends_with(&format!(" {value}")))
                .then_some(())
        })
        .await;
    }

    pub(super) fn meta(&self) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(30));
        Meta::new(TenantId::new(TEST_TENANT).unwrap(), deadline)
    }

    /// Calls the resolver over the bus with a valid key.
    pub(super) async fn ask(&self, request: v1::ResolveRequest) -> Result<v1::ResolveReply, Fault> {
        Ok(self.bus.call(&self.meta(), &request).await?)
    }

    /// The resolved arguments as text, and the files that were inserted.
    pub(super) async fn resolve(&self, arguments: &str) -> (String, Vec<v1::ResolvedFile>) {
        self.resolved(request(arguments)).await
    }

    pub(super) async fn resolved(
        &self,
        request: v1::ResolveRequest,
    ) -> (String, Vec<v1::ResolvedFile>) {
        match self.ask(request).await.unwrap().outcome {
            Some(v1::resolve_reply::Outcome::Resolved(resolved)) => {
                let text = self.read(resolved.arguments.unwrap()).await;
                (String::from_utf8(text.to_vec()).unwrap(), resolved.files)
            }
            other => panic!("not resolved: {other:?}"),
        }
    }

    /// The parameter that the model has to correct.
    pub(super) async fn invalid(&self, arguments: &str) -> v1::InvalidParameter {
        match self.ask(request(arguments)).await.unwrap().outcome {
            Some(v1::resolve_reply::Outcome::Invalid(invalid)) => invalid,
            other => panic!("not invalid: {other:?}"),
        }
    }

    /// The fault that ends the call.
    pub(super) async fn fault(&self, arguments: &str) -> Fault {
        self.ask(request(arguments)).await.unwrap_err()
    }

    /// A separate loader, as for one call.
    pub(super) fn loader(&self) -> FileLoader {
        let meta = self.meta();
        let limit = ByteSize::mib(10);
        let scope = LoadScope {
            tenant: meta.tenant.clone(),
            operation: meta.operation.clone(),
            epoch: 0,
            deadline: meta.deadline,
            limit,
            credentials: CallerCredentials {
                api_key: Secret::new("key"),
                authorization: Secret::default(),
            },
            fetch: ExternalFetch {
                meta,
                app_policy: None,
                limit,
                tool_timeout_ms: 30_000,
            },
        };
        let dial = dial_client(&self.core.url(), &crate::Config::default()).unwrap();
        FileLoader::new(self.bus.clone(), self.store.clone(), Some(dial), scope)
    }

    pub(super) async fn read(&self, content: v1::Content) -> Bytes {
        match ContentSource::try_from(content).unwrap() {
            ContentSource::Inline(bytes) => bytes,
            ContentSource::Claim(claim) => self.read_claim(&claim).await,
        }
    }

    pub(super) async fn read_claim(&self, claim: &Claim) -> Bytes {
        let tenant = TenantId::new(TEST_TENANT).unwrap();
        let deadline = self.meta().deadline;
        let reader = self.store.read(&tenant, claim, deadline).await.unwrap();
        reader.read_all(ByteSize::mib(64)).await.unwrap()
    }

    /// Stores bytes of `tenant`.
    pub(super) async fn put(&self, tenant: &str, bytes: impl Into<Bytes>) -> Claim {
        let tenant = TenantId::new(tenant).unwrap();
        let operation = self.meta().operation;
        let label = dray_store::ArtifactLabel::default();
        self.store
            .put(&tenant, &operation, bytes.into(), label)
            .await
            .unwrap()
    }

    /// Downloads a link without credentials.
    pub(super) async fn download(&self, url: &str) -> Bytes {
        let client = dray_http::HttpClient::new(dray_http::HttpTimeouts::default(), None).unwrap();
        let response = client.get(url).send(&|_| ()).await.unwrap();
        assert!(response.is_success(), "{}", response.status());
        response.bytes(64 << 20).await.unwrap()
    }

    /// Paths of all objects in the store, after its background clean-up.
    pub(super) async fn stored(&self) -> Vec<PathBuf> {
        self.store.settle().await;
        let mut files = Vec::new();
        collect(&self.directory.path().join("s3"), &mut files);
        files.retain(|path| {
            let path = path.to_string_lossy();
            path.contains("/cas/") || path.contains("/stage/")
        });
        files
    }

    /// Ends the S3 server, so that every later request to it fails.
    pub(super) async fn stop_store(&mut self) {
        if let Some(s3) = self.s3.take() {
            s3.stop().await;
        }
    }

    pub(super) async fn stop(self) {
        self.running.stop().await;
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// A request for these arguments with a valid key.
pub(super) fn request(arguments: &str) -> v1::ResolveRequest {
    v1::ResolveRequest {
        arguments: Some(ContentSource::Inline(Bytes::copy_from_slice(arguments.as_bytes())).into()),
        credentials: Some(v1::DialCredentials {
            api_key: "key".to_owned(),
            authorization: String::new(),
        }),
        tool: "tool".to_owned(),
        ..v1::ResolveRequest::default()
    }
}

type Answers = HashMap<String, Result<v1::FetchReply, Fault>>;

/// A fetcher without a network.
pub(super) struct FakeEgress {
    answers: Arc<Mutex<Answers>>,
    stalled_urls: Arc<Mutex<HashSet<String>>>,
    asked: Arc<Mutex<Vec<(Meta, v1::FetchRequest)>>>,
    _tasks: JoinSet<()>,
}

impl FakeEgress {
    async fn start(bus: &Bus) -> Self {
        let answers = Arc::new(Mutex::new(Answers::new()));
        let stalled_urls = Arc::new(Mutex::new(HashSet::new()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let subject = call_subject::<v1::FetchRequest>();
        let mut responder = bus.respond_to(&subject, "egress-fetcher").await.unwrap();
        let mut tasks = JoinSet::new();
        let (known, seen) = (Arc::clone(&answers), Arc::clone(&asked));
        let stalled = Arc::clone(&stalled_urls);
        tasks.spawn(async move {
            let mut unanswered = Vec::new();
            while let Some(incoming) = responder.next().await {
                let request: v1::FetchRequest = incoming.decode().unwrap();
                let answer = lock(&known).get(&request.url).cloned();
                let is_stalled = lock(&stalled).contains(&request.url);
                lock(&seen).push((incoming.meta().unwrap(), request));
                if is_stalled {
                    unanswered.push(incoming);
                    continue;
                }
                let missing = || Err(Fault::new(FaultCode::Internal, "not in the test"));
                incoming.answer(answer.unwrap_or_else(missing)).await;
            }
        });
        Self {
            answers,
            stalled_urls,
            asked,
            _tasks: tasks,
        }
    }

    pub(super) fn answer(&self, url: &str, answer: Result<v1::FetchReply, Fault>) {
        lock(&self.answers).insert(url.to_owned(), answer);
    }

    /// Requests for `url` get no response.
    pub(super) fn stall(&self, url: &str) {
        lock(&self.stalled_urls).insert(url.to_owned());
    }

    pub(super) fn asked(&self) -> Vec<(Meta, v1::FetchRequest)> {
        lock(&self.asked).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fetcher's reply with these bytes.
pub(super) fn fetched(content: ContentSource, bytes: &[u8]) -> v1::FetchReply {
    v1::FetchReply {
        content: Some(content.into()),
        sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
        size: bytes.len() as u64,
        media_type: "text/plain".to_owned(),
        ..v1::FetchReply::default()
    }
}

/// Bytes that are not text and compress badly.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    })
    .take(length)
    .collect()
}
