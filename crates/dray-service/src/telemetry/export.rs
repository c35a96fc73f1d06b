//! Removes the secrets of presigned URLs from spans on their way to a collector (messaging-reliability L-1). Log
//! lines that are written inside a span travel with it.

use std::time::Duration;

use opentelemetry::trace::Status;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::redact::redact_line;

/// An exporter of spans that redacts every text in them.
#[derive(Debug)]
pub(super) struct RedactingExporter<E> {
    inner: E,
}

impl<E> RedactingExporter<E> {
    pub(super) fn new(inner: E) -> Self {
        Self { inner }
    }
}

impl<E: SpanExporter> SpanExporter for RedactingExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            // All texts, not only known fields, because any error may contain a URL.
            redact_attributes(&mut span.attributes);
            for event in &mut span.events.events {
                event.name = redact_line(&event.name).into();
                redact_attributes(&mut event.attributes);
            }
            if let Status::Error { description } = &mut span.status {
                *description = redact_line(description).into();
            }
        }
        self.inner.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

fn redact_attributes(attributes: &mut [KeyValue]) {
    for attribute in attributes {
        if let Value::String(text) = &attribute.value {
            attribute.value = Value::String(redact_line(text.as_str()).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn secrets_of_presigned_urls_do_not_reach_a_collector() {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(RedactingExporter::new(exporter.clone()))
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let url = "https://s3/b?X-Amz-Credential=AKID&X-Amz-Signature=5ec4e7";
            let span = tracing::info_span!(
                "upload",
                url,
                otel.status_code = "error",
                otel.status_description = url
            );
            let _inside = span.enter();
            tracing::error!(url, "uploading to {url}");
        });
        provider.force_flush().unwrap();
        let spans = format!("{:?}", exporter.get_finished_spans().unwrap());
        assert!(
            spans.matches("X-Amz-Credential=***").count() >= 4,
            "{spans}"
        );
        for secret in ["AKID", "5ec4e7"] {
            assert!(!spans.contains(secret), "{secret} is in {spans}");
        }
    }
}
