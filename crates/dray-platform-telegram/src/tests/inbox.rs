//! Updates from webhooks.

use bytes::Bytes;
use dray_platform::{ErrorKind, InboundMessage, InboundSource as _, WebhookReply, WebhookRequest};
use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use serde_json::{Value, json};

use super::BotFixture;
use crate::fake_server::UserFile;

fn request(secrets: &[&str], body: impl Into<Bytes>) -> WebhookRequest {
    let header = |secret: &&str| {
        (
            "x-telegram-bot-api-secret-token".to_owned(),
            (*secret).to_owned(),
        )
    };
    WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: secrets.iter().map(header).collect(),
        body: body.into(),
    }
}

fn messages_of(fixture: &BotFixture, update: &Value) -> Vec<InboundMessage> {
    let request = request(&["hook-secret"], update.to_string());
    let WebhookReply {
        status, messages, ..
    } = fixture.bot.webhook(&request).unwrap();
    assert_eq!(status, 200);
    messages
}

#[tokio::test]
async fn a_webhook_without_the_secret_is_refused() {
    let fixture = BotFixture::new().await;
    let body = fixture
        .fake
        .user_writes(fixture.chat, "hi", None)
        .to_string();
    let check = |secrets: &[&str], is_believed| {
        let response = fixture.bot.webhook(&request(secrets, body.clone()));
        match response {
            Ok(reply) => assert!(is_believed && reply.messages.len() == 1, "{secrets:?}"),
            Err(error) => {
                assert!(!is_believed, "{secrets:?}");
                assert_eq!(error.kind(), ErrorKind::Auth);
                assert!(!format!("{error:?}").contains("hook-secret"));
            }
        }
    };
    check(&["hook-secret"], true);
    check(&[], false);
    check(&[""], false);
    check(&["hook-secreT"], false);
    check(&["hook-secret "], false);
    check(&["hook-secret", "hook-secret"], false);
}

