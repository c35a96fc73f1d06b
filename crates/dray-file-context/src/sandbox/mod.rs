//! `sandbox_fetch_user_file`, which copies a file into a sandbox (agent-file-context 14). This module decides and writes
//! texts; the caller downloads and writes the file.

mod fetch;
mod path;
#[cfg(test)]
mod tests;

pub use fetch::{FetchPlan, WriteOutcome};
