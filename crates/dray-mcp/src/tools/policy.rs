//! `policy_check`: whether a URL may be fetched, and which rule decides, without fetching it.

use dray_proto::{NamedCode as _, v1};
use dray_types::Fault;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use super::{ToolCall, extended, structured_result};
use crate::arguments::PolicyArguments;
use crate::client::SHORT_TIMEOUT;
use crate::failure;

impl ToolCall<'_> {
    /// A refusal is a result here, not a failure of the tool.
    pub(super) async fn policy(
        &mut self,
        policy: PolicyArguments,
    ) -> Result<CallToolResult, Fault> {
        let request = v1::ExplainRequest {
            url: policy.url,
            app_policy: policy.allow.map(|patterns| v1::AppPolicy {
                enabled: None,
                host_allowlist: Some(v1::HostAllowlist { patterns }),
            }),
            resolve_names: policy.resolve,
            client_certificate: String::new(),
        };
        // The call is not repeated, because a refusal is a decision.
        let reply = self
            .access
            .client
            .call_once(SHORT_TIMEOUT, &request)
            .await?;
        let steps: Vec<Value> = reply.steps.iter().map(step_json).collect();
        let value = json!({
            "verdict": reply.verdict().name(),
            "complete": reply.complete,
            "steps": steps,
        });
        let fault = reply.fault.map(Fault::try_from).transpose();
        let Some(fault) = fault.map_err(|_| Fault::internal())? else {
            return Ok(structured_result(value));
        };
        let refusal = json!({
            "code": fault.detail,
            "message": failure::fault_text(&fault),
        });
        Ok(structured_result(extended(value, refusal)))
    }
}

/// One step; empty fields are left out.
fn step_json(step: &v1::JudgementStep) -> Value {
    let mut value = json!({"step": step.step().name(), "verdict": step.verdict().name()});
    for (name, text) in [
        ("setting", &step.setting),
        ("origin", &step.origin),
        ("code", &step.code),
    ] {
        if !text.is_empty() {
            value = extended(value, json!({name: text}));
        }
    }
    if step.verdict() == v1::StepVerdict::Refused {
        value = extended(value, json!({"rule": step.rule}));
    }
    value
}