#[tokio::test]
async fn without_a_secret_every_webhook_is_refused() {
    let fixture =
        BotFixture::with(|options| options.webhook_secret = dray_types::Secret::default()).await;
    for secrets in [&[][..], &[""]] {
        let error = fixture.bot.webhook(&request(secrets, "{}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
}

#[tokio::test]
async fn a_body_that_is_not_an_update_is_refused() {
    let fixture = BotFixture::new().await;
    for body in [
        "",
        "{",
        "[]",
        "{\"message\": {\"message_id\": \"x\"}}",
        "\u{0}",
    ] {
        let error = fixture
            .bot
            .webhook(&request(&["hook-secret"], body))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFormat, "{body:?}");
    }
    let mut get = request(&["hook-secret"], "{}");
    get.method = "GET".to_owned();
    assert_eq!(
        fixture.bot.webhook(&get).unwrap_err().kind(),
        ErrorKind::BadFormat
    );
}

#[tokio::test]
async fn a_message_has_chat_sender_and_text() {
    let fixture = BotFixture::new().await;
    let update = fixture.fake.user_writes(fixture.chat, "hello", None);
    let message = messages_of(&fixture, &update).remove(0);
    assert_eq!(
        message.target.to_string(),
        format!("telegram:{}#7", fixture.chat)
    );
    assert_eq!(message.sender, fixture.chat.abs().to_string());
    assert_eq!(message.text, "hello");
    let number = update["message"]["message_id"].to_string();
    assert_eq!(message.message_id, number);
    let private = fixture.fake.chat();
    let update = fixture.fake.user_writes(private, "hi", None);
    let message = messages_of(&fixture, &update).remove(0);
    assert_eq!(message.target.to_string(), format!("telegram:{private}"));
}

#[tokio::test]
async fn every_kind_of_attachment_is_reported_once() {
    let fixture = BotFixture::new().await;
    for (kind, name) in [
        ("document", "report.csv"),
        ("audio", "song.mp3"),
        ("video", "film.mp4"),
        ("animation", "cat.mp4"),
        ("photo", ""),
        ("voice", ""),
        ("video_note", ""),
        ("sticker", ""),
    ] {
        let file = UserFile::new(kind, name, "bytes");
        let update = fixture.fake.user_writes(fixture.chat, "words", Some(file));
        let message = messages_of(&fixture, &update).remove(0);
        assert_eq!(message.text, "words");
        let [attachment] = message.attachments.as_slice() else {
            panic!("{kind}: {:?}", message.attachments);
        };
        assert_eq!((attachment.kind.as_str(), attachment.size), (kind, 5));
        assert_eq!(attachment.unavailable, "");
        assert!(attachment.name.ends_with(name) && attachment.name.contains('.'));
        assert!(!attachment.reference.contains(crate::fake_server::BOT_TOKEN));
    }
}

#[tokio::test]
async fn a_photo_is_reported_in_its_largest_size() {
    let fixture = BotFixture::new().await;
    let size = |id: &str, width: u32, bytes: u32| json!({ "file_id": id, "file_unique_id": id, "width": width, "height": width, "file_size": bytes });
    let update = json!({ "update_id": 1, "message": {
        "message_id": 5, "date": 1, "chat": { "id": 9, "type": "private" },
        "photo": [size("s", 90, 900), size("x", 1280, 90_000), size("m", 320, 9000)],
    }});
    let message = messages_of(&fixture, &update).remove(0);
    let photo = &message.attachments[0];
    assert_eq!((photo.reference.as_str(), photo.size), ("x", 90_000));
    assert_eq!(
        (photo.name.as_str(), photo.media_type.as_str()),
        ("photo_5.jpg", "image/jpeg")
    );
    assert_eq!(message.sender, "9");
}

#[tokio::test]
async fn a_rich_message_has_its_text_and_its_files() {
    let fixture = BotFixture::new().await;
    let mut update = fixture.fake.user_writes(fixture.chat, "", None);
    let message = update["message"].as_object_mut().unwrap();
    message.remove("text");
    let file = json!({ "file_id": "x", "file_name": "a.csv", "file_size": 5 });
    let blocks = json!([
        { "type": "paragraph", "text": ["look ", { "type": "bold", "text": "here" }] },
        { "type": "document", "document": file },
    ]);
    message.insert("rich_message".to_owned(), json!({ "blocks": blocks }));
    let received = messages_of(&fixture, &update).remove(0);
    assert_eq!(received.text, "look here");
    let file = &received.attachments[0];
    assert_eq!(
        (file.name.as_str(), file.kind.as_str()),
        ("a.csv", "document")
    );
}

#[tokio::test]
async fn messages_of_other_bots_are_not_accepted() {
    let fixture = BotFixture::new().await;
    let bot = json!({ "id": 1_087_968_824, "is_bot": true, "first_name": "Group" });
    let mut update = fixture.fake.user_writes(fixture.chat, "hello", None);
    update["message"]["from"] = bot;
    assert!(messages_of(&fixture, &update).is_empty());
    // An anonymous administrator writes for the group.
    update["message"]["sender_chat"] = json!({ "id": fixture.chat, "type": "supergroup" });
    assert_eq!(messages_of(&fixture, &update)[0].text, "hello");
}

#[tokio::test]
async fn a_file_over_20_mb_is_reported_as_unavailable() {
    let fixture = BotFixture::new().await;
    for (size, unavailable) in [
        (20 << 20, ""),
        (
            (20 << 20) + 1,
            "over 20 MB, cannot fetch (20971521 bytes of 20971520)",
        ),
        (42 << 20, "over 20 MB, cannot fetch (42 MB of 20 MB)"),
    ] {
        let file = UserFile {
            size: Some(size),
            ..UserFile::new("document", "big.zip", "")
        };
        let update = fixture.fake.user_writes(fixture.chat, "", Some(file));
        let message = messages_of(&fixture, &update).remove(0);
        assert_eq!(message.attachments[0].unavailable, unavailable);
    }
    let local_mode = BotFixture::with(|options| options.local_mode = true).await;
    let file = UserFile {
        size: Some(42 << 20),
        ..UserFile::new("document", "big.zip", "")
    };
    let update = local_mode.fake.user_writes(local_mode.chat, "", Some(file));
    assert_eq!(
        messages_of(&local_mode, &update)[0].attachments[0].unavailable,
        ""
    );
}

#[tokio::test]
async fn other_updates_are_accepted_without_a_message() {
    let fixture = BotFixture::new().await;
    let chat = json!({ "id": -5, "type": "channel" });
    let joined = json!({ "update_id": 1, "message": {
        "message_id": 5, "date": 1, "chat": chat, "new_chat_members": [],
    }});
    let edited = json!({ "update_id": 1, "edited_message": {
        "message_id": 5, "date": 1, "chat": chat, "text": "changed",
    }});
    let callback = json!({ "update_id": 1, "callback_query": { "id": "1" } });
    for update in [joined, edited, callback, json!({ "update_id": 1 })] {
        assert_eq!(messages_of(&fixture, &update), []);
    }
    let post = json!({ "update_id": 1, "channel_post": {
        "message_id": 5, "date": 1, "chat": chat, "sender_chat": chat, "text": "news",
    }});
    let message = messages_of(&fixture, &post).remove(0);
    assert_eq!(
        (message.sender.as_str(), message.text.as_str()),
        ("-5", "news")
    );
}

#[tokio::test]
async fn the_fake_pushes_updates_with_its_secret_until_one_is_refused() {
    let fixture = BotFixture::new().await;
    let set = |url: String| {
        let form = dray_http::MultipartForm::new()
            .text("url", url)
            .text("secret_token", "hook-secret");
        fixture.bot.api.ask("setWebhook", form)
    };
    for text in ["one", "two"] {
        fixture.fake.user_writes(fixture.chat, text, None);
    }
    let busy = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::status(503)))
        .await
        .unwrap();
    set(format!("http://{}/hook", busy.address()))
        .await
        .unwrap();
    assert_eq!(
        (fixture.fake.push().await.unwrap(), fixture.fake.waiting()),
        (0, 2)
    );
    let hook = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::status(200)))
        .await
        .unwrap();
    set(format!("http://{}/hook", hook.address()))
        .await
        .unwrap();
    assert_eq!(
        (fixture.fake.push().await.unwrap(), fixture.fake.waiting()),
        (2, 0)
    );
    for request in hook.received_requests() {
        let secret = request.field("x-telegram-bot-api-secret-token");
        assert_eq!((request.target(), secret), ("/hook", Some("hook-secret")));
    }
}

