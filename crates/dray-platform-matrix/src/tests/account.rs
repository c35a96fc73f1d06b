//! The check of an account.

use dray_platform::{CredentialCheck, ErrorKind, FilePermission};
use dray_types::Secret;

use super::*;

#[tokio::test]
async fn an_account_check_names_the_user_and_the_limit_of_the_homeserver() {
    let fake = start().await;
    let check = user(options(&fake)).check_account().await.unwrap();
    assert!(check.identity.starts_with('@'), "{check:?}");
    assert_eq!(check.credentials, CredentialCheck::Accepted);
    assert!(matches!(check.files, FilePermission::PerChat(_)));
    assert_eq!(check.limits.unwrap().any, 100 << 20);
    let wrong = user(MatrixOptions {
        token: Secret::new("wrong"),
        ..options(&fake)
    });
    let refused = wrong.check_account().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn an_account_check_reports_a_homeserver_that_accepts_no_uploads() {
    let fake = FakeHomeserver::start(0).await.unwrap();
    let check = user(options(&fake)).check_account().await.unwrap();
    assert!(
        matches!(check.files, FilePermission::Denied(_)),
        "{check:?}"
    );
}
