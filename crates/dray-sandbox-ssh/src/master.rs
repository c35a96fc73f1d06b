//! Shared connections: one `ssh` master per socket. It outlives this process and serves later ones.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::fault;
use crate::mux::{ControlConnection, MuxError};

/// Hexadecimal digits in the name of a connection.
pub(crate) const NAME_CHARACTERS: usize = 16;
/// Time limit for logging in over an established connection, and for another process that holds the lock.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts to take the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Most bytes of the log that are read.
const MAX_LOG_BYTES: u64 = 64 * 1024;

/// One shared connection by its files: socket, log and lock.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    socket: PathBuf,
    log: PathBuf,
    lock: PathBuf,
}

/// The result of connecting: which host is behind the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectedHost {
    /// Fingerprint of the key that the host proved to have, `SHA256:` and base64.
    pub(crate) fingerprint: String,
    /// Whether this call made the connection.
    pub(crate) is_new: bool,
}

/// Identity of a socket: inode and creation time. A later socket with the same name has another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketId(u64, i64, i64);

impl Master {
    /// The connection with this name of 16 hexadecimal digits.
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        Self {
            socket: directory.join(format!("{name}.sock")),
            log: directory.join(format!("{name}.log")),
            lock: directory.join(format!("{name}.lock")),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether a master serves the socket. One that does not respond counts as gone.
    ///
    /// # Errors
    ///
    /// This process cannot connect, so it must not replace the socket.
    pub(crate) async fn is_alive(&self) -> Result<bool, Error> {
        let checked = match ControlConnection::connect(&self.socket).await {
            Ok(connection) => connection.check_alive().await,
            Err(error) => Err(error),
        };
        match checked {
            // Client programs may still understand a master of another version.
            Ok(_) | Err(MuxError::Unsupported(_)) => Ok(true),
            Err(MuxError::Unreachable(error)) => Err(error),
            Err(error) => {
                tracing::debug!(?error, "no master serves the socket");
                Ok(false)
            }
        }
    }

    /// Returns the identity of the socket, if it exists. The socket of another master has another identity.
    pub(crate) fn identity(&self) -> Option<SocketId> {
        let metadata = fs::symlink_metadata(&self.socket).ok()?;
        Some(SocketId(
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ))
    }

    /// Finds the open connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no connection is open, or when its log does not show the key of the host.
    pub(crate) async fn find(&self) -> Result<ConnectedHost, Error> {
        let _lock = self.lock().await?;
        let fingerprint = if self.is_alive().await? {
            self.fingerprint().await
        } else {
            None
        };
        let missing = || Error::new(ErrorKind::Unavailable, "no shared connection is open");
        Ok(ConnectedHost {
            fingerprint: fingerprint.ok_or_else(missing)?,
            is_new: false,
        })
    }

    /// Uses the open connection, or makes one; a socket without a listener is removed.
    pub(crate) async fn connect(&self, client: &Client) -> Result<ConnectedHost, Error> {
        let _lock = self.lock().await?;
        if self.is_alive().await? {
            if let Some(fingerprint) = self.fingerprint().await {
                return Ok(ConnectedHost {
                    fingerprint,
                    is_new: false,
                });
            }
            // Without its log the key of the host is unknown, so no handle could identify it.
            self.exit(client).await;
        }
        // `ssh -M` shares nothing when the socket exists, and `-E` appends to the log of an earlier host.
        for path in [&self.socket, &self.log] {
            remove(path)?;
        }
        self.start(client).await?;
        let fingerprint = self.fingerprint().await.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "the log of ssh has no key of the host")
        })?;
        Ok(ConnectedHost {
            fingerprint,
            is_new: true,
        })
    }

    /// Ends the connection and everything in it.
    pub(crate) async fn exit(&self, client: &Client) {
        let mut command = client.command();
        Client::add_socket(&mut command, &self.socket, false);
        command.args(["-O", "exit"]);
        client.add_host(&mut command);
        // A master that has exited already does not respond.
        let _ = timeout(LOGIN_TIMEOUT, command.status()).await;
    }

    async fn start(&self, client: &Client) -> Result<(), Error> {
        let config = &client.settings().config;
        let mut command = client.command();
        Client::add_socket(&mut command, &self.socket, true);
        // 0 means "forever" to `ssh`.
        let persist = config.persist.as_duration().as_secs().max(1);
        command.args([
            "-M",
            "-N",
            "-f",
            "-o",
            "ControlMaster=yes",
            "-o",
            "LogLevel=INFO",
        ]);
        command.args(["-o", &format!("ControlPersist={persist}")]);
        // The log is the only source for the key that the host has proved to have: `ssh` has no option that prints it.
        command.args(["-o", "LogVerbose=sshconnect.c:verify_host_key():*"]);
        command.arg("-E").arg(&self.log);
        client.add_host(&mut command);
        // `-f` returns after the login, which `ConnectTimeout` does not cover.
        let limit = config.connect_timeout.as_duration() + LOGIN_TIMEOUT;
        let status = timeout(limit, command.status())
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "logging in takes too long"))?
            .map_err(fault::not_started)?;
        if status.success() {
            return Ok(());
        }
        Err(fault::failure("connecting", &self.read_log().await))
    }

    /// Reads the host's fingerprint from the log that the master wrote while it connected.
    async fn fingerprint(&self) -> Option<String> {
        fingerprint(&self.read_log().await)
    }

    async fn read_log(&self) -> String {
        use tokio::io::AsyncReadExt as _;
        let mut text = Vec::new();
        if let Ok(file) = tokio::fs::File::open(&self.log).await {
            // A log that cannot be read counts as one without a key; the caller decides.
            let _ = file.take(MAX_LOG_BYTES).read_to_end(&mut text).await;
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Takes the lock under which one process at a time checks, removes and starts the master.
    async fn lock(&self) -> Result<File, Error> {
        let failed = |error| {
            Error::new(
                ErrorKind::Unavailable,
                "the control directory is not writable",
            )
            .caused_by(error)
        };
        // The file stays: removing it would let two processes lock two files of the same name.
        let file = File::create(&self.lock).map_err(failed)?;
        let wait = async {
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => sleep(LOCK_POLL_INTERVAL).await,
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                }
            }
        };
        // Longer than one connection attempt may take: the process that has the lock is connecting.
        timeout(LOGIN_TIMEOUT * 3, wait)
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "another process is connecting"))??;
        Ok(file)
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != IoKind::NotFound => Err(Error::new(
            ErrorKind::Unavailable,
            "a stale socket cannot be removed",
        )
        .caused_by(error)),
        _ => Ok(()),
    }
}

