//! Tests of the output of telemetry: the content of the log, the metrics page and the exports to an OTLP collector.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio_stream::wrappers::TcpListenerStream;

use super::*;
use crate::grpc::RawCodec;
use crate::settings::LogFormat;

/// Collects the bytes that are written to it.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log_lines(section: &TelemetrySection, log: impl FnOnce()) -> String {
    let telemetry = Telemetry::start(section, "test", "i-1").unwrap();
    let page = LogBuffer::default();
    let writer = page.clone();
    let subscriber = telemetry.subscriber_to(move || writer.clone());
    tracing::subscriber::with_default(subscriber, log);
    page.text()
}

#[test]
fn secrets_of_presigned_urls_do_not_reach_the_log_in_any_format() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let section = TelemetrySection {
            format,
            ..TelemetrySection::default()
        };
        let text = log_lines(&section, || {
            let url = "https://s3/b?X-Amz-Credential=AKID&X-Amz-Signature=5ec4e7&X-Amz-Security-Token=t0k3n";
            let error = io::Error::other(format!("GET {url} failed"));
            let span = tracing::info_span!("outer", url);
            let _inside = span.enter();
            tracing::info!(url, %error, "uploading to {url}");
        });
        assert!(
            text.contains("uploading to https://s3/b?X-Amz-Credential=***"),
            "{text}"
        );
        for secret in ["AKID", "5ec4e7", "t0k3n"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}

#[test]
fn json_lines_are_json_with_fields() {
    let section = TelemetrySection {
        format: LogFormat::Json,
        ..TelemetrySection::default()
    };
    let text = log_lines(&section, || tracing::info!(operation = "o-1", "done"));
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(
        (&line["message"], &line["operation"], &line["level"]),
        (&"done".into(), &"o-1".into(), &"INFO".into())
    );
}

/// Two spans as the bus and the router create them, and a line in the inner one.
fn log_in_two_spans() {
    let outer = tracing::info_span!(
        "process",
        otel.name = "process dray.work.toolcall.v1.resolve",
        messaging.system = "nats",
        dray.operation_id = "op-1",
        dray.tenant = "acme",
        trace_id = "outer-trace",
    );
    let _outer = outer.enter();
    let inner = tracing::info_span!(
        "work",
        dray.operation_id = "op-1",
        dray.tenant = "acme",
        trace_id = tracing::field::Empty,
    );
    inner.record("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736");
    let _inner = inner.enter();
    let error = io::Error::other("closed");
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        count = 2,
        "it failed"
    );
}

#[test]
fn a_json_line_has_trace_and_tenant_and_names_each_field_of_its_spans_once() {
    let section = TelemetrySection {
        format: LogFormat::Json,
        ..TelemetrySection::default()
    };
    let text = log_lines(&section, log_in_two_spans);
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line["dray.tenant"], "acme");
    assert_eq!(
        (&line["message"], &line["error"], &line["count"]),
        (&"it failed".into(), &"closed".into(), &2.into())
    );
    assert_eq!(text.matches("op-1").count(), 1, "{text}");
    assert!(
        !text.contains("messaging") && !text.contains("otel"),
        "{text}"
    );
}

#[test]
fn a_line_of_text_has_trace_and_tenant_and_names_each_field_of_its_spans_once() {
    let text = log_lines(&TelemetrySection::default(), log_in_two_spans);
    let line = text.trim_end();
    assert!(!line.contains('\n'), "{line}");
    for part in [
        " WARN ",
        ": it failed",
        " error=closed",
        " count=2",
        " dray.tenant=acme",
        " trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
    ] {
        assert_eq!(line.matches(part).count(), 1, "{part} in {line}");
    }
    assert_eq!(line.matches("op-1").count(), 1, "{line}");
}

#[test]
fn a_value_cannot_begin_a_new_line_or_imitate_another_field() {
    let text = log_lines(&TelemetrySection::default(), || {
        tracing::info!(path = "a b=c", "first\nINFO forged");
    });
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(r#"path="a b=c""#), "{text}");
}

#[test]
fn no_line_has_characters_that_a_terminal_interprets_or_hides() {
    let value = "paid\u{202e}gpj\u{1b}[8m\u{9b}0m\u{e0041}";
    for (format, escaped) in [
        (
            LogFormat::Text,
            r"paid\u{202e}gpj\u{1b}[8m\u{9b}0m\u{e0041}",
        ),
        (
            LogFormat::Json,
            r"paid\u202egpj\u001b[8m\u009b0m\udb40\udc41",
        ),
    ] {
        let section = TelemetrySection {
            format,
            ..TelemetrySection::default()
        };
        let text = log_lines(&section, || tracing::info!(value, "it came"));
        assert!(text.contains(escaped), "{text:?}");
        if format == LogFormat::Json {
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["value"], value);
        }
    }
}

#[test]
fn the_level_decides_which_lines_are_written() {
    let section = TelemetrySection {
        level: "warn,dray_service=debug".to_owned(),
        ..TelemetrySection::default()
    };
    let text = log_lines(&section, || {
        tracing::debug!("ours");
        tracing::debug!(target: "other", "theirs");
        tracing::warn!(target: "other", "trouble");
    });
    assert!(
        text.contains("ours") && text.contains("trouble") && !text.contains("theirs"),
        "{text}"
    );
}

