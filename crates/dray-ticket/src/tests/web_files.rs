//! Files from the web: the rule decides when a ticket is made and again when it is used.

use bytes::Bytes;
use dray_store::WebOrigin;
use dray_types::{Clock, Sha256Digest};

use super::{START_MS, TestEndpoint, noise, serve};
use crate::{
    Principal, StoredContent, TicketConfig, TicketLimits, TicketProblem, TicketRequest,
    TicketService, WebFileOutcome, WebFilePolicy,
};

fn deny_other_hosts(allowed_hosts: &[&str]) -> WebFilePolicy {
    WebFilePolicy {
        outcome: WebFileOutcome::Deny,
        allowed_hosts: allowed_hosts
            .iter()
            .map(|host| (*host).to_owned())
            .collect(),
        ..WebFilePolicy::default()
    }
}

/// A service with this rule over the records of the endpoint.
fn service_with_rule(fixture: &TestEndpoint, policy: WebFilePolicy) -> TicketService {
    let records = fixture.service.inner.records.clone();
    let limits = TicketLimits::default();
    TicketService::new(
        records,
        fixture.store.clone(),
        Clock::manual(START_MS),
        limits,
    )
    .with_web_files(policy)
}

async fn record_fetch(fixture: &TestEndpoint, bytes: &Bytes, hosts: &[&str]) {
    let origin = WebOrigin {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        fetched_at_ms: START_MS,
        policy_digest: String::new(),
        rules_digest: String::new(),
        media_type: String::new(),
    };
    let tenant = Principal::default().tenant;
    let recording = fixture
        .store
        .record_origin(&tenant, Sha256Digest::of(bytes), &origin, None);
    recording.await.unwrap();
}

fn content(bytes: &Bytes) -> StoredContent {
    StoredContent {
        sha256: Sha256Digest::of(bytes).to_hex(),
        size: bytes.len() as u64,
        media_type: "text/plain".to_owned(),
        name: "page.txt".to_owned(),
    }
}

async fn issue(service: &TicketService, bytes: &Bytes) -> Result<(), TicketProblem> {
    let request = TicketRequest::download(content(bytes));
    let issued = service.issue(&Principal::default(), request).await;
    issued.map(drop)
}

#[tokio::test]
async fn no_ticket_is_made_for_a_file_that_came_from_another_host() {
    let fixture = TestEndpoint::new().await;
    let (own, partner, redirected) = (noise(100), noise(101), noise(102));
    record_fetch(&fixture, &partner, &["files.partner.example"]).await;
    record_fetch(
        &fixture,
        &redirected,
        &["files.partner.example", "cdn.example"],
    )
    .await;
    let service = service_with_rule(&fixture, deny_other_hosts(&["*.partner.example"]));
    issue(&service, &own).await.unwrap();
    issue(&service, &partner).await.unwrap();
    let refused = issue(&service, &redirected).await.unwrap_err();
    let origin = "`cdn.example`".to_owned();
    assert_eq!(refused, TicketProblem::FileFromWeb { origin });
    // One known fetch from another host is enough, even if the partner has the same bytes.
    record_fetch(&fixture, &partner, &["paste.example"]).await;
    assert!(issue(&service, &partner).await.is_err());
    // With `report` the rule refuses nothing.
    let report = WebFilePolicy {
        outcome: WebFileOutcome::Report,
        ..deny_other_hosts(&[])
    };
    issue(&service_with_rule(&fixture, report), &redirected)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_that_is_fetched_after_its_ticket_was_made_is_refused_too() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(2 << 20);
    let url = fixture.issue_download(&bytes, "page.txt").await;
    let (address, _stop) = serve(&service_with_rule(&fixture, deny_other_hosts(&[]))).await;
    let head = super::send_raw(address, &format!("HEAD {url}"), b"").await;
    assert_eq!(head.status, 200);
    record_fetch(&fixture, &bytes, &["files.example"]).await;
    let response = super::send_raw(address, &format!("GET {url}"), b"").await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (403, "file-from-web")
    );
    assert!(String::from_utf8_lossy(&response.body).contains("files.example"));
    // The ticket is not spent: the operator may allow the host.
    let (address, _stop) = serve(&service_with_rule(
        &fixture,
        deny_other_hosts(&["files.example"]),
    ))
    .await;
    let response = super::send_raw(address, &format!("GET {url}"), b"").await;
    assert_eq!((response.status, response.body), (200, bytes));
}

#[tokio::test]
async fn a_download_is_refused_while_its_origins_cannot_be_read() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(100);
    let url = fixture.issue_download(&bytes, "page.txt").await;
    let (address, _stop) = serve(&service_with_rule(&fixture, deny_other_hosts(&[]))).await;
    std::fs::remove_dir_all(fixture.directory.path().join("store")).unwrap();
    let response = super::send_raw(address, &format!("GET {url}"), b"").await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (503, "storage-unavailable")
    );
}

#[test]
fn a_host_that_no_rule_can_name_is_refused_with_its_field() {
    use dray_service::config::Section as _;
    for (host, problems) in [("*.example.org", 0), ("a.*.b", 1), ("203.0.113.7", 1)] {
        let config = TicketConfig {
            web_files: deny_other_hosts(&[host]),
            ..TicketConfig::default()
        };
        let found = config.validate();
        assert_eq!(found.len(), problems, "{host}");
        assert!(
            found
                .iter()
                .all(|problem| problem.field == "web_files.allowed_hosts")
        );
    }
}
