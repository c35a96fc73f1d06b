//! Copies files into a sandbox (agent-file-context 14): the tool of the older generations, and its replacement, which
//! writes all files before a run. This module decides and writes texts; the caller downloads and writes the files.

mod fetch;
mod inject;
mod path;
#[cfg(test)]
mod tests;

pub use fetch::{FETCH_TOOL, FetchPlan, WriteOutcome, failed_result, fetch_schema, prompt_lines};
pub use inject::{FileInjection, InjectionPlan, InjectionReport, InjectionResult};
pub use path::{confirm_below, resolve_below};
