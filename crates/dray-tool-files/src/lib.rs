//! Tools by which an agent reads, sends, lists and fetches files, and the files of one turn (quickapps 25.3, 30, 32,
//! 43).
//!
//! The crate calls the other services over the bus: the file-resolver for references and documents, the egress-fetcher
//! for web addresses, sandbox-transfer for files of sandboxes, and platform-delivery for files to users.
//!
//! - [`FileServices`]: the services that all turns share.
//! - [`TurnFiles`]: the parts of one turn, on behalf of one caller: its scope, its session, the catalog of the
//!   conversation, storage, loading, delivery.
//! - [`tools`]: the tools for the model.
//! - [`dial_files`]: tools for the files of DIAL.
//! - [`uploads`], [`context`]: files that a person sends; [`catalog`]: their ids.
//! - [`media`]: `MEDIA:` tags in the final response.
//! - `outgoing`: delivery of files to the user, and `sent_files`, which are not sent twice in a turn.
//! - `export`, `fetched`, `loader`: files of sandboxes, of the web, and for references.
//! - `argument_links`, `resolve`: ids of files and references in arguments of other tools.
//! - [`offload`]: large results of tools.
//! - `name_key`: names of stored files, bound to their conversation.
//!
//! What it does not do: it never puts file content above `dray_proto::MAX_INLINE_BYTES` into a bus message, and never
//! connects to an address from an agent.
//!
//! ```
//! use dray_dial::decode_data_url;
//! use dray_tool_files::data::refused_data_sentence;
//!
//! let refusal = decode_data_url("data:text/csv;base64,YSxi", 2).unwrap_err();
//! let sentence = refused_data_sentence(refusal, "url", 2);
//! assert!(sentence.contains("3 bytes, over the 2-byte file size limit"));
//! ```

mod argument_links;
mod ask;
pub mod catalog;
pub mod config;
pub mod context;
pub mod data;
pub mod dial_files;
pub mod drive;
mod export;
mod fetched;
pub mod inline;
mod loader;
pub mod media;
mod name_key;
pub mod offload;
mod outgoing;
mod resolve;
mod scope;
mod sent_files;
mod services;
mod session;
mod single_flight;
mod storage;
mod stored_names;
#[cfg(test)]
mod tests;
pub mod tools;
mod turn;
pub mod uploads;
mod url_class;

pub use ask::{CallFailure, PeerService};
pub use config::Config;
pub use outgoing::FileDelivery;
pub use resolve::ReferenceResolver;
pub use scope::TurnScope;
pub use sent_files::DeliveredFiles;
pub use services::FileServices;
pub use session::SessionBinding;
pub use storage::{TurnStorage, clean_name};
pub use turn::{TurnFiles, TurnStart};
