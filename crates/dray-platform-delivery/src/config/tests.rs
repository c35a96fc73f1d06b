//! Tests of the configuration.

use super::*;

fn check(change: impl FnOnce(&mut Config), field: &str) {
    assert_eq!(dray_service::config::refused_fields(change), [field]);
}

#[test]
fn defaults_are_valid() {
    assert_eq!(Config::default().validate(), []);
}

#[test]
fn every_field_has_its_bounds() {
    check(|config| config.max_files = 0, "max_files");
    check(|config| config.max_files = 101, "max_files");
    check(
        |config| config.max_file_size = ByteSize::default(),
        "max_file_size",
    );
    check(
        |config| config.max_message = ByteSize::default(),
        "max_message",
    );
    check(
        |config| config.delivery_timeout = Period::default(),
        "delivery_timeout",
    );
    check(
        |config| config.delivery_timeout = Period::secs(6 * 86_400),
        "delivery_timeout",
    );
    check(
        |config| config.link_lifetime = Period::secs(1),
        "link_lifetime",
    );
    let account = |name: &str, account: AccountConfig| BTreeMap::from([(name.to_owned(), account)]);
    check(
        |config| config.accounts = account("bot", AccountConfig::default()),
        "accounts.bot",
    );
    let telegram = AccountConfig {
        telegram: Some(dray_platform_telegram::TelegramOptions::default()),
        ..AccountConfig::default()
    };
    check(
        |config| config.accounts = account("A bot", telegram.clone()),
        "accounts.A bot",
    );
    let two_platforms = AccountConfig {
        slack: Some(dray_platform_slack::SlackOptions::default()),
        ..telegram
    };
    check(
        |config| config.accounts = account("bot", two_platforms.clone()),
        "accounts.bot",
    );
    check(
        |config| config.allowed_targets = vec!["nonsense".to_owned()],
        "allowed_targets.0",
    );
    let token = |token: &str| BTreeMap::from([("acme".to_owned(), Secret::new(token))]);
    check(
        |config| config.upload_tokens = token("short"),
        "upload_tokens.acme",
    );
}

#[test]
fn a_chat_for_questions_names_its_account_where_the_platform_has_several() {
    let telegram = AccountConfig {
        telegram: Some(dray_platform_telegram::TelegramOptions::default()),
        ..AccountConfig::default()
    };
    let accounts = BTreeMap::from([
        ("one".to_owned(), telegram.clone()),
        ("two".to_owned(), telegram),
    ]);
    let chats = |chat: &str| {
        let ops = QuestionChat {
            chat: chat.to_owned(),
            people: vec!["7".to_owned()],
            ..QuestionChat::default()
        };
        BTreeMap::from([("ops".to_owned(), ops)])
    };
    let several = accounts.clone();
    check(
        |config| {
            config.accounts = several;
            config.question_chats = chats("telegram:42");
        },
        "question_chats.ops.chat",
    );
    for chat in ["telegram/one:42", "slack:C1"] {
        let config = Config {
            accounts: accounts.clone(),
            question_chats: chats(chat),
            ..Config::default()
        };
        assert_eq!(config.validate(), [], "{chat}");
    }
}

#[test]
fn bots_and_mailboxes_receive_messages() {
    let accounts = BTreeMap::from([
        (
            "bot".to_owned(),
            AccountConfig {
                discord: Some(dray_platform_discord::DiscordOptions {
                    token: Secret::new("t"),
                    ..dray_platform_discord::DiscordOptions::default()
                }),
                ..AccountConfig::default()
            },
        ),
        (
            "mail".to_owned(),
            AccountConfig {
                email: Some(dray_platform_email::EmailOptions {
                    host: "mail.example.org".to_owned(),
                    from: "bot@example.org".to_owned(),
                    ..dray_platform_email::EmailOptions::default()
                }),
                ..AccountConfig::default()
            },
        ),
    ]);
    let config = Config {
        accounts,
        ..Config::default()
    };
    let opened = config.accounts(&Clock::default()).unwrap();
    for name in ["bot", "mail"] {
        assert!(opened.named(name).unwrap().inbox.is_some(), "{name}");
    }
}

#[test]
fn an_account_that_cannot_be_opened_is_named_with_its_reason() {
    let hook = dray_platform_webhook::WebhookAddress {
        url: Secret::new("http://example.org/in"),
        ..dray_platform_webhook::WebhookAddress::default()
    };
    let hooks = AccountConfig {
        webhook: Some(dray_platform_webhook::WebhookOptions {
            hooks: BTreeMap::from([("ci".to_owned(), hook)]),
            ..dray_platform_webhook::WebhookOptions::default()
        }),
        ..AccountConfig::default()
    };
    let config = Config {
        accounts: BTreeMap::from([("hooks".to_owned(), hooks)]),
        ..Config::default()
    };
    assert_eq!(config.validate(), [], "other services have no secrets");
    let problems = config.unusable_accounts(&Clock::default());
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(problem.field, "accounts.hooks");
    assert!(problem.message.contains("url must be https"), "{problem:?}");
}

#[test]
fn policy_lists_a_chat_or_all_chats_of_a_platform() {
    let config = Config {
        allowed_targets: vec!["telegram:42".to_owned(), "slack/work:*".to_owned()],
        ..Config::default()
    };
    for (target, expected) in [
        ("telegram:42", true),
        ("telegram/bot:42#7", true),
        ("telegram:43", false),
        ("slack/work:C1", true),
        ("slack/home:C1", false),
        ("discord:42", false),
    ] {
        assert_eq!(config.lists(&target.parse().unwrap()), expected, "{target}");
    }
}
