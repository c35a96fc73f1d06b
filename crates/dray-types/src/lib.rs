//! The values that all other crates share: ids, sizes, digests, deadlines, artifacts, file references, redacted URLs
//! and faults.
//!
//! Main types: [`Fault`] for every failure that leaves a service, [`Artifact`] and [`Claim`] for stored bytes,
//! [`TenantId`] and [`OperationId`] for the owner and identity of work, [`Deadline`] and [`Clock`] for time, [`Secret`]
//! and [`RedactedUrl`] for values that logs must not show completely, [`ByteSize`], [`Period`] and [`FileSetting`] for
//! configuration, [`whole_millis`] for durations on the wire, [`ErrorChain`] for an error with its causes in a log,
//! [`file_lock`] for a file that several processes write, [`reload`] for settings that change while a process runs,
//! [`UnreachableCause`] for a connection that fails, [`terminal`] and [`invisible`] for text of other parties,
//! [`json_values`] for the size of a JSON text before it is parsed.
//!
//! Pure values: no async runtime, no NATS, no protobuf, and no I/O except the clock, the lock and files that settings
//! name. What is checked here once is carried in the type and never checked again. Wire forms are in `dray-proto`.
//!
//! ```
//! use dray_types::{ByteSize, Period, RedactedUrl, Secret};
//!
//! assert_eq!("25MiB".parse::<ByteSize>()?, ByteSize::mib(25));
//! assert_eq!("1h30m".parse::<Period>()?, Period::secs(5400));
//! let shown = RedactedUrl::from_text("https://user:pw@files.example.org/a.pdf?signature=x");
//! assert_eq!(shown.as_str(), "https://files.example.org/a.pdf");
//! assert_eq!(Secret::new("hunter2").to_string(), "***");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod artifact;
pub mod clock;
pub mod deadline;
pub mod digest;
pub mod error_chain;
pub mod fault;
pub mod file_lock;
mod file_setting;
pub mod hex;
pub mod id;
pub mod invisible;
pub mod json_values;
pub mod kind;
pub mod period;
pub mod redact;
pub mod reference;
pub mod reload;
mod schema;
pub mod size;
pub mod terminal;
pub mod trace;
pub mod unreachable;

pub use artifact::{Artifact, Claim};
pub use clock::{Clock, TimeMark};
pub use deadline::Deadline;
pub use digest::Sha256Digest;
pub use error_chain::ErrorChain;
pub use fault::{Fault, FaultCode, RetryAdvice};
pub use file_setting::FileSetting;
pub use id::{AppId, OperationId, SessionId, TenantId};
pub use kind::{BackendKind, PlatformKind};
pub use period::{Period, whole_millis};
pub use redact::{RedactedUrl, Secret, toml_problem};
pub use reference::FileReference;
pub use size::ByteSize;
pub use trace::TraceContext;
pub use unreachable::UnreachableCause;
