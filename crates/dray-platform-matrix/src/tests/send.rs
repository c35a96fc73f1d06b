//! Sent events, and the responses of homeservers.

use dray_platform::conformance::sample;
use dray_platform::{ErrorKind, Platform as _, SendFlags, SendOutcome};
use serde_json::json;

use super::{deliver, delivery, options, start, target, user};
use crate::fake_server::{FakeHomeserver, InjectedFault};

#[tokio::test]
async fn each_kind_has_its_message_type() {
    let fake = start().await;
    let matrix = user(options(&fake));
    for (file, as_voice, as_document, kind) in [
        (
            sample::png_file("a.png", 640, 480, 1),
            false,
            false,
            "m.image",
        ),
        (
            sample::png_file("a.png", 640, 480, 1),
            false,
            true,
            "m.file",
        ),
        (sample::mp4_file("a.mp4"), false, false, "m.video"),
        (sample::mp3_file("a.mp3"), false, false, "m.audio"),
        (sample::opus_file("a.ogg"), true, false, "m.audio"),
        (
            sample::memory_file("a.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
            false,
            false,
            "m.file",
        ),
        (sample::binary_file("a.bin", 10), false, false, "m.file"),
    ] {
        let room = fake.room();
        let mut files = delivery(&room, "", vec![file]);
        files.flags = SendFlags {
            as_voice,
            as_document,
            ..SendFlags::default()
        };
        deliver(&matrix, &files, "key").await.unwrap();
        let content = &fake.visible_messages(&room)[0].content;
        assert_eq!(content["msgtype"], kind);
        let is_voice = content.get("org.matrix.msc3245.voice").is_some();
        assert_eq!(is_voice, as_voice);
    }
    let room = fake.room();
    let files = delivery(
        &room,
        "Look, @room",
        vec![sample::png_file("a.png", 640, 480, 1)],
    );
    let size = files.files[0].size;
    let confirmed = deliver(&matrix, &files, "key").await.unwrap();
    assert_eq!(
        fake.visible_messages(&room)[0].content,
        json!({
            "msgtype": "m.image", "body": "Look, @\u{200B}room", "filename": "a.png",
            "info": { "size": size, "mimetype": "image/png", "w": 640, "h": 480 },
            "url": confirmed.file_id, "m.mentions": {},
        })
    );
}

#[tokio::test]
async fn threads_and_replies_have_their_own_relations() {
    let fake = start().await;
    let matrix = user(options(&fake));
    for (thread, reply_to, relation) in [
        ("", "", None),
        (
            "",
            "$a",
            Some(json!({ "m.in_reply_to": { "event_id": "$a" } })),
        ),
        (
            "$t",
            "",
            Some(json!({
                "rel_type": "m.thread", "event_id": "$t", "is_falling_back": true,
                "m.in_reply_to": { "event_id": "$t" },
            })),
        ),
        (
            "$t",
            "$a",
            Some(json!({
                "rel_type": "m.thread", "event_id": "$t", "is_falling_back": false,
                "m.in_reply_to": { "event_id": "$a" },
            })),
        ),
    ] {
        let room = fake.room();
        let mut message = delivery(&room, "words", Vec::new());
        thread.clone_into(&mut message.target.thread);
        reply_to.clone_into(&mut message.target.reply_to);
        deliver(&matrix, &message, "key").await.unwrap();
        let content = &fake.visible_messages(&room)[0].content;
        assert_eq!(content.get("m.relates_to"), relation.as_ref());
    }
}

#[tokio::test]
async fn r_12_links_get_no_previews() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    let message = delivery(&room, "https://store.example/once", Vec::new());
    let step = dray_platform::SendStep::Link(message.message.clone());
    let send = dray_platform::SendRequest {
        delivery: &message,
        step: &step,
        prepared: "",
        key: "key",
        repeated: false,
    };
    matrix.send(send, &super::NoProgress).await.unwrap();
    let content = &fake.visible_messages(&room)[0].content;
    assert_eq!(content["com.beeper.linkpreviews"], json!([]));
}

#[tokio::test]
async fn sends_to_an_encrypted_room_are_refused() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    fake.encrypt(&room);
    let error = matrix.limits(&target(&room)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.platform_code()),
        (ErrorKind::Forbidden, "encrypted")
    );
    let files = delivery(&room, "words", vec![sample::binary_file("a.bin", 10)]);
    let steps = matrix.plan(&files, &options(&fake).limits(None));
    let send = dray_platform::SendRequest {
        delivery: &files,
        step: &steps[0],
        prepared: "mxc://fake.example/a",
        key: "key",
        repeated: false,
    };
    assert!(matrix.prepare(send, &super::NoProgress).await.is_err());
    assert!(matrix.send(send, &super::NoProgress).await.is_err());
    assert_eq!(fake.received(), 0);
    assert!(fake.visible_messages(&room).is_empty());
}

