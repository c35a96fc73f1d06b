//! `dray policy explain`: how the policy decides about a URL, step by step, without a fetch.

use std::fmt::Write as _;
use std::time::Duration;

use dray_proto::{NamedCode as _, v1};
use dray_types::Fault;
use serde_json::{Value, json};

use crate::cli::{GlobalOptions, PolicyCommand, PolicyExplainArgs};
use crate::commands::{policy, policy_bucket, policy_files, policy_questions};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, fault_json, print_line};

/// Timeout of the call; one DNS lookup is the longest part of it.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the command.
pub(crate) async fn run(
    global: &GlobalOptions,
    command: &PolicyCommand,
) -> Result<(), CommandFailure> {
    let explain = match command {
        PolicyCommand::Explain(explain) => explain,
        PolicyCommand::Test(test) => return policy_files::test(global, test).await,
        PolicyCommand::Show(show) => return policy_bucket::show(global, show).await,
        PolicyCommand::Put(put) => return policy_bucket::put(global, put).await,
        PolicyCommand::Diff(diff) => return policy_files::diff(global, diff).await,
        PolicyCommand::Questions(list) => return policy_questions::list(global, list).await,
        PolicyCommand::Answer(answer) => return policy_questions::answer(global, answer).await,
    };
    let request = v1::ExplainRequest {
        url: explain.url.clone(),
        app_policy: app_policy(explain)?,
        resolve_names: explain.resolve,
        client_certificate: explain.certificate.clone().unwrap_or_default(),
    };
    let system = SystemConnection::open_to_ask(global, &["egress-fetcher"]).await?;
    let mut meta = system.meta(EXPLAIN_TIMEOUT);
    if let Some(app) = &explain.app {
        meta = meta.with_app(app.clone());
    }
    if let Some(session) = &explain.session {
        meta = meta.with_session(session.clone());
    }
    // The call is not repeated: a refusal is the result that was requested, and not a failure.
    let reply = system.call_once(&meta, &request).await;
    system.close().await;
    let reply = reply?;
    let fault = reply.fault.clone().map(Fault::try_from).transpose();
    let fault = fault.map_err(|_| Fault::internal())?;
    if global.json {
        print_line(&explanation_json(&reply, fault.as_ref()).to_string());
    } else {
        print_line(&explanation_text(&reply, fault.as_ref()));
    }
    match fault {
        None => Ok(()),
        Some(_) => Err(CommandFailure::Reported),
    }
}

fn app_policy(explain: &PolicyExplainArgs) -> Result<Option<v1::AppPolicy>, CommandFailure> {
    if explain.allow.is_empty() {
        return policy::read_policy(explain.app_policy.as_deref());
    }
    Ok(Some(v1::AppPolicy {
        enabled: None,
        host_allowlist: Some(v1::HostAllowlist {
            patterns: explain.allow.clone(),
        }),
    }))
}

fn explanation_json(reply: &v1::ExplainReply, fault: Option<&Fault>) -> Value {
    let steps = reply.steps.iter().map(|step| {
        json!({
            "step": step.step().name(),
            "verdict": step.verdict().name(),
            "code": step.code,
            "rule": step.rule,
            "setting": step.setting,
            "origin": step.origin,
            "decided_by": step.decided_by,
        })
    });
    json!({
        "verdict": reply.verdict().name(),
        "complete": reply.complete,
        "steps": steps.collect::<Vec<Value>>(),
        "fault": fault.map(fault_json),
        "rules_digest": reply.rules_digest,
        "reported_by": reply.reported_by,
    })
}

fn explanation_text(reply: &v1::ExplainReply, fault: Option<&Fault>) -> String {
    let mut text = String::new();
    for step in &reply.steps {
        let (name, verdict) = (step.step().name(), step.verdict().name().replace('_', " "));
        let _ = write!(text, "{name:<16} {verdict:<11} {}", step.rule);
        if !step.setting.is_empty() {
            let _ = write!(text, " [{}", step.setting);
            if !step.origin.is_empty() {
                let _ = write!(text, ", {}", step.origin);
            }
            text.push(']');
        }
        if !step.decided_by.is_empty() {
            let _ = write!(text, ": {}", step.decided_by);
        }
        text.push('\n');
    }
    if !reply.rules_digest.is_empty() {
        let _ = writeln!(text, "policy files {}", reply.rules_digest);
    }
    if !reply.reported_by.is_empty() {
        let _ = writeln!(text, "reported by {}", reply.reported_by);
    }
    match fault {
        Some(fault) => {
            let _ = write!(
                text,
                "refused: {} ({}, {})",
                fault.message, fault.detail, fault.code
            );
            if !fault.advice.is_empty() {
                let _ = write!(text, "\n{}", fault.advice);
            }
        }
        None if reply.complete => text.push_str("allowed"),
        None => text.push_str(
            "allowed as far as it was checked; --resolve also looks up the host and checks its addresses",
        ),
    }
    text
}

#[cfg(test)]
mod tests {
    use dray_types::FaultCode;

    use super::*;

    #[test]
    fn a_step_is_shown_with_its_setting_and_a_refusal_with_its_code() {
        let mut step = v1::JudgementStep {
            rule: "The scheme is https.".to_owned(),
            setting: "egress-fetcher.https_only".to_owned(),
            origin: "file".to_owned(),
            ..v1::JudgementStep::default()
        };
        step.set_step(v1::PolicyStep::Scheme);
        step.set_verdict(v1::StepVerdict::Refused);
        let reply = v1::ExplainReply {
            steps: vec![step],
            ..v1::ExplainReply::default()
        };
        let fault = Fault::new(FaultCode::Unsupported, "No.").detail("unsupported_scheme");
        let text = explanation_text(&reply, Some(&fault));
        assert_eq!(
            text,
            "scheme           refused     The scheme is https. [egress-fetcher.https_only, file]\n\
             refused: No. (unsupported_scheme, unsupported)"
        );
    }
}
