//! The server over HTTP, with real requests: tokens of an authorization server, tasks, questions and subscriptions.

mod client;
mod deliveries;
mod fixture;
mod issuer;
mod oauth;
