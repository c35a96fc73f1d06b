//! Traces and metrics of a turn, by OpenTelemetry's conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>). The turn has a span `invoke_agent`, with a span `chat`
//! below it for each call of the model and `execute_tool` for each call of a tool. They contain message contents only
//! if the operator wants that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_agent::budget::TokenPrice;
use dray_agent::event::{ModelUsage, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Content, Message};
use dray_dial::chat::{ChatError, ChatKind};
use dray_tool::pipeline::{CompletedCall, RequestEnd, ToolRequest};
use opentelemetry::trace::Status;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use serde_json::{Map, Value as Json};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::SharedParts;
use super::relay::ModelAnswer;
use super::report::{ParentTurn, TurnEnd, TurnReport};
use crate::http::{CheckedChatRequest, ManifestSource};
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerIdentity;

mod contents;

const OPERATION_NAME: &str = "gen_ai.operation.name";
const PROVIDER_NAME: &str = "gen_ai.provider.name";
const REQUEST_MODEL: &str = "gen_ai.request.model";
const ERROR_TYPE: &str = "error.type";
/// Name of an agent whose manifest came in the request.
const GIVEN_AGENT: &str = "given";
/// Parameters of a request that its span contains as numbers with a fraction, with their names there.
const SHOWN_FRACTIONS: [(&str, &str); 4] = [
    ("temperature", "gen_ai.request.temperature"),
    ("top_p", "gen_ai.request.top_p"),
    ("frequency_penalty", "gen_ai.request.frequency_penalty"),
    ("presence_penalty", "gen_ai.request.presence_penalty"),
];
/// The same for whole numbers.
const SHOWN_INTEGERS: [(&str, &str); 3] = [
    ("max_tokens", "gen_ai.request.max_tokens"),
    // The later name of OpenAI's API for the same limit.
    ("max_completion_tokens", "gen_ai.request.max_tokens"),
    ("seed", "gen_ai.request.seed"),
];

/// Reports one turn.
#[derive(Debug)]
pub(super) struct TurnTelemetry {
    metrics: OrchestratorMetrics,
    agent: String,
    /// `agent` and `client`, from sets of limited size.
    labels: [KeyValue; 2],
    provider: &'static str,
    prices: Arc<BTreeMap<String, TokenPrice>>,
    /// Most characters of a content in a span; `None` if spans contain no contents.
    max_content: Option<usize>,
    used: Mutex<TokenUsage>,
    /// The events of the turn.
    pub(super) report: TurnReport,
}

impl TurnTelemetry {
    /// A turn that begins now. `parent` is the agent that called this one or handed over to it.
    pub(super) fn new(
        parts: &SharedParts,
        request: &CheckedChatRequest,
        parent: Option<ParentTurn>,
    ) -> Self {
        let agent = match &request.manifest {
            ManifestSource::Named(name) | ManifestSource::Application(name) => name.clone(),
            ManifestSource::Given(_) => GIVEN_AGENT.to_owned(),
            ManifestSource::Default => {
                let default = parts.config.default_manifest.clone();
                default.unwrap_or_else(|| request.deployment.clone())
            }
        };
        let client = match &request.identity {
            CallerIdentity::Local => "local",
            CallerIdentity::Client(name) => name,
            // One name for all users, because their number has no limit.
            CallerIdentity::Dial(_) => "dial",
        };
        let report = TurnReport::new(
            (&agent, client, &request.request_id),
            request.trace.clone(),
            parent,
            || parts.turn_events.queue(),
        );
        Self {
            report,
            labels: parts.metrics.turn_labels(&agent, client),
            metrics: parts.metrics.clone(),
            agent,
            // Only DIAL knows the provider of a model behind it.
            provider: if parts.config.model_url.is_some() {
                "openai"
            } else {
                "dial"
            },
            prices: Arc::clone(&parts.prices),
            max_content: parts.config.trace_contents.then(|| {
                usize::try_from(parts.config.log_payloads_max_length).unwrap_or(usize::MAX)
            }),
            used: Mutex::default(),
        }
    }

