//! System tests: one binary, a module for each story of a user.
//!
//! `cargo xtask test` prepares what they need and runs them with all other tests; single ones run with
//! `cargo xtask test -- deploy::`. Helpers of several stories are in `support`. (`cfg(test)` makes Clippy see that
//! helpers are tests too.)

#[cfg(test)]
mod agent;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod console;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod previews;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tickets;
#[cfg(test)]
mod transfer;
