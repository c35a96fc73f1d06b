//! The steps in which a URL is judged, as they are reported to an observer.
//!
//! The functions that decide report each step when they decide it, so an explanation follows the same code as a fetch
//! and cannot differ from it. This module makes no decision.

use crate::reason::Code;

/// One step of a judgement. The order of the variants is the order in which they are judged (3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyStep {
    /// The operator's switch.
    OperatorSwitch,
    /// The app's switch.
    AppSwitch,
    /// The patterns of the app's list can be read (P-4).
    AppPatterns,
    /// The URL can be read in one way only, and its scheme is http or https (section 5).
    Url,
    /// Plain http, where the operator wants https only (U-3).
    Scheme,
    /// The operator's list of hosts.
    OperatorHosts,
    /// The app's list of hosts.
    AppHosts,
    /// The port (U-9).
    Port,
    /// Names that are never fetched (section 6).
    HostName,
    /// The list `deny` and the rules of the policy files. Not judged where there are none.
    PolicyRules,
    /// The quotas of the policy files have room. Not judged where there are none.
    Quota,
    /// DNS has an answer. Only hosts that are names have this step.
    Resolution,
    /// Every address may be connected to (section 8).
    Addresses,
    /// The robots.txt of the host. Judged at a fetch alone, because the file has to be requested.
    Robots,
}

impl PolicyStep {
    /// Every step, in order.
    pub const ALL_STEPS: [Self; 14] = [
        Self::OperatorSwitch,
        Self::AppSwitch,
        Self::AppPatterns,
        Self::Url,
        Self::Scheme,
        Self::OperatorHosts,
        Self::AppHosts,
        Self::Port,
        Self::HostName,
        Self::PolicyRules,
        Self::Quota,
        Self::Resolution,
        Self::Addresses,
        Self::Robots,
    ];
}

/// The owner of the rule that decided a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOwner {
    /// A rule of this crate that no setting changes.
    BuiltIn,
    /// A setting of the operator.
    Operator,
    /// The policy of the app.
    App,
}

/// A step that was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedStep {
    /// The check, in the order in which a policy makes them.
    pub step: PolicyStep,
    /// The owner of the rule that decided it.
    pub owner: RuleOwner,
    /// The code of the refusal; `None` if it did not refuse the URL.
    pub refusal: Option<Code>,
}

/// An observer that receives the steps while they are judged. `()` ignores them.
pub trait StepObserver {
    /// Receives a step.
    fn judged(&mut self, step: JudgedStep);

    /// Reports the result of `step` to the observer and returns it.
    ///
    /// # Errors
    /// The refusal that was given.
    fn observe(
        &mut self,
        step: PolicyStep,
        owner: RuleOwner,
        verdict: Result<(), Code>,
    ) -> Result<(), Code> {
        self.judged(JudgedStep {
            step,
            owner,
            refusal: verdict.err(),
        });
        verdict
    }
}

impl StepObserver for () {
    fn judged(&mut self, _step: JudgedStep) {}
}

/// Steps in the order in which they were judged; at most one entry for each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepLog(Vec<JudgedStep>);

impl StepLog {
    /// The steps so far.
    pub fn steps(&self) -> &[JudgedStep] {
        &self.0
    }

    /// The entry of `step`; `None` while it is not judged.
    pub fn find(&self, step: PolicyStep) -> Option<JudgedStep> {
        self.0.iter().find(|judged| judged.step == step).copied()
    }
}

impl StepObserver for StepLog {
    fn judged(&mut self, step: JudgedStep) {
        // The first judgement counts: later ones are of redirect targets and further attempts.
        if self.find(step.step).is_none() {
            self.0.push(step);
        }
    }
}