    /// Begins the span `invoke_agent` of the OpenTelemetry conventions for generative AI; its calls are its children.
    pub(super) fn agent_span(&self) -> Span {
        let name = format!("invoke_agent {}", self.agent);
        let span = tracing::info_span!("invoke_agent", otel.name = name, otel.kind = "internal");
        span.set_attribute(OPERATION_NAME, "invoke_agent");
        span.set_attribute(PROVIDER_NAME, self.provider);
        span.set_attribute("gen_ai.agent.name", self.agent.clone());
        span
    }

    /// Ends the span of the turn.
    pub(super) fn end_turn(&self, span: &Span, ended: &Result<TurnEnd, RequestFailure>) {
        self.report.end(ended.as_ref());
        self.note_used(span);
        match ended {
            Ok(end) => note_reason(span, end.answer.reason.as_str()),
            Err(failure) => note_failure(span, failure.status.to_string()),
        }
    }

    /// Reports a turn that failed before it could run.
    pub(super) fn report_opening<T>(&self, opened: &Result<T, RequestFailure>) {
        if let Err(failure) = opened {
            self.report.end(Err(failure));
        }
    }

    /// Ends the span of an agent that was handed the turn.
    pub(super) fn end_part(&self, span: &Span) {
        self.note_used(span);
    }

    /// Adds the tokens of the turn so far, if a model has reported any.
    fn note_used(&self, span: &Span) {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used != TokenUsage::default() {
            note_tokens(span, used);
        }
    }

    /// The span of a call of the model with these parameters and messages.
    pub(super) fn chat_span(
        &self,
        model: &str,
        parameters: &Map<String, Json>,
        messages: &[Message],
    ) -> Span {
        let name = format!("chat {model}");
        let span = tracing::info_span!("chat", otel.name = name, otel.kind = "client");
        span.set_attribute(OPERATION_NAME, "chat");
        span.set_attribute(PROVIDER_NAME, self.provider);
        span.set_attribute(REQUEST_MODEL, model.to_owned());
        for (attribute, value) in shown_parameters(parameters) {
            span.set_attribute(attribute, value);
        }
        if let Some(max_chars) = self.max_content {
            let messages = contents::input_messages(messages, max_chars);
            span.set_attribute("gen_ai.input.messages", messages);
        }
        span
    }

    /// Ends the span of a call of the model, and records how long it took.
    pub(super) fn end_chat(
        &self,
        span: &Span,
        model: &str,
        ended: Result<&ModelAnswer, &'static str>,
        elapsed: Duration,
    ) {
        match ended {
            Ok(answer) => {
                let answered = answer.model.as_deref().unwrap_or(model);
                span.set_attribute("gen_ai.response.model", answered.to_owned());
                if let Some(reason) = answer.reason {
                    note_reason(span, reason.as_str());
                }
                if let Some(max_chars) = self.max_content {
                    let messages = contents::output_messages(answer, max_chars);
                    span.set_attribute("gen_ai.output.messages", messages);
                }
            }
            Err(kind) => note_failure(span, kind.to_owned()),
        }
        let (provider, kind) = (self.provider, ended.err());
        self.report.model_call(model, kind.is_some());
        self.metrics.chat_duration(provider, model, kind, elapsed);
    }

    /// Records the tokens of a call of the model, in its span as well.
    pub(super) fn chat_usage(&self, model: &str, usage: &[ModelUsage]) {
        if usage.is_empty() {
            return;
        }
        let all = usage
            .iter()
            .fold(TokenUsage::default(), |sum, usage| sum.plus(usage.tokens));
        note_tokens(&Span::current(), all);
        self.metrics.chat_tokens(self.provider, model, all);
        self.usage(model, usage);
    }

    /// Counts tokens and their cost for the agent and the client.
    pub(super) fn usage(&self, model: &str, usage: &[ModelUsage]) {
        for usage in usage {
            let price = self
                .prices
                .get(&usage.model)
                .or_else(|| self.prices.get(model));
            let cost = price.map(|price| price.cost(usage.tokens));
            self.metrics.turn_usage(&self.labels, usage.tokens, cost);
            let name = match usage.model.as_str() {
                "" => model,
                name => name,
            };
            self.report.usage(name, usage.tokens, cost);
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            *used = used.plus(usage.tokens);
        }
    }

