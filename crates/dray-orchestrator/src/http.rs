//! The HTTP surface: chat completions of DIAL and of plain `OpenAI` clients, starters, and help for editors of manifests
//! (quickapps 2, 3, 4, 37, 38).
//!
//! It reads and checks requests and writes answers. What is between is an [`Agent`]'s: it gets what was [`Asked`] and
//! sends events, and this module turns them into chunks.

mod contract;

pub use contract::{Agent, Asked, ChatRequest, ManifestSource};
