//! The complete service, with a scripted platform and a fake sandbox.

pub(crate) mod fake;
pub(crate) mod fixture;

mod abandoned;
mod account_checks;
mod answer;
mod cancelled;
mod cli;
mod documents;
mod host;
mod inbound;
mod inbound_limits;
mod late_failures;
mod machine;
mod migrated_chats;
mod model;
mod order;
mod origins;
mod path;
mod previews;
mod questions;
mod reload;
mod replicas;
mod routes;
mod store_outages;
mod untagged;
mod upgrade;
mod uploads;
mod waits;
mod web_files;
mod webhook_bodies;
mod workspaces;
