//! Fetches one resource from an address that somebody else chose, and nothing that it may not.

pub mod body;
pub mod budget;
pub mod coding;
pub mod dial;
pub mod error;
pub mod fetch;
pub mod head;
pub mod hop;
pub mod label;
pub mod limits;
pub mod record;
pub mod resolve;
pub mod sink;
pub mod tls;

#[cfg(test)]
mod tests;
