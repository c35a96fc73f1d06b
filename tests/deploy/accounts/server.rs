//! A real server that was started with the shipped accounts file.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tempfile::TempDir;

use super::table;
use super::wire::{Refusal, WireClient};
use crate::support;

/// The line of the shipped nats.conf that limits the store. Without it the server derives a limit from the free disk
/// space. On a small disk it then refuses the streams, which reserve their size.
fn store_limit() -> String {
    let shipped = std::fs::read_to_string(support::root().join("deploy/nats/nats.conf")).unwrap();
    let mut lines = shipped.lines().map(str::trim);
    let limit = lines.find(|line| line.starts_with("max_file_store:"));
    limit.expect("nats.conf limits the store").to_owned()
}

/// A running server; it is killed when the value is dropped.
pub(in crate::deploy) struct AccountsServer {
    process: Child,
    address: SocketAddr,
    reader: Option<JoinHandle<()>>,
    log: Arc<Mutex<Vec<String>>>,
    _directory: TempDir,
}

impl AccountsServer {
    /// Starts the server on a free port, with a password for each identity in its environment.
    pub(in crate::deploy) fn start() -> Self {
        Self::start_on("127.0.0.1:-1")
    }

    /// Like [`Self::start`] on this address.
    pub(in crate::deploy) fn start_on(listen: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let accounts = support::root().join("deploy/nats/accounts.conf");
        std::fs::copy(accounts, directory.path().join("accounts.conf")).unwrap();
        let config = format!(
            "listen: \"{listen}\"\njetstream: {{ store_dir: {:?}, {} }}\ninclude \"accounts.conf\"\n",
            directory.path().join("data"),
            store_limit()
        );
        let file = directory.path().join("nats.conf");
        std::fs::write(&file, config).unwrap();
        let mut process = Command::new("nats-server")
            .arg("--config")
            .arg(&file)
            .envs(table::identities().iter().map(|identity| {
                let name = identity.user.to_uppercase().replace('-', "_");
                (format!("DRAY_{name}_PASSWORD"), password(&identity.user))
            }))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server is installed");
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut log_lines = Vec::new();
        let mut address = None;
        // The server prints its address, and then that it is ready.
        for line in log.by_ref().map_while(Result::ok) {
            if let Some((_, listen_address)) =
                line.split_once("Listening for client connections on ")
            {
                address = listen_address.parse().ok();
            }
            let is_ready = line.contains("Server is ready");
            log_lines.push(line);
            if is_ready {
                break;
            }
        }
        let address = address
            .unwrap_or_else(|| panic!("nats-server did not start:\n{}", log_lines.join("\n")));
        // If the log is not read, the server blocks.
        let shared_log = Arc::new(Mutex::new(log_lines));
        let reader = std::thread::spawn({
            let shared_log = Arc::clone(&shared_log);
            move || {
                for line in log.map_while(Result::ok) {
                    shared_log.lock().unwrap().push(line);
                }
            }
        });
        Self {
            process,
            address,
            reader: Some(reader),
            log: shared_log,
            _directory: directory,
        }
    }

    /// The address for clients.
    pub(in crate::deploy) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lines in the log about refused subjects and logins.
    pub(in crate::deploy) fn violations(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|line| line.to_lowercase().contains("violation"))
            .cloned()
            .collect()
    }

    /// A connection of one identity.
    #[track_caller]
    pub(super) fn client(&self, user: &str) -> WireClient {
        self.login(user, &password(user))
            .unwrap_or_else(|refusal| panic!("{user}: {refusal}"))
    }

    /// An attempt to log in.
    pub(super) fn login(&self, user: &str, password: &str) -> Result<WireClient, Refusal> {
        WireClient::connect(self.address, user, password)
    }
}

impl Drop for AccountsServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The password of an identity in these tests.
pub(in crate::deploy) fn password(user: &str) -> String {
    format!("secret-of-{user}")
}
