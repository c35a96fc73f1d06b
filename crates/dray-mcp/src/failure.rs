//! Faults as results of tools and as errors of the protocol.

use dray_types::{Fault, FaultCode};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// The fault as JSON, for programs.
pub(crate) fn fault_json(fault: &Fault) -> Value {
    json!(fault)
}

/// The fault as sentences for an agent: the cause, the advice, and whether to retry.
pub(crate) fn fault_text(fault: &Fault) -> String {
    let mut text = fault.message.clone();
    if !fault.advice.is_empty() {
        text.push(' ');
        text.push_str(&fault.advice);
    }
    if fault.is_retryable() {
        text.push_str(" The same call may succeed later.");
    }
    text
}

/// The fault with advice for the user of this server, where the service advises a command that does not reach services
/// inside this process.
fn with_advice(fault: &Fault) -> Fault {
    let fault = fault.clone();
    match fault.detail.as_str() {
        "no_session" => fault.advice(
            "Ask the user to name a sandbox with --sandbox or a chat with --to when this server starts (--mcp-sandbox and \
             --mcp-to of `dray up`), or with `dray session bind` in a system with --nats.",
        ),
        _ => fault,
    }
}

/// A failed call of a tool. The model reads it and can act on it.
pub(crate) fn failed_result(fault: &Fault) -> CallToolResult {
    let fault = &with_advice(fault);
    // The fault is in `_meta` and not in the structured content, which has to match the output schema of the tool.
    let mut meta = rmcp::model::MetaObject::new();
    meta.0.insert("drayage/fault".to_owned(), fault_json(fault));
    let mut result = CallToolResult::error(vec![ContentBlock::text(fault_text(fault))]);
    result.meta = Some(meta);
    result
}

/// A failed request that is not a call of a tool, such as `resources/read`.
pub(crate) fn protocol_error(fault: &Fault) -> ErrorData {
    let fault = &with_advice(fault);
    let (message, data) = (fault_text(fault), Some(fault_json(fault)));
    match fault.code {
        FaultCode::NotFound => ErrorData::resource_not_found(message, data),
        // The request as it is can only fail again, as with an invalid argument.
        FaultCode::InvalidArgument
        | FaultCode::Denied
        | FaultCode::TooLarge
        | FaultCode::Unsupported => ErrorData::invalid_params(message, data),
        FaultCode::RateLimited
        | FaultCode::Timeout
        | FaultCode::Unavailable
        | FaultCode::Internal => ErrorData::internal_error(message, data),
    }
}

/// Like [`protocol_error`], with the resource that the request named (SEP-2164).
pub(crate) fn resource_error(fault: &Fault, uri: &str) -> ErrorData {
    let mut error = protocol_error(fault);
    if let Some(Value::Object(data)) = &mut error.data {
        data.insert("uri".to_owned(), Value::from(uri));
    }
    error
}

/// A request that was wrong in a way that the caller can correct.
pub(crate) fn invalid(message: impl Into<String>, advice: impl Into<String>) -> Fault {
    Fault::new(FaultCode::InvalidArgument, message).advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_this_side_is_an_internal_error() {
        let code = |code: FaultCode| protocol_error(&Fault::new(code, "No.")).code.0;
        let codes = FaultCode::ALL_CODES.map(code);
        let expected = [
            -32602, -32002, -32602, -32602, -32602, -32603, -32603, -32603, -32603,
        ];
        assert_eq!(codes, expected);
    }

    #[test]
    fn a_missing_binding_names_the_options_of_this_server() {
        let unbound = Fault::new(FaultCode::NotFound, "This session is not known.")
            .detail("no_session")
            .advice("Bind it with `dray session bind`.");
        let result = failed_result(&unbound);
        let text = serde_json::to_string(&result).unwrap();
        assert!(
            text.contains("--sandbox") && text.contains("no_session"),
            "{text}"
        );
        let other = Fault::new(FaultCode::NotFound, "Gone.").advice("Look again.");
        assert!(protocol_error(&other).message.contains("Look again."));
    }
}
