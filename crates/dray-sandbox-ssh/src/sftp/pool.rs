//! A pool of SFTP channels.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::channel::Channel;
use super::wire::kind;
use crate::background_work::BackgroundWork;
use crate::fault::{self, Refusal};
use crate::link::{ChannelKind, HostLink};
use crate::mux::RemoteProgram;
use crate::session::{Session, SessionStarter};

/// Most idle channels that stay open; each is a server process on the host.
const MAX_IDLE_CHANNELS: usize = 3;
/// How long an idle channel stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Age from which an idle channel is checked before its use: its host may be gone.
const FRESH_CHANNEL_AGE: Duration = Duration::from_secs(1);
/// Round trip below which a host counts as near: eight of them take about as long as a shell that starts a digest
/// program.
const NEAR_ROUND_TRIP: Duration = Duration::from_millis(1);
/// Time limit for the response to the check of an idle channel.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Channels to one host.
#[derive(Debug)]
pub(crate) struct Pool {
    link: Arc<HostLink>,
    idle_channels: Arc<Mutex<Vec<(Instant, Channel)>>>,
    /// Whether a channel has responded faster than [`NEAR_ROUND_TRIP`].
    is_near: Arc<AtomicBool>,
    _sweeper: JoinSet<()>,
}

impl Pool {
    pub(crate) fn new(link: Arc<HostLink>) -> Self {
        let idle_channels = Arc::default();
        let mut sweeper = JoinSet::new();
        sweeper.spawn(sweep(Arc::clone(&link), Arc::downgrade(&idle_channels)));
        Self {
            link,
            idle_channels,
            is_near: Arc::default(),
            _sweeper: sweeper,
        }
    }

    /// A channel for one use. Dropping the lease returns the channel if it has no open handle and no pending request.
    pub(crate) async fn lease(&self) -> Result<ChannelLease, Error> {
        let channel = loop {
            // The most recently used channel, so that the others grow old and are closed.
            let newest = lock(&self.idle_channels).pop();
            match newest {
                Some((since, mut channel)) => {
                    if channel.is_free()
                        && (since.elapsed() < FRESH_CHANNEL_AGE
                            || is_responding(&mut channel).await)
                    {
                        break channel;
                    }
                }
                None => break self.open().await?,
            }
        };
        Ok(ChannelLease {
            channel: Some(channel),
            idle_channels: Arc::downgrade(&self.idle_channels),
            is_near: Arc::clone(&self.is_near),
            background_work: Some(self.link.background_work().clone()),
        })
    }

    /// Closes the idle channels.
    pub(crate) fn clear(&self) {
        lock(&self.idle_channels).clear();
    }

    async fn open(&self) -> Result<Channel, Error> {
        let response_timeout = self
            .link
            .client()
            .settings()
            .config
            .idle_timeout
            .as_duration();
        self.link
            .open_channel(&Subsystem { response_timeout })
            .await
    }

    /// Whether several requests over SFTP take less time than starting one process on the host.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }
}

/// Whether the server still responds. This is checked before the channel is used: when a later request fails, it is
/// unknown whether the server carried it out.
async fn is_responding(channel: &mut Channel) -> bool {
    let reply = channel.call_within(PING_TIMEOUT, kind::REALPATH, |packet| packet.string(b"."));
    reply.await.is_ok()
}

/// Opens the SFTP subsystem of the host.
struct Subsystem {
    response_timeout: Duration,
}

impl ChannelKind for Subsystem {
    type Channel = Channel;

    /// No request is sent before the channel is open.
    fn is_repeatable(&self) -> bool {
        true
    }

    async fn open(&self, starter: &SessionStarter<'_>) -> Result<Channel, Refusal> {
        let server = RemoteProgram::Subsystem("sftp");
        let (session, stdin, stdout) = starter.start(server, true).await?;
        let Some(stdin) = stdin else {
            let error = Error::new(ErrorKind::Unavailable, "the session has no input");
            return Err(Refusal::Final(error));
        };
        match Channel::open(stdout, stdin, self.response_timeout).await {
            Ok(channel) => Ok(channel.with_session(session)),
            Err(error) => Err(classify_open_failure(error, session).await),
        }
    }
}

