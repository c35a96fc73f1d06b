//! Accepts the connections of the gRPC endpoint and performs their handshakes. A peer that stalls in its handshake does
//! not block others.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dray_http_server::{ACCEPT_RETRY_DELAY, ConnectionLimits};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_util::either::Either;
use tokio_util::sync::PollSemaphore;

use super::connection::GrpcStream;
use super::security::GrpcSecurity;

/// Most handshakes in progress. One more ends the oldest, because most of so many are of peers that do not speak.
const MAX_PENDING_HANDSHAKES: usize = 256;

/// Accepts connections and performs the handshake of each.
#[derive(Debug)]
pub(super) struct HandshakeListener<L> {
    listener: L,
    security: Arc<GrpcSecurity>,
    /// Permits of the connections, also of those in their handshake.
    permits: PollSemaphore,
    /// Ended when the listener is dropped.
    handshakes: JoinSet<Option<GrpcStream>>,
    /// The handshakes in the order in which they began; some may have ended.
    begun: VecDeque<AbortHandle>,
    /// The wait after a connection that could not be accepted.
    retry_delay: Option<Pin<Box<Sleep>>>,
}

impl<L> HandshakeListener<L> {
    pub(super) fn new(listener: L, security: Arc<GrpcSecurity>) -> Self {
        let max_connections = ConnectionLimits::default().max_connections;
        Self {
            listener,
            security,
            permits: PollSemaphore::new(Arc::new(Semaphore::new(max_connections))),
            handshakes: JoinSet::new(),
            begun: VecDeque::new(),
            retry_delay: None,
        }
    }

    fn begin_handshake(
        &mut self,
        acceptor: TlsAcceptor,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
    ) {
        if self.begun.len() >= MAX_PENDING_HANDSHAKES {
            self.begun.retain(|handshake| !handshake.is_finished());
        }
        if self.begun.len() >= MAX_PENDING_HANDSHAKES
            && let Some(oldest) = self.begun.pop_front()
        {
            tracing::debug!("too many TLS handshakes on the gRPC endpoint; the oldest is ended");
            oldest.abort();
        }
        let timeout = self.security.handshake_timeout();
        let handshake = self.handshakes.spawn(async move {
            match tokio::time::timeout(timeout, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let transport = Either::Right(Box::new(stream));
                    Some(GrpcStream::new(transport, timeout, permit))
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake failed on the gRPC endpoint");
                    None
                }
                Err(_) => {
                    tracing::debug!("TLS handshake timed out on the gRPC endpoint");
                    None
                }
            }
        });
        self.begun.push_back(handshake);
    }
}

impl<L: Stream<Item = io::Result<TcpStream>> + Unpin> Stream for HandshakeListener<L> {
    type Item = io::Result<GrpcStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            // The handshakes that have finished come first, so that arriving connections cannot starve them.
            while let Poll::Ready(Some(ended)) = this.handshakes.poll_join_next(cx) {
                if let Ok(Some(stream)) = ended {
                    return Poll::Ready(Some(Ok(stream)));
                }
            }
            if let Some(delay) = &mut this.retry_delay {
                ready!(delay.as_mut().poll(cx));
                this.retry_delay = None;
            }
            // The permit is acquired first, so that connections above the limit wait in the backlog of the kernel,
            // without a descriptor.
            let Some(permit) = ready!(this.permits.poll_acquire(cx)) else {
                return Poll::Ready(None);
            };
            let stream = match ready!(Pin::new(&mut this.listener).poll_next(cx)) {
                Some(Ok(stream)) => stream,
                Some(Err(error)) => {
                    tracing::warn!(%error, "could not accept a connection of the gRPC endpoint");
                    // Without descriptors `accept` fails immediately, and the loop would spin.
                    this.retry_delay = Some(Box::pin(tokio::time::sleep(ACCEPT_RETRY_DELAY)));
                    continue;
                }
                None => return Poll::Ready(None),
            };
            let Some(config) = this.security.tls() else {
                let timeout = this.security.handshake_timeout();
                let stream = GrpcStream::new(Either::Left(stream), timeout, permit);
                return Poll::Ready(Some(Ok(stream)));
            };
            this.begin_handshake(config.into(), stream, permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::settings::GrpcSection;

    #[tokio::test(start_paused = true)]
    async fn a_listener_without_descriptors_is_polled_with_pauses() {
        let security = GrpcSecurity::load(&GrpcSection::default()).await.unwrap();
        let mut attempts = 0;
        // The stream ends after so many attempts that only a loop without pauses reaches its end soon.
        let failing = tokio_stream::iter(0..1_000).map(|_| {
            attempts += 1;
            Err::<TcpStream, _>(io::Error::other("too many open files"))
        });
        let mut listener = HandshakeListener::new(failing, security);
        let second = 10 * ACCEPT_RETRY_DELAY;
        assert!(tokio::time::timeout(second, listener.next()).await.is_err());
        drop(listener);
        assert!((1..=11).contains(&attempts), "{attempts}");
    }
}
