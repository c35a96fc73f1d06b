//! Whole turns over HTTP: a real listener, a rehearsed model, a DIAL Core, tools. No other service is there.

#![cfg(test)]

mod agents;
mod approvals;
mod authority;
mod budgets;
mod client_tools;
mod context;
mod dial;
mod faults;
mod files;
mod hooks;
mod openai;
mod packages;
mod plain;
mod responses;
mod sign_in;
mod told;
mod tools;
mod world;
