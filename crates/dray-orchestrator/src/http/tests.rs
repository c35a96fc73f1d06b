//! The surface with an agent that follows a script, over real connections where it matters.

mod chat;
mod files;
mod plain;
mod python;
mod requests;
mod responses;
mod scripted;
mod surface;
mod uploads;
