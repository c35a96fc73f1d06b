//! Files on their way into a sandbox (agent-file-context 14): the tool of the older generations, and the writing of all
//! files before a run that replaced it. Decisions and words only; downloading and writing are the caller's.

mod fetch;
mod inject;
mod path;
#[cfg(test)]
mod tests;

pub use fetch::{FETCH_TOOL, FetchPlan, WriteOutcome, failed_result, fetch_schema, prompt_lines};
pub use inject::{FileInjection, InjectionPlan, InjectionReport, InjectionResult};
pub use path::{confirm_below, resolve_below};
