//! What an agent session is made of, as pure values and rules: the manifest that describes the agent, the templates
//! that it may name, the messages of a chat request, the state that carries tool rounds from one turn to the next, and
//! what the client sees of an answer.
//!
//! Nothing here does I/O. Wire names and sentences are the contract with existing clients (quickapps 45).

pub mod caller;
pub mod choice;
pub mod clock;
pub mod event;
pub mod failure;
pub mod filter;
pub mod issues;
pub mod layer;
pub mod lazy;
pub mod lift;
pub mod manifest;
pub mod media_type;
pub mod message;
pub mod notify;
pub mod pair;
pub mod prompt;
pub mod skill;
pub mod starters;
pub mod state;
pub mod support;
mod text;
pub mod user_error;
pub mod wire;
