//! Decides which rule applies to a request.
//!
//! The list `deny` comes first. Then the rules of all roles of the caller are tried in their order, and the first one
//! that matches decides; without one, the default does. A rule that denies treats an unknown condition (the path inside
//! a tunnel) as met, and a rule that allows treats it as not met. So a question that cannot be answered is a refusal
//! (I-4).

use std::sync::Arc;

use super::compile::{CompiledRule, ResponseLimits, RuleEffect};
use super::overrides::methods_in_query;
use super::path::ReadablePath;
use super::{RuleName, RuleOutcome, RuleSet};
use crate::canon::{CanonicalUrl, Host};
use crate::reason::Code;
use crate::robots::RobotsMode;

/// The caller of a request. A part that is unknown is empty, and matches only the pattern `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Tenant that owns the request.
    pub tenant: String,
    /// The session of a conversation or sandbox.
    pub session: String,
    /// Application on whose behalf the request is made.
    pub app: String,
    /// Name of the client certificate with which the caller came to the forward proxy.
    pub certificate: String,
}

/// A part of a request, as far as the rules can observe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedPart<T> {
    /// The value of the part.
    Seen(T),
    /// The peers hide it, as TLS does in a tunnel, or it has several readings.
    Hidden,
    /// The part will be known when the request itself is judged.
    Deferred,
    /// The part was visible during the request and was not recorded.
    Unrecorded,
}

/// The parts of a request that the rules can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestView<'a> {
    /// The canonical host.
    pub host: &'a Host,
    /// Whether the host was written with a root dot. Rules that allow do not match such a host (H-3).
    pub root_dot: bool,
    /// Port that would be connected to: that of the URL, or that of its scheme.
    pub port: u16,
    /// HTTP method as it was sent; methods are compared without case.
    pub method: ObservedPart<&'a str>,
    /// The methods that the query names in place of that method, in capitals.
    pub query_methods: Vec<String>,
    /// The path.
    pub path: ObservedPart<ReadablePath>,
    /// Whether the response will be visible.
    pub sees_response: bool,
}

impl<'a> RequestView<'a> {
    /// A fetch, which is a `GET`.
    pub fn fetch(url: &'a CanonicalUrl) -> Self {
        Self::request(url, "GET")
    }

    /// A request whose head and response are visible.
    pub fn request(url: &'a CanonicalUrl, method: &'a str) -> Self {
        let query = url.path_and_query().split_once('?');
        Self {
            query_methods: query.map_or(Vec::new(), |(_, query)| methods_in_query(query).collect()),
            host: url.host(),
            root_dot: url.root_dot(),
            port: url.port(),
            method: ObservedPart::Seen(method),
            path: ReadablePath::of(url.path()).map_or(ObservedPart::Hidden, ObservedPart::Seen),
            sees_response: true,
        }
    }

    /// The same request with an unknown method. It passes only if every method would pass.
    #[must_use]
    pub fn with_hidden_method(self) -> Self {
        Self {
            method: ObservedPart::Hidden,
            ..self
        }
    }

    /// A tunnel, of which only host and port are visible.
    pub fn tunnel(url: &'a CanonicalUrl) -> Self {
        Self {
            host: url.host(),
            root_dot: url.root_dot(),
            port: url.port(),
            method: ObservedPart::Hidden,
            query_methods: Vec::new(),
            path: ObservedPart::Hidden,
            sees_response: false,
        }
    }

    /// A tunnel whose requests will be seen and judged one by one. It is refused only if no request inside could pass.
    pub fn intercepted(url: &'a CanonicalUrl) -> Self {
        Self {
            method: ObservedPart::Deferred,
            path: ObservedPart::Deferred,
            sees_response: true,
            ..Self::tunnel(url)
        }
    }
}

/// The decision of the policy about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    /// The rule that decides.
    pub rule: Arc<RuleName>,
    /// The rule that would refuse the request if all report-only rules were in force; `None` if the request would be
    /// allowed, or is refused anyway.
    pub reported: Option<Arc<RuleName>>,
    /// What [`Self::reported`] is once a person has allowed the request.
    reported_if_approved: Option<Arc<RuleName>>,
    outcome: RuleOutcome,
    response: Option<Arc<ResponseLimits>>,
}

impl RuleDecision {
    /// Whether the request may continue.
    pub fn is_allowed(&self) -> bool {
        self.outcome == RuleOutcome::Allow
    }

    /// The strictness of a decision. A request with several methods gets the strictest of the decisions about them.
    const fn severity(&self) -> u8 {
        match (self.outcome, &self.reported) {
            (RuleOutcome::Allow, None) => 0,
            (RuleOutcome::Allow, Some(_)) => 1,
            (RuleOutcome::Ask, _) => 2,
            (RuleOutcome::Deny, _) => 3,
        }
    }

