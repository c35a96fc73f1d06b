//! Tests of the section of egress-fetcher, which changes while its process runs.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_testkit::port::unassigned_address;
use dray_types::{Clock, Secret, SessionId, TenantId};

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
    /// With these lines of the section, and of its proxy.
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

    /// The status for a client with a token of this key that wants an address of this machine: 403 once it is known.
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
