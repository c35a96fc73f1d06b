//! Tests that use the service through its in-process bus, as a caller does.

mod events;
mod external;
mod failures;
mod fixture;
mod log;
mod reloaded;
mod request_cache;
mod resolve;
mod rules;
