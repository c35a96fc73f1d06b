//! Checks of backends over the bus.

use dray_proto::v1::BackendState;

use super::*;

fn everything() -> v1::CheckBackendsRequest {
    v1::CheckBackendsRequest::default()
}

#[tokio::test]
async fn each_configured_backend_is_checked_without_opening_a_sandbox() {
    let settings = [
        ("sandbox-transfer.kinds", r#"["local", "docker", "exec"]"#),
        (
            "sandbox-transfer.docker.endpoint",
            "unix:///nonexistent/docker.sock",
        ),
    ];
    let fixture = TransferFixture::with(&settings).await;
    let reply = fixture.ask(&everything()).await.unwrap();
    let states: Vec<(&str, BackendState)> = reply
        .backends
        .iter()
        .map(|check| (check.backend.as_str(), check.state()))
        .collect();
    assert_eq!(
        states,
        [
            ("docker", BackendState::Failed),
            ("exec", BackendState::Unverified),
            ("local", BackendState::Ready),
        ]
    );
    assert_eq!(reply.backends[0].failure, "unavailable");
    assert!(!format!("{reply:?}").contains("nonexistent"), "{reply:?}");
    let one = v1::CheckBackendsRequest {
        backend: "local".to_owned(),
    };
    assert_eq!(fixture.ask(&one).await.unwrap().backends.len(), 1);
    let unknown = v1::CheckBackendsRequest {
        backend: "modal".to_owned(),
    };
    assert_eq!(
        fixture.ask(&unknown).await.unwrap_err().detail,
        "no_backend"
    );
    fixture.end().await;
}

#[tokio::test]
async fn a_tenant_that_may_not_name_sandboxes_learns_nothing_about_backends() {
    let settings = [("sandbox-transfer.address_tenants", r#"["operators"]"#)];
    let fixture = TransferFixture::with(&settings).await;
    let fault = fixture.ask_as("guests", &everything()).await.unwrap_err();
    assert_eq!(fault.detail, "address_denied");
    assert!(fixture.ask_as("operators", &everything()).await.is_ok());
    fixture.end().await;
}
