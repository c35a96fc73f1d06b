//! The service through its in-process bus, as a caller would.

mod events;
mod external;
mod failures;
mod fixture;
mod log;
mod request_cache;
mod resolve;
mod rules;
