//! Programs in sandboxes and the forward proxy, as `docs/egress-proxy.md` sets them up: a container on an `internal`
//! network of a real Docker Engine, whose only way out is the proxy.

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dray_testkit::docker::{
    Container, ContainerOptions, DockerEngine, OUTSIDE_ADDRESS, command_in_network_of,
};
use dray_testkit::eventually;
use tempfile::TempDir;

use crate::support;

mod asked;
mod clients;
mod http2_client;
mod kills;
mod provenance;
mod reload;
mod target;
mod tunnel_client;

/// Name of the internal network.
const NETWORK_NAME: &str = "sandboxes";
/// Addresses of the internal network.
const INTERNAL_SUBNET: &str = "172.31.7.0/24";
/// Address of the engine's machine in the internal network, on which the proxy listens.
const PROXY_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 31, 7, 1);
/// The end of the cable outside, on which the name server of the proxy listens.
const NAME_SERVER: &str = "198.18.0.2";
/// The other end: packets that leave it with another source are forwarded ones.
const MACHINE_ADDRESS: &str = "198.18.0.1";
/// Name of a host that the policy allows.
const ALLOWED_NAME: &str = "files.example.org";
/// Name of a host that the policy refuses.
const REFUSED_NAME: &str = "other.example.org";

/// Attempts of a program; prints a line for each, `LABEL reached` or `LABEL refused`.
const ATTEMPTS_SCRIPT: &str = r#"
try() {
  label=$1; shift
  if "$@" >/tmp/output 2>&1; then echo "$label reached"; else echo "$label refused"; fi
}
mkfifo /tmp/ended
# With nc, as the variable `http_proxy` demands: the HTTP client of the static BusyBox crashes.
fetch() {
  proxy=${http_proxy#http://}
  login=$(printf %s "${proxy%@*}" | base64 -w 0) proxy=${proxy##*@}
  # The input of nc stays open until its end: a proxy ends a request whose client has closed.
  {
    printf 'GET %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\nConnection: close\r\n\r\n' "$1" "$2" "$login"
    cat /tmp/ended
  } | { nc -w 5 "${proxy%:*}" "${proxy#*:}" >/tmp/response; : >/tmp/ended; }
  cat /tmp/response
  head -n 1 /tmp/response | grep -q '^HTTP/1.1 200 '
}
try allowed fetch http://files.example.org/allowed files.example.org
grep -q 'This is /allowed' /tmp/output && echo "allowed whole"
try other_name fetch http://other.example.org/ other.example.org
try unknown_name fetch http://unknown.example.org/ unknown.example.org
try address fetch http://93.184.216.34/ 93.184.216.34
try metadata fetch http://169.254.169.254/ 169.254.169.254
try machine fetch http://172.31.7.1/ 172.31.7.1
try direct nc -w 1 93.184.216.34 80 </dev/null
try name_server timeout 1 nslookup files.example.org 198.18.0.2
"#;

/// A process of the test, killed at its end.
struct KilledProcess(Child);

impl Drop for KilledProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A container on an internal network, the forward proxy, and servers outside.
struct EgressFixture {
    container: Container,
    _proxy: KilledProcess,
    _outside: KilledProcess,
    home: TempDir,
    engine: DockerEngine,
}

impl EgressFixture {
    async fn start() -> Self {
        Self::start_with("", None).await
    }

    /// Like [`Self::start`], with further fields of the proxy, and files of the server outside.
    async fn start_with(proxy_fields: &str, files: Option<&Path>) -> Self {
        let engine = DockerEngine::start_with_network();
        count_packets(&engine);
        let outside = start_outside(&engine, files);
        engine.internal_network(NETWORK_NAME, INTERNAL_SUBNET, PROXY_ADDRESS);
        let container = engine.container(ContainerOptions {
            name: "agent-1".to_owned(),
            network: NETWORK_NAME.to_owned(),
            ..ContainerOptions::default()
        });
        let home = tempfile::tempdir().unwrap();
        let text = configuration(&engine.socket(), proxy_fields);
        std::fs::write(home.path().join("dray.toml"), text).unwrap();
        let ports = ["--http", "--grpc", "--chat"].map(|port| [port, "127.0.0.1:0"]);
        let mut up = dray(&engine, home.path());
        up.arg("up").args(ports.concat());
        up.stdout(Stdio::null()).stderr(Stdio::null());
        let proxy = KilledProcess(up.spawn().unwrap());
        let address = PROXY_ADDRESS.to_string();
        eventually("the proxy", async || {
            let mut attempt = engine.network().machine_command("/bin/busybox");
            let attempt = attempt.args(["nc", "-w", "1", &address, "3128"]);
            let output = attempt.stdin(Stdio::null()).output().unwrap();
            output.status.success().then_some(())
        })
        .await;
        Self {
            container,
            _proxy: proxy,
            _outside: outside,
            home,
            engine,
        }
    }

    /// Runs a script in the container by `Sandboxes.Exec`, and returns what it prints.
    fn exec(&self, script: &str) -> String {
        let mut command = dray(&self.engine, self.home.path());
        command.args(["sandbox", "exec", "docker:agent-1", "--"]);
        support::stdout(command.args(["sh", "-c", script]))
    }

    /// The number of packets that the machine forwarded to the outside.
    fn forwarded(&self) -> u64 {
        let mut listed = self.engine.network().machine_command("iptables");
        listed.args(["-t", "mangle", "-L", "POSTROUTING", "-n", "-v", "-x"]);
        packets(&support::stdout(&mut listed), "forwarded")
    }

    /// The numbers of packets that arrived outside: those of the allowed connections, and all others.
    fn arrived(&self) -> (u64, u64) {
        let mut listed = self.engine.network().outside_command("iptables");
        listed.args(["-L", "INPUT", "-n", "-v", "-x"]);
        let listed = support::stdout(&mut listed);
        (packets(&listed, "allowed"), packets(&listed, "other"))
    }
}

/// `dray` on the engine's machine, with the configuration of the test.
fn dray(engine: &DockerEngine, home: &Path) -> Command {
    let mut command = engine
        .network()
        .machine_command(support::dray().to_str().unwrap());
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .arg("--config")
        .arg(home.join("dray.toml"))
        .stdin(Stdio::null());
    command
}

fn configuration(socket: &Path, proxy_fields: &str) -> String {
    let key = "the key of these tokens, 32 bytes or more";
    format!(
        r#"
        [egress-fetcher]
        enabled = true
        host_allowlist = ["{ALLOWED_NAME}"]
        dns_servers = ["{NAME_SERVER}"]
        [egress-fetcher.proxy]
        listen = "{PROXY_ADDRESS}:3128"
        token_key = "{key}"
        {proxy_fields}
        [sandbox-transfer.docker]
        endpoint = "unix://{}"
        [sandbox-transfer.egress_proxy]
        token_key = "{key}"
        [[sandbox-transfer.egress_proxy.rules]]
        tenants = ["*"]
        sandboxes = ["docker:agent-*"]
        address = "{PROXY_ADDRESS}:3128"
        "#,
        socket.display()
    )
}

/// A web server and a name server outside. `files` are below `/files/` of the web server.
fn start_outside(engine: &DockerEngine, files: Option<&Path>) -> KilledProcess {
    let mut server = engine
        .network()
        .outside_command(support::python().to_str().unwrap());
    server
        .arg(support::root().join("tests/python/outside_server.py"))
        .args([&OUTSIDE_ADDRESS.to_string(), NAME_SERVER])
        .args([ALLOWED_NAME, REFUSED_NAME])
        .envs(files.map(|files| ("OUTSIDE_FILES", files)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    let output = server.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    KilledProcess(server)
}

/// Counts packets on both ends of the cable. None is dropped.
fn count_packets(engine: &DockerEngine) {
    let run = |mut command: Command, rule: &str| {
        support::stdout(command.args(rule.split(' ')));
    };
    // This chain is before masquerading, so that the source is still the container.
    let forwarded = "-t mangle -A POSTROUTING -o outside ! -s";
    run(
        engine.network().machine_command("iptables"),
        &format!("{forwarded} {MACHINE_ADDRESS} -m comment --comment forwarded"),
    );
    for rule in [
        format!("-p tcp -d {OUTSIDE_ADDRESS} --dport 80 -m comment --comment allowed -j ACCEPT"),
        format!("-p udp -d {NAME_SERVER} --dport 53 -m comment --comment allowed -j ACCEPT"),
        "-m comment --comment other".to_owned(),
    ] {
        run(
            engine.network().outside_command("iptables"),
            &format!("-A INPUT -i engine {rule}"),
        );
    }
}

/// The number of packets that all rules with this comment counted.
fn packets(listed: &str, comment: &str) -> u64 {
    let comment = format!("/* {comment} */");
    let rules: Vec<u64> = listed
        .lines()
        .filter(|line| line.contains(&comment))
        .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert!(!rules.is_empty(), "{listed}");
    rules.iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tunnel_is_open_without_an_audit_line_while_the_proxy_is_killed() {
    Box::pin(kills::kill_proxy(kills::ProxyKillRun {
        protocol: kills::ClientProtocol::Http1,
        kills: 10,
        seed: 1,
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_open_without_an_audit_line_while_the_proxy_is_killed() {
    Box::pin(kills::kill_proxy(kills::ProxyKillRun {
        protocol: kills::ClientProtocol::Http2,
        kills: 10,
        seed: 1,
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_is_reached_or_asked_about_twice_while_the_proxy_is_killed() {
    Box::pin(asked::kill_while_asking(5, 1)).await;
}

#[tokio::test]
async fn a_container_on_an_internal_network_reaches_the_allowed_host_through_the_proxy_and_nothing_else()
 {
    let fixture = EgressFixture::start().await;
    assert_eq!(
        fixture.exec(ATTEMPTS_SCRIPT).lines().collect::<Vec<_>>(),
        [
            "allowed reached",
            "allowed whole",
            "other_name refused",
            "unknown_name refused",
            "address refused",
            "metadata refused",
            "machine refused",
            "direct refused",
            "name_server refused",
        ]
    );
    let (allowed, other) = fixture.arrived();
    assert!(allowed > 0);
    assert_eq!((fixture.forwarded(), other), (0, 0));

    // A container that can change its routes reaches nothing else either.
    let route = |change: &str| {
        let pid = fixture.container.pid().try_into().unwrap();
        let mut command = command_in_network_of(pid, "ip");
        let address = PROXY_ADDRESS.to_string();
        support::stdout(command.args(["route", change, "default", "via", &address]));
    };
    let direct = format!("nc -w 1 {OUTSIDE_ADDRESS} 80 </dev/null && echo reached || echo refused");
    route("replace");
    assert_eq!(fixture.container.sh(&direct), b"refused\n");
    assert_eq!((fixture.forwarded(), fixture.arrived().1), (0, 0));

    // The counter works: it increases when the same container is on a network that is not internal.
    route("del");
    fixture.container.attach("bridge");
    assert_eq!(fixture.container.sh(&direct), b"reached\n");
    assert!(fixture.forwarded() > 0);
}
