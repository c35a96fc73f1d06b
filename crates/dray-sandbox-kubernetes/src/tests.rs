//! Tests of the backend with the fake server, and of the fake server with other clients.

mod answers;
mod clients;
mod conformance;
mod fixture;
mod helpers;
mod streams;
mod tls;
