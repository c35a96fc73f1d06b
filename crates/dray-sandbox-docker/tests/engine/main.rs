//! Tests with containers of a real engine, and with a scripted engine.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

mod conformance;
mod faults;
mod fixture;
mod links;
mod lists;
mod mounts;
mod podman;
mod reads;
mod remote;
mod scripted;
mod states;
mod times;
mod transfers;
mod trees;
mod writes;
