//! Tests of the policy in the bucket of a real server: changes, hostile contents, and a server that is away.

use std::io::Write as _;
use std::net::TcpStream;

use dray_bus::{Bus, NatsOptions, test_bus};
use dray_testkit::nats::NatsServer;
use dray_types::Sha256Digest;

use super::*;
use crate::audit::{PolicyReporter, PolicyStatus};
use crate::fetch::Fetcher;
use crate::metrics::EgressMetrics;
use crate::policy_files::{PolicySource, PolicyWatcher};
use crate::tests::fake_network::FetcherFixture;

const ALLOW_ALL: &str = "default = \"allow\"\n";
const DENY_ALL: &str = "default = \"deny\"\n";
const POLICY_FILE: &str = "policy.toml";

struct WatchedBucket {
    server: NatsServer,
    keys: KeyValue,
    fetcher: Fetcher,
    watcher: PolicyWatcher,
}

impl WatchedBucket {
    /// With one file in the bucket.
    async fn open(text: &str) -> Self {
        let server = NatsServer::start();
        let bus = test_bus::connect_provisioned(&server.url()).await;
        let keys = bus.key_value(POLICY_BUCKET);
        keys.create(POLICY_FILE, Bytes::copy_from_slice(text.as_bytes()))
            .await
            .unwrap();
        let (fetcher, opened) = open_watcher(&bus).await;
        Self {
            server,
            keys,
            fetcher,
            watcher: opened.unwrap(),
        }
    }

    async fn write(&self, name: &str, content: impl Into<Bytes>) {
        self.keys
            .create_or_update(name, content.into())
            .await
            .unwrap();
    }

    async fn delete(&self, name: &str) {
        let entry = self.keys.get(name).await.unwrap().unwrap();
        self.keys.delete(name, entry.revision).await.unwrap();
    }

    /// Reads twice, so that an unchanged bucket counts as stable, and returns the digest in force.
    async fn reload(&mut self) -> String {
        for _ in 0..2 {
            self.watcher.reload_changed(&self.fetcher).await;
        }
        self.fetcher.rules().unwrap().digest().to_owned()
    }
}

async fn open_watcher(bus: &Bus) -> (Fetcher, Result<PolicyWatcher, PolicyReadError>) {
    let fetcher = FetcherFixture::default().fetcher();
    let metrics = EgressMetrics::new(&test_bus::noop_meter());
    let source = PolicySource::Bucket(PolicyBucket::new(bus.key_value(POLICY_BUCKET)));
    let reporter = PolicyReporter::new(None, PolicyStatus::default());
    let opened = PolicyWatcher::open(source, &fetcher, metrics, reporter).await;
    (fetcher, opened)
}

fn digest_of(text: &str) -> String {
    Sha256Digest::of(text.as_bytes()).to_hex()
}

#[tokio::test]
async fn a_changed_key_is_in_force_once_two_reads_agree() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    assert_eq!(
        bucket.fetcher.rules().unwrap().digest(),
        digest_of(DENY_ALL)
    );
    bucket.write(POLICY_FILE, ALLOW_ALL).await;
    bucket.watcher.reload_changed(&bucket.fetcher).await;
    assert_eq!(
        bucket.fetcher.rules().unwrap().digest(),
        digest_of(DENY_ALL)
    );
    bucket.watcher.reload_changed(&bucket.fetcher).await;
    assert_eq!(
        bucket.fetcher.rules().unwrap().digest(),
        digest_of(ALLOW_ALL)
    );
}

#[tokio::test]
async fn the_digest_is_that_of_a_directory_with_the_same_files() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("20-more.toml", "[[role]]\nname = \"a\"\n"),
        (POLICY_FILE, DENY_ALL),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
        bucket.write(name, text).await;
    }
    let files = PolicyBytes::read(directory.path())
        .unwrap()
        .rules()
        .unwrap();
    assert_eq!(bucket.reload().await, files.digest());
    // A deleted key is a file that is gone.
    bucket.delete("20-more.toml").await;
    assert_eq!(bucket.reload().await, digest_of(DENY_ALL));
}

#[tokio::test]
async fn contents_that_are_not_a_policy_keep_the_rules_until_they_are_gone() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    for (name, content) in [
        ("10-not-utf-8.toml", Bytes::from_static(b"# \xff")),
        (
            "10-unknown.toml",
            Bytes::from_static(b"defualt = \"allow\""),
        ),
        ("10-twice.toml", Bytes::from_static(ALLOW_ALL.as_bytes())),
        ("10-empty.toml", Bytes::new()),
        ("10-zeros.toml", Bytes::from(vec![0; 4096])),
        (
            "10-nested.toml",
            Bytes::from("a = ".to_owned() + &"[".repeat(100_000)),
        ),
        ("no-extension", Bytes::from_static(DENY_ALL.as_bytes())),
        ("a/b.toml", Bytes::from_static(b"[[role]]\nname = \"b\"\n")),
    ] {
        bucket.write(name, content).await;
        assert_eq!(bucket.reload().await, digest_of(DENY_ALL), "{name}");
        assert!(bucket.watcher.is_rejected(), "{name}");
        bucket.delete(name).await;
        assert_eq!(bucket.reload().await, digest_of(DENY_ALL), "{name}");
        assert!(!bucket.watcher.is_rejected(), "{name}");
    }
    bucket.delete(POLICY_FILE).await;
    assert_eq!(bucket.reload().await, digest_of(DENY_ALL));
    assert!(bucket.watcher.is_rejected(), "an empty bucket is no policy");
    bucket.write(POLICY_FILE, ALLOW_ALL).await;
    assert_eq!(bucket.reload().await, digest_of(ALLOW_ALL));
}

