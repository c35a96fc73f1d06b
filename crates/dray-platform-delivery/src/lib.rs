//! Platform delivery: what happens between "the agent wants the user to have this file" and "the user sees it", and
//! the way back.
//!
//! It answers `SendFile` and its companions, consumes two kinds of work on the way out and one on the way in. Files
//! come out of sandboxes through sandbox-transfer, over the bus, and wait in the store until the platform has them.
//!
//! - [`record`], [`machine`], [`report`]: rules without I/O: a delivery, the states of one visible request, the report.
//! - [`records`], [`index`], [`platform_cache`]: what is kept in the bus: deliveries, what is waiting, what platforms taught.
//! - [`delivery_service`]: the parts of one replica: `accept`, [`gather`], [`deliver`], [`reconciler`], `cache` and the
//!   other calls, each with the handles that it needs.
//! - `accept`: from a request to work. [`gather`]: from paths in a sandbox to stored files. [`deliver`]: from stored files
//!   to the platform's word. `status`: what a platform reports after that.
//! - [`chat_order`], `chat_positions`, [`rate_limit`], [`queue`], [`reconciler`]: who may send when, and what continues after
//!   a wait.
//! - `cache`, [`lease`]: what is on its way is forgotten in time; one replica at a time.
//! - [`receipts`], [`answer`], [`uploads`]: the other calls. [`inbound`]: the way in. [`cli`]: the command line.
//! - [`dry_run`]: what a delivery would do, with nothing sent.
//! - [`accounts`], `account_checks`, `account_config`, [`config`], [`service`], [`metrics`]: the service around it.
//!
//! What it does not do: it speaks no platform's wire (`dray-platform-*`), and touches no sandbox.
//!
//! The states of one visible request are types, so a wrong transition does not compile:
//!
//! ```
//! use dray_platform::Route;
//! use dray_platform_delivery::machine::{ReadyStep, StepPlan};
//!
//! let plan = StepPlan::text(Route::Text, "The report is ready.".to_owned());
//! let step = ReadyStep::new(plan, Vec::new());
//! let sending = step.begin(1_700_000_000_000);
//! // The response was lost, and the platform cannot be queried: the outcome stays unknown.
//! let unknown = sending.leave_unknown();
//! assert_eq!(unknown.attempts, 1);
//! ```

mod accept;
mod account_checks;
mod account_config;
pub mod accounts;
pub mod answer;
mod cache;
pub mod chat_order;
mod chat_positions;
pub mod cli;
pub mod config;
pub mod deliver;
mod delivery_log;
pub mod delivery_service;
pub mod dry_run;
pub mod error;
pub mod gather;
pub mod inbound;
pub mod index;
pub mod lease;
pub mod link;
pub mod metrics;
pub mod platform_cache;
mod poll_delay;
mod preview_receipts;
mod questions;
pub mod queue;
pub mod rate_limit;
pub mod receipts;
pub mod reconciler;
pub mod record;
pub mod records;
pub mod report;
pub mod service;
pub mod source;
mod status;
pub mod uploads;
mod web_files;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use dray_delivery_rules::machine;
pub use service::PlatformDelivery;
