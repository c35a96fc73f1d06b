//! Explains a judgement: every step with the rule that decided it, in the messages of the contract.
//!
//! The reply names settings and never their values, and contains no address and no text of a resolver (I-8).

use dray_bus::Meta;
use dray_guard::{JudgedStep, PolicyStep, RuleOwner, StepLog};
use dray_proto::v1;
use dray_service::config::ValueOrigins;
use dray_types::{Deadline, Fault};

use super::policy::PATH_SETTING;
use super::{EgressFetcher, with_trace};
use crate::fetch::{FetchJob, PolicyExplanation};
use crate::record::FetchRecord;

/// Section of the configuration that holds the operator's policy.
const SECTION_NAME: &str = "egress-fetcher";
/// The app's policy in its manifest.
const APP_SECTION: &str = "features.external_url_fetch";

impl EgressFetcher {
    /// Judges the URL of `command`, and looks its name up if requested. A lookup is audited like a fetch.
    pub(super) async fn judge_url(
        &self,
        meta: &Meta,
        command: &FetchJob,
        resolve_names: bool,
        until: Deadline,
    ) -> Result<PolicyExplanation, Fault> {
        let overloaded = || {
            let shown_url = dray_guard::ShownUrl::from_text(&command.url);
            dray_guard::Code::Overloaded.fault(&shown_url, dray_guard::ShownHost::RedirectTarget)
        };
        let _guard = self.fetcher.limits().enter().map_err(|_| overloaded())?;
        if !resolve_names {
            // No query leaves the process, so no audit event is needed.
            let mut record = FetchRecord::default();
            return Ok(self.fetcher.explain(command, false, &mut record).await);
        }
        let mut attempt = self.auditor.begin(meta.clone());
        let explanation = Box::pin(self.fetcher.explain(command, true, &mut attempt.record)).await;
        if !self.audit(attempt, until).await && self.audit_required {
            return Err(overloaded());
        }
        Ok(explanation)
    }

    /// The reply for an explanation.
    pub(super) fn explain_reply(
        &self,
        meta: &Meta,
        explanation: PolicyExplanation,
    ) -> v1::ExplainReply {
        let PolicyExplanation {
            steps,
            refusal,
            complete,
            rules_digest,
            decided_by,
            quota,
            reported_by,
        } = explanation;
        let verdict = match &refusal {
            Some(_) => v1::StepVerdict::Refused,
            None => v1::StepVerdict::Allowed,
        };
        v1::ExplainReply {
            steps: self.reported_steps(&steps, &decided_by, &quota),
            verdict: verdict.into(),
            fault: refusal.map(|refusal| with_trace(refusal.fault, meta).into()),
            complete,
            rules_digest,
            reported_by,
        }
    }

    fn reported_steps(
        &self,
        log: &StepLog,
        decided_by: &str,
        quota: &str,
    ) -> Vec<v1::JudgementStep> {
        let origins = &self.cx.origins;
        let mut steps = reported_steps(log, origins, decided_by, quota);
        // The table of steps always names `policy_path`, but another setting may say where the files are.
        let of_files = format!("{SECTION_NAME}.{PATH_SETTING}");
        for step in steps.iter_mut().filter(|step| step.setting == of_files) {
            step.setting = format!("{SECTION_NAME}.{}", self.policy_setting);
            origins.of(self.policy_setting).clone_into(&mut step.origin);
        }
        steps
    }
}

/// Every step in order; a step that was not reached is `NOT_JUDGED`.
fn reported_steps(
    log: &StepLog,
    origins: &ValueOrigins,
    decided_by: &str,
    quota: &str,
) -> Vec<v1::JudgementStep> {
    let steps = PolicyStep::ALL_STEPS.into_iter();
    steps
        .map(|step| {
            let mut reported = reported_step(step, log.find(step), origins);
            match step {
                PolicyStep::PolicyRules => decided_by.clone_into(&mut reported.decided_by),
                PolicyStep::Quota => quota.clone_into(&mut reported.decided_by),
                _ => {}
            }
            reported
        })
        .collect()
}

