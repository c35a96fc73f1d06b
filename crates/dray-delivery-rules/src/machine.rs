//! The state machine of one visible request (messaging-reliability 12), without I/O.
//!
//! `READY → SENDING → DONE | UNKNOWN | FAILED`. `SENDING` is written before the first byte of the visible request
//! leaves, so that a later reader knows that something may be visible.
//!
//! Each state is a type and each transition consumes the step, so that a transition that the table does not have does
//! not compile. A step that was not sent has no response to confirm:
//!
//! ```compile_fail,E0599
//! use dray_platform::Route;
//! use dray_delivery_rules::machine::{ReadyStep, StepPlan};
//!
//! let step = ReadyStep::new(StepPlan::text(Route::Text, "hello".to_owned()), Vec::new());
//! let done = step.confirm(Vec::new());
//! ```
//!
//! After the request it has:
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
//! The same holds for a confirmed step, which cannot be sent again:
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

/// Lost responses of one step after which its outcome is no longer looked up.
pub const MAX_LOST_RESPONSES: u32 = 2;

/// What one visible request shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// The kind of message that carries it.
    pub route: Route,
    /// Indices of the files of the record; for [`Route::Link`] the file that the link leads to.
    pub files: Vec<u32>,
    /// Text or caption; empty for none.
    pub text: String,
    /// Whether what the user sees may differ from the bytes.
    pub lossy: bool,
}

impl StepPlan {
    /// A text with a link to this file of the record.
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
    /// SHA-256 of the request, 32 bytes: the idempotency key is derived from it.
    pub fingerprint: Vec<u8>,
    /// What the platform returned before anything was visible, such as a file id; empty for nothing.
    pub prepared: String,
    /// Attempts at the visible request so far.
    pub attempts: u32,
    /// Responses that were lost.
    pub lost: u32,
    /// Kind of the last failure.
    pub error_kind: Option<ErrorKind>,
    /// The platform's code of the last failure; empty for none.
    pub platform_code: String,
}

impl Deref for StepData {
    type Target = StepPlan;

    fn deref(&self) -> &StepPlan {
        &self.plan
    }
}

/// What the platform confirmed of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepConfirmation {
    /// Index of the file in the record; `None` for text.
    pub file: Option<u32>,
    /// The platform's id of the message.
    pub message_id: String,
    /// The platform's id of the file; empty for none.
    pub file_id: String,
    /// Bytes as the platform reports them; 0 when it does not.
    pub size: u64,
    /// Route that was taken; `None` when a newer worker took one that this one does not know.
    pub route: Option<Route>,
    /// Whether a later report of the platform may correct it.
    pub provisional: bool,
}

/// Nothing of the step is visible.
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

/// A step of which nothing is visible.
pub type ReadyStep = StepIn<ReadyState>;
/// A step of which something may be visible.
pub type SendingStep = StepIn<SendingState>;
/// A step that the platform confirmed.
pub type DoneStep = StepIn<DoneState>;
/// A step whose outcome stays unknown: it may be visible.
pub type UnknownStep = StepIn<UnknownState>;
/// A step that was given up before anything was visible.
pub type FailedStep = StepIn<FailedState>;

/// A step in any state, as a record holds it.
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
    /// A step that was planned just now.
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

    /// A step of a record.
    pub const fn restored(data: StepData) -> Self {
        Self {
            data,
            state: ReadyState(()),
        }
    }

    /// The same step with the attempts of the step that it replaces.
    #[must_use]
    pub const fn with_attempts(mut self, attempts: u32) -> Self {
        self.data.attempts = attempts;
        self
    }

    /// Stores what the platform returned before anything was visible.
    pub fn set_prepared(&mut self, prepared: String) {
        self.data.prepared = prepared;
    }

    /// Counts an attempt that failed before the visible request.
    pub const fn count_attempt(&mut self) {
        self.data.attempts += 1;
    }

    /// Removes an attempt from the count, because it only made the delivery wait.
    pub const fn uncount_attempt(&mut self) {
        // Saturating: a record of an older version may have counted fewer.
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
    /// A step of a record.
    pub const fn restored(data: StepData, since_ms: u64) -> Self {
        Self {
            data,
            state: SendingState { since_ms },
        }
    }

    /// Unix milliseconds of the first visible attempt whose outcome is open.
    pub const fn since_ms(&self) -> u64 {
        self.state.since_ms
    }

    /// Whether the platform answered the visible request, with something that does not confirm it.
    ///
    /// Such a request may have been carried out later than the platform can be asked about it (a Slack share that
    /// comes late), so it is not repeated even when the platform does not find it.
    pub fn was_answered(&self) -> bool {
        self.data.error_kind == Some(ErrorKind::Unknown)
    }

    /// Counts a response that was lost.
    pub const fn count_lost(&mut self) {
        self.data.lost += 1;
    }

    /// The same request once more, under the same key. The time of the first attempt stays: the platform's window
    /// against duplicates began with it.
    #[must_use]
    pub const fn begin_again(mut self) -> Self {
        self.data.attempts += 1;
        self
    }

    /// It is certain that nothing is visible: the step may be sent again from its beginning.
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
    /// A step of a record.
    pub const fn restored(data: StepData, confirmed: Vec<StepConfirmation>) -> Self {
        Self {
            data,
            state: DoneState { confirmed },
        }
    }

    /// What the platform confirmed.
    pub fn confirmed(&self) -> &[StepConfirmation] {
        &self.state.confirmed
    }

    /// Records that the platform has withdrawn its confirmation: nothing is visible.
    #[must_use]
    pub fn deny(mut self) -> ReadyStep {
        self.data.attempts = 0;
        self.into_state(ReadyState(()))
    }
}

impl UnknownStep {
    /// A step of a record.
    pub const fn restored(data: StepData) -> Self {
        Self {
            data,
            state: UnknownState(()),
        }
    }
}

impl FailedStep {
    /// A step of a record.
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

    /// The end of a step that no worker continues: a request that was begun may be visible, so its outcome is unknown and
    /// not a failure. A final step stays as it is.
    #[must_use]
    pub fn give_up(self) -> Self {
        match self {
            Self::Sending(step) => step.leave_unknown().into(),
            Self::Ready(step) => step.fail().into(),
            ended => ended,
        }
    }
}

/// Makes a step of each state a [`DeliveryStep`].
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
