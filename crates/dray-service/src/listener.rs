//! A listening socket whose connections send small responses immediately (`TCP_NODELAY`).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Stream;

/// Accepts TCP connections with Nagle's algorithm off (`TCP_NODELAY`, RFC 9293 section 3.7.4).
///
/// HTTP/2 writes the head, the body and the trailers of a response as separate frames. With Nagle's algorithm the
/// second frame waits for the acknowledgement of the first, which Linux delays by 40 ms. Every listener of a service
/// is one of these; it works with `axum::serve` and, as a stream, with tonic.
#[derive(Debug)]
pub struct NoDelayListener {
    listener: TcpListener,
}

impl NoDelayListener {
    /// Takes over a listener that is bound already.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener }
    }
}

impl axum::serve::Listener for NoDelayListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        let (stream, peer) = axum::serve::Listener::accept(&mut self.listener).await;
        (without_delay(stream), peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Stream for NoDelayListener {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = ready!(self.listener.poll_accept(cx));
        Poll::Ready(Some(accepted.map(|(stream, _)| without_delay(stream))))
    }
}

/// Turns Nagle's algorithm off. A connection that the peer has already reset refuses the option; its first read
/// reports the reset.
fn without_delay(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY on a connection");
    }
    stream
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;

    async fn listening() -> (NoDelayListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a listener of this test")]
        let client = TcpStream::connect(address).await.unwrap();
        (NoDelayListener::new(listener), client)
    }

    #[tokio::test]
    async fn connections_for_axum_have_no_delay() {
        let (mut listener, _client) = listening().await;
        let (stream, _) = axum::serve::Listener::accept(&mut listener).await;
        assert!(stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn connections_for_tonic_have_no_delay() {
        let (mut listener, _client) = listening().await;
        let stream = listener.next().await.unwrap().unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