fn reported_step(
    step: PolicyStep,
    judged: Option<JudgedStep>,
    origins: &ValueOrigins,
) -> v1::JudgementStep {
    let text = StepText::of(step);
    let verdict = match judged {
        None => v1::StepVerdict::NotJudged,
        Some(JudgedStep { refusal: None, .. }) => v1::StepVerdict::Allowed,
        Some(_) => v1::StepVerdict::Refused,
    };
    let refusal = judged.and_then(|judged| judged.refusal);
    let owner = judged.map_or(text.owner, |judged| judged.owner);
    let (setting, origin) = match owner {
        RuleOwner::Operator if !text.field.is_empty() => (
            format!("{SECTION_NAME}.{}", text.field),
            origins.of(text.field),
        ),
        RuleOwner::App => (format!("{APP_SECTION}.{}", text.field), ""),
        RuleOwner::Operator | RuleOwner::BuiltIn => (String::new(), ""),
    };
    v1::JudgementStep {
        step: text.code.into(),
        verdict: verdict.into(),
        code: refusal.map_or("", |code| code.as_str()).to_owned(),
        rule: text.rule.to_owned(),
        setting,
        origin: origin.to_owned(),
        decided_by: String::new(),
    }
}

/// The name of a step, as in the contract.
pub(crate) fn step_name(step: PolicyStep) -> &'static str {
    dray_proto::NamedCode::name(StepText::of(step).code)
}

/// The setting that a step applies.
struct StepText {
    code: v1::PolicyStep,
    rule: &'static str,
    owner: RuleOwner,
    /// Field of the configuration or of the app's policy; empty without one.
    field: &'static str,
}

impl StepText {
    #[rustfmt::skip]
    const fn of(step: PolicyStep) -> Self {
        use RuleOwner::{App, BuiltIn, Operator};
        use v1::PolicyStep as Wire;
        let (code, owner, field, rule) = match step {
            PolicyStep::OperatorSwitch => (Wire::OperatorSwitch, Operator, "enabled", "The operator enables fetching."),
            PolicyStep::AppSwitch => (Wire::AppSwitch, App, "enabled", "The app does not disable fetching."),
            PolicyStep::AppPatterns => (Wire::AppPatterns, App, "host_allowlist", "Every pattern of the app's host list is valid."),
            PolicyStep::Url => (Wire::Url, BuiltIn, "", "The URL is absolute, http or https, without credentials, and has one reading."),
            PolicyStep::Scheme => (Wire::Scheme, Operator, "https_only", "The scheme is https where the operator requires it."),
            PolicyStep::OperatorHosts => (Wire::OperatorHosts, Operator, "host_allowlist", "The operator's host list, where there is one, names the host."),
            PolicyStep::AppHosts => (Wire::AppHosts, App, "host_allowlist", "The app's host list, where there is one, names the host."),
            PolicyStep::Port => (Wire::Port, Operator, "allowed_ports", "The port is allowed and belongs to no other protocol."),
            PolicyStep::HostName => (Wire::HostName, Operator, "extra_blocked_hosts", "The host is not a local, internal, reserved or blocked name."),
            PolicyStep::PolicyRules => (Wire::PolicyRules, Operator, "policy_path", "The rules of the policy files, where there are some, allow the request."),
            PolicyStep::Quota => (Wire::Quota, Operator, "policy_path", "The quotas of the policy files, where there are some, have room."),
            PolicyStep::Resolution => (Wire::Resolution, BuiltIn, "", "DNS has addresses for the host."),
            PolicyStep::Addresses => (Wire::Addresses, Operator, "private_cidrs", "Every address of the host is public, or in a range that the operator opened."),
            PolicyStep::Robots => (Wire::Robots, Operator, "robots", "The robots.txt of the host allows the request, where the operator wants that; only a fetch asks for it."),
        };
        Self { code, rule, owner, field }
    }
}

#[cfg(test)]
mod tests {
    use dray_proto::NamedCode as _;

    use super::*;

    #[test]
    fn every_step_has_its_own_code_in_the_order_of_the_contract() {
        let steps = reported_steps(&StepLog::default(), &ValueOrigins::default(), "", "");
        let codes: Vec<i32> = steps.iter().map(|step| step.step).collect();
        // Numbers are never changed, so later steps have higher ones.
        assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 10, 11, 14]);
        for step in &steps {
            assert_eq!(step.verdict(), v1::StepVerdict::NotJudged);
            assert!(!step.step().name().is_empty() && !step.rule.is_empty());
        }
    }

    #[test]
    fn every_setting_of_the_operator_exists() {
        let config = serde_json::to_value(crate::Config::default()).unwrap();
        let operator = PolicyStep::ALL_STEPS
            .map(StepText::of)
            .into_iter()
            .filter(|text| text.owner == RuleOwner::Operator);
        for text in operator {
            assert!(config.get(text.field).is_some(), "{}", text.field);
        }
    }
}