#[test]
fn metrics_keep_their_names_on_the_prometheus_page() {
    let telemetry = Telemetry::start(&TelemetrySection::default(), "test", "i-1").unwrap();
    let meter = telemetry.meter();
    meter
        .u64_counter("dray_test_total")
        .with_description("Tests.")
        .build()
        .add(2, &[]);
    meter
        .f64_histogram("dray_test_seconds")
        .build()
        .record(0.5, &[]);
    let page = telemetry.prometheus().unwrap();
    assert!(page.contains("# HELP dray_test_total Tests."), "{page}");
    assert!(page.contains("# TYPE dray_test_total counter"), "{page}");
    assert!(
        page.lines().any(|line| line == "dray_test_total 2"),
        "{page}"
    );
    assert!(page.contains("dray_test_seconds_bucket"), "{page}");
    let other = Telemetry::start(&TelemetrySection::default(), "test", "i-2").unwrap();
    assert!(
        !other.prometheus().unwrap().contains("dray_test"),
        "each has its own meters"
    );
}

#[test]
fn the_metrics_page_lists_what_is_created() {
    let page = metrics_reference(&[
        ("nothing", |_| {}),
        ("fetcher", |meter| {
            meter
                .u64_counter("dray_b_total")
                .with_description("Counts a|b.")
                .build();
            meter
                .f64_histogram("dray_a_seconds")
                .with_description("Seconds.")
                .build();
            meter
                .u64_observable_gauge("dray_c")
                .with_callback(|_| {})
                .build();
            meter
                .u64_counter("dray_b_total")
                .with_description("Counts a|b.")
                .build();
        }),
    ]);
    let table = "## fetcher\n\n| metric | kind | meaning |\n|---|---|---|\n\
                 | `dray_a_seconds` | histogram | Seconds. |\n\
                 | `dray_b_total` | counter | Counts a\\|b. |\n\
                 | `dray_c` | gauge |  |\n";
    assert!(page.ends_with(table), "{page}");
    assert!(!page.contains("## nothing"));
}

#[test]
fn the_spans_of_the_work_loop_contain_the_handlers_own() {
    let exporter = opentelemetry_sdk::trace::InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let subscriber = tracing_subscriber::registry().with(span_layer(provider.tracer("test")));
    tracing::subscriber::with_default(subscriber, || {
        let _delivery = tracing::info_span!(target: "dray_bus::work::process", "process").entered();
        let _handler = tracing::info_span!("work").entered();
        tracing::info_span!(target: "dray_bus::call", "request").in_scope(|| ());
    });
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let [request, work] = spans.as_slice() else {
        panic!("expected two spans, got {spans:?}");
    };
    assert_eq!(
        (request.name.as_ref(), work.name.as_ref()),
        ("request", "work")
    );
    assert_eq!(request.parent_span_id, work.span_context.span_id());
}

/// A collector that records which exports arrive.
async fn collector(
    received_kinds: Arc<Mutex<Vec<&'static str>>>,
) -> (std::net::SocketAddr, tokio::task::JoinSet<()>) {
    let mut routes = axum::Router::new();
    for (path, kind) in [
        (
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            "traces",
        ),
        (
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            "metrics",
        ),
    ] {
        let received_kinds = Arc::clone(&received_kinds);
        let export = move |request: axum::extract::Request| {
            let received_kinds = Arc::clone(&received_kinds);
            async move {
                let unary = tower::service_fn(move |request: tonic::Request<Bytes>| {
                    let text = String::from_utf8_lossy(request.get_ref()).into_owned();
                    assert!(text.contains("test-service"), "{text}");
                    received_kinds.lock().unwrap().push(kind);
                    async { Ok::<_, tonic::Status>(tonic::Response::new(Bytes::new())) }
                });
                tonic::server::Grpc::new(RawCodec)
                    .unary(unary, request)
                    .await
            }
        };
        routes = routes.route(path, axum::routing::post(export));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        tonic::transport::Server::builder()
            .add_routes(tonic::service::Routes::from(routes))
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .unwrap();
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_and_metrics_reach_an_otlp_collector_by_the_end() {
    let received_kinds = Arc::default();
    let (address, _collector) = collector(Arc::clone(&received_kinds)).await;
    let section = TelemetrySection {
        otlp_endpoint: Some(format!("http://{address}")),
        ..TelemetrySection::default()
    };
    let telemetry = Telemetry::start(&section, "test-service", "i-1").unwrap();
    telemetry
        .meter()
        .u64_counter("dray_test_total")
        .build()
        .add(1, &[]);
    let subscriber = telemetry.subscriber_to(io::sink);
    tracing::subscriber::with_default(subscriber, || tracing::info_span!("work").in_scope(|| ()));
    tokio::time::timeout(Duration::from_secs(20), telemetry.shutdown())
        .await
        .unwrap();
    let mut kinds = received_kinds.lock().unwrap().clone();
    kinds.sort_unstable();
    assert_eq!(kinds, ["metrics", "traces"]);
}
