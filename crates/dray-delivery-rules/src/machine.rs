//! The state machine of one visible request (messaging-reliability 12), without I/O.
//!
//! `READY → SENDING → DONE | UNKNOWN | FAILED`. `SENDING` is stored before the first byte of the visible request is
//! sent, so that a later worker knows that something may be visible (write-ahead).
//!
//! Each state is a type and each transition consumes the step, so that a transition that is not allowed does not
//! compile. A step that was not sent cannot be confirmed:
//!
//! ```compile_fail,E0599
//! use dray_platform::Route;
//! use dray_delivery_rules::machine::{ReadyStep, StepPlan};
//!
//! let step = ReadyStep::new(StepPlan::text(Route::Text, "hello".to_owned()), Vec::new());
//! let done = step.confirm(Vec::new());
//! ```
//!
//! A step that was sent can be confirmed:
//!
//! ```
//! use dray_platform::Route;
//! use dray_delivery_rules::machine::{ReadyStep, DeliveryStep, StepPlan};
//!
//! let step = ReadyStep::new(StepPlan::text(Route::Text, "hello".to_owned()), Vec::new());
//! let done = step.begin(1_795_132_800_000).confirm(Vec::new());
//! assert!(DeliveryStep::from(done).is_final());
//! ```
//!
//! A confirmed step cannot be sent again:
//!
//! ```compile_fail,E0599
//! use dray_platform::Route;
//! use dray_delivery_rules::machine::{ReadyStep, StepPlan};
//!
//! let step = ReadyStep::new(StepPlan::text(Route::Text, "hello".to_owned()), Vec::new());
//! let done = step.begin(1).confirm(Vec::new());
//! let again = done.begin(2);
//! ```

use std::ops::Deref;

use dray_platform::{ErrorKind, Route};

mod resume;

pub use self::resume::{ResumeAction, decide_resume};

/// Most visible attempts of one step. Waits for a rate limit are not counted (platform-delivery 10.2).
pub const MAX_VISIBLE_ATTEMPTS: u32 = 5;

/// Number of lost responses after which the outcome of a step is no longer looked up.
pub const MAX_LOST_RESPONSES: u32 = 2;

/// Whether another attempt may follow this number of attempts.
pub const fn has_attempts_left(attempts: u32) -> bool {
    attempts < MAX_VISIBLE_ATTEMPTS
}

/// The content of one visible request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// The kind of message.
    pub route: Route,
    /// Indices of files in the record. For [`Route::Link`], the file that is linked.
    pub files: Vec<u32>,
    /// Text or caption; empty for none.
    pub text: String,
    /// Whether the user may see something other than the exact bytes.
    pub lossy: bool,
}

impl StepPlan {
    /// A link to this file of the record.
    pub fn link(file: u32) -> Self {
        Self {
            files: vec![file],
            ..Self::text(Route::Link, String::new())
        }
    }

    /// A text without files.
    pub const fn text(route: Route, text: String) -> Self {
        Self {
            route,
            files: Vec::new(),
            text,
            lossy: false,
        }
    }
}

/// The data of a step in every state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepData {
    /// The message that the step sends.
    pub plan: StepPlan,
    /// SHA-256 of the request (32 bytes), from which the idempotency key is derived.
    pub fingerprint: Vec<u8>,
    /// A result of the platform from before anything was visible, such as a file id; empty for none.
    pub prepared: String,
    /// Attempts to send the step, including those that failed before the visible request.
    pub attempts: u32,
    /// Responses that were lost.
    pub lost: u32,
    /// Kind of the last failure.
    pub error_kind: Option<ErrorKind>,
    /// The platform's code of the last failure; empty for none.
    pub platform_code: String,
}

impl StepData {
    /// Whether another attempt of the step may follow.
    pub const fn has_attempts_left(&self) -> bool {
        has_attempts_left(self.attempts)
    }
}

impl Deref for StepData {
    type Target = StepPlan;

    fn deref(&self) -> &StepPlan {
        &self.plan
    }
}

