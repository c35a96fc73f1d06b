//! The namespace with the target, and `dray` with its forward proxy as a process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_testkit::port::unassigned_address;
use dray_testkit::tls::IssuedCertificate;
use dray_types::{Clock, Secret, SessionId, TenantId};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::client::{ClientProtocol, ProxyRoute};
use super::target::READY_LINE;

/// End of the pair of interfaces on the side of the host.
const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// End of the pair of interfaces on the side of the target.
pub(super) const TARGET_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Start of the names of namespaces; the id of the measuring process follows.
const NAMESPACE_PREFIX: &str = "dray-bench-";
/// Key with which the proxy signs the tokens of clients.
const TOKEN_KEY: &str = "the key of this measurement, 32 bytes or more";
/// Time for a program to listen.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Limit of file descriptors that is requested for each program. The machine may refuse it.
const DESCRIPTOR_LIMIT: u64 = 65_536;

/// The policy file: it allows every host on the two ports, and nothing else.
const POLICY: &str = r#"
default = "deny"
[[role]]
name = "measured"
tenants = ["bench"]
  [[role.rule]]
  name = "target"
  outcome = "allow"
  ports = [80, 443]
"#;

/// A program that is killed when it is dropped.
pub(super) struct StartedProgram {
    process: Child,
    /// Address of its listener.
    pub(super) address: SocketAddr,
}

impl StartedProgram {
    /// Starts the program and waits until `address` accepts connections.
    pub(super) async fn start(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut command = tokio::process::Command::from(command);
        let process = command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        let mut started = Self { process, address };
        let accepting = async {
            loop {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a program of this measurement, on loopback"
                )]
                let attempt = TcpStream::connect(address).await;
                if attempt.is_ok() {
                    return Ok(());
                }
                if let Some(status) = started.process.try_wait()? {
                    anyhow::bail!("{name} ended: {status}");
                }
                // The port is polled, because another program does not report when it listens.
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(START_TIMEOUT, accepting)
            .await
            .with_context(|| format!("{name} does not listen on {address}"))??;
        Ok(started)
    }

    /// The program's resident memory in bytes.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let id = self.process.id().context("the process has ended")?;
        crate::memory::status_of(&format!("/proc/{id}/status"), "VmRSS:")
    }
}

/// `dray` with its forward proxy, and the target of all connections.
pub(super) struct ProxyFixture {
    /// `dray` with its proxy.
    pub(super) dray: StartedProgram,
    /// Directory for the files of the other programs.
    pub(super) directory: tempfile::TempDir,
    /// Limit of file descriptors of one process.
    pub(super) descriptors: u64,
    token: String,
    _target: Child,
    _namespace: TargetNamespace,
}

impl ProxyFixture {
    /// Creates the namespace, and starts the target and `dray`.
    pub(super) async fn start(dray: &Path) -> anyhow::Result<Self> {
        let descriptors = raise_descriptors()?;
        let directory = tempfile::tempdir()?;
        let namespace = TargetNamespace::create()?;
        let target = start_target(&namespace).await?;
        let address = unassigned_address();
        let command = dray_command(dray, directory.path(), address, None)?;
        Ok(Self {
            dray: StartedProgram::start(command, address).await?,
            directory,
            descriptors,
            token: mint_token()?,
            _target: target,
            _namespace: namespace,
        })
    }

    /// The route through `dray`.
    pub(super) fn route(&self, protocol: ClientProtocol) -> ProxyRoute {
        ProxyRoute {
            address: self.dray.address,
            protocol,
            token: self.token.clone(),
            target: TARGET_ADDRESS,
        }
    }
}

/// `dray up` with the egress fetcher alone, and with TLS if there is a certificate. Its log, with a line for each
/// event, goes into a file.
pub(super) fn dray_command(
    dray: &Path,
    home: &Path,
    listen: SocketAddr,
    tls: Option<&IssuedCertificate>,
) -> anyhow::Result<Command> {
    let policy = home.join("policy.toml");
    std::fs::write(&policy, POLICY)?;
    let tls = tls.map_or(Ok(String::new()), |issued| tls_section(home, issued))?;
    let configuration = home.join("dray.toml");
    std::fs::write(
        &configuration,
        format!(
            r#"
            [limits]
            free_disk_percent = 0
            [egress-fetcher]
            enabled = true
            private_cidrs = ["{HOST_ADDRESS}/32", "{TARGET_ADDRESS}/32"]
            policy_path = "{}"
            [egress-fetcher.proxy]
            listen = "{listen}"
            token_key = "{TOKEN_KEY}"
            plain_ports = "443"
            max_tunnels = 25000
            max_per_session = 25000
            max_per_host = 25000
            max_queue = 25000
            max_unidentified = 4096
            {tls}
            "#,
            policy.display()
        ),
    )?;
    let mut command = Command::new(dray);
    command
        .args(["up", "--only", "egress-fetcher", "--http", "127.0.0.1:0"])
        .arg("--config")
        .arg(&configuration)
        .arg("--state")
        .arg(home.join("state"))
        .env("HOME", home)
        .stdout(Stdio::null())
        .stderr(File::create(home.join("dray.log"))?);
    Ok(command)
}