    /// The span of a call of a tool.
    pub(super) fn tool_span(&self, tool: &str, request: &ToolRequest<'_>) -> Span {
        let name = format!("execute_tool {tool}");
        let span = tracing::info_span!("execute_tool", otel.name = name, otel.kind = "internal");
        span.set_attribute(OPERATION_NAME, "execute_tool");
        span.set_attribute("gen_ai.tool.name", tool.to_owned());
        span.set_attribute("gen_ai.tool.type", "function");
        span.set_attribute("gen_ai.tool.call.id", request.id.to_owned());
        self.note_content(&span, "gen_ai.tool.call.arguments", request.arguments);
        span
    }

    /// Ends the span of a call of a tool.
    pub(super) fn end_tool(&self, span: &Span, ended: &Result<CompletedCall, RequestEnd>) {
        match ended {
            Ok(ran) if ran.failed => note_failure(span, "tool_error".to_owned()),
            Ok(ran) => self.note_content(span, "gen_ai.tool.call.result", text_of(&ran.message)),
            Err(RequestEnd::Gone(_)) => note_failure(span, "cancelled".to_owned()),
            Err(_) => note_failure(span, "tool_error".to_owned()),
        }
    }

    fn note_content(&self, span: &Span, attribute: &'static str, content: &str) {
        if let Some(max_chars) = self.max_content {
            let content: String = content.chars().take(max_chars).collect();
            span.set_attribute(attribute, content);
        }
    }
}

/// The kind of a failed call of the model, from a closed set.
pub(super) const fn error_type(error: &ChatError) -> &'static str {
    match error.kind {
        ChatKind::Connect => "connect",
        ChatKind::Timeout => "timeout",
        ChatKind::Status(429) => "rate_limit",
        ChatKind::Status(400..=499) => "refused",
        ChatKind::Status(_) => "server_error",
        ChatKind::Broken => "broken",
        ChatKind::Malformed => "malformed",
    }
}

/// The parameters of a request that its span contains. Their types are those of the conventions: backends keep one type
/// for each attribute, and `1` after `0.5` would be a conflict.
fn shown_parameters(parameters: &Map<String, Json>) -> Vec<(&'static str, Value)> {
    let fractions = SHOWN_FRACTIONS.into_iter().filter_map(|(name, attribute)| {
        let number = parameters.get(name)?.as_f64()?;
        Some((attribute, Value::F64(number)))
    });
    let integers = SHOWN_INTEGERS.into_iter().filter_map(|(name, attribute)| {
        let number = parameters.get(name)?.as_i64()?;
        Some((attribute, Value::I64(number)))
    });
    fractions.chain(integers).collect()
}

fn note_tokens(span: &Span, tokens: TokenUsage) {
    let counts = [
        ("gen_ai.usage.input_tokens", tokens.prompt),
        ("gen_ai.usage.output_tokens", tokens.completion),
        ("gen_ai.usage.cache_read.input_tokens", tokens.cached),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            tokens.cache_written,
        ),
    ];
    for (attribute, count) in counts {
        span.set_attribute(attribute, i64::try_from(count).unwrap_or(i64::MAX));
    }
}

fn note_reason(span: &Span, reason: &'static str) {
    let reasons = Array::String(vec![StringValue::from(reason)]);
    span.set_attribute("gen_ai.response.finish_reasons", Value::Array(reasons));
}

fn note_failure(span: &Span, kind: String) {
    span.set_status(Status::error(kind.clone()));
    span.set_attribute(ERROR_TYPE, kind);
}

fn text_of(message: &Message) -> &str {
    match &message.content {
        Some(Content::Text(text)) => text,
        _ => "",
    }
}

/// Adds the conversation and the model to the current span, which is that of the turn.
pub(super) fn describe_turn(conversation: &str, model: &str) {
    let span = Span::current();
    span.set_attribute("gen_ai.conversation.id", conversation.to_owned());
    span.set_attribute(REQUEST_MODEL, model.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_have_one_type_in_all_spans() {
        let parameters =
            json!({"temperature": 1, "top_p": 0.5, "max_tokens": 100, "seed": "x", "stop": ["a"]});
        let Json::Object(parameters) = parameters else {
            panic!("the parameters are an object");
        };
        assert_eq!(
            shown_parameters(&parameters),
            [
                ("gen_ai.request.temperature", Value::F64(1.0)),
                ("gen_ai.request.top_p", Value::F64(0.5)),
                ("gen_ai.request.max_tokens", Value::I64(100)),
            ]
        );
    }
}
