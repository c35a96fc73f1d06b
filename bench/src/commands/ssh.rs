//! (o) `dray sandbox get` and `put` compared with `scp`, with a new connection for each and with a shared one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dray_testkit::sshd::{Sshd, SshdOptions};

use super::pair::{BenchPair, BenchSide, to_words};
use super::{IntegrityCheck, SIZES_AND_ROUNDS, path_text, wait_until_settled};
use crate::transfer::write_random_file;

/// Whether a connection exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    New,
    Shared,
}

impl ConnectionState {
    const fn name(self) -> &'static str {
        match self {
            Self::New => "new connection",
            Self::Shared => "shared connection",
        }
    }
}

/// Fixture of both sides.
struct SshFixture<'a> {
    dray: &'a str,
    sshd: Sshd,
    directory: tempfile::TempDir,
}

/// Measures all sizes, connections and proofs.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let fixture = SshFixture {
        dray: path_text(dray)?,
        sshd: Sshd::start(&SshdOptions::default()),
        directory: tempfile::tempdir()?,
    };
    for (size, rounds) in SIZES_AND_ROUNDS {
        write_random_file(&fixture.local("in"), size)?;
        write_random_file(&fixture.sshd.home().join("out"), size)?;
        wait_until_settled();
        for connection in [ConnectionState::New, ConnectionState::Shared] {
            for proof in IntegrityCheck::ALL_CHECKS {
                for direction in ["get", "put"] {
                    let row = SshRow {
                        size,
                        proof,
                        connection,
                        is_get: direction == "get",
                    };
                    fixture.pair(row, rounds)?.run()?;
                    fixture.clear()?;
                }
            }
        }
        // The next size begins without connections, like the first.
        fixture.disconnect();
    }
    Ok(())
}

/// The parameters of one row.
#[derive(Clone, Copy, Debug)]
struct SshRow {
    size: u64,
    proof: IntegrityCheck,
    connection: ConnectionState,
    is_get: bool,
}

impl SshFixture<'_> {
    fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Removes the files that were put.
    fn clear(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(self.sshd.home())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("scp-") || name.starts_with("dray-") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Ends the shared connections of both sides.
    fn disconnect(&self) {
        let control = self.local("control");
        let sockets = std::fs::read_dir(&control).into_iter().flatten().flatten();
        let sockets = sockets.map(|entry| entry.path());
        let sockets = sockets.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        });
        for socket in sockets.chain([self.local("scp.sock")]) {
            let status = Command::new("ssh")
                .args(["-F", "/dev/null", "-O", "exit", "-S"])
                .arg(socket)
                .arg("host")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            // The error is ignored: most rounds have no connection to end.
            drop(status);
        }
    }

    fn pair(&self, row: SshRow, rounds: usize) -> anyhow::Result<BenchPair<'_>> {
        let SshRow {
            size,
            proof,
            connection,
            is_get,
        } = row;
        let direction = if is_get { "get" } else { "put" };
        let name = format!(
            "(o) {direction} {size} B, host, {}, {}",
            connection.name(),
            proof.name()
        );
        Ok(BenchPair {
            name,
            theirs: BenchSide {
                name: "scp".to_owned(),
                words: Box::new(self.theirs(connection, is_get)?),
            },
            ours: BenchSide {
                name: format!("dray sandbox {direction}"),
                words: Box::new(self.ours(proof, is_get)?),
            },
            target: proof.target_ratio(size),
            rounds,
            prepare: Box::new(move || {
                if connection == ConnectionState::New {
                    self.disconnect();
                }
            }),
        })
    }

    fn theirs(
        &self,
        connection: ConnectionState,
        is_get: bool,
    ) -> anyhow::Result<impl Fn(usize) -> Vec<String>> {
        let (from, to) = (self.local("in"), self.local("out"));
        let (from, to) = (path_text(&from)?.to_owned(), path_text(&to)?.to_owned());
        let (home, key) = (self.sshd.home(), self.sshd.key());
        let remote = format!("{}@127.0.0.1:{}", self.sshd.user(), path_text(&home)?);
        let port = self.sshd.port().to_string();
        // `-F /dev/null` leaves out the user's configuration, which could choose another cipher or a jump host.
        let mut copy = to_words(["scp", "-q", "-F", "/dev/null", "-P", &port]);
        copy.extend(to_words(["-i", path_text(&key)?, "-o", "BatchMode=yes"]));
        // The server is on loopback and its key was made for this run.
        copy.extend(to_words(["-o", "StrictHostKeyChecking=no"]));
        copy.extend(to_words(["-o", "UserKnownHostsFile=/dev/null"]));
        if connection == ConnectionState::Shared {
            let socket = self.local("scp.sock");
            let path = format!("ControlPath={}", path_text(&socket)?);
            copy.extend(to_words(["-o", "ControlMaster=auto", "-o", &path]));
            copy.extend(to_words(["-o", "ControlPersist=60"]));
        }
        Ok(move |round| {
            let arguments = if is_get {
                [format!("{remote}/out"), to.clone()]
            } else {
                [from.clone(), format!("{remote}/scp-{round}")]
            };
            [copy.clone(), arguments.to_vec()].concat()
        })
    }

    fn ours(
        &self,
        proof: IntegrityCheck,
        is_get: bool,
    ) -> anyhow::Result<impl Fn(usize) -> Vec<String>> {
        let (from, to) = (self.local("in"), self.local("out"));
        let (from, to) = (path_text(&from)?.to_owned(), path_text(&to)?.to_owned());
        let (home, key, control) = (self.sshd.home(), self.sshd.key(), self.local("control"));
        let home = path_text(&home)?.to_owned();
        let (user, port) = (self.sshd.user(), self.sshd.port());
        let sandbox = format!("ssh:{user}@127.0.0.1:{port}{home}");
        let key = format!("sandbox-transfer.ssh.identity_file={}", path_text(&key)?);
        let control = path_text(&control)?;
        let control = format!("sandbox-transfer.ssh.control_directory={control}");
        let config = "sandbox-transfer.ssh.config_file=/dev/null";
        let roots = format!("sandbox-transfer.policy.roots=[\"{home}\"]");
        let mut settings = Vec::new();
        for setting in [&key, &control, config, &roots, proof.setting()] {
            settings.extend(to_words(["--set", setting]));
        }
        Ok(move |round| {
            let name = format!("dray-{round}");
            let file = format!("{home}/out");
            let arguments = if is_get {
                to_words(["get", &sandbox, &file, "--output", &to])
            } else {
                to_words(["put", &from, &sandbox, &home, "--name", &name])
            };
            [
                to_words([self.dray, "sandbox"]),
                arguments,
                settings.clone(),
            ]
            .concat()
        })
    }
}
