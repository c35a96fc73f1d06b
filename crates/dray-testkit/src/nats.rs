//! A real nats-server with JetStream, on loopback, with its store in a separate directory.
//!
//! The server can be killed, paused and restarted on the same port and store. It is stopped when it is dropped.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests call it, and it fails the test"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::port::unassigned_address;

/// How long a server may take to be ready or to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks of the server.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server with its store and configuration in a temporary directory.
#[derive(Debug)]
pub struct NatsServer {
    child: Child,
    port: u16,
    options: NatsServerOptions,
    directory: tempfile::TempDir,
}

/// Configuration text and data directory of a nats-server.
#[derive(Clone, Debug, Default)]
pub struct NatsServerOptions {
    config: String,
    store: Option<PathBuf>,
}

impl NatsServerOptions {
    /// Adds lines to the server's configuration file, for instance accounts or `max_payload`.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// Puts the store into another directory, for instance on a small file system.
    #[must_use]
    pub fn store(mut self, directory: impl Into<PathBuf>) -> Self {
        self.store = Some(directory.into());
        self
    }

    /// Starts the server and waits until it accepts connections.
    pub fn start(self) -> NatsServer {
        let directory = tempfile::tempdir().expect("a directory for the server");
        // The server does not choose the port itself: during an outage, the kernel could give it to another process.
        let port = unassigned_address().port();
        let mut server = NatsServer {
            child: spawn_server(&self, directory.path(), port),
            port,
            options: self,
            directory,
        };
        server
            .wait_until_ready()
            .unwrap_or_else(|exit| server.panic_not_ready(exit));
        server
    }
}

impl NatsServer {
    /// Starts a server with JetStream and the default configuration.
    pub fn start() -> Self {
        NatsServerOptions::default().start()
    }

    /// URL for clients, without credentials.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Port on loopback; it stays the same over restarts.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Directory of the JetStream store.
    pub fn store(&self) -> PathBuf {
        store_directory(&self.options, self.directory.path())
    }

    /// The content of the server's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Kills the server (SIGKILL) and waits until it has ended. [`NatsServer::restart`] starts it again.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Stops the server with SIGTERM and waits; kills it if it does not stop in time.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.wait();
    }

    /// Pauses the server (SIGSTOP): connections stay open and get no response.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let until = Instant::now() + SERVER_TIMEOUT;
        while !self.is_stopped() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether every thread is stopped; a signal does not reach all of them immediately.
    fn is_stopped(&self) -> bool {
        let threads = format!("/proc/{}/task", self.child.id());
        let Ok(threads) = std::fs::read_dir(threads) else {
            return true;
        };
        threads.flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("stat"))
                .ok()
                .and_then(|stat| {
                    // The name in brackets may contain blanks and brackets (`proc(5)`).
                    let (_, after) = stat.rsplit_once(") ")?;
                    after.chars().next()
                })
                // A thread that has ended since the directory was read counts as stopped.
                .is_none_or(|state| matches!(state, 'T' | 't'))
        })
    }

    /// Makes the server read its configuration again (SIGHUP). It does so soon after this returns.
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// Continues the server (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts the server again on the same port and store, after ending it if it still runs.
    pub fn restart(&mut self) {
        if self.exit_status().is_none() {
            self.stop();
        }
        let until = Instant::now() + SERVER_TIMEOUT;
        loop {
            self.child = spawn_server(&self.options, self.directory.path(), self.port);
            match self.wait_until_ready() {
                Ok(()) => return,
                // Another test may have the port for a while.
                Err(Some(_)) if Instant::now() < until => {}
                Err(exit) => self.panic_not_ready(exit),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The process may have already ended, which is the purpose of most signals.
            let _ = kill_process(pid, signal);
        }
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the server's exit status")
    }

    fn wait(&mut self) {
        let until = Instant::now() + SERVER_TIMEOUT;
        while self.exit_status().is_none() {
            if Instant::now() > until {
                self.signal(Signal::KILL);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the file in which the server publishes its ports once it accepts connections. Fails with the exit
    /// status of a server that ended, or with `None` after [`SERVER_TIMEOUT`].
    fn wait_until_ready(&mut self) -> Result<(), Option<ExitStatus>> {
        // A connection that succeeds would not prove that this process accepted it.
        let name = format!("nats-server_{}.ports", self.child.id());
        let ports = self.directory.path().join(name);
        let until = Instant::now() + SERVER_TIMEOUT;
        while !ports.exists() {
            let exit = self.exit_status();
            if exit.is_some() || Instant::now() >= until {
                return Err(exit);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn panic_not_ready(&self, exit: Option<ExitStatus>) -> ! {
        panic!(
            "nats-server is not ready (exit: {exit:?}); its log: {}",
            self.log()
        );
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // A stopped process does not get SIGTERM until it continues.
        self.resume();
        self.signal(Signal::TERM);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.signal(Signal::KILL);
        drop(self.child.wait());
    }
}

fn store_directory(options: &NatsServerOptions, directory: &Path) -> PathBuf {
    options
        .store
        .clone()
        .unwrap_or_else(|| directory.join("store"))
}

fn spawn_server(options: &NatsServerOptions, directory: &Path, port: u16) -> Child {
    let config = directory.join("server.conf");
    std::fs::write(&config, &options.config).expect("the server's configuration file");
    let started = Command::new(server_binary())
        .arg("--config")
        .arg(&config)
        .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
        .arg("--jetstream")
        .arg("--store_dir")
        .arg(store_directory(options, directory))
        .arg("--ports_file_dir")
        .arg(directory)
        .arg("--log")
        .arg(directory.join("log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            panic!("install Debian package `nats-server`")
        }
        Err(error) => panic!("nats-server does not start: {error}"),
    }
}

/// Debian installs the server in `/usr/sbin`, which is not on the path of ordinary users.
fn server_binary() -> &'static str {
    let debian = "/usr/sbin/nats-server";
    if Path::new(debian).exists() {
        debian
    } else {
        "nats-server"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connects(server: &NatsServer) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", server.port())).is_ok()
    }

    #[test]
    fn restarts_on_the_same_port_with_the_same_store() {
        let mut server = NatsServer::start();
        let (port, store) = (server.port(), server.store());
        assert!(connects(&server) && store.join("jetstream").exists());
        server.kill9();
        assert!(!connects(&server));
        server.restart();
        assert_eq!((server.port(), server.store()), (port, store));
        assert!(connects(&server));
    }

    #[test]
    fn a_restart_repeats_the_start_while_another_process_has_the_port() {
        let mut server = NatsServer::start();
        server.kill9();
        let taken = std::net::TcpListener::bind(("127.0.0.1", server.port())).unwrap();
        let log = server.directory.path().join("log");
        let releasing = std::thread::spawn(move || {
            while !std::fs::read_to_string(&log)
                .unwrap()
                .contains("address already in use")
            {
                std::thread::yield_now();
            }
            drop(taken);
        });
        server.restart();
        releasing.join().unwrap();
        assert!(connects(&server));
    }

    #[test]
    fn it_ends_when_it_is_dropped_even_while_it_is_paused() {
        let server = NatsServer::start();
        let port = server.port();
        server.pause();
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }

    #[test]
    fn configuration_lines_reach_the_server() {
        let server = NatsServerOptions::default()
            .config("max_payload: 1234")
            .start();
        let mut greeting = [0; 1024];
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let read = std::io::Read::read(&mut stream, &mut greeting).unwrap();
        assert!(String::from_utf8_lossy(&greeting[..read]).contains("\"max_payload\":1234"));
    }
}
