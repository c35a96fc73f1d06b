//! Drayage as a server of the Model Context Protocol: agents read, fetch, list, move and send files through tools, and
//! the bytes of files stay out of the model.
//!
//! [`McpServer`] translates tools, resources and prompts into the calls of `proto/dray/v1` on the bus, and moves
//! content through the artifact store. It serves both eras of the protocol: 2025-11-25 with sessions, and 2026-07-28
//! without `initialize`. [`serve_stdio`] connects it with the standard streams, [`HttpEndpoint`] with streamable HTTP.
//!
//! Arguments never determine the permissions of a caller. At its start, the server fixes the tenant and the session
//! ([`ServiceClient`]), the directory of this machine ([`LocalRoot`]), and the tools with effects ([`ServerOptions`]).
//! Over HTTP the token of a request can select another tenant and session, and restrict the permissions
//! ([`AuthOptions`]).
//!
//! [`install::install`] writes the entry of this server into the configuration of a client, or removes it;
//! [`install::bundle`] builds an `.mcpb` file, and [`install::registry`] the `server.json` of the registry.
//!
//! ```
//! use dray_mcp::{Permissions, ServerOptions, ToolName};
//!
//! let options = ServerOptions {
//!     permissions: Permissions { write: true, send: false },
//!     ..ServerOptions::default()
//! };
//! assert!(options.offers(ToolName::Put));
//! assert!(!options.offers(ToolName::SendFile));
//! ```
//!
//! What it does not do: implement services, store files, decide which address may be fetched, or serve the URLs of
//! tickets.

mod accept;
mod arguments;
mod auth;
mod baselines;
mod budget;
mod catalog;
mod checked_lines;
mod client;
mod complete;
mod confirm;
mod content;
mod cors;
mod failure;
mod host_questions;
mod http;
mod input;
pub mod install;
mod local;
mod location;
mod message_check;
mod open_requests;
mod options;
mod progress;
mod prompts;
mod resources;
mod server;
mod sessions;
mod skills;
mod stdio;
mod subscriptions;
mod tasks;
mod tools;
mod transfer;
mod transfer_tasks;

pub use auth::{
    AuthFileError, AuthOptions, BearerToken, Caller, DuplicateToken, InvalidToken, KeyLocation,
    OAuthOptions, Scope, ScopeSet, StaticToken, UnknownScope,
};
pub use client::{ServiceClient, declare_approvals, declare_calls};
pub use confirm::OfferedChat;
pub use http::{HttpEndpoint, HttpError, HttpOptions};
pub use input::{InputAnswer, InputError, InputGate, InputQuestion, InputRound};
pub use local::{LocalRoot, RootError};
pub use options::{FileLimits, Permissions, ServerOptions, TicketAccess, ToolName, UnknownTool};
pub use server::{McpServer, ServerStarter};
pub use stdio::{StdioError, serve_stdio};
