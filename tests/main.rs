//! System tests: one binary, a module for each scenario of a user.
//!
//! `cargo xtask test` prepares the programs that they need and runs them with all other tests; `cargo xtask test --
//! deploy::` runs one module. Helpers of several scenarios are in `support`. (With `cfg(test)`, Clippy treats the
//! helpers as tests too.)

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