    /// Whether a person is asked, whose answer can let it continue.
    pub fn needs_approval(&self) -> bool {
        self.outcome == RuleOutcome::Ask
    }

    /// The refusal, if it is one.
    ///
    /// # Errors
    /// `policy_denied`, or `approval_required` where a person is asked.
    pub const fn verdict(&self) -> Result<(), Code> {
        match self.outcome {
            RuleOutcome::Allow => Ok(()),
            RuleOutcome::Ask => Err(Code::ApprovalRequired),
            RuleOutcome::Deny => Err(Code::PolicyDenied),
        }
    }

    /// The decision after a person has allowed it. Any other refusal stays.
    #[must_use]
    pub fn approved(mut self) -> Self {
        if self.needs_approval() {
            self.outcome = RuleOutcome::Allow;
            self.reported = self.reported_if_approved.take();
        }
        self
    }

    /// The stricter one of the decisions about two methods of one request. The reports of both count, because an answer
    /// of a person is for all methods.
    fn stricter(self, other: Self) -> Self {
        let report = |decision: &Self| {
            let report = decision.reported.as_ref();
            report.or(decision.reported_if_approved.as_ref()).cloned()
        };
        let reported = report(&self).or_else(|| report(&other));
        let mut stricter = if other.severity() > self.severity() {
            other
        } else {
            self
        };
        if stricter.needs_approval() {
            stricter.reported_if_approved = reported;
        }
        stricter
    }

    /// Most bytes of the response; `None` for no limit of the rule.
    pub fn max_bytes(&self) -> Option<u64> {
        self.response.as_ref()?.max_bytes
    }

    /// How a fetch treats the robots.txt of the host; `None` where the rule does not set it.
    pub fn robots(&self) -> Option<RobotsMode> {
        self.response.as_ref()?.robots
    }

    /// Checks that the response may have this declared media type, empty for none.
    ///
    /// # Errors
    /// `media_type_not_allowed`.
    pub fn check_media_type(&self, declared: &str) -> Result<(), Code> {
        let types = self
            .response
            .as_ref()
            .and_then(|limits| limits.media_types.as_ref());
        match types {
            Some(types) if !types.iter().any(|pattern| pattern.matches(declared)) => {
                Err(Code::MediaTypeNotAllowed)
            }
            _ => Ok(()),
        }
    }
}

/// The decision depends on a part that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decision depends on a part of the request that was not recorded")]
pub struct UnrecordedPart;

/// The rules that are considered in a judgement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JudgedRules {
    /// The rules in force.
    Enforced,
    /// All of them, as if the report-only rules were in force.
    WithTrial,
}

/// The outcome of one judgement, and the rule that matched; `None` for the default.
type FirstMatch<'a> = (RuleOutcome, Option<&'a CompiledRule>);

impl RuleSet {
    /// Decides about a request whose parts are all seen or hidden.
    pub fn decide(&self, caller: &Caller, request: &RequestView<'_>) -> RuleDecision {
        // No part is unrecorded here; if one were, the result would be a refusal (I-4).
        self.decide_recorded(caller, request)
            .unwrap_or_else(|UnrecordedPart| RuleDecision {
                rule: Arc::clone(&self.defaults.rule),
                reported: None,
                reported_if_approved: None,
                outcome: RuleOutcome::Deny,
                response: None,
            })
    }

    /// Decides about a request of which some parts may not be recorded. A request whose query names another method
    /// needs the permission for that method too.
    ///
    /// # Errors
    /// [`UnrecordedPart`] when the decision depends on such a part.
    pub fn decide_recorded(
        &self,
        caller: &Caller,
        request: &RequestView<'_>,
    ) -> Result<RuleDecision, UnrecordedPart> {
        let mut decision = self.decide_method(caller, request)?;
        for method in &request.query_methods {
            let named = RequestView {
                method: ObservedPart::Seen(method),
                path: request.path.clone(),
                query_methods: Vec::new(),
                ..*request
            };
            decision = decision.stricter(self.decide_method(caller, &named)?);
        }
        Ok(decision)
    }

