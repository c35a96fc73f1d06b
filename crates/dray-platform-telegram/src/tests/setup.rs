//! Tests of the options.

use dray_platform::{ErrorKind, Route};
use dray_types::{ByteSize, Secret};

use crate::{TelegramOptions, TelegramPlatform};

fn with_token(token: &str) -> TelegramOptions {
    TelegramOptions {
        token: Secret::new(token),
        ..TelegramOptions::default()
    }
}

#[tokio::test]
async fn an_invalid_token_is_refused_at_the_start() {
    for token in [
        "",
        "no-colon",
        "12:with space",
        "12:a/../b",
        "12:a?b",
        "12:\r\nX",
    ] {
        let error = TelegramPlatform::new("", with_token(token)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFormat, "{token:?}");
        assert!(token.is_empty() || !format!("{error:?}").contains(token));
    }
}

#[tokio::test]
async fn an_invalid_address_is_refused_at_the_start() {
    for base in [
        "",
        "api.telegram.org",
        "ftp://h/",
        "http://u:p@h/",
        "http://h/?a=b",
    ] {
        let options = TelegramOptions {
            base_url: base.to_owned(),
            ..with_token("12:abc")
        };
        let error = TelegramPlatform::new("", options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFormat, "{base:?}");
    }
}

#[tokio::test]
async fn no_output_about_a_bot_has_its_token() {
    let mut options = with_token("12:the-secret");
    options.webhook_secret = Secret::new("the-secret-too");
    let written = serde_json::to_string(&options).unwrap();
    let bot = TelegramPlatform::new("work", options).unwrap();
    for text in [format!("{bot:?}"), format!("{bot:#?}"), written] {
        assert!(!text.contains("the-secret"), "{text}");
    }
}

#[test]
fn unset_options_have_defaults_and_unknown_ones_are_refused() {
    let options: TelegramOptions = serde_json::from_str("{\"token\": \"12:abc\"}").unwrap();
    assert_eq!(options, with_token("12:abc"));
    assert!(serde_json::from_str::<TelegramOptions>("{\"tokn\": \"12:abc\"}").is_err());
}

#[test]
fn r_6_limits_are_those_of_the_server_and_can_be_set() {
    let mut options = with_token("12:abc");
    let hosted = options.limits();
    assert_eq!(hosted.of(Route::Document), 50_000_000);
    assert_eq!(hosted.of(Route::Photo), 10_000_000);
    assert_eq!(hosted.download, Some(20 << 20));
    options.local_mode = true;
    let local = options.limits();
    assert_eq!(local.of(Route::Document), 2_000_000_000);
    assert_eq!((local.of(Route::Photo), local.download), (10_000_000, None));
    options.upload_limit = Some(ByteSize::bytes(5));
    options.download_limit = Some(ByteSize::bytes(6));
    let set = options.limits();
    assert_eq!((set.of(Route::Document), set.of(Route::Photo)), (5, 5));
    assert_eq!(set.download, Some(6));
}
