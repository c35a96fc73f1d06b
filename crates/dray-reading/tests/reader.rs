//! The tool from path to record, with real workers: every step and every way it can end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

#[path = "reader/announce.rs"]
mod announce;
#[path = "reader/archive.rs"]
mod archive;
#[path = "reader/cache.rs"]
mod cache;
#[path = "reader/fixture.rs"]
mod fixture;
#[path = "reader/hostile.rs"]
mod hostile;
#[path = "reader/ocr.rs"]
mod ocr;
#[path = "reader/order.rs"]
mod order;
#[path = "reader/routing.rs"]
mod routing;
