//! References to files in arguments, which the file-resolver replaces by content (quickapps 30), and ids of files, which
//! it replaces by links (agent-file-context 15).

use async_trait::async_trait;
use bytes::Bytes;
use dray_proto::v1::{self, resolve_reply};
use dray_tool::{ArgumentResolver, ToolFailure};
use dray_types::ByteSize;
use dray_types::reference::{FileReference, ParsedReference};
use serde_json::{Map, Value};

use super::ask::{CallFailure, PeerService};
use super::context::ContextBuilder;
use super::scope::TurnScope;

/// Most bytes of one call's resolved arguments, as a multiple of the largest file.
const MAX_FILE_MULTIPLE: u64 = 8;
/// Bytes of arguments beside their files.
const MAX_OTHER_BYTES: u64 = 8 << 20;

/// Replaces references to files by their content, and ids of files by links.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceResolver<'a> {
    pub(super) scope: &'a TurnScope,
    pub(super) context: &'a ContextBuilder,
}

#[async_trait]
impl ArgumentResolver for ReferenceResolver<'_> {
    async fn resolve(
        &self,
        tool: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        let services = &self.scope.services;
        let nested = services.config.nested;
        // Most arguments contain no reference and need no request.
        if !arguments
            .values()
            .any(|value| has_reference(value, nested, 0))
        {
            return Ok(arguments);
        }
        for value in arguments.values_mut() {
            self.replace_targets(value, nested, 0);
        }
        let json = serde_json::to_vec(&arguments).map_err(|_| garbled_reply_failure())?;
        let time = services.config.transfer_timeout.as_duration();
        let request = v1::ResolveRequest {
            arguments: Some(
                services
                    .content(Bytes::from(json), "application/json")
                    .await?,
            ),
            options: Some(v1::ResolveOptions {
                size_limit_bytes: self.scope.limit(),
                external_url_fetch: self.scope.policy(),
                nested,
                tool_timeout_ms: services.config.transfer_timeout.as_millis(),
                request: self.scope.request().to_owned(),
            }),
            credentials: Some(self.scope.credentials()),
            tool: tool.to_owned(),
            presign: false,
        };
        let meta = self.scope.meta(time);
        let reply = services
            .call_with_heartbeat(PeerService::Documents, &meta, &request)
            .await?;
        match reply.outcome {
            Some(resolve_reply::Outcome::Resolved(resolved)) => {
                let max_bytes = self
                    .scope
                    .limit()
                    .saturating_mul(MAX_FILE_MULTIPLE)
                    .saturating_add(MAX_OTHER_BYTES);
                let bytes = services
                    .read(
                        PeerService::Documents,
                        resolved.arguments,
                        ByteSize::bytes(max_bytes),
                        time,
                    )
                    .await?;
                serde_json::from_slice(&bytes).map_err(|_| garbled_reply_failure())
            }
            Some(resolve_reply::Outcome::Invalid(invalid)) => Err(parameter_failure(invalid)),
            None => Err(garbled_reply_failure()),
        }
    }

    async fn replace_ids(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        self.context.substitute(arguments).await
    }

    fn replace_ids_by_addresses(&self, argument: &mut Value) {
        self.context.replace_ids_by_addresses(argument);
    }
}

impl ReferenceResolver<'_> {
    /// Replaces ids of files in references by the addresses of these files, where references are resolved.
    fn replace_targets(&self, value: &mut Value, nested: bool, depth: u32) {
        match value {
            Value::String(text) => {
                let ParsedReference::Reference(reference) = FileReference::parse(text) else {
                    return;
                };
                let catalog = &self.context.catalog;
                let address = catalog.address_of(reference.target, &self.scope.services);
                if let Some(address) = address {
                    // A final line feed belongs to the reference and not to its target.
                    let head = text.trim_end_matches('\n').strip_suffix(reference.target);
                    *text = format!("{}{address}", head.unwrap_or_default());
                }
            }
            Value::Array(items) if nested || depth == 0 => items
                .iter_mut()
                .for_each(|item| self.replace_targets(item, nested, depth + 1)),
            Value::Object(members) if nested => members
                .values_mut()
                .for_each(|member| self.replace_targets(member, nested, depth + 1)),
            _ => {}
        }
    }
}

fn garbled_reply_failure() -> ToolFailure {
    CallFailure::Malformed(PeerService::Documents).into()
}

/// A problem with an argument that the model can correct. The fault describes the problem; `tool_message` adds the name
/// of the argument, as for every failure of this kind.
fn parameter_failure(invalid: v1::InvalidParameter) -> ToolFailure {
    match invalid.fault {
        Some(fault) => ToolFailure::parameter(invalid.parameter, fault.message),
        None => garbled_reply_failure(),
    }
}

/// Whether a value of an argument contains a reference where references are allowed: at the top level and in lists
/// there, or at any depth.
fn has_reference(value: &Value, nested: bool, depth: u32) -> bool {
    match value {
        Value::String(text) => !matches!(FileReference::parse(text), ParsedReference::Plain),
        Value::Array(items) if nested || depth == 0 => items
            .iter()
            .any(|item| has_reference(item, nested, depth + 1)),
        Value::Object(members) if nested => members
            .values()
            .any(|member| has_reference(member, nested, depth + 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, flat: bool, nested: bool) {
        assert_eq!(has_reference(value, false, 0), flat, "{value}");
        assert_eq!(has_reference(value, true, 0), nested, "{value}, nested");
    }

    #[test]
    fn r_5_references_count_at_the_top_and_in_lists_there_and_deeper_when_switched_on() {
        check(&json!("file:text::a"), true, true);
        check(&json!("//FILE:base64::a"), true, true);
        check(&json!(["x", "file:a"]), true, true);
        check(&json!([["file:text::a"]]), false, true);
        check(&json!({"a": {"b": "file:text::a"}}), false, true);
        check(&json!("see file:text::a"), false, false);
        check(&json!({"file:text::a": 1}), false, false);
        check(&json!(7), false, false);
    }

    #[test]
    fn an_invalid_parameter_fails_with_the_message_of_its_fault() {
        let invalid = v1::InvalidParameter {
            parameter: "doc".to_owned(),
            tool_message: "Parameter doc is invalid: too big".to_owned(),
            fault: Some(v1::Fault {
                message: "too big".to_owned(),
                ..v1::Fault::default()
            }),
            ..v1::InvalidParameter::default()
        };
        let failure = parameter_failure(invalid.clone());
        assert!(
            matches!(&failure, ToolFailure::Parameter { name, message } if name == "doc" && message == "too big"),
            "{failure}"
        );
        let failure = parameter_failure(v1::InvalidParameter {
            fault: None,
            ..invalid
        });
        assert!(matches!(failure, ToolFailure::Failed(_)), "{failure}");
    }
}
