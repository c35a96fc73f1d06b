//! The command line of `ssh`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use dray_sandbox::{Error, ErrorKind};
use dray_types::Sha256Digest;
use tokio::process::Command;
use tokio::time::timeout;

use crate::config::Settings;
use crate::master::NAME_CHARACTERS;
use crate::mux::RemoteProgram;
use crate::target::Target;

/// Ciphers that are fast with the AES instructions of servers and that Terrapin (CVE-2023-48795) does not affect.
const PREFERRED_CIPHERS: &str =
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr";

/// Options that `ssh` always gets. The first value of an option wins, so no configuration file changes these.
const FIXED_OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "GlobalKnownHostsFile=/dev/null",
    "KnownHostsCommand=none",
    "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no",
    "CheckHostIP=no",
    "FingerprintHash=sha256",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "TCPKeepAlive=yes",
];

/// Effective options that distinguish machines behind the same user, host and port.
const ROUTE_OPTIONS: &[&str] = &[
    "proxyjump",
    "proxycommand",
    "hostkeyalias",
    "bindaddress",
    "bindinterface",
    // No option of `ssh`: the key file of the settings, which `Client::connection_name` adds.
    "with",
];

/// Calls `ssh` for one target.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    settings: Arc<Settings>,
    target: Target,
}

impl Client {
    pub(crate) fn new(settings: Arc<Settings>, target: Target) -> Self {
        Self { settings, target }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// `ssh` with everything but the host, which [`Client::add_host`] adds.
    pub(crate) fn command(&self) -> Command {
        let config = &self.settings.config;
        let mut command = Command::new(&config.program);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.kill_on_drop(true);
        // Clients that log in to jump hosts do not get `BatchMode` from the command line.
        command.env("SSH_ASKPASS_REQUIRE", "never");
        if let Some(file) = &config.config_file {
            command.arg("-F").arg(file);
        }
        if let Some(file) = &config.identity_file {
            command.arg("-i").arg(without_tokens(file));
        }
        // No terminal, no X11, no agent. A terminal would change line ends and control bytes of a file.
        command.args(["-T", "-x", "-a"]);
        for option in FIXED_OPTIONS {
            command.args(["-o", option]);
        }
        command.args(["-o", &format!("Ciphers={PREFERRED_CIPHERS}")]);
        command.args([
            "-o",
            &format!("StrictHostKeyChecking={}", config.host_keys.as_str()),
        ]);
        // 0 means "no timeout" to `ssh`.
        let seconds = config.connect_timeout.as_duration().as_secs().max(1);
        command.args(["-o", &format!("ConnectTimeout={seconds}")]);
        // The path is in quotation marks, because the option takes a list of files separated by blanks.
        let mut known = OsString::from("UserKnownHostsFile=\"");
        known.push(without_tokens(&self.settings.known_hosts));
        known.push("\"");
        command.arg("-o").arg(known);
        if let Some(port) = self.target.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(user) = &self.target.user {
            command.args(["-l", user]);
        }
        command
    }

    /// Adds the socket of a shared connection. Unless it `is_master`, the client uses no other connection: its
    /// `ProxyCommand` is a program that fails.
    pub(crate) fn add_socket(command: &mut Command, socket: &Path, is_master: bool) {
        command.arg("-S").arg(without_tokens(socket));
        if !is_master {
            command.args([
                "-o",
                "ControlMaster=no",
                "-o",
                // If the socket no longer exists, `ssh` would connect by itself, to a host whose key was not compared
                // with the bound one.
                "ProxyCommand=false",
                "-o",
                "LogLevel=ERROR",
            ]);
        }
    }

    /// Adds the host, after which only a command may follow.
    pub(crate) fn add_host(&self, command: &mut Command) {
        // Arguments after `--` are never read as options.
        command.arg("--").arg(&self.target.host);
    }

    /// Adds the host and a program that it runs.
    pub(crate) fn add_program(&self, command: &mut Command, program: RemoteProgram<'_>) {
        match program {
            RemoteProgram::Command(line) => {
                self.add_host(command);
                command.arg(OsStr::from_bytes(line));
            }
            RemoteProgram::Subsystem(name) => {
                command.arg("-s");
                self.add_host(command);
                command.arg(name);
            }
        }
    }

    /// Returns the name of the shared connection: 16 hexadecimal digits of a digest over the effective `user@host:port`
    /// and the route to it (jump host, proxy, key).
    pub(crate) async fn connection_name(&self) -> Result<String, Error> {
        let mut command = self.command();
        command
            // Prints the effective configuration, after aliases and `Match` blocks, without connecting.
            .arg("-G")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.add_host(&mut command);
        let limit = self.settings.config.connect_timeout.as_duration();
        let output = timeout(limit, command.output())
            .await
            .map_err(|_| {
                Error::new(
                    ErrorKind::Timeout,
                    "ssh did not print its configuration in time",
                )
            })?
            .map_err(crate::fault::not_started)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(crate::fault::failure(
                "reading the configuration of ssh",
                &text,
            ));
        }
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(file) = &self.settings.config.identity_file {
            // A client without a key must not use the connection of one that has a key.
            let _ = write!(text, "\nwith {}", file.display());
        }
        Ok(name_from_configuration(&text))
    }
}

/// Computes the name from the output of `ssh -G`.
fn name_from_configuration(configuration: &str) -> String {
    let value = |key: &str| {
        configuration
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    };
    let mut text = format!(
        "{}@{}:{}",
        value("user").unwrap_or_default(),
        value("hostname").unwrap_or_default(),
        value("port").unwrap_or_default()
    );
    for option in ROUTE_OPTIONS {
        if let Some(value) = value(option).filter(|value| *value != "none") {
            let _ = write!(text, "\n{option} {value}");
        }
    }
    let mut digits = Sha256Digest::of(text.as_bytes()).to_hex();
    // Short names leave room in `sun_path` for the directory (sandbox-transfer 5.3).
    digits.truncate(NAME_CHARACTERS);
    digits
}

/// Escapes a path so that `ssh` expands no tokens in it.
pub(crate) fn without_tokens(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        bytes.push(*byte);
        // `ssh` replaces `%h` and the like in paths of options; `%%` is a per cent sign.
        if *byte == b'%' {
            bytes.push(b'%');
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_socket_is_the_digest_of_user_host_and_port() {
        let plain =
            name_from_configuration("user me\nhostname box.example\nport 22\nproxyjump none\n");
        assert_eq!(
            plain,
            &Sha256Digest::of(b"me@box.example:22").to_hex()[..16]
        );
    }

    #[test]
    fn r_1_the_same_host_behind_another_jump_host_has_another_name() {
        let names: Vec<_> = ["", "proxyjump a\n", "proxyjump b\n", "proxycommand nc %h\n"]
            .map(|option| {
                name_from_configuration(&format!("user me\nhostname 10.0.0.1\nport 22\n{option}"))
            })
            .into();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[index + 1..].contains(name), "{names:?}");
        }
    }

    #[test]
    fn tokens_in_paths_are_not_replaced() {
        assert_eq!(without_tokens(Path::new("/a%h/b")), "/a%%h/b");
    }
}