/// The listener of the proxy with TLS, whose files are written.
fn tls_section(home: &Path, issued: &IssuedCertificate) -> anyhow::Result<String> {
    let (certificate, private_key) = (home.join("proxy.pem"), home.join("proxy.key"));
    std::fs::write(&certificate, &issued.certificate)?;
    std::fs::write(&private_key, &issued.private_key)?;
    Ok(format!(
        "[egress-fetcher.proxy.tls]\ncertificate = \"{}\"\nprivate_key = \"{}\"",
        certificate.display(),
        private_key.display()
    ))
}

fn mint_token() -> anyhow::Result<String> {
    let keys = TokenKeys::new(&Secret::new(TOKEN_KEY), None)?;
    Ok(keys.mint(&ProxyIdentity {
        tenant: TenantId::new("bench")?,
        session: SessionId::new("bench")?,
        app: None,
        expires_s: Clock::system().now_ms() / 1000 + 24 * 3600,
        allow: None,
        certificate: None,
    })?)
}

/// A namespace that holds one end of a pair of interfaces; removed when it is dropped.
struct TargetNamespace {
    name: String,
}

impl TargetNamespace {
    fn create() -> anyhow::Result<Self> {
        remove_abandoned_namespaces();
        let id = std::process::id();
        // The name of an interface has at most 15 bytes.
        let (near, far) = (format!("dbn{id}"), format!("dbf{id}"));
        let namespace = Self {
            name: format!("{NAMESPACE_PREFIX}{id}"),
        };
        let name = &namespace.name;
        for line in [
            format!("netns add {name}"),
            format!("link add {near} type veth peer name {far} netns {name}"),
            format!("addr add {HOST_ADDRESS}/30 dev {near}"),
            format!("link set {near} up"),
            format!("-n {name} addr add {TARGET_ADDRESS}/30 dev {far}"),
            format!("-n {name} link set {far} up"),
        ] {
            let output = Command::new("ip").args(line.split(' ')).output();
            let output = output.context("`ip` is needed: apt-get install iproute2")?;
            let problem = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(
                output.status.success(),
                "`ip {line}`, which needs root: {problem}"
            );
        }
        Ok(namespace)
    }
}

impl Drop for TargetNamespace {
    fn drop(&mut self) {
        delete_namespace(&self.name);
    }
}

/// Deletes a namespace and with it both interfaces. Does nothing if it does not exist.
fn delete_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}

/// Deletes the namespaces of measurements that were killed: their interfaces have the same addresses, so that
/// connections of this measurement would go to a target that no longer exists.
fn remove_abandoned_namespaces() {
    let Ok(output) = Command::new("ip").args(["netns", "list"]).output() else {
        return;
    };
    let list = String::from_utf8_lossy(&output.stdout);
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    for name in names {
        let id = name
            .strip_prefix(NAMESPACE_PREFIX)
            .and_then(|id| id.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            delete_namespace(name);
        }
    }
}

/// Starts this program as the target, in the namespace.
async fn start_target(namespace: &TargetNamespace) -> anyhow::Result<Child> {
    let mut command = tokio::process::Command::new("ip");
    command
        .args(["netns", "exec", &namespace.name])
        .arg(std::env::current_exe()?)
        .args(["--proxy-target", &TARGET_ADDRESS.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut target = command.spawn().context("the target does not start")?;
    let output = target.stdout.take().context("the target has no output")?;
    let line = BufReader::new(output).lines().next_line().await?;
    anyhow::ensure!(
        line.as_deref() == Some(READY_LINE),
        "the target does not listen"
    );
    Ok(target)
}

/// Raises the limit of file descriptors of this process, which its children inherit. Returns the limit afterwards.
fn raise_descriptors() -> anyhow::Result<u64> {
    let id = std::process::id().to_string();
    let hard_limit = descriptor_limit()?.1;
    for limit in [DESCRIPTOR_LIMIT.max(hard_limit), hard_limit] {
        // A container may refuse to raise the hard limit.
        let nofile = format!("--nofile={limit}:{limit}");
        let output = Command::new("prlimit")
            .args(["--pid", &id, &nofile])
            .output()
            .context("`prlimit` is needed: apt-get install util-linux")?;
        if output.status.success() {
            break;
        }
    }
    Ok(descriptor_limit()?.0)
}

/// Soft and hard limit of file descriptors, from `proc(5)`.
fn descriptor_limit() -> anyhow::Result<(u64, u64)> {
    let limits = std::fs::read_to_string(PathBuf::from("/proc/self/limits"))?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .context("the kernel names no limit of open files")?;
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let mut next = || anyhow::Ok(numbers.next().context("no number")??);
    Ok((next()?, next()?))
}
