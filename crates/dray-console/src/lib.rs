//! The console: one web page over a running system. It shows deliveries and what is certain about them, the course of
//! every operation, dead letters, what the policy decides about a URL, events as they happen, sandboxes, and the health
//! of the system.
//!
//! [`ConsoleServer`] binds an address and serves the pages; [`ConsoleSystem`] has what they show: the bus, the store
//! and one tenant. Data comes from the calls and streams that every client of the bus may use, and chats go through the
//! orchestrator's public API, so the console needs no private path into a service. A [`LoginLink`] is the single-use
//! URL with which a person logs in, and [`OidcSettings`] name an identity provider through which people log in without
//! a link (OpenID Connect).
//!
//! ```
//! use dray_console::{ConsoleRole, LoginLink};
//! use dray_types::{Clock, TenantId};
//!
//! let link = LoginLink::new(&TenantId::default(), ConsoleRole::Look, Clock::system().now_ms());
//! let url = link.url("http://127.0.0.1:7300", &[7; 32]);
//! assert!(url.starts_with("http://127.0.0.1:7300/login?token=look."));
//! ```
//!
//! What it does not do: keep anything beyond its process (sessions, conversations and the index of events are in
//! memory), show a second tenant, or write to a service without an audit event.

mod audit;
mod calls;
mod compression;
mod cookie;
mod deliveries;
mod files;
mod form;
mod guard;
mod health;
mod index;
mod letters;
mod link;
mod live;
mod login;
mod oidc;
mod operation;
mod page;
mod pager;
mod playground;
mod policy;
mod previews;
mod questions;
mod replay;
mod replica_policies;
mod respond;
mod rights;
mod rules_in_force;
mod sandbox_files;
mod sandboxes;
mod sending;
mod server;
mod session;
mod settings;
mod setup;
mod state;
mod streams;
#[cfg(test)]
mod tests;
mod text;
mod turns;
mod upload;

pub use link::{LINK_KEY_PURPOSE, LINK_LIFETIME, LoginLink};
pub use oidc::{OidcProblem, OidcSettings};
pub use rights::{declare_acting, declare_looking};
pub use rules_in_force::{BucketPolicy, PolicyBucketReader};
pub use server::{ConsoleError, ConsoleServer};
pub use settings::{AgentEndpoint, ConfigValue, ConsoleRole, ConsoleSettings, ConsoleSystem};
