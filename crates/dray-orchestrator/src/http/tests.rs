//! The surface with an agent that follows a script, over real connections where it matters.

mod chat;
mod plain;
mod python;
mod requests;
mod scripted;
mod surface;
