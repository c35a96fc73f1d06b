//! The wire contracts: generated protobuf types ([`v1`]), the subjects they travel on ([`contract`]), and
//! the conversions to and from `dray-types` ([`convert`]).
//!
//! Wire types stop at the edge: handlers work with `dray-types` and the plain fields of a request.
//! `cargo xtask generate` writes [`v1`] from `proto/dray/v1`; a test fails when the two differ.

pub mod contract;
pub mod convert;

pub use contract::{Audit, Call, Event, Work};

/// Types of package `dray.v1`, generated.
#[expect(
    missing_docs,
    clippy::pedantic,
    reason = "generated; the comments of the proto files are kept where the generator keeps them"
)]
pub mod v1 {
    include!("generated/dray.v1.rs");
}

/// The encoded `FileDescriptorSet` of every contract, for gRPC reflection and schema checks.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// Largest content that travels inside a message; anything above goes by claim (messaging-reliability K-1).
pub const INLINE_LIMIT: usize = 64 * 1024;

/// Largest message, payload and headers together, regardless of the server's limit (messaging-reliability E-3).
pub const MESSAGE_LIMIT: usize = 128 * 1024;
