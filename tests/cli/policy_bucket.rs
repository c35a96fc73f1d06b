//! `dray policy show` and `put`: the policy in the bucket of a real server, also under the rights of the deployment.

use std::path::Path;
use std::process::Output;

use dray_bus::{KeyValue, test_bus};
use dray_testkit::nats::NatsServer;
use serde_json::Value;

use super::{CliHome, line};
use crate::support::service_process::ServiceProcess;

const DENY_ALL: &str = "default = \"deny\"\n";
const ALLOW_ALL: &str = "default = \"allow\"\n";
const ROLE_TEXT: &str = "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"files\"\noutcome = \"allow\"\n\
                    hosts = [\"files.example.org\"]\n";

/// A server with the buckets, and a directory for policy files.
struct PolicyBucketFixture {
    home: CliHome,
    server: NatsServer,
    keys: KeyValue,
    directory: tempfile::TempDir,
}

impl PolicyBucketFixture {
    async fn start() -> Self {
        let server = NatsServer::start();
        let bus = test_bus::connect_provisioned(&server.url()).await;
        Self {
            home: CliHome::new(),
            server,
            keys: bus.key_value("dray_egress_policy"),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let url = self.server.url();
        let mut command = vec!["policy"];
        command.extend(arguments);
        command.extend(["--nats", &url, "--json"]);
        self.home.run(&command)
    }

    fn put(&self, revision: u64) -> Output {
        let path = self.path().display().to_string();
        self.run(&[
            "put",
            &path,
            "--revision",
            &revision.to_string(),
            "--as",
            "ada",
        ])
    }

    /// Starts egress-fetcher with these values of `policy_bucket` and `policy_path`.
    async fn start_fetcher(&self, uses_bucket: &str, files: Option<&Path>) -> ServiceProcess {
        self.start_replica("state", uses_bucket, files).await
    }

    /// Starts a replica with a state directory of this name.
    async fn start_replica(
        &self,
        state: &str,
        uses_bucket: &str,
        files: Option<&Path>,
    ) -> ServiceProcess {
        let mut command = self
            .home
            .dray(&["up", "--json", "--only", "egress-fetcher"]);
        command
            .env("DRAY_STATE__DIRECTORY", self.home.0.path().join(state))
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .env("DRAY_EGRESS_FETCHER__ENABLED", "true")
            .env("DRAY_EGRESS_FETCHER__POLICY_BUCKET", uses_bucket)
            .envs(files.map(|path| ("DRAY_EGRESS_FETCHER__POLICY_PATH", path)))
            .args(["--http", "127.0.0.1:0", "--nats", &self.server.url()]);
        ServiceProcess::spawn(&mut command).await
    }

    fn show(&self) -> Value {
        let shown = self.run(&["show"]);
        assert!(shown.status.success(), "{shown:?}");
        line(&shown)
    }

    fn names(&self) -> Vec<String> {
        let shown = self.show();
        let files = shown["files"].as_array().unwrap().iter();
        files
            .map(|file| file["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checked_policy_replaces_that_of_the_bucket_at_its_revision() {
    let fixture = PolicyBucketFixture::start().await;
    let shown = fixture.show();
    assert_eq!(
        (&shown["revision"], &shown["rules"]),
        (&0.into(), &Value::Null)
    );
    fixture.write("10-base.toml", DENY_ALL);
    fixture.write("20-roles.toml", ROLE_TEXT);
    let first = fixture.put(0);
    assert!(first.status.success(), "{first:?}");
    let first = line(&first);
    // All files are one change, so no reader sees some of them.
    assert_eq!(
        (&first["revision"], &first["written"]),
        (&1.into(), &2.into())
    );
    let shown = fixture.show();
    assert_eq!(shown["rules_digest"], first["rules_digest"]);
    assert_eq!(shown["written_by"], "ada");
    // Based on another revision: nothing is written.
    fixture.write("10-base.toml", ALLOW_ALL);
    for outdated in [0, 2] {
        let refused = fixture.put(outdated);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let fault = &line(&refused)["fault"];
        assert_eq!(fault["detail"], "policy_revision");
        let message = fault["message"].as_str().unwrap();
        assert!(message.contains("revision 1, put by ada at 2"), "{message}");
        assert!(message.contains("nothing was written"), "{message}");
    }
    assert_eq!(fixture.show(), shown);
    // A file that is gone is deleted by the same change.
    std::fs::remove_file(fixture.path().join("20-roles.toml")).unwrap();
    let second = line(&fixture.put(1));
    assert_eq!(
        (&second["revision"], &second["written"], &second["deleted"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!(fixture.names(), ["10-base.toml"]);
    // A deleted file can be written again.
    fixture.write("20-roles.toml", ROLE_TEXT);
    assert_eq!(line(&fixture.put(2))["revision"], 3);
    assert_eq!(line(&fixture.put(3))["revision"], 3, "nothing differs");
    let copy = fixture.path().join("copy");
    let copied = fixture.run(&["show", "--to", &copy.display().to_string()]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(
        std::fs::read_to_string(copy.join("20-roles.toml")).unwrap(),
        ROLE_TEXT
    );
    let mode = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt as _;

        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&copy), 0o700);
    assert_eq!(mode(&copy.join("20-roles.toml")), 0o600);
    let again = fixture.run(&["show", "--to", &copy.display().to_string()]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_policy_is_not_written_and_an_invalid_bucket_is_replaced() {
    let fixture = PolicyBucketFixture::start().await;
    let large = format!("{DENY_ALL}#{}\n", "x".repeat(1024 * 1024));
    for (name, text, code) in [
        ("10-base.toml", "default = \"maybe\"", 78),
        ("10 base.toml", DENY_ALL, 2),
        ("10-large.toml", large.as_str(), 2),
    ] {
        fixture.write(name, text);
        let refused = fixture.put(0);
        assert_eq!(refused.status.code(), Some(code), "{name}: {refused:?}");
        std::fs::remove_file(fixture.path().join(name)).unwrap();
    }
    assert_eq!(fixture.put(0).status.code(), Some(2), "no file");
    assert_eq!(fixture.show()["revision"], 0);
    for (name, content) in [
        ("broken.toml", "default = \"al"),
        ("no-extension", DENY_ALL),
    ] {
        fixture.keys.create(name, content.into()).await.unwrap();
    }
    let shown = fixture.show();
    let problem = shown["problem"].as_str().unwrap();
    assert!(problem.contains("no-extension"), "{problem}");
    let tested = fixture.run(&["diff", "bucket", "none"]);
    assert_eq!(tested.status.code(), Some(78), "{tested:?}");
    fixture.write("10-base.toml", DENY_ALL);
    let put = fixture.put(2);
    assert!(put.status.success(), "{put:?}");
    assert_eq!(fixture.names(), ["10-base.toml"]);
    let put = line(&put);
    assert_eq!((&put["revision"], &put["deleted"]), (&3.into(), &2.into()));
    let path = fixture.path().display().to_string();
    let refused = fixture.run(&["put", &path, "--revision", "3", "--as", ""]);
    assert_eq!(
        refused.status.code(),
        Some(2),
        "a writer without a name: {refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_compares_the_bucket_with_the_rules_in_force() {
    let fixture = PolicyBucketFixture::start().await;
    let url = fixture.server.url();
    let mut missing = dray_bus::Topology::default();
    missing
        .streams
        .retain(|stream| stream.name != "KV_dray_egress_policy");
    let other = NatsServer::start();
    let bus = test_bus::connect(&dray_bus::NatsOptions::at(other.url())).await;
    test_bus::provision(&bus, &missing).await;
    let report = |url: &str| {
        let set = ["--set", "egress-fetcher.policy_bucket=true"];
        let options = ["doctor", "--json", "--timeout", "5", "--nats", url];
        let report = line(&fixture.home.run(&[&options[..], &set].concat()));
        let findings = report["findings"].as_array().unwrap();
        let mut found = findings
            .iter()
            .filter(|finding| finding["subject"] == "egress policy");
        let finding = found.next().unwrap_or_else(|| panic!("{report}"));
        assert!(found.next().is_none(), "{report}");
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        (text("level"), text("text"), text("advice"))
    };
    let check = |url: &str, level: &str, text: &str, advice: &str| {
        let found = report(url);
        assert_eq!(found.0, level, "{found:?}");
        assert!(found.1.contains(text), "{found:?}");
        assert!(found.2.contains(advice), "{found:?}");
    };
    check(
        &other.url(),
        "problem",
        "does not exist",
        "dray topology apply",
    );
    check(
        &url,
        "problem",
        "has no policy file",
        "put DIRECTORY --revision 0",
    );
    fixture.write("10-base.toml", DENY_ALL);
    assert!(fixture.put(0).status.success());
    // The service does not run.
    check(&url, "skipped", "revision 1, put by ada", "");
    let _process = fixture.start_fetcher("true", None).await;
    check(&url, "good", "revision 1, put by ada", "");
    fixture.write("10-base.toml", ALLOW_ALL);
    assert!(fixture.put(1).status.success());
    // The service needs two reads for a change, for which the command waits.
    check(&url, "good", "revision 2, put by ada", "");
    // Another program writes: the service keeps its rules.
    let written = fixture
        .keys
        .create("20-wrong.toml", "default = \"al".into());
    written.await.unwrap();
    check(
        &url,
        "problem",
        "`20-wrong.toml`, which was written after",
        "put DIRECTORY --revision 3",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_a_policy_that_the_service_does_not_use() {
    let fixture = PolicyBucketFixture::start().await;
    let url = fixture.server.url();
    fixture.write("10-base.toml", DENY_ALL);
    assert!(fixture.put(0).status.success());
    let process = fixture.start_fetcher("false", None).await;
    let set = ["--set", "egress-fetcher.policy_bucket=true"];
    let options = ["doctor", "--timeout", "5", "--nats", &url];
    let report = fixture.home.run(&[&options[..], &set].concat());
    assert_eq!(report.status.code(), Some(1), "{report:?}");
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(
        text.contains("is not in force: `egress-fetcher` has no policy files"),
        "{text}"
    );
    drop(process);
    // Files with other rules.
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("10-base.toml"), ALLOW_ALL).unwrap();
    let _process = fixture.start_fetcher("false", Some(files.path())).await;
    let report = fixture.home.run(&[&options[..], &set].concat());
    assert_eq!(report.status.code(), Some(1), "{report:?}");
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("is not in force: its digest is"), "{text}");
    // Without a server, the bucket stays empty.
    let report = fixture.home.run(&[&["doctor"][..], &set].concat());
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("its bucket stays empty"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_and_a_difference_read_the_bucket() {
    let fixture = PolicyBucketFixture::start().await;
    fixture.write("10-base.toml", ROLE_TEXT);
    assert!(fixture.put(0).status.success());
    let table = fixture.path().join("expectations");
    let text = "[[expect]]\nurl = \"https://files.example.org/\"\noutcome = \"allow\"\nrule = \"a/files\"\n";
    std::fs::write(&table, text).unwrap();
    let table = table.display().to_string();
    for source in [
        ["--policy", "bucket"],
        ["--set", "egress-fetcher.policy_bucket=true"],
    ] {
        let tested = fixture.run(&[&["test", table.as_str()][..], &source[..]].concat());
        assert!(tested.status.success(), "{tested:?}");
        assert_eq!(
            line(&tested)["rules_digest"],
            fixture.show()["rules_digest"]
        );
    }
    let path = fixture.path().display().to_string();
    let compared = fixture.run(&["diff", "bucket", &path]);
    assert!(compared.status.success(), "{compared:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_replica_that_has_another_policy_than_the_others() {
    let fixture = PolicyBucketFixture::start().await;
    let url = fixture.server.url();
    fixture.write("10-base.toml", DENY_ALL);
    assert!(fixture.put(0).status.success());
    let one = fixture.start_replica("one", "true", None).await;
    let two = fixture.start_replica("two", "true", None).await;
    let options = ["doctor", "--timeout", "5", "--nats", &url];
    let doctor = |set: &str| {
        let report = fixture.home.run(&[&options[..], &["--set", set]].concat());
        String::from_utf8_lossy(&report.stdout).into_owned()
    };
    let of_bucket = "egress-fetcher.policy_bucket=true";
    let text = doctor(of_bucket);
    assert!(text.contains("is in force in 2 replicas"), "{text}");
    // A replica that follows files of its own, which become invalid.
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("10-base.toml");
    std::fs::write(&file, ALLOW_ALL).unwrap();
    let other = fixture
        .start_replica("three", "false", Some(files.path()))
        .await;
    std::fs::write(&file, "default = \"maybe\"\n").unwrap();
    other.wait_for_metric("dray_egress_policy_stale", "1").await;
    let allow = dray_types::Sha256Digest::of(ALLOW_ALL.as_bytes()).to_hex();
    let text = doctor(of_bucket);
    assert!(
        text.contains("is not in force in 1 of 3 replicas"),
        "{text}"
    );
    assert!(text.contains(&format!("has {allow} in force")), "{text}");
    assert!(
        text.contains("refuses the present files: 10-base.toml:1: "),
        "{text}"
    );
    // Without the bucket, the replicas are compared with each other.
    std::fs::write(&file, ALLOW_ALL).unwrap();
    other.wait_for_metric("dray_egress_policy_stale", "0").await;
    let of_files = format!("egress-fetcher.policy_path={}", files.path().display());
    let text = doctor(&of_files);
    assert!(
        text.contains("the replicas of `egress-fetcher` differ"),
        "{text}"
    );
    drop((one, two));
    let text = dray_testkit::eventually("one replica", async || {
        let text = doctor(&of_files);
        text.contains("1 replica with the digest").then_some(text)
    })
    .await;
    assert!(text.contains(&allow), "{text}");
}