#[tokio::test]
async fn places_contacts_polls_and_dice_are_texts() {
    let fixture = BotFixture::new().await;
    let location = json!({ "latitude": 52.5, "longitude": 13.25 });
    for (content, expected) in [
        (
            json!({ "contact": { "phone_number": "+49 1", "first_name": "Bo", "last_name": "Li" } }),
            "Contact: Bo Li, +49 1",
        ),
        (json!({ "location": location }), "Location: 52.5, 13.25"),
        (
            json!({ "location": location, "venue": { "title": "Home", "address": "A 1", "location": location } }),
            "Location: Home, A 1, 52.5, 13.25",
        ),
        (
            json!({ "poll": { "question": "When?", "options": [{ "text": "now" }, { "text": "later" }] } }),
            "Poll: When?\n- now\n- later",
        ),
        (json!({ "dice": { "emoji": "🎲", "value": 4 } }), "🎲 4"),
    ] {
        let mut update = fixture.fake.user_writes(fixture.chat, "hello", None);
        let message = update["message"].as_object_mut().unwrap();
        message.remove("text");
        message.extend(content.as_object().unwrap().clone());
        assert_eq!(messages_of(&fixture, &update)[0].text, expected);
    }
}

#[tokio::test]
async fn the_move_of_a_group_is_reported_by_both_messages_about_it() {
    let fixture = BotFixture::new().await;
    for (chat, field, other) in [
        (-42, "migrate_to_chat_id", -100),
        (-100, "migrate_from_chat_id", -42),
    ] {
        let update = json!({ "update_id": 1, "message": {
            "message_id": 5, "chat": { "id": chat }, "from": { "id": 1 }, field: other,
        } });
        let request = request(&["hook-secret"], update.to_string());
        let reply = fixture.bot.webhook(&request).unwrap();
        assert!(reply.messages.is_empty());
        let moves = reply.moved_chats.iter();
        let moves: Vec<_> = moves.map(|moved| (&*moved.from, &*moved.to)).collect();
        assert_eq!(moves, [("-42", "-100")]);
    }
}
