//! Tests of the section of egress-fetcher, which changes while its process runs.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use dray_bus::topology::EGRESS_POLICY_STREAM;
use dray_bus::{EventFilter, NatsOptions, Topology, test_bus};
use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_testkit::port::unassigned_address;
use dray_types::{Clock, Secret, SessionId, Sha256Digest, TenantId};

use crate::support;
use crate::support::service_process::ServiceProcess;

const FIRST_KEY: &str = "the first key of tokens, 32 bytes or more";
const SECOND_KEY: &str = "the second key of tokens, 32 bytes or more";
const RELOADS_METRIC: &str = "dray_egress_config_reloads_total{";
const STALE_METRIC: &str = "dray_egress_config_stale";

/// The egress-fetcher as a process with a configuration file.
struct ReloadedProxy {
    process: ServiceProcess,
    home: tempfile::TempDir,
    port: u16,
}

impl ReloadedProxy {
    /// Starts the process with these lines of its section, and of the section of its proxy.
    async fn start(lines: (&str, &str)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = unassigned_address().port();
        write_configuration(home.path(), port, lines);
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("HOME", home.path())
            .env("DRAY_STATE__DIRECTORY", home.path().join("state"))
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .arg("--config")
            .arg(home.path().join("dray.toml"))
            .args(["up", "--json", "--only", "egress-fetcher"])
            .args(["--http", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(File::create(home.path().join("log")).unwrap());
        let process = ServiceProcess::spawn(&mut command).await;
        Self {
            process,
            home,
            port,
        }
    }

    fn configure(&self, lines: (&str, &str)) {
        write_configuration(self.home.path(), self.port, lines);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    /// The status for a client with a token of this key that wants an address of this machine: 403 if the key is
    /// known.
    fn status(&self, key: &str) -> String {
        let keys = TokenKeys::new(&Secret::new(key), None).unwrap();
        let token = keys.mint(&ProxyIdentity {
            tenant: TenantId::default(),
            session: SessionId::new("chat-1").unwrap(),
            app: None,
            expires_s: Clock::system().now_ms() / 1000 + 3600,
            allow: None,
            certificate: None,
        });
        let printed = Command::new("curl")
            .args(["--silent", "--output", "/dev/null", "--max-time", "30"])
            .args(["--write-out", "%{http_connect}", "--proxytunnel"])
            .args(["--proxy", &format!("http://127.0.0.1:{}", self.port)])
            .arg("--proxy-header")
            .arg(format!("Proxy-Authorization: Bearer {}", token.unwrap()))
            .arg("https://127.0.0.1/")
            .output()
            .unwrap();
        String::from_utf8(printed.stdout).unwrap()
    }
}

fn write_configuration(home: &Path, port: u16, (section, proxy): (&str, &str)) {
    let text = format!(
        "[egress-fetcher]\nenabled = true\n{section}\n\
         [egress-fetcher.proxy]\nlisten = '127.0.0.1:{port}'\n{proxy}\n"
    );
    std::fs::write(home.join("dray.toml"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_takes_a_changed_key_of_tokens_and_names_what_needs_a_restart() {
    let first = format!("token_key = '{FIRST_KEY}'");
    let second = format!("token_key = '{SECOND_KEY}'");
    let proxy = ReloadedProxy::start(("", &first)).await;
    assert_eq!(proxy.status(FIRST_KEY), "403");
    assert_eq!(proxy.status(SECOND_KEY), "407");

    let both = format!("{second}\nprevious_token_key = '{FIRST_KEY}'\nmax_tunnels = 7");
    proxy.configure(("https_only = true", &both));
    proxy.process.wait_for_metric(RELOADS_METRIC, "1").await;
    assert_eq!(proxy.status(FIRST_KEY), "403");
    assert_eq!(proxy.status(SECOND_KEY), "403");
    let log = proxy.log();
    let restart = "needs a restart: https_only, proxy.max_tunnels";
    assert!(log.contains(restart), "{log}");

    proxy.configure(("max_bytse = 1", &second));
    proxy.process.wait_for_metric(STALE_METRIC, "1").await;
    assert_eq!(proxy.status(FIRST_KEY), "403");

    proxy.configure(("", &second));
    proxy.process.wait_for_metric(STALE_METRIC, "0").await;
    assert_eq!(proxy.status(FIRST_KEY), "407");
    assert_eq!(proxy.status(SECOND_KEY), "403");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_policy_bucket_stops_only_a_service_that_is_configured_to_use_it() {
    let nats = NatsServer::start();
    let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
    let mut earlier = Topology::default();
    let streams = &mut earlier.streams;
    streams.retain(|stream| stream.name != EGRESS_POLICY_STREAM);
    test_bus::provision(&bus, &earlier).await;
    let home = tempfile::tempdir().unwrap();
    let failed = BucketPolicyProcess::command(&nats, home.path()).output();
    let failed = failed.unwrap();
    assert!(!failed.status.success());
    let message = String::from_utf8_lossy(&failed.stdout);
    for part in [
        "egress-fetcher.policy_bucket",
        EGRESS_POLICY_STREAM,
        "dray topology apply",
    ] {
        assert!(message.contains(part), "{part}: {failed:?}");
    }
    let mut command = BucketPolicyProcess::command(&nats, home.path());
    command.env_remove("DRAY_EGRESS_FETCHER__POLICY_BUCKET");
    let process = ServiceProcess::spawn(&mut command).await;
    process.wait_until_ready().await;
}

/// The policy in the bucket, as a process has it in force.
struct BucketPolicyProcess {
    nats: NatsServer,
    home: tempfile::TempDir,
    process: ServiceProcess,
}

impl BucketPolicyProcess {
    fn command(nats: &NatsServer, home: &Path) -> Command {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("HOME", home)
            .env("DRAY_STATE__DIRECTORY", home.join("state"))
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .env("DRAY_EGRESS_FETCHER__ENABLED", "true")
            .env("DRAY_EGRESS_FETCHER__POLICY_BUCKET", "true")
            .args(["up", "--json", "--only", "egress-fetcher"])
            .args(["--http", "127.0.0.1:0", "--nats", &nats.url()])
            .stdin(Stdio::null());
        command
    }

    /// The digest with which the service judges.
    fn digest(&self) -> String {
        let explained = Command::new(support::dray())
            .env_clear()
            .env("HOME", self.home.path())
            .args(["policy", "explain", "https://files.example.org/", "--json"])
            .args(["--nats", &self.nats.url()])
            .output()
            .unwrap();
        let text = String::from_utf8(explained.stdout).unwrap();
        let reply: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(reply["steps"][9]["setting"], "egress-fetcher.policy_bucket");
        reply["rules_digest"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_the_bucket_is_followed_over_invalid_contents_and_a_restart_of_the_server() {
    const POLICY_FILE: &str = "policy.toml";
    let digest_of = |text: &str| Sha256Digest::of(text.as_bytes()).to_hex();
    let (deny, allow) = ("default = \"deny\"\n", "default = \"allow\"\n");
    let nats = NatsServer::start();
    let keys = test_bus::connect_provisioned(&nats.url())
        .await
        .key_value("dray_egress_policy");
    let home = tempfile::tempdir().unwrap();
    let failed = BucketPolicyProcess::command(&nats, home.path()).output();
    let failed = failed.unwrap();
    assert!(!failed.status.success());
    let message = String::from_utf8_lossy(&failed.stdout);
    assert!(message.contains("has no policy file"), "{failed:?}");
    let first = keys.create(POLICY_FILE, deny.into()).await.unwrap();
    let mut command = BucketPolicyProcess::command(&nats, home.path());
    command.stderr(File::create(home.path().join("log")).unwrap());
    let mut service = BucketPolicyProcess {
        process: ServiceProcess::spawn(&mut command).await,
        nats,
        home,
    };
    assert_eq!(service.digest(), digest_of(deny));
    let stale = "dray_egress_policy_stale";
    let second = keys
        .update(POLICY_FILE, "default = \"al".into(), first)
        .await;
    service.process.wait_for_metric(stale, "1").await;
    assert_eq!(service.digest(), digest_of(deny));
    let log = std::fs::read_to_string(service.home.path().join("log")).unwrap();
    assert!(log.contains("policy.toml:1"), "{log}");
    let refused = log.lines().find(|line| line.contains("cannot be used"));
    let has_revision = |line: &str| line.contains("\"revision\":2") || line.contains("revision=2");
    assert!(refused.is_some_and(has_revision), "{log}");
    let third = keys
        .update(POLICY_FILE, allow.into(), second.unwrap())
        .await;
    service.process.wait_for_metric(stale, "0").await;
    assert_eq!(service.digest(), digest_of(allow));
    service.nats.kill9();
    service.process.wait_for_metric(stale, "1").await;
    service.nats.restart();
    service.process.wait_for_metric(stale, "0").await;
    check_policy_events(&service.nats.url()).await;
    let third = third.unwrap();
    dray_testkit::eventually("the bucket is writable again", async || {
        keys.update(POLICY_FILE, deny.into(), third).await.ok()
    })
    .await;
    dray_testkit::eventually("the policy of the bucket", async || {
        (service.digest() == digest_of(deny)).then_some(())
    })
    .await;
}

/// Checks the audit events so far: a start without a policy, the first policy, an invalid one, and the next one.
async fn check_policy_events(url: &str) {
    let bus = test_bus::connect(&NatsOptions::at(url)).await;
    let filter = EventFilter::new("dray.audit.policy.v1.checked.*").from_start();
    let mut events = bus.events(filter).await.unwrap();
    let mut found = Vec::new();
    for _ in 0..4 {
        let event: v1::EgressPolicyAudit = events.next().await.unwrap().decode().unwrap();
        assert_eq!(event.source, "bucket");
        let line = event.refused.as_ref().map(|refusal| refusal.line);
        found.push((event.outcome(), event.revision, line));
    }
    let (in_force, refused) = (
        v1::EgressPolicyOutcome::InForce,
        v1::EgressPolicyOutcome::Refused,
    );
    assert_eq!(
        found,
        [
            (refused, 0, Some(0)),
            (in_force, 1, None),
            (refused, 2, Some(1)),
            (in_force, 3, None)
        ]
    );
}
