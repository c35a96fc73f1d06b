//! `read_files`: the arguments that a model may use, the files to read, and the answer (agent-file-context 12).
//!
//! The caller reads the files: [`ReadPlan::tasks`] lists them, the caller chooses order and concurrency, and
//! [`ReadPlan::assemble`] puts the results into the order of the request.
//!
//! ```
//! use dray_file_context::read::{ReadArguments, ReadPlan, ReadText};
//! # use dray_file_context::{ContextBuilder, ContextRequest};
//! # let request: ContextRequest = serde_json::from_str(r#"{"fileInput": ["https://x.example/a.txt"],
//! "responseChatItemId": "r"}"#).unwrap();
//! # let catalog = ContextBuilder::build(&request).unwrap().catalog;
//! let arguments = ReadArguments::parse("read_files", r#"{"ids": ["r-0", "r-9"]}"#).unwrap();
//! let plan = ReadPlan::new(&arguments, &catalog, 60_000);
//! let texts = plan.tasks().map(|_task| Ok(ReadText::of("hello"))).collect();
//! let answer = plan.assemble(texts);
//! assert!(answer.json().starts_with(r#"[{"id":"r-0","name":"a.txt","content":"hello","status":"ok""#));
//! ```

mod answer;
mod arguments;
mod failure;
mod page;
mod plan;
#[cfg(test)]
mod tests;

pub use answer::{FileAnswer, ReadAnswer, ReadStatus};
pub use arguments::{InvalidArguments, LEGACY_TOOL, READ_TOOL, ReadArguments, ReadHandle};
pub use failure::{FailureCode, ReadFailure};
pub(crate) use plan::parse_decimal;
pub use plan::{PlanEntry, PlanStep, ReadPlan, ReadTask, ReadText};
