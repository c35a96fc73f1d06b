//! The connections to one host, and the choice of one for each channel (sandbox-transfer 5.3).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

use crate::background_work::BackgroundWork;
use crate::client::Client;
use crate::fault::Refusal;
use crate::master::{Master, NAME_CHARACTERS, SocketId};
use crate::name_cache::NameCache;
use crate::session::SessionStarter;

/// First pause before another attempt to open a channel; it doubles.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Longest pause; after it the host counts as full. All pauses together take about a second and a half.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(800);

/// A kind of channel that can be opened on a shared connection.
pub(crate) trait ChannelKind: Sync {
    /// The channel when it is open.
    type Channel: Send;

    /// Whether a channel that was lost while it opened may be opened again, because its program has done nothing yet.
    fn is_repeatable(&self) -> bool;

    /// Starts the session and waits until the far end responds.
    fn open(
        &self,
        starter: &SessionStarter<'_>,
    ) -> impl Future<Output = Result<Self::Channel, Refusal>> + Send;
}

/// All connections to one host.
#[derive(Debug)]
pub(crate) struct HostLink {
    client: Client,
    name: String,
    /// Whether the name comes from the effective configuration, so that connections may be made.
    is_confirmed: AtomicBool,
    connections: Vec<LinkConnection>,
    /// Fingerprint of the key that the host must have. Unless the caller requires one, it is that of the first
    /// connection.
    expected_fingerprint: Mutex<Option<String>>,
    generation: AtomicU64,
    /// Notified when no channel is free.
    out_of_channels: Notify,
    background_work: BackgroundWork,
}

#[derive(Debug)]
struct LinkConnection {
    master: Master,
    /// The socket behind which the expected host was found.
    known_socket: Mutex<Option<SocketId>>,
}

impl HostLink {
    /// Prepares the connections with this name. The first channel connects.
    pub(crate) fn new(client: Client, name: &str) -> Self {
        NameCache::new(&client).write(name);
        Self::named(client, name, true)
    }

    /// Returns the open connection that an earlier process used for this target. Before [`Self::confirm`] no other
    /// connection replaces this one, because its name may refer to another host now.
    pub(crate) fn from_name_cache(client: Client) -> Option<Self> {
        let name = NameCache::new(&client).read()?;
        let link = Self::named(client, &name, false);
        let socket = link.connections.first()?.master.identity();
        socket.is_some().then_some(link)
    }

    /// Compares the remembered name with the effective one, and allows new connections when they are equal. Returns
    /// whether they are.
    pub(crate) fn confirm(&self, name: &str) -> bool {
        let is_same = self.name == name;
        self.is_confirmed.store(is_same, Ordering::Release);
        is_same
    }

