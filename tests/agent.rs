//! Tests of whole agents: the orchestrator with every service that it calls, and a scripted model.

mod approvals;
mod asking_server;
mod chat;
pub(crate) mod chat_answer;
mod chat_buttons;
mod chat_decisions;
mod chat_streams;
mod crashes;
mod dial;
mod faults;
mod fixture;
mod guarded_crashes;
mod host_questions;
mod key_reload;
mod npm_packages;
mod process;
mod public_hosts;
mod references;
mod rest_endpoint;
mod scenario;
mod stops;
mod telemetry;
mod tool_questions;
mod tool_traces;
mod turn_events;