/// A message or file that the platform confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepConfirmation {
    /// Index of the file in the record; `None` for text.
    pub file: Option<u32>,
    /// The platform's id of the message.
    pub message_id: String,
    /// The platform's id of the file; empty for none.
    pub file_id: String,
    /// Size in bytes as the platform reports it; 0 if it does not.
    pub size: u64,
    /// The route. `None` for a route of a newer worker that this version does not know.
    pub route: Option<Route>,
    /// Whether a later report of the platform may correct it.
    pub provisional: bool,
}

/// No part of the step is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyState(());

/// Something of the step may be visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendingState {
    since_ms: u64,
}

/// The platform confirmed the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneState {
    confirmed: Vec<StepConfirmation>,
}

/// The step may be visible; its outcome cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownState(());

/// The step is not visible and will not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedState(());

/// A step in the state `S`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepIn<S> {
    data: StepData,
    state: S,
}

/// A step that is certainly not visible.
pub type ReadyStep = StepIn<ReadyState>;
/// A step that may be visible, in whole or in part.
pub type SendingStep = StepIn<SendingState>;
/// A step that the platform confirmed.
pub type DoneStep = StepIn<DoneState>;
/// A step that may be visible and whose outcome cannot be determined.
pub type UnknownStep = StepIn<UnknownState>;
/// A step that was given up and is not visible.
pub type FailedStep = StepIn<FailedState>;

/// A step in any state, as in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say it")]
pub enum DeliveryStep {
    Ready(ReadyStep),
    Sending(SendingStep),
    Done(DoneStep),
    Unknown(UnknownStep),
    Failed(FailedStep),
}

impl<S> Deref for StepIn<S> {
    type Target = StepData;

    fn deref(&self) -> &StepData {
        &self.data
    }
}

impl<S> StepIn<S> {
    fn into_state<T>(self, state: T) -> StepIn<T> {
        StepIn {
            data: self.data,
            state,
        }
    }

    /// Records why the last attempt failed.
    pub fn note_error(&mut self, kind: ErrorKind, code: &str) {
        self.data.error_kind = Some(kind);
        code.clone_into(&mut self.data.platform_code);
    }
}

impl ReadyStep {
    /// A new step, without attempts.
    pub const fn new(plan: StepPlan, fingerprint: Vec<u8>) -> Self {
        Self::restored(StepData {
            plan,
            fingerprint,
            prepared: String::new(),
            attempts: 0,
            lost: 0,
            error_kind: None,
            platform_code: String::new(),
        })
    }

    /// A step from a record.
    pub const fn restored(data: StepData) -> Self {
        Self {
            data,
            state: ReadyState(()),
        }
    }

    /// This step with the number of attempts of the step that it replaces.
    #[must_use]
    pub const fn with_attempts(mut self, attempts: u32) -> Self {
        self.data.attempts = attempts;
        self
    }

    /// Stores a result of the platform from before anything was visible.
    pub fn set_prepared(&mut self, prepared: String) {
        self.data.prepared = prepared;
    }

    /// Counts an attempt that failed before the visible request.
    pub const fn count_attempt(&mut self) {
        self.data.attempts += 1;
    }

    /// Reverts [`Self::count_attempt`] for an attempt that only made the delivery wait.
    pub const fn revert_attempt(&mut self) {
        // The subtraction saturates, because an older version may have counted fewer attempts.
        self.data.attempts = self.data.attempts.saturating_sub(1);
    }

    /// Records that the visible request begins at `now_ms`.
    #[must_use]
    pub fn begin(mut self, now_ms: u64) -> SendingStep {
        self.data.attempts += 1;
        self.into_state(SendingState {
            // 0 stands for "not sending" in the stored record.
            since_ms: now_ms.max(1),
        })
    }

    /// Gives the step up.
    #[must_use]
    pub fn fail(self) -> FailedStep {
        self.into_state(FailedState(()))
    }
}

