//! The fake server is checked with an independent client: python-telegram-bot.

use dray_testkit::python;
use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::BotFixture;
use crate::fake_server::{BOT_TOKEN, InjectedFault, UserFile};

/// Runs the script with the fake server, and returns its output.
async fn run(fixture: &BotFixture, moved: i64) -> Value {
    let (url, chat) = (fixture.fake.url(), fixture.chat.to_string());
    let arguments = [&url, BOT_TOKEN, &chat, &moved.to_string()];
    python::run_script("telegram_client.py", "telegram", &arguments).await
}

#[tokio::test]
async fn python_telegram_bot_accepts_the_fake_api() {
    let fixture = BotFixture::new().await;
    let moved = fixture.fake.group();
    let now = fixture.fake.upgrade(moved);
    for _ in 0..9 {
        fixture.fake.script(InjectedFault::Nothing);
    }
    for fault in [
        InjectedFault::RateLimit(97 * 60),
        InjectedFault::Refuse(403, "bot was blocked by the user".to_owned()),
        InjectedFault::FailAfterBody(502),
        InjectedFault::Refuse(413, "Request Entity Too Large".to_owned()),
    ] {
        fixture.fake.script(fault);
    }
    fixture.fake.user_writes(fixture.chat, "just words", None);
    let file = UserFile::new("document", "a.csv", "a,b\n1,2\n");
    fixture.fake.user_writes(fixture.chat, "a file", Some(file));
    let big = UserFile {
        size: Some(21 << 20),
        ..UserFile::new("document", "big.zip", "")
    };
    fixture.fake.user_writes(fixture.chat, "too big", Some(big));
    let output = run(&fixture, moved).await;
    assert_eq!(output["me"], "fake_bot");
    check_sends(&fixture, &output["sends"]);
    check_refusals(&output["failures"], now);
    let digest = Sha256Digest::of(b"a,b\n1,2\n").to_hex();
    let updates = json!([
        { "text": "just words", "sha256": null },
        { "text": "a file", "sha256": digest },
        { "text": "too big", "sha256": null, "refused": "File is too big" },
    ]);
    assert_eq!(output["updates"], updates);
    assert_eq!(output["conflict"]["type"], "Conflict");
    assert_eq!(output["silence"], 0);
    assert_eq!(output["token"]["type"], "InvalidToken");
}

/// The responses to sends, and the visible messages.
fn check_sends(fixture: &BotFixture, sends: &Value) {
    assert_eq!(sends["text"], json!(["hello", true, 7]));
    assert_eq!(sends["edited"], "changed");
    assert_eq!(sends["photo"], json!(["a photo", 2, 33]));
    assert_eq!(sends["document"], json!(["отчёт.bin", 1_024_000]));
    for name in ["reply", "again", "action"] {
        assert_eq!(sends[name], true, "{name}");
    }
    assert_eq!(sends["group"], 1);
    let messages = fixture.visible_messages();
    let kinds = [
        "photo",
        "document",
        "document",
        "audio",
        "voice",
        "video",
        "animation",
        "photo",
        "video",
    ];
    assert_eq!(fixture.kinds(), kinds);
    assert_eq!(
        (messages[0].text.as_str(), messages[0].thread),
        ("changed", 7)
    );
    assert!(messages[1].spoiler);
    let document = messages[2].file.clone().unwrap();
    assert_eq!(sends["sha256"], document.sha256.to_hex());
    assert_eq!(messages[3].file.as_ref(), Some(&document));
    assert_eq!(messages[2].reply_to, messages[0].message_id);
    assert_eq!(messages[8].text, "an album");
    assert_eq!(
        sends["album"],
        json!([messages[8].message_id, messages[9].message_id])
    );
}

/// The exceptions of the library for refusals.
fn check_refusals(failures: &Value, now: i64) {
    for (name, kind, text) in [
        ("rate", "RetryAfter", "Flood control exceeded"),
        ("blocked", "Forbidden", "bot was blocked by the user"),
        ("broken", "NetworkError", ""),
        ("large", "NetworkError", "Request Entity Too Large"),
        ("chat", "BadRequest", "Chat not found"),
        ("thread", "BadRequest", "Message thread not found"),
        ("moved", "ChatMigrated", ""),
        ("empty", "BadRequest", "File must be non-empty"),
        ("id", "BadRequest", "Wrong file_id"),
        ("dimensions", "BadRequest", "Photo_invalid_dimensions"),
        ("mixed", "BadRequest", "can't be mixed"),
        ("caption", "BadRequest", "Message caption is too long"),
    ] {
        let failure = &failures[name];
        assert_eq!(failure["type"], kind, "{name}: {failure}");
        assert!(
            failure["text"].as_str().unwrap().contains(text),
            "{name}: {failure}"
        );
    }
    assert_eq!(failures["rate"]["after"].as_f64(), Some(97.0 * 60.0));
    assert_eq!(failures["moved"]["chat"], now);
}
