//! Sandboxes that are shells on this host: their tools, and what their channel can carry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::backend::{Backend, Follow, Read, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::Error;
use dray_sandbox::handle::Address;
use dray_sandbox::metadata::Transport;
use dray_sandbox::path::SandboxPath;
use dray_sandbox_conformance::{Fixture, SandboxTraits};
use futures_util::stream;
use rand::RngCore as _;
use tempfile::TempDir;

use crate::{ChannelConfig, CommandBackend, CommandConfig, Exec, ExecFiles, LocalExec};

/// A user that owns nothing.
const NOBODY_UID: u32 = 65_534;

/// The programs of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolSet {
    /// `sh` is dash, the other programs are those of GNU.
    Dash,
    /// `sh` is bash, the other programs are those of GNU.
    Bash,
    /// Only the programs of `BusyBox`.
    BusyBox,
    /// dash, and those programs of `BusyBox` that a test adds.
    Bare,
}

/// The kind of channel to the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelForm {
    /// Bytes pass unchanged and end with the input.
    Pipe,
    /// One string for a shell.
    Shell,
    /// A pipe that does not pass on the end of its input.
    Endless,
    /// Text in both directions: a carriage return is put before each line feed, and other bytes are lost.
    Text,
    /// Text output without input, 64 KiB of arguments, 500 000 bytes of output.
    Narrow,
    /// Raw output without input, 50 000 bytes of output.
    Ranges,
    /// A pseudo-terminal, which changes control characters.
    Terminal,
    /// A pipe to a process of another user.
    Nobody,
}

const MANGLING_PIPE: &str = r#""$@" 2>&1 | sed 's/$/\r/' | tr '\200-\377' '?'"#;