impl SendingStep {
    /// A step from a record.
    pub const fn restored(data: StepData, since_ms: u64) -> Self {
        Self {
            data,
            state: SendingState { since_ms },
        }
    }

    /// Start of the first visible attempt whose outcome is not known yet, in Unix milliseconds.
    pub const fn since_ms(&self) -> u64 {
        self.state.since_ms
    }

    /// Whether the platform answered the visible request without confirming it.
    ///
    /// The platform may execute such a request after it was asked whether the message is visible (a delayed share in
    /// Slack). So the request is not repeated, even if the platform does not find the message.
    pub fn was_answered(&self) -> bool {
        self.data.error_kind == Some(ErrorKind::Unknown)
    }

    /// Counts a response that was lost.
    pub const fn count_lost(&mut self) {
        self.data.lost += 1;
    }

    /// Counts another attempt with the same key. The time of the first attempt is kept, because the time in which the
    /// platform detects duplicates began with it.
    #[must_use]
    pub const fn begin_again(mut self) -> Self {
        self.data.attempts += 1;
        self
    }

    /// Records that no message is visible, so that the step may be sent as new.
    #[must_use]
    pub fn not_visible(self) -> ReadyStep {
        self.into_state(ReadyState(()))
    }

    /// Records that the platform confirmed the step.
    #[must_use]
    pub fn confirm(mut self, confirmed: Vec<StepConfirmation>) -> DoneStep {
        self.data.error_kind = None;
        self.data.platform_code.clear();
        self.into_state(DoneState { confirmed })
    }

    /// Ends the step, because its outcome cannot be determined.
    #[must_use]
    pub fn leave_unknown(self) -> UnknownStep {
        self.into_state(UnknownState(()))
    }
}

impl DoneStep {
    /// A step from a record.
    pub const fn restored(data: StepData, confirmed: Vec<StepConfirmation>) -> Self {
        Self {
            data,
            state: DoneState { confirmed },
        }
    }

    /// The confirmations of the platform, one for each sent step.
    pub fn confirmed(&self) -> &[StepConfirmation] {
        &self.state.confirmed
    }

    /// Records that the platform withdrew its confirmation, so that no message is visible.
    #[must_use]
    pub fn deny(mut self) -> ReadyStep {
        self.data.attempts = 0;
        self.into_state(ReadyState(()))
    }
}

impl UnknownStep {
    /// A step from a record.
    pub const fn restored(data: StepData) -> Self {
        Self {
            data,
            state: UnknownState(()),
        }
    }
}

impl FailedStep {
    /// A step from a record.
    pub const fn restored(data: StepData) -> Self {
        Self {
            data,
            state: FailedState(()),
        }
    }
}

impl Deref for DeliveryStep {
    type Target = StepData;

    fn deref(&self) -> &StepData {
        match self {
            Self::Ready(step) => step,
            Self::Sending(step) => step,
            Self::Done(step) => step,
            Self::Unknown(step) => step,
            Self::Failed(step) => step,
        }
    }
}

impl DeliveryStep {
    /// Whether the step has ended.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Unknown(_) | Self::Failed(_))
    }

    /// Ends a step that no worker continues. A request that has begun may be visible, so its outcome is unknown and not
    /// a failure. A final step does not change.
    #[must_use]
    pub fn give_up(self) -> Self {
        match self {
            Self::Sending(step) => step.leave_unknown().into(),
            Self::Ready(step) => step.fail().into(),
            ended => ended,
        }
    }
}

/// Implements the conversion from each state to [`DeliveryStep`].
macro_rules! impl_from_states {
    ($($state:ident => $variant:ident),+ $(,)?) => {
        $(
            impl From<$state> for DeliveryStep {
                fn from(step: $state) -> Self {
                    Self::$variant(step)
                }
            }
        )+
    };
}

impl_from_states! {
    ReadyStep => Ready,
    SendingStep => Sending,
    DoneStep => Done,
    UnknownStep => Unknown,
    FailedStep => Failed,
}
