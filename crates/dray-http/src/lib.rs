//! An HTTP client for endpoints that configuration names: chat platforms and sandbox providers.
//!
//! - [`HttpClient`]: one connection pool without redirects, proxies, cookies or environment; time limits by progress.
//! - [`RequestBuilder`]: bodies with an exact length, streamed, multipart included.
//! - [`HttpResponse`]: a bounded answer or a stream.
//! - [`HttpError`]: what failed, and whether the peer may have got the whole request.
//! - [`DestinationGuard`]: decides where a client of [`HttpClient::guarded`] may connect.
//! - `double` (feature `double`): the other end, for doubles of platforms and providers.
//!
//! What it does not do: it never dials what a model, a user or a document chose (the egress-fetcher does), follows
//! no redirect and tries nothing twice. What a caller's manifest chose is dialled by a guarded client alone.

mod address;
mod answer;
mod client;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod error;
mod exactly;
mod guard;
mod multipart;
mod request;
#[cfg(test)]
mod tests;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

pub use address::url_authority;
pub use answer::HttpResponse;
pub use client::{HttpClient, HttpTimeouts};
pub use error::{FailureKind, HttpError, RequestProgress};
pub use exactly::exact_length_stream;
pub use guard::DestinationGuard;
pub use multipart::MultipartForm;
pub use request::RequestBuilder;
/// Both directions of a connection after an answer with status 101.
pub use reqwest::Upgraded;
/// The URL type of [`DestinationGuard`].
pub use reqwest::Url;

/// Cause of a failing body.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Bytes on their way.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, Cause>> + Send>>;
