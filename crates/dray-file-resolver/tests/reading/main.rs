//! Tests that read documents and conversations over the bus, with conversions in the built service.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod conversation;
mod document;
mod downloads;
mod fixture;