/// Classifies why the server did not exchange versions.
async fn classify_open_failure(error: Error, session: Session) -> Refusal {
    if error.kind() != ErrorKind::Unavailable {
        return Refusal::Final(error);
    }
    match session.wait().await {
        Ok((_, text)) if text.trim().is_empty() => Refusal::Final(
            // Neither a master nor a client of it prints anything when the host has no such subsystem.
            Error::new(ErrorKind::ToolMissing, "the host offers no sftp").caused_by(error),
        ),
        // The login shell did not find or could not run the program of the subsystem.
        Ok((Some(126 | 127), text)) => Refusal::Final(Error::new(
            ErrorKind::ToolMissing,
            format!("the host has no sftp server: {}", text.escape_debug()),
        )),
        Ok((_, text)) => fault::refusal("opening sftp", &text),
        Err(error) => Refusal::Final(error),
    }
}

/// Closes channels that were idle for too long, and all idle channels when other callers need room.
async fn sweep(link: Arc<HostLink>, idle_channels: Weak<Mutex<Vec<(Instant, Channel)>>>) {
    loop {
        let is_out_of_channels = timeout(IDLE_TIMEOUT / 2, link.wait_until_out_of_channels())
            .await
            .is_ok();
        let Some(idle_channels) = idle_channels.upgrade() else {
            return;
        };
        // Dropping a channel ends its server process, which frees one of the `MaxSessions` of the host.
        lock(&idle_channels)
            .retain(|(since, _)| !is_out_of_channels && since.elapsed() < IDLE_TIMEOUT);
    }
}

fn lock(
    idle_channels: &Mutex<Vec<(Instant, Channel)>>,
) -> std::sync::MutexGuard<'_, Vec<(Instant, Channel)>> {
    idle_channels.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Pool {
    /// Counts the host as near, however slowly it responds.
    pub(crate) fn set_near(&self) {
        self.is_near.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl From<Channel> for ChannelLease {
    fn from(channel: Channel) -> Self {
        Self {
            channel: Some(channel),
            idle_channels: Weak::new(),
            is_near: Arc::default(),
            background_work: None,
        }
    }
}

/// A channel in use. Dropping it in the middle of a request closes the channel, which ends the server process. While
/// files are being changed, the server first executes the requests that it received.
#[derive(Debug)]
pub(crate) struct ChannelLease {
    /// `Some` until the lease is dropped.
    channel: Option<Channel>,
    idle_channels: Weak<Mutex<Vec<(Instant, Channel)>>>,
    /// Set when the channel was fast.
    is_near: Arc<AtomicBool>,
    background_work: Option<BackgroundWork>,
}

impl Deref for ChannelLease {
    type Target = Channel;

    #[expect(clippy::expect_used, reason = "it is taken in drop only")]
    fn deref(&self) -> &Channel {
        self.channel.as_ref().expect("a channel")
    }
}

impl DerefMut for ChannelLease {
    #[expect(clippy::expect_used, reason = "it is taken in drop only")]
    fn deref_mut(&mut self) -> &mut Channel {
        self.channel.as_mut().expect("a channel")
    }
}

impl Drop for ChannelLease {
    fn drop(&mut self) {
        let Some(mut channel) = self.channel.take() else {
            return;
        };
        let round_trip = channel.round_trip();
        if round_trip.is_some_and(|time| time < NEAR_ROUND_TRIP) {
            self.is_near.store(true, Ordering::Relaxed);
        }
        if channel.is_free() {
            channel.clear_writing();
            if let Some(idle_channels) = self.idle_channels.upgrade() {
                let mut idle_channels = lock(&idle_channels);
                if idle_channels.len() < MAX_IDLE_CHANNELS {
                    idle_channels.push((Instant::now(), channel));
                }
            }
        } else if channel.is_writing()
            && let Some(background_work) = &self.background_work
        {
            // The server executes the requests that it got; a partial file must be removed only after that.
            background_work.add(async move {
                let _ = timeout(PING_TIMEOUT, channel.drain()).await;
            });
        }
    }
}
