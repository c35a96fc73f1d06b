//! The server over HTTP, with real requests: tokens of an authorization server, tasks, questions and subscriptions.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests; nothing else is in here"
)]

mod accept;
mod client;
mod cors;
mod deliveries;
mod fixture;
mod host_questions;
mod issuer;
mod oauth;
mod sizes;
mod stalled;
mod subscriptions;
mod transfers;
mod unreadable;
