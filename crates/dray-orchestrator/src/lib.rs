//! The orchestrator: turns a chat completion into a loop of model and tools (quickapps).

pub mod files;
pub mod http;
