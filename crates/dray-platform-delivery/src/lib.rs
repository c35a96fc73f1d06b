//! The service that delivers files of agents to people on chat platforms, and receives messages and files of people.
//!
//! It handles `SendFile` and the related calls, two kinds of outbound work, and one kind of inbound work.
//! Sandbox-transfer copies files out of sandboxes into the store, where they stay until the platform has confirmed
//! them.
//!
//! - [`record`], [`machine`], [`report`]: types and rules without I/O: a delivery, the states of one visible request, the
//!   report.
//! - [`records`], [`index`], [`platform_cache`]: data in the bus: deliveries, which of them wait, and what platforms
//!   reported.
//! - [`delivery_service`]: the parts of one replica: `accept`, [`gather`], [`deliver`], [`reconciler`], `cache` and the
//!   other calls, each with the handles that it needs.
//! - `accept`: from a request to work. [`gather`]: from paths in a sandbox to stored files. [`deliver`]: from stored files
//!   to the platform's confirmation. `status`: later reports of a platform.
//! - [`chat_order`], `chat_positions`, [`rate_limit`], [`queue`], [`reconciler`]: which delivery may send next, and which
//!   one continues after a wait.
//! - `cache`, [`lease`]: removal of cached files that no delivery needs, by one replica at a time.
//! - `questions`: questions in chats, answered by buttons. `web_files`: which files from the web may go to which chats.
//! - [`link`]: links to files that are too large for a chat. [`source`]: stored bytes as platforms read them.
//! - [`receipts`], `resend`, [`answer`], [`uploads`]: the other calls. [`inbound`]: messages of people. [`cli`]: the
//!   command line.
//! - [`dry_run`]: what a delivery would do, without sending a message.
//! - [`accounts`], `account_checks`, `account_config`, [`config`], `reload`, [`service`], [`metrics`]: the service
//!   around it.
//!
//! What it does not do: it implements no platform's protocol (`dray-platform-*` do), and accesses no sandbox.
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
mod reload;
pub mod report;
mod resend;
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
