//! What a tool of an agent is, whatever is behind it.
//!
//! - [`Tool`]: what the model is told, the rules of its calls, and the call itself.
//! - [`Turn`]: what one chat request offers to the calls made on its behalf.
//! - [`Storage`]: files of results and of arguments, kept where the client can fetch them.
//! - [`Resolve`]: arguments with references to files.
//! - [`Sink`] and [`Stage`]: what the client sees while it waits.
//! - [`Issue`]: why a tool of the manifest is not there.
//!
//! What it does not do: it knows no protocol. REST, DIAL and MCP are crates of their own, and the loop that calls the
//! model is the orchestrator's.

mod failure;
mod issue;
mod output;
mod resolve;
mod sink;
mod storage;
mod tool;
mod turn;

pub use failure::{Failed, Failure};
pub use issue::{Built, Issue};
pub use output::Output;
pub use resolve::Resolve;
pub use sink::{Gone, Sink, Stage};
pub use storage::{Storage, UrlClass};
pub use tool::{Call, Declaration, Rules, Style, Tool};
pub use turn::Turn;
