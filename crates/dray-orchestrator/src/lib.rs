//! The orchestrator: turns a chat completion into a loop of model and tools (quickapps).

pub mod config;
pub mod files;
pub mod http;
pub mod manifests;
