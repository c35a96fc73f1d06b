//! Tests of the start with the real network: the configured resolver, protected addresses, and optional parts.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::v1;
use dray_service::telemetry::InstrumentCatalogue;
use dray_service::{Request, Service, ServiceContext, StartError};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::dns;
use dray_types::{Clock, Deadline, TenantId};

use crate::config::Config;
use crate::service::EgressFetcher;

struct StartFixture {
    cx: ServiceContext,
    _s3: EmbeddedS3,
    _directory: tempfile::TempDir,
}

async fn start_fixture() -> StartFixture {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    let meter = InstrumentCatalogue::new().meter();
    let mut cx = ServiceContext::new(Bus::in_process(clock.clone(), &meter), store, clock);
    cx.peers = vec!["nats://93.184.215.99:4222".to_owned()];
    StartFixture {
        cx,
        _s3: s3,
        _directory: directory,
    }
}

impl StartFixture {
    async fn detail(&self, service: &Arc<EgressFetcher>, url: &str) -> String {
        let deadline = Deadline::after(self.cx.clock.now_ms(), Duration::from_secs(20));
        let meta = Meta::new(TenantId::new("acme").unwrap(), deadline);
        let body = v1::FetchRequest {
            url: url.to_owned(),
            ..v1::FetchRequest::default()
        };
        let result = Arc::clone(service).fetch(Request::new(meta, body)).await;
        result.unwrap_err().detail
    }
}

#[tokio::test]
async fn a_fetcher_that_is_off_starts_without_a_resolver_and_refuses() {
    let fixture = start_fixture().await;
    let service = EgressFetcher::start(Config::default(), &fixture.cx)
        .await
        .unwrap();
    let detail = fixture
        .detail(&Arc::new(service), "http://files.example.org/")
        .await;
    assert_eq!(detail, "disabled_by_admin");
}

#[tokio::test]
async fn d_2_the_configured_servers_are_asked() {
    let fixture = start_fixture().await;
    let server = dns::FakeDnsServer::start().await.unwrap();
    server.set_addresses("inside.example.org", &["127.0.0.1".parse().unwrap()]);
    server.set_addresses("bus.example.org", &["93.184.215.99".parse().unwrap()]);
    let config = Config {
        enabled: true,
        dns_servers: Some(vec![server.address().to_string()]),
        ..Config::default()
    };
    let service = Arc::new(EgressFetcher::start(config, &fixture.cx).await.unwrap());
    let rows = [
        ("http://inside.example.org/", "ssrf_blocked"),
        ("http://nowhere.example.org/", "dns_not_found"),
        ("http://localhost/", "blocked_host"),
        // S-4: servers to which the process itself connects cannot be fetched from, by name or by address.
        ("http://bus.example.org/", "ssrf_blocked"),
        ("http://93.184.215.99/", "ssrf_blocked"),
    ];
    for (url, expected) in rows {
        assert_eq!(fixture.detail(&service, url).await, expected, "{url}");
    }
    let mut names: Vec<_> = server
        .questions()
        .into_iter()
        .map(|question| question.name)
        .collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "inside.example.org.",
            "nowhere.example.org.",
            "bus.example.org."
        ],
        "a blocked name is not asked for"
    );
}

#[tokio::test]
async fn section_20_an_unreadable_setting_stops_the_start() {
    let fixture = start_fixture().await;
    let check = async |config: Config, word: &str| {
        let error: StartError = EgressFetcher::start(config, &fixture.cx).await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    };
    let bundle = Config {
        ca_bundle: Some("/nonexistent/ca.pem".into()),
        ..Config::default()
    };
    check(bundle, "CA bundle").await;
    let invalid = Config {
        max_redirects: 11,
        ..Config::default()
    };
    check(invalid, "config_invalid").await;
    let protected = Config {
        protected: vec!["no such host".to_owned()],
        ..Config::default()
    };
    check(protected, "no such host").await;
}

#[test]
fn section_19_every_instrument_exists_under_its_name() {
    let catalogue = InstrumentCatalogue::new();
    EgressFetcher::instruments(&catalogue.meter());
    let mut names: Vec<_> = catalogue
        .instruments()
        .into_iter()
        .map(|instrument| instrument.name)
        .collect();
    names.sort();
    let expected = [
        "dray_egress_audit_failures_total",
        "dray_egress_audit_file_delayed_total",
        "dray_egress_audit_file_dropped_total",
        "dray_egress_audit_syslog_dropped_total",
        "dray_egress_blocked_address_total",
        "dray_egress_bytes_total",
        "dray_egress_cache_total",
        "dray_egress_config_reloads_total",
        "dray_egress_config_stale",
        "dray_egress_dns_answers",
        "dray_egress_dns_errors_total",
        "dray_egress_dns_server_seconds",
        "dray_egress_fetch_duration_seconds",
        "dray_egress_fetch_total",
        "dray_egress_hops",
        "dray_egress_host_breaker_open",
        "dray_egress_inflight",
        "dray_egress_opened_range_fetches_total",
        "dray_egress_pin_mismatch_total",
        "dray_egress_policy_info",
        "dray_egress_policy_reloads_total",
        "dray_egress_policy_reports_total",
        "dray_egress_policy_rules_info",
        "dray_egress_policy_stale",
        "dray_egress_proxy_bytes_total",
        "dray_egress_proxy_certificate_expiry_timestamp_seconds",
        "dray_egress_proxy_connection_seconds",
        "dray_egress_proxy_connections_total",
        "dray_egress_proxy_open_connections",
        "dray_egress_proxy_open_seconds",
        "dray_egress_proxy_queue_depth",
        "dray_egress_proxy_tls_stale",
        "dray_egress_questions_total",
        "dray_egress_queue_depth",
        "dray_egress_retries_total",
        "dray_egress_sink_failures_total",
        "dray_egress_table_edition_info",
    ];
    assert_eq!(names, expected);
}
