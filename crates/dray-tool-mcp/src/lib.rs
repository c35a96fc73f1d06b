//! Servers of the Model Context Protocol as tools (quickapps 27, 28).
//!
//! - [`connect_all`]: the servers of one request, connected concurrently, as tools and issues.
//! - [`McpToolset`]: a server by address, one that DIAL knows, or an application of DIAL.
//! - [`McpOptions`]: what the operator decides: programs, headers that may go on, limits.
//! - [`ProgramPool`]: programs that run, each for one conversation.
//! - [`ToolsetDialPort`]: what is needed of DIAL.
//!
//! A session over HTTP belongs to one request and one server, and ends with the tools that use it. A session with a
//! program belongs to one conversation and ends when it was idle for a while. A call is made again only when the server
//! surely did nothing with the first one.
//!
//! What it does not do: it offers the server no sampling, roots or elicitation, and reads no prompts or resources.

mod connect;
mod credentials;
mod dial;
mod dial_url;
mod error;
mod options;
mod programs;
mod result;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod texts;
mod tool;
mod wire;

pub use connect::{McpToolset, connect_all, connect_set};
pub use dial::{DialCore, DialError, DialToolset, SignIn, ToolsetDialPort};
pub use options::{McpOptions, ProgramCommand};
pub use programs::ProgramPool;
