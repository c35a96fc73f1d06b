//! The server on the standard streams of its process.

use futures_util::future::BoxFuture;
use rmcp::ServiceExt as _;

use crate::McpServer;
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

/// Serves one client until it closes the standard input. Only messages of the protocol are written to the standard
/// output.
///
/// # Errors
///
/// [`StdioError`], except that a client that closes the input before its first request is not an error.
///
/// The future is boxed, so that the protocol is compiled here and not by the caller.
pub fn serve_stdio(server: McpServer) -> BoxFuture<'static, Result<(), StdioError>> {
    Box::pin(async move {
        // Without blocking reads where both are pipes: a read that blocks would keep the process alive after a signal.
        let (reader, writer) = rmcp::transport::stdio_pipes();
        let running = match server.serve(CheckedTransport::new(reader, writer)).await {
            Ok(running) => running,
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(StdioError::Begin(Box::new(error))),
        };
        running.waiting().await.map_err(StdioError::Failed)?;
        Ok(())
    })
}
