//! Tests of links for single files, which the operator has to allow.

use dray_proto::v1::{self, ticket_destination::Destination};
use dray_types::{Fault, FaultCode};
use serde_json::json;

use super::fixture::{FilesFixture, ReceivedCalls, call, lock};
use crate::{Config, tools};

const TICKET_URL: &str = "https://files.example/t/secret";

/// A session with a sandbox, in which the operator allows links.
async fn fixture_with_links() -> FilesFixture {
    let mut fixture = FilesFixture::with(Config {
        tickets: true,
        ..Config::default()
    })
    .await;
    fixture.bind(false).await;
    fixture
}

async fn serve_tickets(fixture: &mut FilesFixture) -> ReceivedCalls<v1::IssueTicketRequest> {
    fixture
        .serve(|request: &v1::IssueTicketRequest| {
            Ok(v1::IssuedTicket {
                ticket: Some(v1::Ticket {
                    name: "out.zip".to_owned(),
                    max_bytes: 3_000,
                    created_at_ms: 1_000,
                    expires_at_ms: 1_000 + u64::from(request.lifetime_s) * 1_000,
                    ..v1::Ticket::default()
                }),
                url: TICKET_URL.to_owned(),
                ..v1::IssuedTicket::default()
            })
        })
        .await
}

#[tokio::test]
async fn links_are_offered_only_where_the_operator_allows_them_and_there_is_a_sandbox() {
    let names = async |fixture: &FilesFixture| {
        let offered = tools::offered_tools(&fixture.turn(), false).await;
        let names = offered.iter().map(|tool| tool.declaration().name.clone());
        names
            .filter(|name| ["request_upload", "make_download_link"].contains(&name.as_str()))
            .count()
    };
    let mut without_links = FilesFixture::new().await;
    without_links.bind(false).await;
    assert_eq!(names(&without_links).await, 0);
    assert_eq!(names(&fixture_with_links().await).await, 2);
    let without_sandbox = FilesFixture::with(Config {
        tickets: true,
        sessions: false,
        ..Config::default()
    })
    .await;
    assert_eq!(names(&without_sandbox).await, 0);
}

#[tokio::test]
async fn an_upload_link_leads_into_the_sandbox_of_the_session() {
    let mut fixture = fixture_with_links().await;
    let requests = serve_tickets(&mut fixture).await;
    let arguments = json!({"directory": "in", "media_type": "application/zip", "minutes": 5});
    let output = call(&fixture.turn(), "request_upload", arguments)
        .await
        .unwrap();
    assert!(
        output
            .content
            .ends_with(&format!("within 5 minutes: {TICKET_URL}"))
    );
    let requests = lock(&requests).clone();
    let request = &requests[0].1;
    assert_eq!(request.session, "s");
    assert_eq!(request.direction(), v1::TicketDirection::Upload);
    assert_eq!(request.max_bytes, Config::default().upload_limit.as_u64());
    let destination = request.destination.clone().unwrap().destination;
    assert_eq!(
        destination,
        Some(Destination::SandboxDirectory("in".to_owned()))
    );
}

#[tokio::test]
async fn a_download_link_is_for_one_file_of_the_sandbox() {
    let mut fixture = fixture_with_links().await;
    let requests = serve_tickets(&mut fixture).await;
    let output = call(
        &fixture.turn(),
        "make_download_link",
        json!({"path": "out.zip"}),
    )
    .await
    .unwrap();
    assert!(output.content.contains(TICKET_URL), "{}", output.content);
    let requests = lock(&requests).clone();
    assert_eq!(requests[0].1.sandbox_path, "out.zip");
    assert_eq!(requests[0].1.lifetime_s, 3_600);
}

#[tokio::test]
async fn wrong_arguments_and_a_missing_endpoint_are_reported_with_messages() {
    let mut fixture = fixture_with_links().await;
    fixture
        .serve(|_: &v1::IssueTicketRequest| {
            Err(Fault::new(
                FaultCode::Unavailable,
                "This system has no ticket endpoint.",
            )
            .detail("no_tickets"))
        })
        .await;
    let turn = fixture.turn();
    for (tool, arguments, text) in [
        ("make_download_link", json!({}), "path"),
        ("request_upload", json!({"minutes": 0}), "minutes"),
        ("request_upload", json!({"minutes": "5"}), "minutes"),
        ("request_upload", json!({}), "no ticket endpoint"),
    ] {
        let failure = call(&turn, tool, arguments.clone()).await.unwrap_err();
        assert!(failure.to_string().contains(text), "{arguments}: {failure}");
    }
}
