//! `read_files`: what a model may ask for, what is then to be read, and what it is answered (agent-file-context 12).
//!
//! Reading is the caller's: [`Plan::tasks`] says what to read, in what order and at what concurrency is the caller's
//! choice, and [`Plan::assemble`] puts the answers into the order of the request.
//!
//! ```
//! use dray_context::read::{Arguments, Plan, Text};
//! # use dray_context::{Context, Request};
//! # let request: Request = serde_json::from_str(r#"{"fileInput": ["https://x.example/a.txt"], "responseChatItemId": "r"}"#).unwrap();
//! # let catalog = Context::build(&request).unwrap().catalog;
//! let arguments = Arguments::parse("read_files", r#"{"ids": ["r-0", "r-9"]}"#).unwrap();
//! let answer = Plan::new(&arguments, &catalog, 60_000).run(|_task| Ok(Text::of("hello")));
//! assert!(answer.json().starts_with(r#"[{"id":"r-0","name":"a.txt","content":"hello","status":"ok""#));
//! ```

mod answer;
mod arguments;
mod failure;
mod offer;
mod page;
mod plan;
#[cfg(test)]
mod tests;
mod truncate;

pub use answer::{Answer, FileAnswer, NodeRecord, Status, machinery_failed};
pub use arguments::{Arguments, Handle, Invalid, LEGACY_TOOL, TOOL, unknown_tool};
pub use failure::{Code, Failure};
pub use offer::{Exposure, Formats, Variant, catalogue_entry, is_offered, schema};
pub use page::{Page, cut, share};
pub(crate) use plan::decimal;
pub use plan::{Call, Entry, Plan, Step, Task, Text};
pub use truncate::{MARKER, truncate_middle};
