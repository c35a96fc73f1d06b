//! The backend against the double, and the double against clients that others wrote.

mod answers;
mod clients;
mod conformance;
mod helpers;
mod streams;
mod tls;
mod world;