impl ChannelForm {
    fn prefix(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Pipe | Self::Endless | Self::Ranges => &["/usr/bin/env"],
            Self::Shell => &["/bin/sh", "-c"],
            Self::Text | Self::Narrow => &["/bin/sh", "-c", MANGLING_PIPE, "sh"],
            Self::Terminal => &["/usr/bin/script", "/dev/null", "-qec"],
            Self::Nobody => &[
                "/usr/bin/setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Whether output arrives while a program runs: encoders hold text back, and so does `head` with a limit.
    pub(super) fn has_live_output(self) -> bool {
        let channel = self.channel();
        channel.binary_output && channel.longest_output == ChannelConfig::default().longest_output
    }

    fn channel(self) -> ChannelConfig {
        let pipe = ChannelConfig::default();
        let text = ChannelConfig {
            binary_output: false,
            binary_input: false,
            ..pipe
        };
        match self {
            Self::Pipe | Self::Nobody => pipe,
            Self::Shell => ChannelConfig {
                shell: true,
                ..pipe
            },
            Self::Endless => ChannelConfig {
                input_end: false,
                ..pipe
            },
            Self::Text => text,
            Self::Narrow => ChannelConfig {
                input: false,
                longest_arguments: 65_536,
                longest_output: 500_000,
                ..text
            },
            Self::Ranges => ChannelConfig {
                input: false,
                longest_output: 50_000,
                ..pipe
            },
            Self::Terminal => ChannelConfig {
                shell: true,
                input: false,
                ..text
            },
        }
    }
}

/// A sandbox and its workspace.
#[derive(Debug)]
pub(super) struct ExecFixture {
    pub(super) root: TempDir,
    form: ChannelForm,
}

impl ExecFixture {
    pub(super) fn new(tools: ToolSet, form: ChannelForm) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        match tools {
            ToolSet::Dash | ToolSet::Bare => link(&program("dash"), &bin.join("sh")),
            ToolSet::Bash => link(&program("bash"), &bin.join("sh")),
            ToolSet::BusyBox => {
                let busybox = program("busybox");
                let list = Command::new(&busybox).arg("--list").output().unwrap();
                for name in String::from_utf8(list.stdout).unwrap().lines() {
                    link(&busybox, &bin.join(name));
                }
            }
        }
        if matches!(tools, ToolSet::Dash | ToolSet::Bash) {
            for directory in ["/usr/bin", "/bin"] {
                symlink(directory, root.path().join(directory.replace('/', "_"))).unwrap();
            }
        }
        let fixture = Self { root, form };
        std::fs::write(fixture.root.path().join("incarnation"), "first").unwrap();
        fixture.make_work();
        fixture
    }

    fn make_work(&self) {
        let work = self.work();
        std::fs::create_dir(&work).unwrap();
        if self.form == ChannelForm::Nobody {
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.root.path(), open).unwrap();
            chown(&work, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        }
    }

    /// The working directory of the sandbox.
    pub(super) fn work(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("work")
    }

    pub(super) fn path(&self, name: impl AsRef<[u8]>) -> SandboxPath {
        let work = SandboxPath::new(self.work().to_str().unwrap()).unwrap();
        work.join(name).unwrap()
    }

    /// Directories with programs.
    pub(super) fn search(&self) -> String {
        let root = self.root.path().display().to_string();
        if self.root.path().join("_usr_bin").exists() {
            format!("{root}/bin:{root}/_usr_bin:{root}/_bin")
        } else {
            format!("{root}/bin")
        }
    }

    pub(super) fn exec(&self) -> LocalExec {
        LocalExec::new(self.form.prefix())
            .with_environment([("PATH", self.search())])
            .with_directory(self.work())
            .with_channel(self.form.channel().into())
    }

    pub(super) fn files(&self) -> ExecFiles<LocalExec> {
        ExecFiles::new(self.exec())
    }

    /// Adds applets of `BusyBox` to the programs of the sandbox.
    pub(super) fn with(self, applets: &[&str]) -> Self {
        for applet in applets {
            link(
                &program("busybox"),
                &self.root.path().join("bin").join(applet),
            );
        }
        self
    }

    /// Adds programs of this host.
    pub(super) fn with_host(self, programs: &[&str]) -> Self {
        for name in programs {
            link(&program(name), &self.root.path().join("bin").join(name));
        }
        self
    }

    /// Puts a script in place of a program.
    pub(super) fn with_fake(self, name: &str, script: &str) -> Self {
        let path = self.root.path().join("bin").join(name);
        let _ = std::fs::remove_file(&path);
        // Another process writes the file: if this process had it open for writing, a concurrent fork of another test
        // would make the program busy (ETXTBSY).
        let mut install = Command::new("install")
            .args(["-m", "755", "/dev/stdin"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let text = format!("#!/bin/sh\n{script}\n");
        install
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(install.wait().unwrap().success());
        self
    }

    /// Writes a file of the workspace without the code under test.
    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> SandboxPath {
        std::fs::write(self.work().join(name), bytes).unwrap();
        self.path(name)
    }

    /// Runs a script in the workspace without the code under test.
    pub(super) fn sh(&self, script: &str) -> String {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.work())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[async_trait]
impl Fixture for ExecFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        let config = CommandConfig {
            command: self.form.prefix(),
            environment: BTreeMap::from([("PATH".to_owned(), self.search())]),
            incarnation: vec![
                "/bin/cat".to_owned(),
                self.root.path().join("incarnation").display().to_string(),
            ],
            channel: self.form.channel(),
        };
        let sandboxes = BTreeMap::from([("box".to_owned(), config)]);
        Arc::new(CommandBackend::new(sandboxes).unwrap())
    }

    fn address(&self) -> Address {
        "exec:box".parse().unwrap()
    }

    fn traits(&self) -> SandboxTraits {
        SandboxTraits {
            live_output: self.form.has_live_output(),
            ..SandboxTraits::default()
        }
    }

    fn workspace(&self) -> SandboxPath {
        SandboxPath::new(self.work().to_str().unwrap()).unwrap()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let mut command = if self.form == ChannelForm::Nobody {
            let mut command = tokio::process::Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
            command
        } else {
            tokio::process::Command::new("sh")
        };
        let output = command
            .args(["-c", script])
            .current_dir(directory.to_text().unwrap())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn replace(&self) -> bool {
        std::fs::remove_dir_all(self.work()).unwrap();
        std::fs::write(self.root.path().join("incarnation"), "second").unwrap();
        self.make_work();
        true
    }
}

/// Finds a program, or panics with the name of what is missing.
pub(super) fn program(name: &str) -> PathBuf {
    ["/bin", "/usr/bin", "/usr/sbin", "/sbin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is missing: `cargo xtask test` says how to install it"))
}

fn link(to: &Path, at: &Path) {
    symlink(to, at).unwrap();
}

pub(super) fn random(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

/// A body in chunks that end neither with a line nor with a block.
pub(super) fn body(bytes: &[u8]) -> Body {
    let chunks: Vec<_> = bytes
        .chunks(10_007)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    Body::new(stream::iter(chunks))
}

pub(super) fn write(path: &SandboxPath, transport: Transport, size: usize) -> Write<'_> {
    Write {
        transport,
        path,
        size: size as u64,
        offset: 0,
        mode: 0o640,
    }
}

pub(super) async fn read<E: Exec + 'static>(
    files: &ExecFiles<E>,
    path: &SandboxPath,
    transport: Transport,
) -> Result<Vec<u8>, Error> {
    let file = files.stat(path, Follow::Yes).await?;
    let read = Read {
        transport,
        file: &file,
        offset: 0,
    };
    files.read(read).await?.read_all(64 << 20).await
}
