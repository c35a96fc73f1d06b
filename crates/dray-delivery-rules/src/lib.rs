//! The rules of deliveries to chat platforms, as functions of values.
//!
//! - [`machine`]: the states of one visible request, and what to do after a lost response.
//! - [`failure`]: what to do after a request that was not confirmed, and how long to wait.
//! - [`refusal`]: what to do after a request that was refused: the retry policy.
//! - [`buckets`]: the token buckets of chats and accounts.
//! - [`chat_lease`]: which replica may send to a chat.
//!
//! `dray-platform-delivery` does the I/O; `dray-simulation` runs the same functions on a model of the bus and the
//! platforms. The functions use no I/O, clock or random numbers: the caller passes the time.
//!
//! ```
//! use dray_delivery_rules::machine::{ReadyStep, ResumeAction, StepPlan, decide_resume};
//! use dray_platform::{DuplicateProtection, Route};
//!
//! let step = ReadyStep::new(StepPlan::text(Route::Text, "hello".to_owned()), Vec::new()).begin(1);
//! let action = decide_resume(&step, DuplicateProtection::Unknown, 2);
//! assert_eq!(action, ResumeAction::GiveUp, "sending again could show it twice");
//! ```

pub mod buckets;
pub mod chat_lease;
pub mod failure;
pub mod machine;
pub mod refusal;
