//! Checks of accounts and backends on the set-up page.

use dray_proto::v1::{self, BackendState, CredentialState, FilePermission};
use dray_types::FaultCode;

use super::*;

fn account(name: &str, state: CredentialState) -> v1::AccountCheck {
    let mut check = v1::AccountCheck {
        platform: "telegram".to_owned(),
        account: name.to_owned(),
        identity: "<i>@bot</i>".to_owned(),
        limits: Some(v1::AccountLimits {
            max_file_bytes: 50_000_000,
            max_files_per_message: 10,
            account_per_minute: 1800,
            chat_per_minute: 60,
            ..v1::AccountLimits::default()
        }),
        checked_at_ms: 1_800_000_000_000,
        milliseconds: 40,
        ..v1::AccountCheck::default()
    };
    check.set_credentials(state);
    check.set_files(FilePermission::PerChat);
    check
}

#[tokio::test]
async fn accounts_and_backends_are_checked_only_at_the_request_of_a_login_that_may_act() {
    let mut console = ConsoleFixture::new().await;
    let request_count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&request_count);
    console
        .respond::<v1::CheckAccountsRequest>(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut unknown = account("newer", CredentialState::Unspecified);
            unknown.credentials = 99;
            Ok(v1::CheckAccountsReply {
                accounts: vec![account("main", CredentialState::Accepted), unknown],
                truncated: false,
            })
        })
        .await;
    console
        .respond::<v1::CheckBackendsRequest>(|_| {
            let mut docker = v1::BackendCheck {
                backend: "docker".to_owned(),
                detail: "engine 28.0".to_owned(),
                ..v1::BackendCheck::default()
            };
            docker.set_state(BackendState::Ready);
            Ok(v1::CheckBackendsReply {
                backends: vec![docker],
            })
        })
        .await;
    let read_only_login = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/setup", Some(&read_only_login)).await;
    assert!(!page.body.contains("/setup/check"), "{page:?}");
    let refused = console.post("/setup/check", &read_only_login, "").await;
    assert_eq!(refused.status, 403);
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console.get("/setup", Some(&login)).await;
    assert!(page.body.contains("action=\"/setup/check\""), "{page:?}");
    assert_eq!(request_count.load(std::sync::atomic::Ordering::SeqCst), 0);
    let page = console.post("/setup/check", &login, "").await;
    assert_eq!(request_count.load(std::sync::atomic::Ordering::SeqCst), 1);
    let body = &page.body;
    for text in [
        "data-account=\"telegram/main\"",
        "data-state=\"accepted\"",
        "&lt;i&gt;@bot&lt;/i&gt;",
        "files of ",
        "depend on the chat",
        "data-state=\"ready\"",
        "engine 28.0",
    ] {
        assert!(body.contains(text), "{text} in {body}");
    }
    // A state of a newer service is not shown as a success.
    let (_, newer) = body.split_once("telegram/newer").unwrap();
    assert!(newer.contains("data-state=\"unreachable\""), "{newer}");
}

#[tokio::test]
async fn a_refused_check_is_a_notice_and_the_other_results_are_shown() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::CheckBackendsRequest>(|_| {
            Err(Fault::new(
                FaultCode::Denied,
                "Sandboxes may not be named here.",
            ))
        })
        .await;
    console
        .respond::<v1::CheckAccountsRequest>(|_| Ok(v1::CheckAccountsReply::default()))
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console.post("/setup/check", &login, "").await;
    assert!(
        page.body.contains("Backends cannot be checked."),
        "{page:?}"
    );
    assert!(page.body.contains("No account serves this tenant."));
}
