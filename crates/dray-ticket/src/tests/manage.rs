//! Tests that list, show and revoke tickets over HTTP, which only callers with the key of the endpoint may do.

use serde_json::Value;

use super::{TestEndpoint, TestResponse, noise};
use crate::{TicketRequest, key_text};

/// Sends a request with the key of the endpoint.
async fn send_with_key(fixture: &TestEndpoint, line: &str) -> TestResponse {
    let key = key_text(&[7; 32]);
    let head = format!("{line}\r\nauthorization: Bearer {key}");
    fixture.send_empty(&head).await
}

async fn list_tickets(fixture: &TestEndpoint, query: &str) -> Vec<Value> {
    let response = send_with_key(fixture, &format!("GET /tickets?{query}")).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["tickets"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_list_shows_states_and_limits_and_never_a_secret() {
    let fixture = TestEndpoint::new().await;
    let open = fixture
        .issue_ticket(
            TicketRequest::upload(100)
                .name("a.txt")
                .media_type(Some("text/*".to_owned())),
        )
        .await;
    let used = fixture.issue_ticket(TicketRequest::upload(100)).await;
    let bytes = noise(10);
    let stored = fixture.send(&format!("PUT {}", used.url("")), &bytes).await;
    assert_eq!(stored.status, 201);
    let tickets = list_tickets(&fixture, "tenant=default&session=cli").await;
    let ticket_by_id = |id: &str| {
        let found = tickets.iter().find(|ticket| ticket["id"] == id);
        found
            .unwrap_or_else(|| panic!("no {id} in {tickets:?}"))
            .clone()
    };
    let status_document = ticket_by_id(open.id());
    for (member, value) in [
        ("state", Value::from("open")),
        ("direction", Value::from("upload")),
        ("max_bytes", Value::from(100)),
        ("media_type", Value::from("text/*")),
        ("name", Value::from("a.txt")),
        ("expires_at_ms", Value::from(open.expires_at_ms)),
    ] {
        assert_eq!(status_document[member], value, "{member}");
    }
    let status_document = ticket_by_id(used.id());
    assert_eq!(
        (&status_document["state"], &status_document["size"]),
        (&"complete".into(), &10.into())
    );
    let text = format!("{tickets:?}");
    for ticket in [&open, &used] {
        let secret = ticket.url("").replace("/t/", "");
        assert!(!text.contains(&secret), "{text}");
    }
    let one = list_tickets(&fixture, "tenant=default&session=cli&limit=1").await;
    assert_eq!(one.len(), 1);
    for other in ["tenant=default&session=other", "tenant=other&session=cli"] {
        assert!(list_tickets(&fixture, other).await.is_empty(), "{other}");
    }
}

#[tokio::test]
async fn a_revoked_ticket_is_a_problem_and_a_used_one_stays_used() {
    let fixture = TestEndpoint::new().await;
    let ticket = fixture.issue_ticket(TicketRequest::upload(100)).await;
    let path = format!("/tickets/{}?tenant=default", ticket.id());
    let revoked = send_with_key(&fixture, &format!("DELETE {path}")).await;
    assert_eq!(
        (revoked.status, &revoked.json()["state"]),
        (200, &"revoked".into())
    );
    let refused = fixture
        .send(&format!("PUT {}", ticket.url("")), b"abc")
        .await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (410, "ticket-revoked")
    );
    let status_document = send_with_key(&fixture, &format!("GET {path}")).await;
    assert_eq!(status_document.json()["state"], "revoked");
    let repeated = send_with_key(&fixture, &format!("DELETE {path}")).await;
    assert_eq!(repeated.problem(), "ticket-revoked");
    let used = fixture.issue_ticket(TicketRequest::upload(100)).await;
    fixture.send(&format!("PUT {}", used.url("")), b"abc").await;
    let late_revocation = send_with_key(
        &fixture,
        &format!("DELETE /tickets/{}?tenant=default", used.id()),
    )
    .await;
    assert_eq!(
        (late_revocation.status, late_revocation.problem().as_str()),
        (410, "ticket-used")
    );
}

#[tokio::test]
async fn tickets_are_listed_and_revoked_with_only_the_key() {
    let fixture = TestEndpoint::new().await;
    let ticket = fixture.issue_ticket(TicketRequest::upload(100)).await;
    let id = ticket.id();
    for line in [
        "GET /tickets?tenant=default&session=cli".to_owned(),
        format!("GET /tickets/{id}?tenant=default"),
        format!("DELETE /tickets/{id}?tenant=default"),
    ] {
        let secret = ticket.url("").replace("/t/", "");
        for key in [
            "",
            "authorization: Bearer 00",
            &format!("authorization: Bearer {secret}"),
        ] {
            let head = format!("{line}\r\n{key}");
            let refused = fixture.send_empty(head.trim_end()).await;
            assert_eq!(
                (refused.status, refused.problem().as_str()),
                (401, "key-needed")
            );
        }
    }
    // None of this changed the ticket.
    let stored = fixture
        .send(&format!("PUT {}", ticket.url("")), b"abc")
        .await;
    assert_eq!(stored.status, 201);
}

#[tokio::test]
async fn requests_that_name_no_ticket_or_no_tenant_are_refused() {
    let fixture = TestEndpoint::new().await;
    let ticket = fixture.issue_ticket(TicketRequest::upload(100)).await;
    let id = ticket.id();
    for (line, status, problem) in [
        (
            format!("DELETE /tickets/{id}?tenant=other"),
            404,
            "ticket-unknown",
        ),
        (
            "DELETE /tickets/usage?tenant=default".to_owned(),
            404,
            "ticket-unknown",
        ),
        (format!("DELETE /tickets/{id}"), 400, "invalid-request"),
        (
            format!("DELETE /tickets/{id}?tenant=default&x=1"),
            400,
            "invalid-request",
        ),
        (
            format!("POST /tickets/{id}?tenant=default"),
            405,
            "method-not-allowed",
        ),
        (
            "GET /tickets?tenant=default".to_owned(),
            400,
            "invalid-request",
        ),
        (
            "GET /tickets?tenant=default&session=cli&limit=x".to_owned(),
            400,
            "invalid-request",
        ),
    ] {
        let refused = send_with_key(&fixture, &line).await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem),
            "{line}"
        );
    }
    // None of this changed the ticket.
    let stored = fixture
        .send(&format!("PUT {}", ticket.url("")), b"abc")
        .await;
    assert_eq!(stored.status, 201);
}

