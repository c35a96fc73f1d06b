//! Writes one log line for each event, with the fields of the event and of its spans.
//!
//! The formatters of `tracing-subscriber` repeat the fields of every span in every line, and the innermost span twice.
//! Here the fields of all spans are merged: the innermost value of a name counts.

use std::error::Error;
use std::fmt;

use dray_types::ErrorChain;
use dray_types::invisible::is_unprintable;
use dray_types::terminal::printable_json;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::settings::LogFormat;

/// Prefixes of span fields that only a trace collector needs.
const TRACE_ONLY: [&str; 2] = ["otel.", "messaging."];

/// Names and values of fields.
#[derive(Clone, Debug, Default)]
struct LogFields(Map<String, Value>);

impl LogFields {
    fn insert(&mut self, field: &Field, value: Value) {
        let name = field.name();
        // Fields with a keyword as name, such as `r#type`, keep the prefix in `tracing`.
        let name = name.strip_prefix("r#").unwrap_or(name);
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.insert(field, ErrorChain(value).to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }
}

/// A layer that keeps the fields of every span for the lines that are logged in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanFields;

impl<S> Layer<S> for SpanFields
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = LogFields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<LogFields>()
        {
            values.record(fields);
        }
    }
}

/// A formatter that writes one line for each event. It needs [`SpanFields`] in the same subscriber.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineFormatter {
    pub(super) format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for LineFormatter
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let LogFields(mut fields) = fields;
        let message = fields.remove("message");
        // Spans are read from the innermost outwards: the first value of a name stays.
        for span in context.event_scope().into_iter().flatten() {
            if let Some(LogFields(outer)) = span.extensions().get::<LogFields>() {
                for (name, value) in outer {
                    if !TRACE_ONLY.iter().any(|prefix| name.starts_with(prefix)) {
                        fields.entry(name.clone()).or_insert_with(|| value.clone());
                    }
                }
            }
        }
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let metadata = event.metadata();
        match self.format {
            LogFormat::Text => {
                let level = metadata.level();
                let target = metadata.target();
                write!(writer, "{timestamp} {level:>5} {target}:")?;
                if let Some(message) = message {
                    write!(writer, " {}", value_text(&message, false))?;
                }
                for (name, value) in &fields {
                    write!(writer, " {name}={}", value_text(value, true))?;
                }
                writeln!(writer)
            }
            LogFormat::Json => {
                fields.insert("timestamp".to_owned(), timestamp.into());
                fields.insert("level".to_owned(), metadata.level().as_str().into());
                fields.insert("target".to_owned(), metadata.target().into());
                fields.extend(message.map(|message| ("message".to_owned(), message)));
                let json = Value::Object(fields).to_string();
                writeln!(writer, "{}", printable_json(&json))
            }
        }
    }
}

/// Formats a value in a line of text. A value whose end would be unclear is quoted, and no value can start a new line.
fn value_text(value: &Value, is_field: bool) -> String {
    let Value::String(string) = value else {
        return value.to_string();
    };
    // Such characters would let a value from outside forge a log line or hide a part of it (CWE-117).
    let is_plain =
        |character: char| !(is_unprintable(character) || is_field && " \"=".contains(character));
    if string.chars().all(is_plain) && !(is_field && string.is_empty()) {
        string.clone()
    } else {
        format!("{string:?}")
    }
}
