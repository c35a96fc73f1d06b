//! The check of an account.

use dray_platform::{CredentialCheck, ErrorKind, FilePermission};

use super::*;

#[tokio::test]
async fn an_account_check_names_the_bot_and_sends_no_message() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = TelegramPlatform::new("", options(&fake)).unwrap();
    let check = bot.check_account().await.unwrap();
    assert!(check.identity.starts_with('@'), "{check:?}");
    assert_eq!(check.credentials, CredentialCheck::Accepted);
    assert!(matches!(check.files, FilePermission::PerChat(_)));
    assert_eq!(check.limits, bot.limits(&target(1)).await.ok());
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_no_part_of_it_is_in_the_error() {
    let fake = FakeTelegram::start().await.unwrap();
    let wrong = TelegramOptions {
        token: Secret::new("4242:not-the-token"),
        ..options(&fake)
    };
    let bot = TelegramPlatform::new("", wrong).unwrap();
    let refused = bot.check_account().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Auth);
    assert!(
        !format!("{refused:?}").contains("not-the-token"),
        "{refused:?}"
    );
}
