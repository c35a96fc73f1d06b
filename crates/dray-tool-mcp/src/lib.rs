//! Servers of the Model Context Protocol as tools (quickapps 27, 28).
//!
//! - [`connect_all`]: the servers of one request, connected concurrently, as tools and issues.
//! - [`McpToolset`]: a server by address, one that DIAL knows, or an application of DIAL.
//! - [`McpOptions`]: the operator's settings: programs, headers that may be forwarded, limits.
//! - [`ProgramPool`]: running programs, each for one conversation.
//! - [`LegacyServers`]: servers that are known to speak no version of MCP after 2025-11-25.
//!
//! A session over HTTP belongs to one request and one server, and ends with the tools that use it. A session with a
//! program belongs to one conversation and ends when it was idle for a while. A call is repeated only when the server
//! certainly did nothing with the first one.
//!
//! - [`QuestionPort`], [`SignInPort`], [`SignInKeeper`]: how users are asked during a call, and how they sign in to a
//!   server.
//!
//! What it does not do: it offers the server no sampling and no roots, and it shows nothing to users itself.
//!
//! ```
//! use std::time::Duration;
//!
//! use dray_tool_mcp::ProgramPool;
//!
//! let programs = ProgramPool::new(Duration::from_secs(300), 32);
//! assert!(!programs.is_running("conversation of a user"));
//! ```

mod calls;
mod connect;
mod credentials;
mod declaration;
mod dial_url;
mod error;
mod features;
mod handler;
mod input;
mod legacy_servers;
mod oauth;
mod options;
mod prepare;
mod programs;
mod questions;
mod result;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod texts;
mod tool;
mod wire;

pub use connect::{McpToolset, connect_all, connect_set};
pub use legacy_servers::LegacyServers;
pub use oauth::{
    CallbackRefusal, ConfirmedSignIn, IssuerTrust, OAuthOptions, PendingSignIn,
    RENEWAL_LEASE_LIFETIME, RenewalLease, SignInKeeper, SignInOwner, SignInPage, SignInPort,
    SignInStoreError, SignIns, WorkloadToken,
};
pub use options::{McpOptions, ProgramCommand};
pub use programs::ProgramPool;
pub use questions::QuestionPort;