    /// Decides about a request with one method.
    fn decide_method(
        &self,
        caller: &Caller,
        request: &RequestView<'_>,
    ) -> Result<RuleDecision, UnrecordedPart> {
        let (outcome, rule) = self.first_match(caller, request, JudgedRules::Enforced)?;
        let mut reported = None;
        let mut reported_if_approved = None;
        if outcome != RuleOutcome::Deny && self.has_trial {
            let (in_trial, rule) = self.first_match(caller, request, JudgedRules::WithTrial)?;
            match (outcome, in_trial) {
                (RuleOutcome::Allow, RuleOutcome::Ask | RuleOutcome::Deny) => {
                    reported = Some(self.name_of(rule));
                }
                (RuleOutcome::Ask, RuleOutcome::Deny) => {
                    reported_if_approved = Some(self.name_of(rule));
                }
                _ => {}
            }
        }
        Ok(RuleDecision {
            rule: self.name_of(rule),
            reported,
            reported_if_approved,
            outcome,
            response: rule.and_then(|rule| rule.response.clone()),
        })
    }

    fn name_of(&self, rule: Option<&CompiledRule>) -> Arc<RuleName> {
        Arc::clone(rule.map_or(&self.defaults.rule, |rule| &rule.name))
    }

    fn first_match(
        &self,
        caller: &Caller,
        request: &RequestView<'_>,
        judged: JudgedRules,
    ) -> Result<FirstMatch<'_>, UnrecordedPart> {
        let roles = self.roles.iter().filter(|role| role.has_member(caller));
        let rules = self.deny.iter().chain(roles.flat_map(|role| &role.rules));
        for rule in rules {
            if rule.is_trial && judged == JudgedRules::Enforced {
                continue;
            }
            if rule.matches(request)? {
                let outcome = match rule.effect {
                    RuleEffect::Allow => RuleOutcome::Allow,
                    // A rule that asks names no path and no method, so no hidden part decides here.
                    RuleEffect::Ask => approval_outcome(request),
                    RuleEffect::Deny => RuleOutcome::Deny,
                };
                return Ok((outcome, Some(rule)));
            }
        }
        let outcome = match judged {
            JudgedRules::Enforced => self.defaults.outcome,
            JudgedRules::WithTrial => self.defaults.outcome_in_trial,
        };
        match outcome {
            RuleOutcome::Ask => Ok((approval_outcome(request), None)),
            outcome => Ok((outcome, None)),
        }
    }
}

/// The outcome where a person is asked. A name with a root dot is refused: the person would read it without the dot.
const fn approval_outcome(request: &RequestView<'_>) -> RuleOutcome {
    if request.root_dot {
        RuleOutcome::Deny
    } else {
        RuleOutcome::Ask
    }
}

impl CompiledRule {
    fn matches(&self, request: &RequestView<'_>) -> Result<bool, UnrecordedPart> {
        let denies = self.effect != RuleEffect::Allow;
        let hosts = self.hosts.as_ref();
        // A rule that denies a name also matches the name with a root dot. A rule that allows does not.
        let matches_host =
            hosts.is_none_or(|hosts| hosts.matches(request.host) && (denies || !request.root_dot));
        let matches_port = self
            .ports
            .as_ref()
            .is_none_or(|ports| ports.contains(&request.port));
        let limits_response = self
            .response
            .as_ref()
            .is_some_and(|limits| limits.media_types.is_some());
        if !matches_host || !matches_port || (limits_response && !request.sees_response) {
            return Ok(false);
        }
        let methods = self.methods.as_ref();
        let method_result = is_met(methods, &request.method, denies, |methods, method| {
            // Methods are case-sensitive (RFC 9110, section 9.1), but some servers read `post` as `POST`.
            methods.contains(*method) || (denies && methods.contains(&method.to_ascii_uppercase()))
        });
        let paths = self.paths.as_ref();
        let path_result = is_met(paths, &request.path, denies, |paths, path| {
            // A path has one reading for a rule that allows, and every one for a rule that denies (I-4).
            if denies {
                paths.denies(path)
            } else {
                paths.allows(path)
            }
        });
        // A condition that is not met decides, and the other one does not matter.
        match (method_result, path_result) {
            (Some(false), _) | (_, Some(false)) => Ok(false),
            (Some(true), Some(true)) => Ok(true),
            _ => Err(UnrecordedPart),
        }
    }
}

/// Whether a condition is met; `None` when that depends on a part that was not recorded.
fn is_met<C, T>(
    condition: Option<&C>,
    part: &ObservedPart<T>,
    denies: bool,
    is_match: impl Fn(&C, &T) -> bool,
) -> Option<bool> {
    match (condition, part) {
        (None, _) => Some(true),
        (Some(condition), ObservedPart::Seen(part)) => Some(is_match(condition, part)),
        (Some(_), ObservedPart::Hidden) => Some(denies),
        // Each request inside is judged later; here it suffices that a request could pass.
        (Some(_), ObservedPart::Deferred) => Some(!denies),
        (Some(_), ObservedPart::Unrecorded) => None,
    }
}
