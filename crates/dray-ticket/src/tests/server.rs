//! Tests of the calls that create, list, show and revoke tickets, which only their tenant may do.

use std::sync::Arc;

use dray_bus::{Meta, test_bus};
use dray_proto::v1;
use dray_proto::v1::TicketAction::{Completed, Issued, Refused, Revoked};
use dray_service::{Request, Service as _, ServiceContext};
use dray_types::{Deadline, Fault, FaultCode, Sha256Digest, TenantId};

use super::{TestEndpoint, noise};
use crate::{TicketConfig, TicketServer};

/// The service beside an endpoint that has the same records.
struct ServerFixture {
    fixture: TestEndpoint,
    server: Arc<TicketServer>,
}

impl ServerFixture {
    async fn new(url: &str) -> Self {
        let fixture = TestEndpoint::new().await;
        let bus = test_bus::without_streams(&fixture.clock);
        let context = ServiceContext::new(bus, fixture.store.clone(), fixture.clock.clone());
        let config = TicketConfig {
            url: url.to_owned(),
            records: fixture.directory.path().join("tickets"),
            ..TicketConfig::default()
        };
        let server = TicketServer::start(config, &context).await.unwrap();
        Self {
            fixture,
            server: Arc::new(server),
        }
    }

    fn request<C>(&self, tenant: &str, body: C) -> Request<C> {
        let deadline = Deadline::after(
            self.fixture.clock.now_ms(),
            std::time::Duration::from_mins(1),
        );
        Request::new(Meta::new(TenantId::new(tenant).unwrap(), deadline), body)
    }

    async fn issue(&self, tenant: &str, session: &str) -> v1::IssuedTicket {
        let upload = v1::IssueTicketRequest {
            session: session.to_owned(),
            direction: v1::TicketDirection::Upload.into(),
            max_bytes: 100,
            name: "a.bin".to_owned(),
            ..v1::IssueTicketRequest::default()
        };
        let request = self.request(tenant, upload);
        self.server.clone().issue(request).await.unwrap()
    }

    async fn list(&self, tenant: &str, session: &str) -> Vec<v1::Ticket> {
        let list = v1::ListTicketsRequest {
            session: session.to_owned(),
            limit: 0,
        };
        let request = self.request(tenant, list);
        self.server.clone().list(request).await.unwrap().tickets
    }

    async fn inspect(&self, tenant: &str, id: &str) -> Result<v1::Ticket, Fault> {
        let inspect = v1::InspectTicketRequest {
            ticket_id: id.to_owned(),
        };
        let request = self.request(tenant, inspect);
        self.server.clone().inspect(request).await
    }

    async fn revoke(&self, tenant: &str, id: &str) -> Result<v1::Ticket, Fault> {
        let revoke = v1::RevokeTicketRequest {
            ticket_id: id.to_owned(),
        };
        let request = self.request(tenant, revoke);
        self.server.clone().revoke(request).await
    }
}

#[tokio::test]
async fn a_ticket_that_a_call_made_works_at_the_endpoint_and_can_be_inspected() {
    let fixture = ServerFixture::new("https://files.example").await;
    let issued = fixture.issue("acme", "s1").await;
    let ticket = issued.ticket.unwrap();
    let path = issued.url.strip_prefix("https://files.example").unwrap();
    assert!(issued.curl.contains(&issued.url));
    assert!(!issued.url.contains(&ticket.ticket_id));
    assert_eq!(ticket.state(), v1::TicketState::Open);
    let bytes = noise(10);
    let stored = fixture.fixture.send(&format!("PUT {path}"), &bytes).await;
    assert_eq!(stored.status, 201);
    let inspected = fixture.inspect("acme", &ticket.ticket_id).await.unwrap();
    assert_eq!(inspected.state(), v1::TicketState::Complete);
    assert_eq!((inspected.size, inspected.moved_bytes), (10, 10));
    assert_eq!(inspected.sha256, Sha256Digest::of(&bytes).as_bytes());
    assert_eq!(fixture.list("acme", "s1").await, [inspected]);
}

#[tokio::test]
async fn another_tenant_finds_no_ticket_and_another_session_lists_none() {
    let fixture = ServerFixture::new("https://files.example").await;
    let issued = fixture.issue("acme", "s1").await;
    let id = issued.ticket.unwrap().ticket_id;
    for refused in [
        fixture.inspect("other", &id).await,
        fixture.revoke("other", &id).await,
        fixture.inspect("acme", &"0".repeat(64)).await,
        fixture.inspect("acme", "../usage").await,
    ] {
        let fault = refused.unwrap_err();
        assert_eq!(
            (fault.code, fault.detail.as_str()),
            (FaultCode::NotFound, "ticket_unknown")
        );
    }
    assert!(fixture.list("other", "s1").await.is_empty());
    assert!(fixture.list("acme", "s2").await.is_empty());
    assert_eq!(fixture.list("acme", "s1").await.len(), 1);
}

