//! A real OpenSSH server on loopback, with its own keys, configuration and home directory.
//!
//! It accepts the user that runs the tests, and can be killed, restarted on the same port and given another host key.
//! When dropped, it is ended by its process id, together with the connections that it serves.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests call it, and it fails the test"
)]

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::port::unassigned_address;

/// How long a server may take to be ready or to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks of the server.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The server's offer of SFTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SftpOffer {
    /// Inside the server; no shell is involved.
    #[default]
    Internal,
    /// The login shell starts the SFTP program, so that the output of start files interferes.
    Program,
    /// SFTP is not offered; the subsystem request fails.
    None,
}

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct SshdOptions {
    sftp: SftpOffer,
    has_no_shell: bool,
    start_file: String,
    lines: String,
}

impl SshdOptions {
    /// Sets how the server offers SFTP.
    #[must_use]
    pub fn sftp(mut self, sftp: SftpOffer) -> Self {
        self.sftp = sftp;
        self
    }

    /// Offers SFTP for all requests, never a shell.
    #[must_use]
    pub fn without_shell(mut self) -> Self {
        self.has_no_shell = true;
        self
    }

    /// The content of `.bashrc` in the home directory, which bash reads for every command over SSH.
    #[must_use]
    pub fn start_file(mut self, text: &str) -> Self {
        text.clone_into(&mut self.start_file);
        self
    }

    /// Adds a line to the server's configuration, for instance `MaxSessions 2`.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Starts the server and waits until it accepts connections.
    pub fn start(&self) -> Sshd {
        Sshd::start(self)
    }
}

/// A running server with its keys, configuration and home directory in a temporary directory.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Sshd {
    /// Starts a server and waits until it accepts connections.
    pub fn start(options: &SshdOptions) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the server");
        let path = directory.path();
        for key in ["host", "user", "stranger"] {
            create_key(&path.join(key));
        }
        fs::create_dir(path.join("home")).expect("a home directory");
        fs::write(path.join("home/.bashrc"), &options.start_file).expect("a start file");
        fs::copy(path.join("user.pub"), path.join("authorized_keys")).expect("an authorized key");
        create_separation_directory();
        // Another test may choose the same port; the next round tries another one.
        for _ in 0..5 {
            let port = unassigned_address().port();
            fs::write(path.join("sshd_config"), server_config(options, path, port))
                .expect("a config");
            if let Some(child) = spawn_ready(path, port) {
                return Self {
                    child,
                    port,
                    directory,
                };
            }
        }
        panic!("sshd does not start; its log: {}", server_log(path));
    }

    /// Port on loopback; it stays the same over restarts.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The user that may log in: the one that runs the tests.
    pub fn user(&self) -> String {
        let output = Command::new("id").arg("-un").output().expect("id");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Private key of the user that may log in.
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("user")
    }

    /// A private key that no server accepts.
    pub fn strange_key(&self) -> PathBuf {
        self.directory.path().join("stranger")
    }

    /// Home directory of the shells and start of SFTP.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// The content of the server's log so far.
    pub fn log(&self) -> String {
        server_log(self.directory.path())
    }

    /// Ids of the processes that the server has started: connections, shells and commands.
    pub fn processes(&self) -> Vec<u32> {
        descendant_processes(self.child.id())
    }

    /// Kills every connection and its processes (SIGKILL); the server continues.
    pub fn cut(&self) {
        for process in self.processes() {
            kill_tree(process);
        }
    }

    /// Freezes every connection and its processes (SIGSTOP): connections stay open but do not respond.
    pub fn pause(&self) {
        for process in self.processes() {
            send_signal(process, Signal::STOP);
        }
    }

    /// Continues every connection and its processes (SIGCONT).
    pub fn resume(&self) {
        for process in self.processes() {
            send_signal(process, Signal::CONT);
        }
    }

    /// Kills the server and all connections and waits until it has ended.
    pub fn kill9(&mut self) {
        let processes = self.processes();
        kill_tree(self.child.id());
        for process in processes {
            kill_tree(process);
        }
        drop(self.child.wait());
    }

    /// Starts it again on the same port, after ending it if it still runs.
    pub fn restart(&mut self) {
        self.kill9();
        let until = Instant::now() + SERVER_TIMEOUT;
        while Instant::now() < until {
            if let Some(child) = spawn_ready(self.directory.path(), self.port) {
                self.child = child;
                return;
            }
        }
        panic!("sshd does not start again; its log: {}", self.log());
    }

    /// Starts it again on the same port with another host key, as if the machine had been replaced.
    pub fn change_host_key(&mut self) {
        let key = self.directory.path().join("host");
        for old in [key.clone(), key.with_extension("pub")] {
            fs::remove_file(old).expect("the old key");
        }
        create_key(&key);
        self.restart();
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn server_config(options: &SshdOptions, directory: &Path, port: u16) -> String {
    let path = directory.display();
    let sftp = match options.sftp {
        SftpOffer::Internal => format!("Subsystem sftp internal-sftp -d {path}/home\n"),
        SftpOffer::Program => "Subsystem sftp /usr/lib/openssh/sftp-server\n".to_owned(),
        SftpOffer::None => String::new(),
    };
    let mut text = format!(
        // `StrictModes no`: the temporary directory may be writable for others, which sshd would refuse.
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized_keys\n\
         StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUseDNS no\nMaxStartups 100\nLogLevel VERBOSE\nPrintMotd no\n\
         SetEnv HOME={path}/home\n{sftp}"
    );
    if options.has_no_shell {
        let _ = writeln!(text, "ForceCommand internal-sftp -d {path}/home");
    }
    text.push_str(&options.lines);
    text
}

/// Starts the server; `None` if it ends instead of accepting connections.
fn spawn_ready(directory: &Path, port: u16) -> Option<Child> {
    // An earlier start has written to the same file.
    let earlier_log = server_log(directory).len();
    let mut child = match Command::new("/usr/sbin/sshd")
        .args(["-D", "-f"])
        .arg(directory.join("sshd_config"))
        .arg("-E")
        .arg(directory.join("log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            panic!("install Debian package `openssh-server`")
        }
        Err(error) => panic!("sshd does not start: {error}"),
    };
    let until = Instant::now() + SERVER_TIMEOUT;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return None;
        }
        let log = server_log(directory);
        // Another process may listen on the port. Then this server cannot bind it and ends, which the next round
        // detects.
        if TcpStream::connect(("127.0.0.1", port)).is_ok()
            && log
                .get(earlier_log..)
                .is_some_and(|log| log.contains("listening"))
        {
            return Some(child);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    kill_tree(child.id());
    drop(child.wait());
    None
}

fn create_key(path: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "install Debian package `openssh-client`"
    );
}

