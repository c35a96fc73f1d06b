//! The server over HTTP, with real requests: tokens of an authorization server.

mod client;
mod fixture;
mod issuer;
mod oauth;
