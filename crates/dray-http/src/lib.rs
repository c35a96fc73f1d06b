//! An HTTP client for endpoints that configuration names: chat platforms, sandbox providers, models and tools.
//!
//! - [`HttpClient`]: one connection pool without redirects, proxies, cookies or environment; time limits by progress.
//! - [`RequestBuilder`]: bodies with an exact length, streamed, multipart included.
//! - [`HttpResponse`]: a bounded response or a stream.
//! - [`HttpError`]: the failure, and whether the peer may have received the complete request.
//! - [`ClientCredentials`]: requests an access token of OAuth 2.0 (RFC 6749 section 4.4).
//! - [`DestinationGuard`]: decides where a client of [`HttpClient::guarded`] may connect.
//! - `fake_server` (feature `fake-server`): a small HTTP server, for fake servers of platforms and providers.
//!
//! The client never connects to a URL from a model, a user or a document (the egress-fetcher does that), does not
//! follow redirects and never retries. Only a guarded client connects to a URL from a caller's manifest.
//!
//! ```no_run
//! use dray_http::{HttpClient, HttpTimeouts};
//!
//! # async fn post() -> Result<(), dray_http::HttpError> {
//! let client = HttpClient::new(HttpTimeouts::default(), None)?;
//! let response = client
//!     .post("https://chat.example.org/api/messages")
//!     .json(&serde_json::json!({ "text": "hello" }))
//!     .send(&|_| {})
//!     .await?;
//! if response.is_success() {
//!     println!("{}", response.text().await?);
//! }
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod client_credentials;
mod error;
mod exact_length;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod guard;
mod multipart;
mod request;
mod response;
mod sse;
#[cfg(test)]
mod tests;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

pub use address::{BASE_URL_RULE, parse_base_url, url_authority};
pub use client::{HttpClient, HttpSettings, HttpTimeouts, TrustedAuthorities};
pub use client_credentials::{AccessToken, ClientCredentials, TokenError};
pub use error::{FailureKind, HttpError, RequestProgress};
pub use exact_length::exact_length_stream;
pub use guard::DestinationGuard;
pub use multipart::MultipartForm;
pub use request::RequestBuilder;
/// Both directions of a connection after a response with status 101 (RFC 9110 15.2.2).
pub use reqwest::Upgraded;
/// The URL type of [`DestinationGuard`].
pub use reqwest::Url;
pub use response::HttpResponse;
pub use sse::{EventTooLong, SseDecoder, SseEvent};

/// The reason why a body or a destination failed; for the log, never for the peer.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The chunks of a body in order; readers stop at the first error.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, Cause>> + Send>>;
