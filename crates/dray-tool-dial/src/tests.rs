//! Whole tools over a DIAL that is scripted.

mod app;
mod core;
mod deployment;
mod history;
pub(crate) mod world;
