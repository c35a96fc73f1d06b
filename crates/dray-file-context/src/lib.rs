//! The files of a conversation, as they are presented to a model.
//!
//! A person attaches files to messages. This crate decides which files the model gets, with which name and id, and
//! writes their description. It finds a file by its id in later turns, plans which files are read, records the results
//! of reading, and replaces ids by URLs in the arguments of other tools.
//!
//! All functions are pure: they open no file, read no clock and do not wait. For signing, reading and writing, this
//! crate returns a plan, the caller carries the plan out, and this crate assembles the results.
//!
//! ```
//! use dray_file_context::{ContextBuilder, ContextRequest};
//!
//! let request: ContextRequest = serde_json::from_str(r#"{
//!     "userMessage": {"obj": "Human", "dataId": "q1", "value": [
//!         {"file": {"type": "file", "name": "plan.pdf", "url": "https://files.example/plan.pdf"}}
//!     ]},
//!     "question": "What is the plan?",
//!     "responseChatItemId": "a1"
//! }"#).unwrap();
//! let built = ContextBuilder::build(&request).unwrap();
//! assert_eq!(built.current_files[0].id, "a1-0");
//! assert!(built.current_user_message.text().contains("<id>a1-0</id>"));
//! ```

mod address;
mod built;
mod catalog;
mod clock;
mod collect;
mod context;
mod dataset;
mod escape;
mod generation;
mod identity;
mod kind;
mod legacy;
pub mod limits;
mod model;
mod name;
pub mod read;
mod reminder;
pub mod renew;
mod request;
pub mod sandbox;
pub mod substitute;
#[cfg(test)]
mod tests;
mod window;

pub use address::{UrlNormaliser, is_absolute_http};
pub use built::{BuiltContext, ExcludedFile, ExclusionReason, FileWarning};
pub use catalog::{AnyTarget, CatalogEntry, DocumentTarget, FileCatalog, FileTurn};
pub use clock::{LocalTime, UnknownZone};
pub use context::{BuildError, ContextBuilder};
pub use dataset::{DatasetCache, DatasetSelection, StoredDataset};
pub use generation::{ContractGeneration, ReminderLayout, UnknownName};
pub use model::{
    AgentInputFile, ChatItem, FilePart, FileType, MessageAttachment, MessagePart, MessageRole,
};
pub use reminder::{ReminderLanguage, SandboxSkill};
pub use request::ContextRequest;
pub use window::HistoryWindow;

/// Used by serde to leave out fields that are not set.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
