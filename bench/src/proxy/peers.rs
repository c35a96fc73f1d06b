//! The programs that the proxy is compared with: `socat`, Squid and Smokescreen. A missing program is reported in a
//! line and left out.

use std::fs::{File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use dray_testkit::port::unassigned_address;

use super::client::{ClientProtocol, ProxyRoute};
use super::fixture::{ProxyFixture, StartedProgram, TARGET_ADDRESS};
use super::target::TUNNEL_PORT;
use crate::print_line;

/// The programs that could be started.
pub(super) struct PeerProxies {
    pub(super) socat: Option<StartedProgram>,
    pub(super) squid: Option<StartedProgram>,
    pub(super) smokescreen: Option<StartedProgram>,
}

impl PeerProxies {
    /// Starts the programs that are installed.
    pub(super) async fn start(
        fixture: &ProxyFixture,
        smokescreen: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let directory = fixture.directory.path();
        let install = "apt-get install squid socat";
        let build =
            "`go build -mod=vendor` in github.com/stripe/smokescreen, then --smokescreen PROGRAM";
        let (socat, squid) = (unassigned_address(), unassigned_address());
        let socat_command = socat_command(socat);
        let squid_command = squid_command(directory, squid)?;
        let smokescreen = if let Some(program) = smokescreen {
            let address = unassigned_address();
            let command = smokescreen_command(program, directory, address)?;
            start_peer("Smokescreen", command, address, build).await
        } else {
            print_line(&format!("  not compared with Smokescreen: {build}"));
            None
        };
        Ok(Self {
            socat: start_peer("socat", socat_command, socat, install).await,
            squid: start_peer("Squid", squid_command, squid, install).await,
            smokescreen,
        })
    }
}

/// The route through a program that needs no token.
pub(super) fn route_through(program: &StartedProgram, protocol: ClientProtocol) -> ProxyRoute {
    ProxyRoute {
        address: program.address,
        protocol,
        token: String::new(),
        target: TARGET_ADDRESS,
    }
}

async fn start_peer(
    name: &str,
    command: Command,
    address: SocketAddr,
    remedy: &str,
) -> Option<StartedProgram> {
    match StartedProgram::start(command, address).await {
        Ok(started) => Some(started),
        Err(error) => {
            print_line(&format!("  not compared with {name}: {error:#}; {remedy}"));
            None
        }
    }
}

/// A relay that has one target, with a process for each connection.
fn socat_command(listen: SocketAddr) -> Command {
    let mut command = Command::new("socat");
    let port = listen.port();
    command.args([
        format!("TCP4-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,backlog=1024,nodelay"),
        format!("TCP4:{TARGET_ADDRESS}:{TUNNEL_PORT},nodelay"),
    ]);
    command
}

/// Squid without a cache, with its access log; it is not asked to identify its client.
fn squid_command(directory: &Path, listen: SocketAddr) -> anyhow::Result<Command> {
    let home = directory.join("squid");
    std::fs::create_dir(&home)?;
    // Squid writes as another user.
    for path in [directory, &home] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    let home_text = home.display();
    let configuration = home.join("squid.conf");
    std::fs::write(
        &configuration,
        format!(
            "http_port {listen}\n\
             acl target dst {TARGET_ADDRESS}\n\
             http_access allow target\n\
             http_access deny all\n\
             cache deny all\n\
             access_log stdio:{home_text}/access.log\n\
             cache_log {home_text}/cache.log\n\
             pid_filename none\n\
             coredump_dir {home_text}\n\
             shutdown_lifetime 0 seconds\n"
        ),
    )?;
    let mut command = Command::new("squid");
    // Squid runs in the foreground as one process, which is how it is shipped.
    command.arg("-N").arg("-f").arg(&configuration);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Smokescreen without a list of hosts, for clients without a certificate, with its log in a file.
fn smokescreen_command(
    program: &Path,
    directory: &Path,
    listen: SocketAddr,
) -> anyhow::Result<Command> {
    let configuration = directory.join("smokescreen.yaml");
    std::fs::write(
        &configuration,
        format!("allow_missing_role: true\nallow_ranges: [\"{TARGET_ADDRESS}/32\"]\n"),
    )?;
    let mut command = Command::new(program);
    command
        .arg("--config-file")
        .arg(&configuration)
        .args(["--listen-ip", "127.0.0.1"])
        .args(["--listen-port", &listen.port().to_string()]);
    command
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("smokescreen.log"))?);
    Ok(command)
}
