//! A host with the service over the in-memory network, and a caller.

use std::time::Duration;

use dray_bus::{CallError, EventFilter, EventStream, Meta};
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, RunningHost, Settings};
use dray_types::{AppId, Clock, Deadline, Fault, TenantId, TraceContext};

use super::fake_network::*;
use crate::service::EgressFetcher;

pub(crate) const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A host with the service over the in-memory network.
pub(crate) struct TestService {
    pub(crate) running: RunningHost,
    pub(crate) audit: EventStream,
    /// The state directory, where it belongs to the service.
    directory: Option<tempfile::TempDir>,
}

/// Starts the service. `set` are fields of its section, or whole paths of other sections.
pub(crate) async fn start_service(fake_network: &FakeNetwork, set: &[(&str, &str)]) -> TestService {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(directory.path()).set("egress-fetcher.enabled", "true");
    for (key, value) in set {
        let path = if key.contains('.') {
            (*key).to_owned()
        } else {
            format!("egress-fetcher.{key}")
        };
        settings = settings.set(path, *value);
    }
    let service = start_service_from(fake_network, settings).await;
    TestService {
        directory: Some(directory),
        ..service
    }
}

/// Starts the service as these settings say.
pub(crate) async fn start_service_from(
    fake_network: &FakeNetwork,
    settings: Settings,
) -> TestService {
    let network = fake_network.network();
    let running = Host::new(settings)
        .with_start::<EgressFetcher, _, _>(move |config, cx| {
            EgressFetcher::start_with(config, cx, network)
        })
        .start()
        .await
        .unwrap();
    let filter = EventFilter::new("dray.audit.egress.v1.fetched.*").from_start();
    let audit = running.context().bus.events(filter).await.unwrap();
    TestService {
        running,
        audit,
        directory: None,
    }
}

pub(crate) fn meta(clock: &Clock) -> Meta {
    meta_of("acme", clock)
}

pub(crate) fn meta_of(tenant: &str, clock: &Clock) -> Meta {
    let deadline = Deadline::after(clock.now_ms(), Duration::from_secs(30));
    Meta::new(TenantId::new(tenant).unwrap(), deadline)
        .with_app(AppId::new("reporter").unwrap())
        .with_trace(TraceContext::new(
            &format!("00-{TRACE_ID}-00f067aa0ba902b7-01"),
            "",
        ))
}

pub(crate) fn fetch_request(url: &str) -> v1::FetchRequest {
    v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    }
}

impl TestService {
    pub(crate) async fn call(&self, request: &v1::FetchRequest) -> Result<v1::FetchReply, Fault> {
        let cx = self.running.context();
        cx.bus
            .call_once(&meta(&cx.clock), request)
            .await
            .map_err(|error: CallError| error.into())
    }

    /// The state directory of the host.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.as_ref().unwrap().path()
    }

    pub(crate) async fn event(&mut self) -> v1::EgressAudit {
        let next = tokio::time::timeout(Duration::from_secs(10), self.audit.next()).await;
        next.unwrap().unwrap().decode().unwrap()
    }
}

pub(crate) fn hello() -> FakeNetwork {
    FetcherFixture::default().fake_network
}

pub(crate) fn content(reply: &v1::FetchReply) -> ContentSource {
    reply.content.clone().unwrap().try_into().unwrap()
}
