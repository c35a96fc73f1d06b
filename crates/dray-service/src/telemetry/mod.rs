//! Logs, traces and metrics of one process, as values: nothing here is global. Only the edge of a binary makes the
//! subscriber global ([`Telemetry::install`]); two systems in one process share the global subscriber and have their
//! own meters.

mod catalogue;
mod export;
mod line;
mod redact;
mod standalone;
#[cfg(test)]
mod tests;

use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use prometheus::{Encoder as _, TextEncoder};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

pub use catalogue::{Instrument, InstrumentCatalogue, InstrumentGroup, metrics_reference};
pub use redact::{RedactingMakeWriter, redact_line};
pub use standalone::{log_json_failure, log_json_note};

use crate::settings::TelemetrySection;

/// Name of the instrumentation scope.
const INSTRUMENTATION_SCOPE: &str = "dray";
/// Levels that apply unless the configuration has the same target. `rmcp` logs session ids at level info, and logs as
/// errors what the calling crate reports anyway.
const LIBRARY_LEVELS: &str = "rmcp=error,rmcp::transport::worker=off";
/// Longest time for the export of the last spans and metrics.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The providers of meters and spans of one process.
#[derive(Debug)]
pub struct Telemetry {
    registry: prometheus::Registry,
    meters: SdkMeterProvider,
    traces: Option<SdkTracerProvider>,
    section: TelemetrySection,
}

