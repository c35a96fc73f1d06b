//! Whole agents: the orchestrator with every service that it asks, and a model that follows a script.

mod approvals;
mod chat;
mod crashes;
mod dial;
mod faults;
mod fixture;
mod outside;
mod process;
mod references;
pub(crate) mod seen;
mod shop;
mod story;
mod telemetry;
