//! Files for an agent with any model and any tools (issue: file tools; quickapps 25.3, 30, 32, 43).
//!
//! Everything is asked of the other services over the bus: references of the file-resolver, addresses of the web of the
//! egress-fetcher, documents of its reader, files of sandboxes of sandbox-transfer, and what a person is to see of
//! platform-delivery. No file travels in a message, and nothing here dials an address that an agent chose.
//!
//! - [`FileServices`]: what all turns share.
//! - [`TurnFiles`]: what one turn may do, on behalf of one caller; resolves references and keeps files.
//! - [`tools`]: what the model can call.
//! - [`dial_files`]: tools over the files of DIAL.
//! - [`uploads`], [`context`]: a person's files on their way in.
//! - [`media`]: tags of the final answer on their way out.
//! - [`offload`]: large results of tools.
//! - `name_key`: names of stored files, bound to the conversation that brought them.

mod ask;
pub mod config;
pub mod context;
pub mod data;
pub mod dial_files;
pub mod drive;
mod fetched;
pub mod inline;
pub mod media;
mod name_key;
mod named;
pub mod offload;
mod once;
mod outgoing;
mod resolve;
mod services;
mod storage;
#[cfg(test)]
mod tests;
pub mod tools;
mod turn;
pub mod uploads;

pub use ask::CallFailure;
pub use config::Config;
pub use services::FileServices;
pub use turn::{TurnFiles, TurnStart};