/// The reason why telemetry could not start or report.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The OTLP exporter refused its configuration.
    #[error("the OTLP exporter could not be built")]
    Otlp(#[source] opentelemetry_otlp::ExporterBuildError),
    /// The Prometheus exporter could not be registered.
    #[error("the Prometheus exporter could not be built")]
    Prometheus(#[source] opentelemetry_sdk::error::OTelSdkError),
    /// The process had a subscriber before.
    #[error("the process has a tracing subscriber already")]
    Installed(#[source] tracing::subscriber::SetGlobalDefaultError),
    /// The metrics could not be written in the text format.
    #[error("the metrics could not be encoded")]
    Encode(#[source] prometheus::Error),
}

impl Telemetry {
    /// Opens the outputs that the section configures; `service` and `instance` identify this process in exported data.
    /// It needs a Tokio runtime when an OTLP endpoint is configured.
    pub fn start(
        section: &TelemetrySection,
        service: &str,
        instance: &str,
    ) -> Result<Self, TelemetryError> {
        // The resource has no detectors, because they read the environment.
        let resource = Resource::builder_empty()
            .with_service_name(service.to_owned())
            .with_attribute(opentelemetry::KeyValue::new(
                "service.instance.id",
                instance.to_owned(),
            ))
            .with_attribute(opentelemetry::KeyValue::new(
                "service.version",
                env!("CARGO_PKG_VERSION"),
            ))
            .build();
        let registry = prometheus::Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            // The names of metrics already end in their unit and in `_total`; one scope needs no label.
            .without_units()
            .without_counter_suffixes()
            .scope_info_enabled(false)
            .build()
            .map_err(TelemetryError::Prometheus)?;
        let mut meters = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(exporter);
        let mut traces = None;
        if let Some(endpoint) = &section.otlp_endpoint {
            meters = meters.with_reader(metric_reader(endpoint, section)?);
            traces = Some(tracer_provider(endpoint, section, resource)?);
        }
        Ok(Self {
            registry,
            meters: meters.build(),
            traces,
            section: section.clone(),
        })
    }

    /// The meter on which services create their instruments.
    pub fn meter(&self) -> Meter {
        self.meters.meter(INSTRUMENTATION_SCOPE)
    }

    /// All metrics in the Prometheus text format.
    pub fn prometheus(&self) -> Result<String, TelemetryError> {
        encode_metrics(&self.registry)
    }

    pub(crate) fn registry(&self) -> prometheus::Registry {
        self.registry.clone()
    }

    /// The subscriber that the section describes: redacted log lines to standard error, spans to OTLP.
    pub fn subscriber(&self) -> Box<dyn Subscriber + Send + Sync> {
        self.subscriber_to(std::io::stderr)
    }

    /// The same subscriber with log lines to `writer`.
    pub fn subscriber_to<W>(&self, writer: W) -> Box<dyn Subscriber + Send + Sync>
    where
        W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
    {
        let filter = format!("{LIBRARY_LEVELS},{}", self.section.level).parse::<Targets>();
        // The filter was checked with the configuration; a section made in code may still be wrong.
        let filter = filter.unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
        let spans = self
            .traces
            .as_ref()
            .map(|traces| span_layer(traces.tracer(INSTRUMENTATION_SCOPE)));
        let lines = tracing_subscriber::fmt::layer()
            .event_format(line::LineFormatter {
                format: self.section.format,
            })
            // Logs are read by collectors; escape sequences would become part of fields.
            .with_ansi(false)
            .with_writer(RedactingMakeWriter::new(writer));
        // One filter for both layers, so that spans and lines agree.
        let registry = tracing_subscriber::registry().with(filter).with(spans);
        Box::new(registry.with(line::SpanFields).with(lines))
    }

    /// Makes the subscriber the global one of the process, and logs panics. For `main` functions; call it once.
    pub fn install(&self) -> Result<(), TelemetryError> {
        tracing::subscriber::set_global_default(self.subscriber())
            .map_err(TelemetryError::Installed)?;
        std::panic::set_hook(Box::new(|panic| {
            // Only the location is logged: the text of a panic may contain data of a user.
            let location = panic.location().map(ToString::to_string);
            tracing::error!(location, "panic");
        }));
        Ok(())
    }

    /// Exports remaining data and closes the exporters, within a few seconds; errors are logged.
    pub async fn shutdown(&self) {
        let traces = self.traces.clone();
        let meters = self.meters.clone();
        // The exporters' own wait blocks its thread.
        let sent = tokio::task::spawn_blocking(move || {
            let spans = traces.map_or(Ok(()), |traces| traces.shutdown_with_timeout(FLUSH_TIMEOUT));
            (spans, meters.shutdown_with_timeout(FLUSH_TIMEOUT))
        });
        let Ok((spans, metrics)) = sent.await else {
            return;
        };
        // The failure is only logged: a stop must not fail because a collector is unavailable.
        if let Err(error) = spans {
            tracing::warn!(%error, "some spans were not sent");
        }
        if let Err(error) = metrics {
            tracing::warn!(%error, "some metrics were not sent");
        }
    }
}

/// Records spans. Spans of the bus's work loop give log lines their fields but are not recorded, because the span of
/// the handler (`router::span`) has the same content.
pub(crate) fn span_layer<S, T>(tracer: T) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    T: opentelemetry::trace::Tracer + Send + Sync + 'static,
    T::Span: Send + Sync,
{
    let is_work_loop_span = |metadata: &Metadata<'_>| {
        metadata.is_span() && metadata.target().starts_with("dray_bus::work")
    };
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_filter(filter_fn(move |metadata| !is_work_loop_span(metadata)))
}

/// A meter that measures nothing.
pub fn no_meter() -> Meter {
    opentelemetry::metrics::noop::NoopMeterProvider::new().meter(INSTRUMENTATION_SCOPE)
}

pub(crate) fn encode_metrics(registry: &prometheus::Registry) -> Result<String, TelemetryError> {
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&registry.gather(), &mut text)
        .map_err(TelemetryError::Encode)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn metric_reader(
    endpoint: &str,
    section: &TelemetrySection,
) -> Result<PeriodicReader<opentelemetry_otlp::MetricExporter>, TelemetryError> {
    let exporter = opentelemetry_otlp::MetricExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(TelemetryError::Otlp)?;
    Ok(PeriodicReader::builder(exporter)
        .with_interval(section.metrics_interval.as_duration())
        .build())
}

fn tracer_provider(
    endpoint: &str,
    section: &TelemetrySection,
    resource: Resource,
) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(TelemetryError::Otlp)?;
    // The caller's decision first; the ratio is for traces that begin here (section 17).
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(section.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(sampler)
        .with_batch_exporter(export::RedactingExporter::new(exporter))
        .build())
}
