//! The conformance suite of all backends, over SFTP, over commands, and over SFTP without a shell.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, SandboxPath};
use dray_sandbox_conformance::{Fixture, PROGRAM_CASES, SandboxTraits, run_all};
use dray_testkit::sshd::{SftpOffer, SshdOptions};

use crate::SshFixture;

/// A host with version 3 of SFTP without extensions, and without a shell.
pub(crate) fn without_extensions() -> SshdOptions {
    let server =
        "sftp internal-sftp -P posix-rename,hardlink,fsync,statvfs,limits,lsetstat,copy-data";
    SshdOptions::default()
        .sftp(SftpOffer::None)
        .line(&format!("Subsystem {server}"))
        .line(&format!("ForceCommand {}", server.replacen("sftp ", "", 1)))
}

/// A host for the suite.
#[derive(Debug)]
struct HostCases {
    host: Mutex<SshFixture>,
    backend: Arc<dyn Backend>,
    address: Address,
    workspace: SandboxPath,
    /// Whether the host runs commands, not SFTP alone.
    commands: bool,
}

impl HostCases {
    fn start(options: &SshdOptions) -> Self {
        let host = SshFixture::start(options);
        Self {
            backend: Arc::new(host.backend()),
            address: host.address(),
            workspace: host.root(),
            commands: true,
            host: Mutex::new(host),
        }
    }
}

#[async_trait]
impl Fixture for HostCases {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn workspace(&self) -> SandboxPath {
        self.workspace.clone()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let directory = std::ffi::OsStr::from_bytes(directory.as_bytes());
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(Path::new(directory))
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn traits(&self) -> SandboxTraits {
        SandboxTraits {
            // The server runs as the user of the tests, and permissions do not bind the superuser. Version 3 of SFTP
            // reports no inode, so a file of the same size, owner, mode and second counts as the same.
            identity: false,
            permissions: !rustix::process::geteuid().is_root(),
            commands: self.commands,
            ..SandboxTraits::default()
        }
    }

    /// Gives the host another key, makes the clients forget the old one, and empties the directory.
    async fn replace(&self) -> bool {
        let mut host = self.host.lock().unwrap();
        host.server.change_host_key();
        std::fs::remove_file(host.control.path().join("c/known_hosts")).unwrap();
        for entry in std::fs::read_dir(host.session()).unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        true
    }
}

/// Needs `ctime` or the inode, which SFTP alone does not report.
const MARKER_CASE: &str = "a_modification_time_that_was_set_back_changes_the_marker";

async fn run_suite(options: &SshdOptions) {
    run_suite_with_skipped(HostCases::start(options), &[]).await;
}

/// Runs the suite on a host that has SFTP and no commands.
async fn run_suite_without_commands(options: &SshdOptions) {
    let mut cases = HostCases::start(options);
    cases.commands = false;
    run_suite_with_skipped(cases, &[&[MARKER_CASE], PROGRAM_CASES].concat()).await;
}

/// Runs the suite on a host on which these cases are skipped as well.
async fn run_suite_with_skipped(cases: HostCases, also_skipped: &[&'static str]) {
    let report = run_all(&cases)
        .await
        .unwrap_or_else(|failures| panic!("{failures}"));
    let mut skipped = vec!["a_link_put_in_place_after_the_check_is_not_followed"];
    if rustix::process::geteuid().is_root() {
        skipped.push("access_without_permission_is_refused");
    }
    skipped.extend(also_skipped);
    assert_eq!(report.skipped, skipped);
}

#[tokio::test]
async fn sftp_and_commands_pass_the_suite() {
    run_suite(&SshdOptions::default()).await;
}

#[tokio::test]
async fn commands_alone_pass_the_suite() {
    run_suite(&SshdOptions::default().sftp(SftpOffer::None)).await;
}

#[tokio::test]
async fn sftp_without_a_shell_passes_the_suite() {
    run_suite_without_commands(&SshdOptions::default().without_shell()).await;
}

#[tokio::test]
async fn commands_pass_the_suite_where_start_files_print() {
    let noise = "echo 'Welcome!'; printf 'no line end'; echo oops >&2";
    run_suite(
        &SshdOptions::default()
            .sftp(SftpOffer::Program)
            .start_file(noise),
    )
    .await;
}

#[tokio::test]
async fn a_server_without_extensions_passes_the_suite() {
    run_suite_without_commands(&without_extensions()).await;
}
