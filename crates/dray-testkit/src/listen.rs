//! The accept loop that all servers of this crate share.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A listener with its connections. All of them end when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl ConnectionServer {
    /// Listens on `address`, and serves each connection in a separate task.
    pub(crate) async fn start<F, Fut, E>(address: SocketAddr, serve: F) -> io::Result<Self>
    where
        F: Fn(TcpStream) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Debug + 'static,
    {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // Tasks that have ended stay in the set until they are joined. Dropping the set ends the open
                // connections.
                while connections.try_join_next().is_some() {}
                // Heads and chunks are small writes, which Nagle's algorithm would delay.
                let _ = stream.set_nodelay(true);
                let serving = serve(stream);
                connections.spawn(async move {
                    if let Err(error) = serving.await {
                        // Errors are ignored, because many tests break connections.
                        tracing::debug!(?error, "a connection to a fake server ended early");
                    }
                });
            }
        });
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    /// Address on which it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves HTTP/1 on one connection. An error of `respond` breaks the connection.
pub(crate) async fn serve_http<F, Fut, B, E>(stream: TcpStream, respond: F) -> hyper::Result<()>
where
    F: Fn(Request<Incoming>) -> Fut,
    Fut: Future<Output = Result<Response<B>, E>>,
    B: Body + 'static,
    B::Error: std::error::Error + Send + Sync,
    E: std::error::Error + Send + Sync + 'static,
{
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(respond))
        .await
}
