//! Connects to addresses that the guard allowed, and to no others (egress-security 9).
//!
//! A [`PinnedAddr`] comes only from the judge, so each address that is dialled here was judged (I-1, I-2). This module
//! has no names of targets, no resolver for them, no proxy of the environment (T-3) and no pool (T-4). It tries several
//! addresses as Happy Eyeballs does (RFC 8305): staggered and concurrent, and the first connection wins.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dray_guard::PinnedAddr;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep_until};

use crate::limits::{AddressSlot, FetchAdmission};

mod upstream_proxy;

pub use upstream_proxy::{UpstreamProxyDialer, UpstreamProxySettings, is_upstream_proxy_failure};

/// The Connection Attempt Delay of Happy Eyeballs (RFC 8305, section 5): time after which the next address is tried
/// although the one before has not failed yet (T-1).
pub const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Time after which unacknowledged bytes end a connection (T-7).
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connected stream of bytes, TCP or TLS.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A new connection. No byte was written to it yet.
pub struct DialedStream {
    /// The stream itself, for reading and writing.
    pub io: Box<dyn Io>,
    /// Address of the peer: as the kernel reports it, or as it was requested from the upstream proxy.
    pub peer: SocketAddr,
    /// Local address, as the kernel reports it.
    pub local: SocketAddr,
    /// Address of the upstream proxy, as the kernel reports it; `None` without one.
    pub upstream_proxy: Option<SocketAddr>,
}

impl std::fmt::Debug for DialedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DialedStream")
            .field("peer", &self.peer)
            .field("local", &self.local)
            .field("upstream_proxy", &self.upstream_proxy)
            .finish_non_exhaustive()
    }
}

/// Makes connections. The product uses [`TcpDialer`] or [`UpstreamProxyDialer`]. Tests and the demo inject their own,
/// which is the only method to reach an address that the judge refuses (I-9).
pub trait Dialer: Send + Sync + 'static {
    /// Connects to this address and no other. Dropping the future gives up.
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>>;
}

/// Connects with sockets of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialer;

impl Dialer for TcpDialer {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let stream = new_socket(to.socket_addr())?
                .connect(to.socket_addr())
                .await?;
            stream.set_nodelay(true)?;
            Ok(DialedStream {
                peer: stream.peer_addr()?,
                local: stream.local_addr()?,
                upstream_proxy: None,
                io: Box::new(stream),
            })
        })
    }
}

/// Makes a socket as T-6 and T-7 require: close-on-exec, no `SO_REUSEADDR`, no keepalive, no lingering, a bound on
/// unacknowledged bytes.
fn new_socket(to: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    SockRef::from(&socket).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(socket)
}

/// The connection that won, with its address and its slot among the connections to that address.
#[derive(Debug)]
pub struct DialWinner {
    /// The connection itself, not yet checked against [`Self::address`] (T-2).
    pub stream: DialedStream,
    /// The address that was pinned for it.
    pub address: PinnedAddr,
    /// Held as long as the connection lives (section 15).
    pub slot: AddressSlot,
}

/// Tries the pinned addresses in order: each [`CONNECTION_ATTEMPT_DELAY`] after the one before, or as soon as that one
/// failed (T-1). The first connection wins and the others are dropped. `first` is the slot of the first address, for
/// which the caller waited; a further address without a free slot is skipped. This function has no deadline; the caller
/// sets one.
///
/// # Errors
///
/// The last failure, when all addresses failed; `ResourceBusy` when one of them was skipped. Nothing is resolved again
/// and no address is tried twice (D-6).
pub async fn race_addresses(
    dialer: &dyn Dialer,
    pinned: &[PinnedAddr],
    first: AddressSlot,
    limits: &FetchAdmission,
) -> io::Result<DialWinner> {
    let tenant = first.tenant().to_owned();
    let mut first = Some(first);
    let attempts: Vec<_> = pinned
        .iter()
        .map(|address| attempt_address(dialer, address, first.take(), (limits, &tenant)))
        .collect();
    race_attempts(attempts).await
}

/// Runs attempts in order: each [`CONNECTION_ATTEMPT_DELAY`] after the one before, or as soon as that one failed. The
/// first success wins and the others are dropped.
///
/// # Errors
///
/// Those of [`race_addresses`]; `AddrNotAvailable` without attempts.
async fn race_attempts<T, A>(attempts: Vec<A>) -> io::Result<T>
where
    A: Future<Output = io::Result<T>>,
{
    let mut waiting = attempts.into_iter();
    let mut running: FuturesUnordered<A> = FuturesUnordered::new();
    // The first attempt does not wait for the timer below: even an expired timer costs up to a millisecond, the
    // resolution of timers.
    running.extend(waiting.next());
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut next_at = Instant::now() + CONNECTION_ATTEMPT_DELAY;
    loop {
        tokio::select! {
            biased;
            // This branch is polled first (`biased`): an established connection wins before another SYN is sent.
            Some(attempt) = running.next(), if !running.is_empty() => match attempt {
                Ok(winner) => return Ok(winner),
                Err(error) => {
                    // A busy address counts for more than a later failure: the caller reports `overloaded` and not a
                    // failure of the target.
                    if failure.kind() != io::ErrorKind::ResourceBusy {
                        failure = error;
                    }
                    running.extend(waiting.next());
                    next_at = Instant::now() + CONNECTION_ATTEMPT_DELAY;
                }
            },
            () = sleep_until(next_at), if waiting.len() > 0 => {
                running.extend(waiting.next());
                next_at = Instant::now() + CONNECTION_ATTEMPT_DELAY;
            }
            else => return Err(failure),
        }
    }
}

async fn attempt_address(
    dialer: &dyn Dialer,
    address: &PinnedAddr,
    slot: Option<AddressSlot>,
    (limits, tenant): (&FetchAdmission, &str),
) -> io::Result<DialWinner> {
    let slot = slot
        // This does not wait, because a busy address must not hold up the next one.
        .or_else(|| limits.try_address(address.socket_addr().ip(), tenant))
        .ok_or(io::ErrorKind::ResourceBusy)?;
    Ok(DialWinner {
        stream: dialer.connect(address).await?,
        address: address.clone(),
        slot,
    })
}

#[cfg(test)]
mod tests;
