//! Tests of policy files that change, become invalid, are replaced and become valid again.

use std::os::unix::fs::symlink;

use super::*;
use crate::audit::PolicyStatus;
use crate::tests::fake_network::FetcherFixture;

const ALLOW_ALL: &str = "default = \"allow\"\n";
const DENY_ALL: &str = "default = \"deny\"\n";

struct WatchedPolicy {
    directory: tempfile::TempDir,
    fetcher: Fetcher,
    watcher: PolicyWatcher,
    status: PolicyStatus,
}

impl WatchedPolicy {
    async fn open(make: impl Fn(&Path), name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path());
        let fetcher = FetcherFixture::default().fetcher();
        let status = PolicyStatus::of_instance("i-1");
        let metrics = EgressMetrics::new(&opentelemetry::global::meter("test"));
        let watcher = PolicyWatcher::open(
            PolicySource::Path(directory.path().join(name)),
            &fetcher,
            metrics,
            PolicyReporter::new(None, status.clone()),
        )
        .await
        .unwrap();
        Self {
            directory,
            fetcher,
            watcher,
            status,
        }
    }

    async fn of_file(text: &str) -> Self {
        let write = |directory: &Path| fs::write(directory.join("policy.toml"), text).unwrap();
        Self::open(write, "policy.toml").await
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn digest(&self) -> String {
        self.fetcher.rules().unwrap().digest().to_owned()
    }

    /// Reads twice, so that unchanged files count as stable.
    async fn reload_until_stable(&mut self) {
        for _ in 0..2 {
            self.watcher.reload_changed(&self.fetcher).await;
        }
    }
}

fn digest_of(text: &str) -> String {
    Sha256Digest::of(text.as_bytes()).to_hex()
}

#[tokio::test]
async fn a_changed_file_is_applied_once_two_reads_agree() {
    let mut policy = WatchedPolicy::of_file(DENY_ALL).await;
    assert_eq!(policy.digest(), digest_of(DENY_ALL));
    policy.write("policy.toml", "default = \"al");
    policy.watcher.reload_changed(&policy.fetcher).await;
    // The writer continues: the first read saw half of the file.
    policy.write("policy.toml", ALLOW_ALL);
    policy.watcher.reload_changed(&policy.fetcher).await;
    assert_eq!(policy.digest(), digest_of(DENY_ALL));
    policy.watcher.reload_changed(&policy.fetcher).await;
    assert_eq!(policy.digest(), digest_of(ALLOW_ALL));
}

#[tokio::test]
async fn a_broken_missing_or_large_file_keeps_the_rules_until_it_is_valid_again() {
    let mut policy = WatchedPolicy::of_file(DENY_ALL).await;
    let large = format!("{ALLOW_ALL}#{}", "x".repeat(MAX_POLICY_BYTES));
    for broken in [
        b"default = \"maybe\"".as_slice(),
        b"",
        b"default = \"allow\" # \xff",
        large.as_bytes(),
    ] {
        policy.write("policy.toml", broken);
        policy.reload_until_stable().await;
        assert!(policy.watcher.state.is_rejected());
        assert_eq!(policy.digest(), digest_of(DENY_ALL));
        let shown = policy.status.show();
        assert_eq!(shown.rules_digest, digest_of(DENY_ALL));
        assert!(!shown.refused.unwrap().problem.is_empty());
    }
    fs::remove_file(policy.directory.path().join("policy.toml")).unwrap();
    policy.reload_until_stable().await;
    assert!(policy.watcher.state.is_rejected());
    policy.write("policy.toml", DENY_ALL);
    policy.reload_until_stable().await;
    assert!(!policy.watcher.state.is_rejected());
    policy.write("policy.toml", ALLOW_ALL);
    policy.reload_until_stable().await;
    assert_eq!(policy.digest(), digest_of(ALLOW_ALL));
}

