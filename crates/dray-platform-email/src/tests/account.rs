//! The check of an account, which sends no mail.

use dray_platform::{CredentialCheck, ErrorKind, FilePermission};
use dray_types::Secret;

use super::*;
use crate::fake_server::{FakeMailServer, InjectedFault, SENDER_ADDRESS};

async fn start() -> FakeMailServer {
    FakeMailServer::start(10 << 20, None).await.unwrap()
}

#[tokio::test]
async fn an_account_check_logs_in_and_sends_no_mail() {
    let fake = start().await;
    let check = sender(fake.options()).check_account().await.unwrap();
    assert_eq!(check.identity, SENDER_ADDRESS);
    assert_eq!(check.credentials, CredentialCheck::Accepted);
    assert_eq!(check.files, FilePermission::Allowed);
    let limits = check.limits.unwrap();
    assert!(
        limits.request.is_some_and(|limit| limit <= 10 << 20),
        "{limits:?}"
    );
    assert!(fake.mails("ada@example.org").is_empty());
}

#[tokio::test]
async fn an_account_check_finds_a_refused_sender_and_a_wrong_password() {
    let fake = start().await;
    fake.script(InjectedFault::RefuseSender("553 5.7.1 not your address"));
    let check = sender(fake.options()).check_account().await.unwrap();
    assert!(
        matches!(check.files, FilePermission::Denied(_)),
        "{check:?}"
    );
    fake.script(InjectedFault::RefuseSender("451 4.7.1 later"));
    let failed = sender(fake.options()).check_account().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Transient);
    let wrong = EmailOptions {
        password: Secret::new("wrong"),
        ..fake.options()
    };
    let refused = sender(wrong).check_account().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Auth);
}
