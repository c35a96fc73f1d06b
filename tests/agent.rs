//! Tests of whole agents: the orchestrator with every service that it calls, and a scripted model.

mod approvals;
mod asking_server;
mod chat;
mod chat_buttons;
mod chat_decisions;
mod crashes;
mod dial;
mod faults;
mod fixture;
mod host_questions;
mod outside;
mod process;
mod references;
pub(crate) mod seen;
mod shop;
mod stops;
mod story;
mod telemetry;
mod tool_questions;
