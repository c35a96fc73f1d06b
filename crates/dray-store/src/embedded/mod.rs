//! An S3 endpoint inside this process, on loopback, over a directory: the object store of the one-machine mode.
//!
//! Requests are real: signatures, presigned URLs, checksums and conditional creation are checked as in a remote store.
//! Requests of this process itself can do without a connection ([`Store::open_in_process`](crate::Store)).
//! It supports the operations on objects that this crate's client and ordinary clients need, and responds
//! `NotImplemented` to others (no versions, no lists by delimiter). Its own key has all permissions; further keys can
//! have policies, so that the policies of a deployment can be tested.
//!
//! Acknowledged objects survive the end of the process, because every object is one file that appears with one `link`
//! or `rename`. They may be lost in a power failure, because no file is synced.

mod access;
mod api;
mod directory;
mod error;
mod identity;
mod in_process;
mod incoming;
mod layout;
mod listing;
mod multipart;
mod outgoing;
mod part;
mod private;
mod quota;
mod record;
mod server;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use access::AccessKey;

use crate::options::StoreOptions;
use access::AccessControl;
use api::S3Api;
use directory::ServedDirectory;
use identity::EndpointIdentity;
pub(crate) use in_process::InProcessTransport;

const LOOPBACK_ADDRESS: std::net::Ipv4Addr = std::net::Ipv4Addr::LOCALHOST;

/// Reads the options of clients for the process that serves `directory`, which that process wrote at its start. It may
/// have ended since.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] when no process ever served the directory, and other failures to read it.
pub fn serving_options(directory: &Path) -> io::Result<StoreOptions> {
    Ok(EndpointIdentity::read(directory)?.options())
}

/// Whether the process that serves `directory` runs until it is stopped ([`EmbeddedS3::mark_long_lived`]). A process
/// that was killed may have left the mark, so the endpoint may still not respond.
pub fn is_long_lived(directory: &Path) -> bool {
    EndpointIdentity::read(directory).is_ok_and(|identity| identity.long_lived)
}

/// Prepares the directory that will contain the directory of an endpoint. A missing one is created with access for this
/// user only. The mode of an existing one is restricted in the same way if it contains only `known` names; otherwise it
/// is not changed.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] with advice, when every user may write to it and so could replace the endpoint's
/// directory.
pub fn prepare_parent(directory: &Path, known: &[&str]) -> io::Result<()> {
    private::claim_parent(directory, known)
}

/// A running endpoint. Dropping it stops it without waiting; [`EmbeddedS3::stop`] lets requests finish.
pub struct EmbeddedS3 {
    address: SocketAddr,
    /// For requests of this process, which end with this value.
    service: Arc<S3Service>,
    stop: CancellationToken,
    tasks: TaskTracker,
    access: AccessControl,
    directory: PathBuf,
    identity: EndpointIdentity,
}

impl EmbeddedS3 {
    /// Serves `directory` on loopback. It reuses the port and credentials of the last start, so that links stay valid;
    /// if the port is taken, it uses a new one. Returns the options that a client needs; the bucket exists.
    ///
    /// Only this user gets access to the directory. If others can read an existing directory, its modes and those of
    /// its content are restricted. A directory of another user is refused.
    ///
    /// Fails when the directory cannot be written. Fails with [`io::ErrorKind::ResourceBusy`] when another process
    /// serves it; then [`serving_options`] returns the options to reach that process.
    pub async fn start(directory: &Path) -> io::Result<(Self, StoreOptions)> {
        Self::with_capacity(directory, u64::MAX).await
    }

    /// Like [`EmbeddedS3::start`], but stores at most `capacity` bytes; beyond that it fails like a full disk.
    ///
    /// # Errors
    ///
    /// Those of [`EmbeddedS3::start`].
    pub async fn with_capacity(
        directory: &Path,
        capacity: u64,
    ) -> io::Result<(Self, StoreOptions)> {
        Self::open(directory, capacity, &[]).await
    }

