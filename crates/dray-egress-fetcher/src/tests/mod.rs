//! The whole pipeline in an in-memory network with paused time: nothing here touches a socket unless it says so.

mod body;
mod connection;
mod deadline;
mod load;
mod messages;
mod policy;
mod redirect;
mod resolution;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "service")]
mod start;
pub(crate) mod world;
