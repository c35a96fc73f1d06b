//! The listener of the proxy: accepts clients, limits their number, and drains connections at the end.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::metrics::UNKNOWN_PROTOCOL;

/// Time after which unacknowledged bytes end the connection of a client.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which mostly means that the process has no descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Most connections that wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`).
const ACCEPT_BACKLOG: u32 = 4096;
/// Time for the last audit events of connections that were cut.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Share of the unidentified clients that one address may have.
const ADDRESS_SHARE: usize = 4;

/// A proxy that accepts clients.
#[derive(Debug)]
pub struct RunningProxy {
    address: SocketAddr,
    proxy: Arc<ForwardProxy>,
    /// Ends the accept loop.
    stop: CancellationToken,
    /// Drops connections that are not open yet.
    abort: CancellationToken,
    tasks: TaskTracker,
}

impl RunningProxy {
    /// Binds the address and begins to accept.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    pub fn start(proxy: ForwardProxy) -> io::Result<Self> {
        let listener = listen_on(proxy.settings().listen)?;
        let running = Self {
            address: listener.local_addr()?,
            proxy: Arc::new(proxy),
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let accepting = AcceptLoop {
            clients: UnidentifiedClients::new(running.proxy.settings().max_unidentified),
            proxy: Arc::clone(&running.proxy),
            tasks: running.tasks.clone(),
            stop: running.stop.clone(),
            abort: running.abort.clone(),
        };
        running.tasks.spawn(accepting.run(listener));
        Ok(running)
    }

    /// Address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its clients share.
    pub const fn proxy(&self) -> &Arc<ForwardProxy> {
        &self.proxy
    }

    /// Accepts no more, lets open connections end for the drain time, then cuts them. Each gets its audit event.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.proxy.drain();
        self.tasks.close();
        let drain = self.proxy.settings().drain_timeout;
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::info!(
            connections = self.tasks.len(),
            "cutting connections of the proxy that are still open"
        );
        self.proxy.cut();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.wait())
            .await
            .is_err()
        {
            self.abort.cancel();
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.wait()).await;
        }
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        // Closes the listener of a service that was not stopped in order.
        self.stop.cancel();
        self.abort.cancel();
    }
}

/// Listens with a backlog for many clients that come together.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Connections of a process that ended do not keep the address from the next one, as with `TcpListener::bind`.
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit both (Linux), which saves two system calls for each client.
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)
}

/// State that accepting connections needs.
struct AcceptLoop {
    clients: UnidentifiedClients,
    proxy: Arc<ForwardProxy>,
    tasks: TaskTracker,
    stop: CancellationToken,
    abort: CancellationToken,
}

impl AcceptLoop {
    async fn run(self, listener: TcpListener) {
        let sizes = self.proxy.settings().sizes;
        // Clients that are served, that wait, and that have not sent a token. Further clients wait in the backlog of
        // the kernel.
        let max_connections = sizes.global + sizes.queue + self.proxy.settings().max_unidentified;
        let permits = Arc::new(Semaphore::new(max_connections));
        let accepting = async {
            loop {
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, peer)) => self.accepted(stream, peer.ip(), permit),
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a client of the proxy");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        };
        self.stop.run_until_cancelled(accepting).await;
    }

    fn accepted(&self, stream: TcpStream, peer: IpAddr, permit: tokio::sync::OwnedSemaphorePermit) {
        let Some(place) = self.clients.enter(peer.to_canonical()) else {
            let refusal = ProxyRefusal::TooManyUnidentified;
            self.proxy
                .metrics()
                .refused(UNKNOWN_PROTOCOL, refusal.code());
            // The connection is closed without a response, because writing to a flooding client would cost more than
            // the client spends.
            return;
        };
        let (proxy, abort) = (Arc::clone(&self.proxy), self.abort.clone());
        self.tasks.spawn(async move {
            let _permit = permit;
            abort
                .run_until_cancelled(proxy.serve_accepted(stream, place))
                .await;
        });
    }
}

/// Counts clients that have not shown a token, in all and by address. An address does not identify a client, but one
/// client must not take the places of all.
#[derive(Clone, Debug)]
pub(super) struct UnidentifiedClients {
    most: usize,
    counts: Arc<Mutex<ClientCounts>>,
}

/// Clients that have not shown a token.
#[derive(Debug, Default)]
struct ClientCounts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl UnidentifiedClients {
    fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    /// A place for a client at `address`; `None` when there are too many.
    fn enter(&self, address: IpAddr) -> Option<UnidentifiedPermit> {
        let mut counts = self.lock();
        let count = counts.by_address.get(&address).copied().unwrap_or_default();
        if counts.all >= self.most || count >= self.most.div_ceil(ADDRESS_SHARE) {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, count + 1);
        Some(UnidentifiedPermit {
            clients: self.clone(),
            address,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ClientCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a client; given back when it is dropped.
#[derive(Debug)]
pub struct UnidentifiedPermit {
    clients: UnidentifiedClients,
    address: IpAddr,
}

impl Drop for UnidentifiedPermit {
    fn drop(&mut self) {
        let mut counts = self.clients.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_clients_have_the_options_of_the_listener() {
        let listener = listen_on("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(accepted.nodelay().unwrap());
        let timeout = SockRef::from(&accepted).tcp_user_timeout().unwrap();
        assert_eq!(timeout, Some(USER_TIMEOUT));
    }

    #[test]
    fn one_address_occupies_at_most_a_quarter_of_the_places_and_returns_them() {
        let clients = UnidentifiedClients::new(8);
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let places: Vec<_> = (0..2).map(|_| clients.enter(one).unwrap()).collect();
        assert!(clients.enter(one).is_none());
        let others: Vec<_> = (2..5_u8)
            .flat_map(|last| [last; 2])
            .map(|last| clients.enter(IpAddr::from([10, 0, 0, last])).unwrap())
            .collect();
        assert!(clients.enter(IpAddr::from([10, 0, 0, 9])).is_none());
        drop((places, others));
        assert_eq!(clients.lock().all, 0);
        assert!(clients.lock().by_address.is_empty());
        assert!(clients.enter(one).is_some());
    }
}