    /// Like [`EmbeddedS3::start`], with further access keys, each with its own policy.
    ///
    /// Fails also with [`io::ErrorKind::InvalidInput`] when a policy has a part that this endpoint does not
    /// understand.
    pub async fn with_keys(
        directory: &Path,
        keys: &[AccessKey],
    ) -> io::Result<(Self, StoreOptions)> {
        Self::open(directory, u64::MAX, keys).await
    }

    async fn open(
        directory: &Path,
        capacity: u64,
        keys: &[AccessKey],
    ) -> io::Result<(Self, StoreOptions)> {
        let root = directory.to_owned();
        let (directory, mut identity) = incoming::run_blocking(move || {
            let directory = ServedDirectory::open(&root, capacity)?;
            directory.create_bucket(&StoreOptions::default().bucket)?;
            let mut identity = EndpointIdentity::of(&root)?;
            // A killed process left this mark. The change is written immediately, while the lock shows other commands
            // that the directory is in use.
            if std::mem::take(&mut identity.long_lived) {
                identity.write(&root)?;
            }
            io::Result::Ok((directory, identity))
        })
        .await?;
        // The port of the last start is tried first: links that were handed out name it.
        let listener = match tokio::net::TcpListener::bind((LOOPBACK_ADDRESS, identity.port)).await
        {
            Ok(listener) => listener,
            Err(_taken) => tokio::net::TcpListener::bind((LOOPBACK_ADDRESS, 0)).await?,
        };
        let address = listener.local_addr()?;
        identity.port = address.port();
        // The file is written before the first request is served, so that other processes of this user can find the
        // endpoint.
        let root = directory.root().to_owned();
        identity.write(&root)?;
        let options = identity.options();

        let mut service = S3ServiceBuilder::new(S3Api::new(Arc::new(directory)));
        let access = AccessControl::new(options.access_key.expose(), keys)?;
        let mut secrets =
            SimpleAuth::from_single(options.access_key.expose(), options.secret_key.expose());
        for key in keys {
            secrets.register(key.access_key.clone(), key.secret_key.expose().into());
        }
        service.set_auth(secrets);
        service.set_access(access.clone());
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let service = service.build();
        tasks.spawn(server::serve_until(listener, service.clone(), stop.clone()));
        let endpoint = Self {
            address,
            service: Arc::new(service),
            stop,
            tasks,
            access,
            directory: root,
            identity,
        };
        Ok((endpoint, options))
    }

    /// The loopback address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that the policies of further keys refused: `<key> <action> <resource>`.
    pub fn refused(&self) -> Vec<String> {
        self.access.refused()
    }

    /// Notes in the directory that this process serves it until it is stopped. Other commands then use the endpoint
    /// without waiting for the end of this process.
    ///
    /// # Errors
    ///
    /// The errors of the file system.
    pub fn mark_long_lived(&self) -> io::Result<()> {
        let mut marked = self.identity.clone();
        marked.long_lived = true;
        marked.write(&self.directory)
    }

    /// Returns a transport for requests of this process.
    pub(crate) fn transport(&self) -> InProcessTransport {
        InProcessTransport::new(&self.service, self.tasks.clone())
    }

    /// Stops accepting connections, and waits until running requests have ended.
    pub async fn stop(self) {
        if is_long_lived(&self.directory) {
            // The mark only saves time, so a failure to remove it does not matter.
            let _ = self.identity.write(&self.directory);
        }
        self.stop.cancel();
        let tasks = self.tasks.clone();
        // No further request of this process finds the service.
        drop(self);
        tasks.close();
        tasks.wait().await;
    }
}

impl std::fmt::Debug for EmbeddedS3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedS3")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for EmbeddedS3 {
    fn drop(&mut self) {
        // Tasks end by themselves; a drop cannot wait for them.
        self.stop.cancel();
    }
}
