//! Webhook requests of several workspaces at one address.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use dray_platform::DuplicateProtection;
use dray_proto::v1;
use dray_types::TenantId;

use super::fake::FakePlatform;
use super::fixture::DeliveryFixture;
use super::inbound::{fixture, message, post, published_work, send_request};
use crate::accounts::PlatformAccount;

/// A service with the account `bot` of workspace T1, and `other` of another tenant and this workspace.
async fn two_workspaces(other_workspace: &str) -> DeliveryFixture {
    let fixture = fixture(|_| {}).await;
    let other = FakePlatform::with("telegram", DuplicateProtection::Unknown);
    fixture.fake.serve_workspace("T1");
    other.serve_workspace(other_workspace);
    let account = |name: &str, platform: Arc<FakePlatform>| {
        let tenant = TenantId::new(format!("{name}-tenant")).unwrap();
        let account = PlatformAccount::new(name, Arc::clone(&platform) as _);
        Arc::new(account.with_inbox(platform).with_tenant(Some(tenant)))
    };
    let accounts = vec![
        account("bot", Arc::clone(&fixture.fake)),
        account("other", other),
    ];
    fixture.replica.inbound.accounts.replace(accounts);
    fixture
}

/// Posts a message of a workspace to the address of the account `bot`. Returns the status, and account and tenant of all
/// messages until now.
async fn post_from(
    fixture: &DeliveryFixture,
    id: &str,
    workspace: &str,
) -> (StatusCode, Vec<(String, String)>) {
    let body = serde_json::to_string(&message(id, Vec::new())).unwrap();
    let request = post("/platforms/bot/webhook").header("x-signed", "1");
    let request = request.header("x-workspace", workspace);
    let (status, _) = send_request(fixture, request.body(Body::from(body)).unwrap()).await;
    let received = published_work::<v1::ReceiveMessage>(fixture, "dray.work.inbound.>").await;
    let owners = received.into_iter().map(|(meta, work)| {
        let account = work.chat.unwrap_or_default().account;
        (account, meta.tenant.to_string())
    });
    (status, owners.collect())
}

fn owner(account: &str) -> (String, String) {
    (account.to_owned(), format!("{account}-tenant"))
}

#[tokio::test]
async fn an_event_belongs_to_the_account_of_its_workspace() {
    let fixture = two_workspaces("T2").await;
    let (status, owners) = post_from(&fixture, "1", "T2").await;
    assert_eq!((status, owners), (StatusCode::OK, vec![owner("other")]));
    let (status, owners) = post_from(&fixture, "2", "T3").await;
    assert_eq!(status, StatusCode::OK, "the platform need not repeat it");
    assert_eq!(owners, [owner("other")], "no account serves T3");
    let (status, owners) = post_from(&fixture, "3", "T1").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(owners, [owner("other"), owner("bot")]);
}

#[tokio::test]
async fn an_event_is_repeated_while_an_account_does_not_know_its_workspace() {
    let fixture = two_workspaces("unknown").await;
    let (status, owners) = post_from(&fixture, "1", "T2").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(owners.is_empty(), "{owners:?}");
    let (status, owners) = post_from(&fixture, "2", "T1").await;
    assert_eq!((status, owners), (StatusCode::OK, vec![owner("bot")]));
}
