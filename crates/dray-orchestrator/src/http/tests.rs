//! Tests of the surface with a scripted agent, over real connections where that matters.

mod chat;
mod deletions;
mod files;
mod full_conversations;
mod plain;
mod python;
mod requests;
mod responses;
mod resumed_streams;
mod scripted;
mod stored_ends;
mod surface;
mod sweeps;
mod takeovers;
mod uploads;