#[tokio::test]
async fn a_revoked_ticket_does_not_work_and_is_not_listed() {
    let fixture = ServerFixture::new("https://files.example").await;
    let first = fixture.issue("acme", "s1").await;
    let second = fixture.issue("acme", "s1").await;
    let id = first.ticket.unwrap().ticket_id;
    let revoked = fixture.revoke("acme", &id).await.unwrap();
    assert_eq!(revoked.state(), v1::TicketState::Revoked);
    let path = first.url.strip_prefix("https://files.example").unwrap();
    let refused = fixture.fixture.send(&format!("PUT {path}"), b"abc").await;
    assert_eq!(refused.problem(), "ticket-revoked");
    let repeated = fixture.revoke("acme", &id).await.unwrap_err();
    assert_eq!(repeated.detail, "ticket_revoked");
    let remaining_tickets = fixture.list("acme", "s1").await;
    assert_eq!(remaining_tickets.len(), 1);
    assert_eq!(
        remaining_tickets[0].ticket_id,
        second.ticket.unwrap().ticket_id
    );
}

#[tokio::test]
async fn a_request_for_an_invalid_ticket_is_refused() {
    let fixture = ServerFixture::new("https://files.example").await;
    let upload = || v1::IssueTicketRequest {
        session: "s1".to_owned(),
        direction: v1::TicketDirection::Upload.into(),
        ..v1::IssueTicketRequest::default()
    };
    for (request, code) in [
        (
            v1::IssueTicketRequest {
                direction: 0,
                ..upload()
            },
            FaultCode::InvalidArgument,
        ),
        (
            v1::IssueTicketRequest {
                sha256: vec![1; 31],
                ..upload()
            },
            FaultCode::InvalidArgument,
        ),
        (
            v1::IssueTicketRequest {
                destination: Some(v1::TicketDestination::default()),
                ..upload()
            },
            FaultCode::InvalidArgument,
        ),
        (
            v1::IssueTicketRequest {
                max_bytes: u64::MAX,
                ..upload()
            },
            FaultCode::TooLarge,
        ),
        (
            v1::IssueTicketRequest {
                direction: v1::TicketDirection::Download.into(),
                sha256: vec![1; 32],
                ..upload()
            },
            FaultCode::NotFound,
        ),
    ] {
        let request_text = format!("{request:?}");
        let request = fixture.request("acme", request);
        let fault = fixture.server.clone().issue(request).await.unwrap_err();
        assert_eq!(fault.code, code, "{request_text}: {fault:?}");
    }
    assert!(fixture.list("acme", "s1").await.is_empty());
    let without_url = ServerFixture::new("").await;
    let request = without_url.request("acme", upload());
    let fault = without_url.server.clone().issue(request).await.unwrap_err();
    assert_eq!(fault.detail, "no_tickets");
}

#[tokio::test]
async fn the_audit_has_every_action_on_a_ticket_and_never_its_url() {
    let bus = test_bus::in_process(&dray_types::Clock::system()).await;
    let fixture = TestEndpoint::with_bus(bus.clone()).await;
    let filter = dray_bus::EventFilter::new("dray.audit.ticket.>").from_start();
    let mut events = bus.events(filter).await.unwrap();
    let used = fixture
        .issue_ticket(crate::TicketRequest::upload(100))
        .await;
    let stored = fixture.send(&format!("PUT {}", used.url("")), b"abc").await;
    assert_eq!(stored.status, 201);
    let revoked = fixture
        .issue_ticket(crate::TicketRequest::upload(100))
        .await;
    let tenant = crate::Principal::default().tenant;
    fixture
        .service
        .revoke_by_id(&tenant, revoked.id())
        .await
        .unwrap();
    let mismatched = fixture
        .issue_ticket(crate::TicketRequest::upload(100).sha256(Some(Sha256Digest::of(b"abd"))))
        .await;
    let refused = fixture
        .send(&format!("PUT {}", mismatched.url("")), b"abc")
        .await;
    assert_eq!(refused.problem(), "wrong-digest");

    for (ticket, action) in [
        (&used, Issued),
        (&used, Completed),
        (&revoked, Issued),
        (&revoked, Revoked),
        (&mismatched, Issued),
        (&mismatched, Refused),
    ] {
        let event = tokio::time::timeout(std::time::Duration::from_secs(10), events.next());
        let event = event.await.unwrap().unwrap();
        let audit: v1::TicketAudit = event.decode().unwrap();
        assert_eq!(
            (audit.ticket_id.as_str(), audit.action()),
            (ticket.id(), action)
        );
        let secret = ticket.url("").replace("/t/", "");
        assert!(!format!("{audit:?}").contains(&secret));
        assert_eq!(audit.session, "cli");
    }
}
