//! Tests of the surface with a scripted agent, over real connections where that matters.

mod chat;
mod files;
mod plain;
mod python;
mod requests;
mod responses;
mod scripted;
mod surface;
mod uploads;
