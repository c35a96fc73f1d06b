//! The server on the standard streams of its process.

use futures_util::future::BoxFuture;
use rmcp::ServiceExt as _;
use tokio::io::AsyncRead;

use crate::McpServer;
use crate::baselines::StdioServer;
use crate::checked_lines::CheckedTransport;

/// The streams ended before a client spoke the protocol, or the server failed.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The client did not open the protocol.
    #[error("the client did not begin the protocol")]
    Begin(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The task of the server panicked.
    #[error("the server failed")]
    Failed(#[source] tokio::task::JoinError),
}

/// Serves one client until it closes the standard input, which the caller opens as `input`. Only messages of the
/// protocol are written to the standard output.
///
/// A read of `input` must not block a task of the runtime, which would wait for it when it shuts down.
///
/// # Errors
///
/// [`StdioError`], except that a client that closes the input before its first request is not an error.
///
/// The future is boxed, so that the protocol is compiled here and not by the caller.
pub fn serve_stdio(
    server: McpServer,
    input: impl AsyncRead + Send + Unpin + 'static,
) -> BoxFuture<'static, Result<(), StdioError>> {
    Box::pin(async move {
        // Where both streams are pipes, writes do not block a thread.
        let (_, writer) = rmcp::transport::stdio_pipes();
        let server = StdioServer(server);
        let running = match server.serve(CheckedTransport::new(input, writer)).await {
            Ok(running) => running,
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(StdioError::Begin(Box::new(error))),
        };
        running.waiting().await.map_err(StdioError::Failed)?;
        Ok(())
    })
}
