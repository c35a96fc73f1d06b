//! The words every other crate speaks: ids, sizes, digests, deadlines, artifacts, file references,
//! redacted URLs and faults.
//!
//! Pure values: no async runtime, no NATS, no protobuf, no I/O. What is checked here once is carried in the
//! type and never checked again.

pub mod artifact;
pub mod clock;
pub mod deadline;
pub mod digest;
pub mod fault;
pub mod id;
pub mod invisible;
pub mod period;
pub mod redact;
pub mod reference;
mod schema;
pub mod size;
pub mod trace;

pub use artifact::{Artifact, Claim};
pub use clock::Clock;
pub use deadline::Deadline;
pub use digest::Sha256Digest;
pub use fault::{Fault, FaultCode, RetryAdvice};
pub use id::{AppId, OperationId, SessionId, TenantId};
pub use period::Period;
pub use redact::{RedactedUrl, Secret};
pub use reference::FileReference;
pub use size::ByteSize;
pub use trace::TraceContext;