/// Creates the empty directory that a server started by root requires.
fn create_separation_directory() {
    if rustix::process::geteuid().is_root() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create("/run/sshd")
            .expect("/run/sshd");
    }
}

fn server_log(directory: &Path) -> String {
    fs::read(directory.join("log"))
        .map(|log| String::from_utf8_lossy(&log).into_owned())
        .unwrap_or_default()
}

/// All descendants of a process, without the process itself.
fn descendant_processes(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in brackets may contain blanks and brackets (`proc(5)`).
            let (_, after) = status.rsplit_once(") ")?;
            Some((id, after.split(' ').nth(1)?.parse().ok()?))
        })
        .collect();
    let mut processes = vec![process];
    let mut index = 0;
    while let Some(&parent) = processes.get(index) {
        processes.extend(
            parents
                .iter()
                .filter(|(_, parent_id)| *parent_id == parent)
                .map(|(id, _)| *id),
        );
        index += 1;
    }
    // The process itself is the first.
    processes.split_off(1)
}

fn kill_tree(process: u32) {
    send_signal(process, Signal::KILL);
}

fn send_signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(process) = process {
        // The process may have already ended, which is the purpose of most signals.
        let _ = kill_process(process, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs in and runs a command.
    fn run(server: &Sshd, key: &Path, command: &str) -> std::process::Output {
        Command::new("ssh")
            .args([
                "-F",
                "none",
                "-T",
                "-o",
                "BatchMode=yes",
                "-o",
                "IdentitiesOnly=yes",
            ])
            .args([
                "-o",
                "GlobalKnownHostsFile=/dev/null",
                "-o",
                "StrictHostKeyChecking=accept-new",
            ])
            .arg("-o")
            .arg(format!(
                "UserKnownHostsFile={}/known",
                server.directory.path().display()
            ))
            .arg("-i")
            .arg(key)
            .args(["-p", &server.port().to_string()])
            .arg(format!("{}@127.0.0.1", server.user()))
            .arg(command)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[test]
    fn accepts_only_the_user_of_the_tests() {
        let server = SshdOptions::default().start();
        let output = run(&server, &server.key(), "echo $HOME");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            server.home().to_str().unwrap(),
            "{output:?}"
        );
        let refused = run(&server, &server.strange_key(), "true");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
    }

    #[test]
    fn start_files_and_forced_sftp_are_applied() {
        let noisy = SshdOptions::default()
            .start_file("echo hello from rc")
            .start();
        let output = run(&noisy, &noisy.key(), "true");
        assert_eq!(output.stdout, b"hello from rc\n");
        let forced = SshdOptions::default().without_shell().start();
        let output = run(&forced, &forced.key(), "echo from-a-shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("sftp connections only"), "{text}");
    }

    #[test]
    fn restarts_on_the_same_port_with_another_key() {
        let mut server = SshdOptions::default().start();
        let port = server.port();
        assert!(run(&server, &server.key(), "true").status.success());
        server.restart();
        assert!(run(&server, &server.key(), "true").status.success());
        server.change_host_key();
        assert_eq!(server.port(), port);
        let refused = run(&server, &server.key(), "true");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            text.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"),
            "{text}"
        );
    }
}