#[tokio::test]
async fn a_replaced_link_is_followed_as_mounted_volumes_replace_theirs() {
    let make = |directory: &Path| {
        for (name, text) in [("v1", DENY_ALL), ("v2", ALLOW_ALL)] {
            fs::create_dir(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("policy.toml"), text).unwrap();
        }
        symlink("v1", directory.join("..data")).unwrap();
        symlink("..data/policy.toml", directory.join("policy.toml")).unwrap();
    };
    let mut policy = WatchedPolicy::open(make, "").await;
    let directory = policy.directory.path().to_owned();
    symlink("v2", directory.join("..new")).unwrap();
    fs::rename(directory.join("..new"), directory.join("..data")).unwrap();
    policy.reload_until_stable().await;
    assert_eq!(policy.digest(), digest_of(ALLOW_ALL));
    // A dangling link is a file that cannot be read.
    symlink("gone", directory.join("..new")).unwrap();
    fs::rename(directory.join("..new"), directory.join("..data")).unwrap();
    policy.reload_until_stable().await;
    assert!(policy.watcher.state.is_rejected());
    assert_eq!(policy.digest(), digest_of(ALLOW_ALL));
}

#[tokio::test]
async fn one_broken_file_of_a_directory_keeps_the_rules_of_all() {
    let make = |directory: &Path| {
        fs::write(directory.join("10-base.toml"), DENY_ALL).unwrap();
        fs::write(directory.join(".hidden.toml"), "nonsense").unwrap();
        fs::write(directory.join("notes.txt"), "nonsense").unwrap();
    };
    let mut policy = WatchedPolicy::open(make, "").await;
    let before = policy.digest();
    policy.write("20-more.toml", "[[role]]\nname = \"a\"\n");
    policy.reload_until_stable().await;
    let after = policy.digest();
    assert_ne!(before, after);
    policy.write("30-broken.toml", "[[role]]\nname = \"a\"\n");
    policy.write("10-base.toml", ALLOW_ALL);
    policy.reload_until_stable().await;
    assert_eq!(policy.digest(), after);
    assert!(policy.watcher.state.is_rejected());
}

#[tokio::test]
async fn an_invalid_policy_stops_the_start_and_the_error_names_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let fetcher = FetcherFixture::default().fetcher();
    let open = async || {
        let metrics = EgressMetrics::new(&opentelemetry::global::meter("test"));
        let reporter = PolicyReporter::new(None, PolicyStatus::default());
        let source = PolicySource::Path(path.clone());
        let opened = PolicyWatcher::open(source, &fetcher, metrics, reporter).await;
        error_text(&opened.unwrap_err())
    };
    assert!(open().await.contains("could not read the policy file"));
    fs::create_dir(&path).unwrap();
    assert!(open().await.contains("has no file that ends in .toml"));
    fs::write(path.join("a.toml"), "\ndefault = \"maybe\"").unwrap();
    let error = open().await;
    assert!(
        error.starts_with("a.toml:2: \"maybe\" is not an outcome"),
        "{error}"
    );
    fs::remove_file(path.join("a.toml")).unwrap();
    fs::create_dir(path.join("a.toml")).unwrap();
    assert!(open().await.contains("is not a regular file"));
    assert!(fetcher.rules().is_none());
}

#[tokio::test]
async fn a_named_pipe_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let status = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(status.unwrap().success());
    let error = PolicyBytes::read(&path).unwrap_err();
    assert!(
        matches!(error, PolicyReadError::NotReadable { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_files_are_read_again_until_the_service_stops() {
    let policy = WatchedPolicy::of_file(DENY_ALL).await;
    let WatchedPolicy {
        directory,
        fetcher,
        watcher,
        ..
    } = policy;
    let fetcher = Arc::new(fetcher);
    let stop = CancellationToken::new();
    fs::write(directory.path().join("policy.toml"), ALLOW_ALL).unwrap();
    let watching = watcher.watch(Arc::clone(&fetcher), stop.clone());
    tokio::join!(watching, async {
        while fetcher.rules().unwrap().digest() != digest_of(ALLOW_ALL) {
            // paused clock: the next read is due
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        stop.cancel();
    });
}
