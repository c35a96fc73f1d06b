//! Whole tools over a DIAL that is scripted.

mod app;
mod deployment;
mod history;
pub(crate) mod world;
