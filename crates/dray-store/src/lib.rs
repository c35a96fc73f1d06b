//! The artifact store: content addressing (finished content is named by its SHA-256) behind the S3 API.
//!
//! It streams uploads and downloads, checks their length and digest, creates presigned URLs and removes expired
//! objects. Every object belongs to one tenant; two tenants never share an object. [`embedded`] is an S3 endpoint
//! inside this process for the one-machine mode, which the same client uses.
//!
//! What it does not do: it makes no access decision beyond the tenant, keeps no index, and returns a URL only from the
//! call that requests it.
//!
//! ```no_run
//! # async fn example(options: dray_store::StoreOptions) -> Result<(), Box<dyn std::error::Error>> {
//! use dray_store::{ArtifactLabel, Store};
//! use dray_types::{Clock, Deadline, OperationId, TenantId};
//!
//! let clock = Clock::system();
//! let store = Store::open(&options, clock.clone()).await?;
//! let tenant = TenantId::new("acme")?;
//! let mut writer = store.writer(&tenant, &OperationId::mint(), 1);
//! writer.write("some bytes".into()).await?;
//! let claim = writer.finish(ArtifactLabel::new("text/plain", "note.txt")).await?;
//!
//! let deadline = Deadline::after(clock.now_ms(), std::time::Duration::from_secs(30));
//! let mut reader = store.read(&tenant, &claim, deadline).await?;
//! while let Some(bytes) = reader.next().await? {
//!     drop(bytes);
//! }
//! # Ok(())
//! # }
//! ```

mod cache;
mod checksum;
mod chunks;
mod client;
mod commit;
mod credentials;
mod derived_keys;
pub mod embedded;
mod error;
mod finished;
mod link;
mod object;
mod options;
mod origin;
mod policy;
mod reader;
mod request;
mod self_test;
mod server_clock;
mod staged;
mod store;
mod sweep;
mod upload;
mod web_links;
mod writer;

#[cfg(test)]
mod tests;

pub use cache::{CachedObject, cache_key};
pub use credentials::StoreCredentials;
pub use derived_keys::DerivedKeys;
pub use error::{ConfirmError, OpenError, PresignError, PutError, ReadError};
pub use finished::{FinishedObject, FinishedPage, MAX_PAGE_OBJECTS};
pub use link::{MAX_LIFETIME, MIN_LIFETIME, PresignedLink};
pub use options::{OptionProblem, StoreOptions};
pub use origin::{ContentOrigins, MAX_ORIGINS, WebOrigin};
pub use policy::StoreAccess;
pub use reader::ArtifactReader;
pub use request::RequestError;
pub use server_clock::clock_skew;
pub use staged::{MAX_SEGMENT_BYTES, StagedSegment};
pub use store::{ArtifactLabel, Store};
pub use sweep::SweepReport;
pub use upload::by_parts::{AssembledUpload, PartedUpload, PresignedPart, SentPart};
pub use upload::{ExpectedUpload, UploadTicket};
pub use web_links::WebLinkOutcome;
pub use writer::ArtifactWriter;

/// Largest object in bytes: 10,000 parts of [`PART_BYTES`], the most parts that S3 allows.
pub const MAX_OBJECT: u64 = 10_000 * PART_BYTES as u64;

/// Most bytes of one presigned `PUT` (S3 allows 5 GiB in one request).
pub const MAX_SINGLE_PUT_BYTES: u64 = 5 << 30;

/// Bytes of one part of a multipart upload: the smallest that S3 allows, so that one part in transit and the next one
/// being filled stay within [`MAX_TRANSFER_BYTES`].
pub const PART_BYTES: usize = 5 << 20;

/// Most bytes that a transfer holds in memory (architecture, invariant 4).
pub const MAX_TRANSFER_BYTES: usize = 8 << 20;
