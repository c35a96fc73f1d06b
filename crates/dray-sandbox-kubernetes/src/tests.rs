//! The backend against the fake server, and the fake server against clients that others wrote.

mod answers;
mod clients;
mod conformance;
mod fixture;
mod helpers;
mod streams;
mod tls;