#[tokio::test]
async fn an_unsupported_method_is_refused_with_the_list_of_supported_methods() {
    let fixture = TestEndpoint::new().await;
    let ticket = fixture.issue_ticket(TicketRequest::upload(100)).await;
    let upload = ticket.url("");
    let upload_methods = "GET, HEAD, OPTIONS, PUT, POST, PATCH, DELETE";
    for (line, allowed) in [
        (format!("TRACE {upload}"), upload_methods),
        (format!("GET {upload}/parts"), "POST"),
        (format!("GET {upload}/parts/complete"), "POST"),
        ("PUT /tickets".to_owned(), "GET, POST"),
        (
            format!("PUT /tickets/{}?tenant=default", ticket.id()),
            "GET, DELETE",
        ),
    ] {
        let refused = send_with_key(&fixture, &line).await;
        assert_eq!(
            (refused.status, refused.field("allow")),
            (405, Some(allowed)),
            "{line}"
        );
        assert_eq!(refused.problem(), "method-not-allowed", "{line}");
    }
    // The page for people has the same field.
    let page = fixture
        .send_empty(&format!("TRACE {upload}\r\naccept: text/html"))
        .await;
    assert_eq!(
        (page.status, page.field("allow")),
        (405, Some(upload_methods))
    );
}
