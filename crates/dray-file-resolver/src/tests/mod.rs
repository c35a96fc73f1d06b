//! The service through its in-process bus, as a caller would.

mod events;
mod external;
mod failures;
mod log;
mod resolve;
mod rules;
mod world;