#[tokio::test]
async fn a_room_is_found_by_its_id_or_alias_only() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    fake.alias("#room:fake.example", &room);
    let message = delivery("#room:fake.example", "words", Vec::new());
    deliver(&matrix, &message, "key").await.unwrap();
    assert_eq!(fake.visible_messages(&room).len(), 1);
    for (chat, kind) in [
        ("@ada:fake.example", ErrorKind::NotFound),
        ("room", ErrorKind::NotFound),
        ("!elsewhere:fake.example", ErrorKind::Forbidden),
        ("!../../account:fake.example", ErrorKind::Forbidden),
    ] {
        let message = delivery(chat, "words", Vec::new());
        let error = deliver(&matrix, &message, "key").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.send_outcome()),
            (kind, SendOutcome::NotSent),
            "{chat}"
        );
    }
}

#[tokio::test]
async fn r_6_the_homeservers_limit_holds() {
    let matrix = |fake: &FakeHomeserver| user(options(fake));
    for (fault, expected) in [
        (None, 1000),
        (Some(InjectedFault::OldVersion), 1000),
        (Some(InjectedFault::NoLimit), 50 << 20),
    ] {
        let fake = FakeHomeserver::start(1000).await.unwrap();
        let room = fake.room();
        if let Some(fault) = fault {
            fake.script(fault);
        }
        let limits = matrix(&fake).limits(&target(&room)).await.unwrap();
        assert_eq!(limits.any, expected);
    }
    let fake = FakeHomeserver::start(1000).await.unwrap();
    let room = fake.room();
    let files = delivery(&room, "", vec![sample::binary_file("a.bin", 1001)]);
    fake.script(InjectedFault::NoLimit);
    let error = deliver(&matrix(&fake), &files, "key").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::TooLarge, SendOutcome::NotSent)
    );
}

#[tokio::test]
async fn refusals_are_final_and_show_nothing() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    for (fault, kind) in [
        (
            InjectedFault::Refuse(403, "M_FORBIDDEN"),
            ErrorKind::Forbidden,
        ),
        (
            InjectedFault::Refuse(413, "M_TOO_LARGE"),
            ErrorKind::TooLong,
        ),
        (
            InjectedFault::Refuse(401, "M_UNKNOWN_TOKEN"),
            ErrorKind::Auth,
        ),
        (
            InjectedFault::Refuse(400, "M_BAD_JSON"),
            ErrorKind::BadFormat,
        ),
        (InjectedFault::InvalidAddress, ErrorKind::Unknown),
    ] {
        fake.script(fault);
        let files = delivery(&room, "", vec![sample::binary_file("a.bin", 10)]);
        let error = deliver(&matrix, &files, "key").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.send_outcome()),
            (kind, SendOutcome::NotSent)
        );
    }
    assert!(fake.visible_messages(&room).is_empty());
}

#[tokio::test]
async fn the_longest_text_of_the_worst_characters_fits_an_event() {
    let fake = start().await;
    let matrix = user(options(&fake));
    for character in ["\"", "\\", "é", "\u{1F600}"] {
        let room = fake.room();
        let limit = options(&fake).limits(None).text;
        let text = character.repeat(limit / character.len());
        let message = delivery(&room, &text, Vec::new());
        deliver(&matrix, &message, "key").await.unwrap();
        assert_eq!(
            fake.visible_messages(&room)[0].content["body"],
            text.as_str()
        );
    }
}

#[tokio::test]
async fn an_upload_refused_for_its_size_is_reported_as_too_large() {
    let fake = FakeHomeserver::start(1000).await.unwrap();
    let matrix = user(options(&fake));
    let room = fake.room();
    for (size, kind, numbers) in [
        (1000, ErrorKind::Transient, None),
        (1001, ErrorKind::TooLarge, Some((1001, 1000))),
    ] {
        let files = delivery(&room, "", vec![sample::binary_file("a.bin", size)]);
        let step = matrix.plan(&files, &options(&fake).limits(None)).remove(0);
        fake.script(InjectedFault::CloseDuringUpload);
        let send = dray_platform::SendRequest {
            delivery: &files,
            step: &step,
            prepared: "",
            key: "key",
            repeated: false,
        };
        let error = matrix.prepare(send, &super::NoProgress).await.unwrap_err();
        assert_eq!((error.kind(), error.numbers()), (kind, numbers));
        assert_eq!(error.send_outcome(), SendOutcome::NotSent);
    }
}
