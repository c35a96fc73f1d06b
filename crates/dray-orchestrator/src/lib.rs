//! The orchestrator: turns a chat completion into a loop of model and tools (quickapps).
//!
//! - [`http`]: the surface: requests in, chunks out.
//! - [`manifests`]: manifests, and layers of templates in directories.
//! - `turn`: one request from its manifest to its ending.
//! - [`permissions`]: callers, and what they may use.
//! - `internal`: tools of its own.
//! - `approvals`: calls that wait for a person, and questions of tools. `sign_ins`: logins of users at MCP servers.
//! - `records`: state between requests: `responses` and conversations, the `progress` of responses, `client_files` and
//!   `client_uploads`, and what `budgets` count.
//! - `turn_events`: events about turns and their calls, on the bus.
//! - [`config`], [`metrics`]: the service around it.
//!
//! What it does not do: it reads no file into a message and dials no address that a model chose. Addresses in manifests
//! of callers are connected to only where the operator allows it.
//!
//! ```
//! use dray_orchestrator::config::permissions::ManifestPermissions;
//! use dray_orchestrator::permissions::DestinationPolicy;
//!
//! let permissions = ManifestPermissions {
//!     hosts: vec!["*.example.org".to_owned()],
//!     ..ManifestPermissions::default()
//! };
//! let policy = DestinationPolicy::new(&permissions).unwrap();
//! assert!(policy.check("https://files.example.org/mcp").is_ok());
//! assert!(policy.check("http://127.0.0.1:8080/mcp").is_err());
//! ```

mod approvals;
mod budgets;
mod client_files;
mod client_uploads;
pub mod config;
pub mod http;
mod internal;
pub mod manifests;
pub mod metrics;
pub mod permissions;
mod progress;
mod records;
mod responses;
mod service;
mod sign_ins;
mod turn;
mod turn_events;

pub use config::Config;
pub use service::Orchestrator;