/// The acknowledgement of a message that names the key as its reply subject.
#[tokio::test]
async fn an_overwritten_key_keeps_the_rules_and_can_be_put_again() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    let denying = bucket.reload().await;
    let address = bucket.server.url();
    let mut client = TcpStream::connect(address.trim_start_matches("nats://")).unwrap();
    write!(
        client,
        "CONNECT {{\"verbose\":false}}\r\n\
         PUB dray.work.toolcall.v1.resolve.acme $KV.{POLICY_BUCKET}.{POLICY_FILE} 0\r\n\r\n"
    )
    .unwrap();
    let state = loop {
        let state = BucketState::read(&bucket.keys).await.unwrap();
        if state.foreign_key.is_some() {
            break state;
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(
        state.policy(),
        Err(PolicyReadError::BucketContent(problem)) if problem.contains(POLICY_FILE)
    ));
    assert_eq!(bucket.reload().await, denying);

    let draft = PolicyDraft::new(
        PolicyBytes::from_files(vec![(POLICY_FILE.to_owned(), ALLOW_ALL.into())]),
        "ada",
    )
    .unwrap();
    let based_on = state.revision().number;
    draft.put(&bucket.keys, based_on).await.unwrap();
    assert_ne!(bucket.reload().await, denying);
}

#[tokio::test]
async fn a_policy_that_is_too_large_is_not_used() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    for number in 1..=3 {
        let text = format!(
            "[[role]]\nname = \"r{number}\"\n#{}\n",
            "x".repeat(400 * 1024)
        );
        bucket.write(&format!("{number}.toml"), text).await;
    }
    assert_eq!(bucket.reload().await, digest_of(DENY_ALL));
    assert!(bucket.watcher.is_rejected());
    bucket.delete("3.toml").await;
    assert_ne!(bucket.reload().await, digest_of(DENY_ALL));
    assert!(!bucket.watcher.is_rejected());
}

#[tokio::test]
async fn the_rules_stay_while_the_server_is_away_and_follow_it_after_its_restart() {
    let mut bucket = WatchedBucket::open(DENY_ALL).await;
    bucket.server.kill9();
    assert_eq!(bucket.reload().await, digest_of(DENY_ALL));
    assert!(bucket.watcher.is_rejected());
    bucket.server.restart();
    dray_testkit::eventually("the bucket is read again", async || {
        bucket.reload().await;
        (!bucket.watcher.is_rejected()).then_some(())
    })
    .await;
    bucket.write(POLICY_FILE, ALLOW_ALL).await;
    assert_eq!(bucket.reload().await, digest_of(ALLOW_ALL));
}

#[tokio::test]
async fn without_a_policy_or_a_server_there_is_no_start() {
    let mut server = NatsServer::start();
    let bus = test_bus::connect(&NatsOptions::at(server.url())).await;
    let (fetcher, opened) = open_watcher(&bus).await;
    assert!(
        matches!(opened, Err(PolicyReadError::Bus(_))),
        "no bucket: {opened:?}"
    );
    let bus = test_bus::connect_provisioned(&server.url()).await;
    let (_, opened) = open_watcher(&bus).await;
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("has no policy file"), "{error}");
    bus.key_value(POLICY_BUCKET)
        .create(POLICY_FILE, "default = \"maybe\"".into())
        .await
        .unwrap();
    let (_, opened) = open_watcher(&bus).await;
    let error = opened.unwrap_err().to_string();
    assert!(error.starts_with("policy.toml:1: "), "{error}");
    server.kill9();
    let (_, opened) = open_watcher(&bus).await;
    assert!(matches!(opened, Err(PolicyReadError::Bus(_))), "{opened:?}");
    assert!(fetcher.rules().is_none());
}

#[tokio::test]
async fn a_bucket_that_begins_again_with_lower_revisions_is_noticed() {
    let clock = dray_types::Clock::system();
    let [long, restored] = [
        test_bus::in_process(&clock).await.key_value(POLICY_BUCKET),
        test_bus::in_process(&clock).await.key_value(POLICY_BUCKET),
    ];
    for text in [ALLOW_ALL, DENY_ALL] {
        long.create_or_update(POLICY_FILE, text.into())
            .await
            .unwrap();
    }
    restored
        .create(POLICY_FILE, ALLOW_ALL.into())
        .await
        .unwrap();
    let mut bucket = PolicyBucket::new(long);
    let digest = async |bucket: &mut PolicyBucket| {
        let rules = bucket.read().await.unwrap().rules().unwrap();
        rules.digest().to_owned()
    };
    assert_eq!(digest(&mut bucket).await, digest_of(DENY_ALL));
    bucket.keys = restored;
    assert_eq!(digest(&mut bucket).await, digest_of(DENY_ALL), "not yet");
    let (_, read_at) = bucket.last.as_mut().unwrap();
    *read_at -= FULL_READ_INTERVAL;
    assert_eq!(digest(&mut bucket).await, digest_of(ALLOW_ALL));
}

#[test]
fn names_of_policy_files_are_plain() {
    for name in ["policy.toml", "10-base_2.toml", "a.b.toml"] {
        assert!(is_policy_name(name), "{name}");
    }
    for name in [
        "", ".toml", "a", "a.TOML", "a/b.toml", "a..toml", "ü.toml", "a\n.toml", "a b.toml",
    ] {
        assert!(!is_policy_name(name), "{name:?}");
    }
    assert!(!is_policy_name(&format!("{}.toml", "a".repeat(251))));
}
