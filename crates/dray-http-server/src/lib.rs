//! Serves HTTP/1.1 connections with limits. Every HTTP listener of the project is served here.
//!
//! A peer that sends its request byte by byte ("slow loris") could use a connection forever unless the server sets a
//! timeout for the request head and for each wait in the body. So could a peer that does not read its responses, unless
//! the kernel ends it. [`serve`] sets them, limits the number of connections, and turns Nagle's algorithm off, so that
//! small responses are sent immediately. The protocol is RFC 9112.
//!
//! [`ByteLimit`] limits the bytes that requests hold in memory together. Services take them for the bodies that they
//! read, and [`serve`] for large heads.
//!
//! Helpers for the responses of several listeners are here too: [`attachment_disposition`] and its variants write the
//! name of a file into a header, [`escape_html`] escapes text for a page, [`preflight_headers`] answers browsers that ask
//! for a page of another origin.
//!
//! It does not terminate TLS, does not support HTTP/2, and has no routes: the service interprets requests. It has no
//! timeout for handlers.
//!
//! ```
//! use axum::{Router, routing::get};
//! use dray_http_server::{ConnectionLimits, serve};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let router = Router::new().route("/live", get(async || "ok"));
//! let stop = CancellationToken::new();
//! # stop.cancel();
//! serve(listener, router, ConnectionLimits::default(), stop).await;
//! # Ok(())
//! # }
//! ```

mod body;
mod byte_limit;
mod connections;
mod cors;
mod disposition;
mod head;
mod html;
mod path;
#[cfg(test)]
mod tests;

pub use body::{BodyError, RequestBody, body_failure_status};
pub use byte_limit::{ByteLimit, BytePermit};
pub use connections::{ACCEPT_RETRY_DELAY, ConnectionLimits, DrainOutcome, serve};
pub use cors::{is_preflight, preflight_headers};
pub use disposition::{attachment_disposition, extended_attachment, inline_disposition};
pub use html::escape_html;
pub use path::{TextPaths, with_text_paths};