/// Returns the fingerprint of the last line that has one. The lines of jump hosts come before it.
fn fingerprint(log: &str) -> Option<String> {
    let line = log
        .lines()
        .rev()
        .find(|line| line.contains("Server host key: "))?;
    let fingerprint = line
        .split_whitespace()
        .find(|word| word.starts_with("SHA256:"))?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=:".contains(&byte);
    fingerprint
        .bytes()
        .all(is_base64)
        .then(|| fingerprint.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[tokio::test]
    async fn only_a_socket_without_a_listener_counts_as_unused() {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let master = Master::new(directory.path(), "m");
        assert!(!master.is_alive().await.unwrap());
        drop(UnixListener::bind(master.socket()).unwrap());
        assert!(!master.is_alive().await.unwrap());
        fs::remove_file(master.socket()).unwrap();
        // A socket of another type cannot be connected to, which does not show that it is unused.
        let _datagrams = UnixDatagram::bind(master.socket()).unwrap();
        let unclear = master.is_alive().await.unwrap_err();
        assert_eq!(unclear.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn the_fingerprint_is_found_among_other_lines() {
        let log = "debug1: sshconnect.c:verify_host_key():1477 (pid=1): Server host key: ssh-ed25519 SHA256:abc/+1\r\n\
                   Warning: Permanently added 'h' (ED25519) to the list of known hosts.\r\n";
        assert_eq!(fingerprint(log).as_deref(), Some("SHA256:abc/+1"));
        assert_eq!(fingerprint("Server host key: ssh-rsa MD5:00:11"), None);
        assert_eq!(fingerprint(""), None);
    }
}
