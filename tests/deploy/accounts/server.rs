//! A real server that was started with the shipped accounts file.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use tempfile::TempDir;

use super::table;
use super::wire::{Client, Refusal};
use crate::support;

/// Ends with the value.
pub(in crate::deploy) struct Server {
    process: Child,
    address: SocketAddr,
    log: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Server {
    /// Starts it with a password for each identity, as the environment of a deployment gives them.
    pub(in crate::deploy) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let accounts = support::root().join("deploy/nats/accounts.conf");
        std::fs::copy(accounts, folder.path().join("accounts.conf")).unwrap();
        let config = format!(
            "listen: \"127.0.0.1:-1\"\njetstream: {{ store_dir: {:?} }}\ninclude \"accounts.conf\"\n",
            folder.path().join("data")
        );
        let file = folder.path().join("nats.conf");
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
        let mut said = Vec::new();
        let mut address = None;
        // It tells its address, and then that it is ready.
        for line in log.by_ref().map_while(Result::ok) {
            if let Some((_, told)) = line.split_once("Listening for client connections on ") {
                address = told.parse().ok();
            }
            let ready = line.contains("Server is ready");
            said.push(line);
            if ready {
                break;
            }
        }
        let address =
            address.unwrap_or_else(|| panic!("nats-server did not start:\n{}", said.join("\n")));
        // Whoever does not read the log stops the server.
        let log = std::thread::spawn(move || log.for_each(drop));
        Self {
            process,
            address,
            log: Some(log),
            _folder: folder,
        }
    }

    /// Where it listens.
    pub(in crate::deploy) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection of one identity.
    #[track_caller]
    pub(super) fn client(&self, user: &str) -> Client {
        self.login(user, &password(user))
            .unwrap_or_else(|refusal| panic!("{user}: {refusal}"))
    }

    /// An attempt to log in.
    pub(super) fn login(&self, user: &str, password: &str) -> Result<Client, Refusal> {
        Client::connect(self.address, user, password)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }
}

/// The password of an identity in these tests.
pub(in crate::deploy) fn password(user: &str) -> String {
    format!("secret-of-{user}")
}
