//! The connections to one host, and the choice of one for each channel (sandbox-transfer 5.3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::process::Command;
use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

use crate::aftermath::BackgroundWork;
use crate::client::Client;
use crate::fault::Refusal;
use crate::master::{Master, SocketId};

/// First pause before another attempt to open a channel; it doubles.
const CHANNEL_RETRY_DELAYS: Duration = Duration::from_millis(50);
/// Last pause; after it the host counts as full. All pauses together take about a second and a half.
const MAX_DELAY: Duration = Duration::from_millis(800);

/// A kind of channel that can be opened on a shared connection.
pub(crate) trait ChannelKind: Sync {
    /// The channel when it is open.
    type Channel: Send;

    /// Adds the arguments of this kind to the command of a client.
    fn fill(&self, client: &Client, command: &mut Command);

    /// Starts the client and waits until the far end responds.
    fn open(&self, command: Command)
    -> impl Future<Output = Result<Self::Channel, Refusal>> + Send;
}

/// All connections to one host.
#[derive(Debug)]
pub(crate) struct HostLink {
    client: Client,
    lines: Vec<LinkConnection>,
    /// Key that the host must have; without a requested one, the first key that was seen.
    expected: Mutex<Option<String>>,
    generation: AtomicU64,
    /// Notified when no channel is free.
    crowded: Notify,
    aftermath: BackgroundWork,
}

#[derive(Debug)]
struct LinkConnection {
    master: Master,
    /// The socket behind which the expected host was found.
    known: Mutex<Option<SocketId>>,
}

impl HostLink {
    /// Prepares the connections; the first channel makes one.
    pub(crate) async fn new(client: Client) -> Result<Self, Error> {
        let socket_directory = client.place().await?;
        let directory = &client.settings().control;
        let lines = (0..client.settings().config.connections)
            .map(|index| LinkConnection {
                master: Master::new(directory, &name(&socket_directory, index)),
                known: Mutex::new(None),
            })
            .collect();
        Ok(Self {
            client,
            lines,
            expected: Mutex::new(None),
            generation: AtomicU64::new(0),
            crowded: Notify::new(),
            aftermath: BackgroundWork::new(),
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Work on this host that dropped transfers left behind.
    pub(crate) fn background_work(&self) -> &BackgroundWork {
        &self.aftermath
    }

    /// A number that grows with every connection that was found or made: knowledge about the host must then be checked
    /// again.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Refuses every other host key from now on.
    pub(crate) async fn expect(&self, fingerprint: &str) {
        *self.expected.lock().await = Some(fingerprint.to_owned());
    }

    /// Fingerprint of the host's key; connects first when there is no connection.
    pub(crate) async fn fingerprint(&self) -> Result<String, Error> {
        // Only the first connection is made here; others are made when a channel finds no room.
        if let Some(line) = self.lines.first() {
            self.alive(line).await?;
        }
        let expected = self.expected.lock().await;
        expected
            .clone()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no key of the host is known"))
    }

    /// Opens a channel. It skips full connections and makes a lost one again, once. When all are full, channels that
    /// wait for their next use are closed, and it retries for about a second and a half.
    pub(crate) async fn channel<A: ChannelKind>(&self, ask: &A) -> Result<A::Channel, Error> {
        let mut pause = CHANNEL_RETRY_DELAYS;
        loop {
            let full = match self.try_channel(ask).await? {
                Ok(channel) => return Ok(channel),
                Err(full) => full,
            };
            if pause > MAX_DELAY {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "every connection carries as many channels as the host allows",
                )
                .caused_by(full));
            }
            // Pools on this host close their idle channels.
            self.crowded.notify_waiters();
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Resolves when a caller finds no free channel.
    pub(crate) async fn crowded(&self) {
        self.crowded.notified().await;
    }

    /// The inner error says that all connections are full.
    async fn try_channel<A: ChannelKind>(
        &self,
        ask: &A,
    ) -> Result<Result<A::Channel, Error>, Error> {
        let mut last = Error::new(ErrorKind::Unavailable, "the connection does not hold");
        for line in &self.lines {
            let mut lost = false;
            loop {
                let socket = self.alive(line).await?;
                let mut command = self.client.command();
                Client::socket(&mut command, line.master.socket(), false);
                ask.fill(&self.client, &mut command);
                match ask.open(command).await {
                    // The socket was replaced while the channel opened: another process may have
                    // connected to another host.
                    Ok(channel) if line.master.identity() == Some(socket) => {
                        return Ok(Ok(channel));
                    }
                    Ok(_) if lost => return Err(last),
                    Err(Refusal::Full(error)) => {
                        last = error;
                        break;
                    }
                    Err(Refusal::Gone(error) | Refusal::Final(error)) if lost => return Err(error),
                    Ok(_) | Err(Refusal::Gone(_)) => {}
                    // A master that dies ends its clients without a message, which looks like any
                    // other failure of theirs.
                    Err(Refusal::Final(_)) if !line.master.is_alive().await => {}
                    Err(Refusal::Final(error)) => return Err(error),
                }
                // Once for each connection: a host that drops every channel would otherwise keep this loop running.
                lost = true;
                *line.known.lock().await = None;
            }
        }
        Ok(Err(last))
    }

    /// Ends all connections, including those that other processes use.
    pub(crate) async fn close(&self) {
        for line in &self.lines {
            let mut known = line.known.lock().await;
            if line.master.is_alive().await {
                line.master.exit(&self.client).await;
            }
            *known = None;
        }
    }

    /// Makes sure that a connection is there and leads to the expected host.
    async fn alive(&self, line: &LinkConnection) -> Result<SocketId, Error> {
        let mut known = line.known.lock().await;
        // The lock of this line is held throughout, so that one task connects and the others use its connection.
        if let Some(socket) = *known
            && line.master.identity() == Some(socket)
        {
            return Ok(socket);
        }
        *known = None;
        let connected = line.master.connect(&self.client).await?;
        let mut expected = self.expected.lock().await;
        match expected.as_ref() {
            Some(expected) if *expected != connected.fingerprint => {
                drop(known);
                return Err(Error::new(
                    ErrorKind::SandboxGone,
                    "the host has another key than the one that was bound",
                ));
            }
            Some(_) => {}
            None => *expected = Some(connected.fingerprint),
        }
        let socket = line.master.identity();
        *known = socket;
        // After the key was compared and before the first channel: sandboxes then check their directory again.
        self.generation.fetch_add(1, Ordering::AcqRel);
        tracing::debug!(fresh = connected.fresh, "shared connection is there");
        socket.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the connection ended immediately"))
    }
}

/// The first connection has the name of the place; the others have names derived from it.
fn name(socket_directory: &str, index: usize) -> String {
    if index == 0 {
        return socket_directory.to_owned();
    }
    let mut digits =
        dray_types::Sha256Digest::of(format!("{socket_directory}#{index}").as_bytes()).to_hex();
    digits.truncate(16);
    digits
}
