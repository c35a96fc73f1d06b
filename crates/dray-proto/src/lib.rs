//! The wire contracts: generated protobuf types ([`v1`]), their subjects on the bus ([`contract`]), and
//! the conversions to and from `dray-types` ([`convert`]), between codes and their names ([`codes`]), and to JSON for
//! people ([`json`]).
//!
//! `cargo xtask generate` writes [`v1`] from `proto/dray/v1`; a test fails when the two differ.
//!
//! ```
//! use dray_proto::contract::{call_subject, event_subject, schema_name};
//! use dray_proto::v1;
//! use dray_types::TenantId;
//!
//! let tenant = TenantId::new("acme")?;
//! assert_eq!(call_subject::<v1::FetchRequest>(), "dray.egress.v1.fetch");
//! assert_eq!(event_subject::<v1::ToolCallRejected>(&tenant), "dray.event.toolcall.v1.rejected.acme");
//! assert_eq!(schema_name::<v1::ToolCallRequested>(), "dray.v1.ToolCallRequested/1");
//! # Ok::<(), dray_types::id::InvalidId>(())
//! ```

pub mod codes;
pub mod contract;
pub mod convert;
mod explanation;
pub mod export;
pub mod json;
mod listing;
pub mod queue;
pub mod tagged;

pub use codes::NamedCode;
pub use contract::{Audit, Call, Event, StreamingCall, Work};

/// Types of package `dray.v1`, generated.
#[expect(
    missing_docs,
    clippy::large_enum_variant,
    clippy::pedantic,
    reason = "generated; the generator copies only some comments of the proto files"
)]
pub mod v1 {
    include!("generated/dray.v1.rs");
}

/// The encoded `FileDescriptorSet` of every contract, for gRPC reflection and schema checks.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

/// Most bytes of content inside a message: the threshold of the claim check. Larger content is stored, and the message
/// carries a claim (messaging-reliability K-1). `cargo xtask generate` writes it into the clients too.
pub const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Most bytes of a message, payload and headers together, regardless of the server (messaging-reliability E-3).
pub const MAX_MESSAGE_BYTES: usize = 128 * 1024;
