//! One module per command.

pub(crate) mod artifact;
pub(crate) mod config;
pub(crate) mod dlq;
pub(crate) mod events;
pub(crate) mod fetch;
pub(crate) mod healthcheck;
mod policy;
pub(crate) mod reference;
pub(crate) mod resolve;
mod shown;
pub(crate) mod topology;
pub(crate) mod up;