    fn named(client: Client, name: &str, is_confirmed: bool) -> Self {
        let directory = &client.settings().control;
        let connections = (0..client.settings().config.connections)
            .map(|index| LinkConnection {
                master: Master::new(directory, &connection_name(name, index)),
                known_socket: Mutex::new(None),
            })
            .collect();
        Self {
            client,
            name: name.to_owned(),
            is_confirmed: AtomicBool::new(is_confirmed),
            connections,
            expected_fingerprint: Mutex::new(None),
            generation: AtomicU64::new(0),
            out_of_channels: Notify::new(),
            background_work: BackgroundWork::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Work on this host that dropped transfers left behind.
    pub(crate) fn background_work(&self) -> &BackgroundWork {
        &self.background_work
    }

    /// A number that grows with every connection that was found or made. When it has grown, what is known about the
    /// host must be checked again.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Requires this host key from now on.
    pub(crate) async fn expect(&self, fingerprint: &str) {
        *self.expected_fingerprint.lock().await = Some(fingerprint.to_owned());
    }

    /// Fingerprint of the host's key; connects first when there is no connection.
    pub(crate) async fn fingerprint(&self) -> Result<String, Error> {
        // Only the first connection is made here; others are made when a channel finds no room.
        if let Some(connection) = self.connections.first() {
            self.ensure_connected(connection).await?;
        }
        let expected = self.expected_fingerprint.lock().await;
        expected
            .clone()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no key of the host is known"))
    }

    /// Opens a channel. Skips full connections, and reconnects a lost one once. When all are full, idle channels are
    /// closed, and opening is retried for about a second and a half.
    pub(crate) async fn open_channel<K: ChannelKind>(&self, kind: &K) -> Result<K::Channel, Error> {
        let mut pause = FIRST_RETRY_DELAY;
        loop {
            let full = match self.try_open_channel(kind).await? {
                Ok(channel) => return Ok(channel),
                Err(full) => full,
            };
            if pause > MAX_RETRY_DELAY {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "every connection carries as many channels as the host allows",
                )
                .caused_by(full));
            }
            // Pools close their idle channels on this host, and sandboxes their idle shells.
            self.out_of_channels.notify_waiters();
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Waits until a caller finds no free channel.
    pub(crate) async fn wait_until_out_of_channels(&self) {
        self.out_of_channels.notified().await;
    }

    /// Tries each connection. The inner error means that all connections are full.
    async fn try_open_channel<K: ChannelKind>(
        &self,
        kind: &K,
    ) -> Result<Result<K::Channel, Error>, Error> {
        let mut last = Error::new(ErrorKind::Unavailable, "the connection was lost repeatedly");
        for connection in &self.connections {
            let mut lost = false;
            loop {
                let socket = self.ensure_connected(connection).await?;
                let starter = SessionStarter::new(&self.client, &connection.master, socket);
                let repeatable = kind.is_repeatable();
                match kind.open(&starter).await {
                    Ok(channel) if !starter.has_uncertain_master() => return Ok(Ok(channel)),
                    // The socket was replaced while the channel opened: another process may have
                    // connected to another host.
                    Ok(_) if lost || !repeatable => return Err(last),
                    Err(Refusal::Full(error)) => {
                        last = error;
                        break;
                    }
                    Err(Refusal::NotConnected(error) | Refusal::Final(error)) if lost => {
                        return Err(error);
                    }
                    // A program that may have begun is never started a second time.
                    Err(Refusal::Lost(error)) if lost || !repeatable => return Err(error),
                    Ok(_) | Err(Refusal::NotConnected(_) | Refusal::Lost(_)) => {}
                    // A master that is killed ends its sessions without a message, which looks like any other
                    // failure of a session.
                    Err(Refusal::Final(error))
                        if matches!(connection.master.is_alive().await, Ok(false)) =>
                    {
                        if !repeatable {
                            return Err(error);
                        }
                    }
                    Err(Refusal::Final(error)) => return Err(error),
                }
                // `lost` is set at most once for each connection: a host that drops every channel would otherwise keep
                // this loop running.
                lost = true;
                *connection.known_socket.lock().await = None;
            }
        }
        Ok(Err(last))
    }

    /// Makes sure that the connection is open and leads to the expected host.
    async fn ensure_connected(&self, connection: &LinkConnection) -> Result<SocketId, Error> {
        // This lock is held throughout, so that one task connects and the others use its connection.
        let mut known_socket = connection.known_socket.lock().await;
        if let Some(socket) = *known_socket
            && connection.master.identity() == Some(socket)
        {
            return Ok(socket);
        }
        *known_socket = None;
        let connected = if self.is_confirmed.load(Ordering::Acquire) {
            connection.master.connect(&self.client).await?
        } else {
            connection.master.find().await?
        };
        let mut expected = self.expected_fingerprint.lock().await;
        match expected.as_ref() {
            Some(expected) if *expected != connected.fingerprint => {
                drop(known_socket);
                return Err(Error::new(
                    ErrorKind::SandboxGone,
                    "the host has another key than the one that was bound",
                ));
            }
            Some(_) => {}
            None => *expected = Some(connected.fingerprint),
        }
        let socket = connection.master.identity();
        *known_socket = socket;
        // The generation changes after the key was compared and before the first channel: sandboxes then check their
        // directory again.
        self.generation.fetch_add(1, Ordering::AcqRel);
        tracing::debug!(fresh = connected.is_new, "shared connection is open");
        socket.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the connection ended immediately"))
    }
}

/// The first connection has the name of the host; the others have names derived from it.
fn connection_name(name: &str, index: usize) -> String {
    if index == 0 {
        return name.to_owned();
    }
    let mut digits = dray_types::Sha256Digest::of(format!("{name}#{index}").as_bytes()).to_hex();
    digits.truncate(NAME_CHARACTERS);
    digits
}
