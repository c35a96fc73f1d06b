//! Tests of complete tools with a scripted DIAL.
#![expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "tests read better with literals and outcomes in place"
)]

mod app;
mod core;
mod deployment;
pub(crate) mod fixture;
mod history;
