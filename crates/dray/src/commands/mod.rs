//! One module per command.

pub(crate) mod artifact;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod deliver;
mod deployment;
pub(crate) mod dlq;
mod dry_run;
pub(crate) mod events;
pub(crate) mod fetch;
pub(crate) mod healthcheck;
pub(crate) mod manual;
mod policy;
mod reach;
pub(crate) mod read;
pub(crate) mod receipts;
pub(crate) mod reference;
pub(crate) mod resolve;
pub(crate) mod sandbox;
pub(crate) mod session;
mod shown;
pub(crate) mod topology;
pub(crate) mod up;
mod upload;
