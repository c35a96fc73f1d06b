//! Tests of the messages that users see.

use dray_platform::conformance::sample;
use dray_platform::{OutgoingDelivery, Route, SendFlags, SendStep};
use dray_testkit::eventually;
use futures_util::future::{Either, select};

use super::BotFixture;
use crate::fake_server::{self, InjectedFault};

#[tokio::test]
async fn an_album_is_one_group_with_its_caption_on_the_first_item() {
    let fixture = BotFixture::new().await;
    let files = vec![
        sample::png_file("1.png", 64, 64, 1),
        sample::mp4_file("2.mp4"),
        sample::jpeg_file("3.jpg", 1),
    ];
    let delivery = fixture.delivery("words", files);
    let confirmed = fixture.send_only(&delivery).await.unwrap();
    let messages = fixture.visible_messages();
    let texts: Vec<&str> = messages
        .iter()
        .map(|message| message.text.as_str())
        .collect();
    assert_eq!(texts, ["words", "", ""]);
    assert_eq!(fixture.kinds(), ["photo", "video", "photo"]);
    assert!(
        messages
            .iter()
            .all(|message| message.album == messages[0].album)
    );
    assert!(!messages[0].album.is_empty());
    for (index, (confirmed, message)) in confirmed.iter().zip(&messages).enumerate() {
        assert_eq!(confirmed.file, Some(index));
        assert_eq!(confirmed.message_id, message.message_id.to_string());
        assert!(!confirmed.file_id.is_empty());
    }
    let routes: Vec<&str> = confirmed.iter().map(|part| part.route.as_str()).collect();
    assert_eq!(routes, ["photo", "video", "photo"]);
}

#[tokio::test]
async fn documents_are_sent_as_an_album_and_so_are_audio_files() {
    let fixture = BotFixture::new().await;
    let files = vec![
        sample::binary_file("a.bin", 10),
        sample::mp3_file("b.mp3"),
        sample::binary_file("c.bin", 11),
    ];
    let flags = SendFlags {
        as_document: true,
        ..SendFlags::default()
    };
    let delivery = OutgoingDelivery {
        flags,
        ..fixture.delivery("", files)
    };
    fixture.send_only(&delivery).await.unwrap();
    assert_eq!(fixture.kinds(), ["document"; 3]);
    let other = BotFixture::new().await;
    let songs = vec![sample::mp3_file("a.mp3"), sample::m4a_file("b.m4a")];
    other.send_only(&other.delivery("", songs)).await.unwrap();
    assert_eq!(other.kinds(), ["audio"; 2]);
}

#[tokio::test]
async fn the_last_remaining_file_of_an_album_is_sent_as_its_own_kind() {
    let fixture = BotFixture::new().await;
    let delivery = fixture.delivery("", vec![sample::mp4_file("a.mp4")]);
    let mut step = SendStep::files_by(Route::Album, vec![0]);
    step.set_text("words".to_owned());
    fixture.attempt(&delivery, &step).await.unwrap();
    assert_eq!(fixture.kinds(), ["video"]);
    assert_eq!(fixture.visible_messages()[0].text, "words");
}

#[tokio::test]
async fn a_document_is_sent_as_a_document() {
    let flags = SendFlags {
        as_document: true,
        ..SendFlags::default()
    };
    for file in [
        sample::gif_file("a.gif"),
        sample::mp3_file("a.mp3"),
        sample::mp4_file("a.mp4"),
        sample::opus_file("a.ogg"),
    ] {
        let fixture = BotFixture::new().await;
        let delivery = OutgoingDelivery {
            flags,
            ..fixture.delivery("", vec![file])
        };
        let confirmed = fixture.send_only(&delivery).await.unwrap();
        assert_eq!(fixture.kinds(), ["document"]);
        assert_eq!(confirmed[0].route, Route::Document);
    }
}

#[tokio::test]
async fn the_confirmed_route_is_the_kind_that_the_server_chose() {
    let fixture = BotFixture::new().await;
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
    let step = SendStep::files_by(Route::Video, vec![0]);
    let confirmed = fixture.attempt(&delivery, &step).await.unwrap();
    assert_eq!(confirmed[0].route, Route::Document);
    assert_eq!(confirmed[0].size, Some(100));
}

#[tokio::test]
async fn a_spoiler_is_hidden_in_a_single_message_and_in_an_album() {
    let flags = SendFlags {
        spoiler: true,
        ..SendFlags::default()
    };
    let fixture = BotFixture::new().await;
    let pictures = vec![
        sample::png_file("1.png", 64, 64, 1),
        sample::png_file("2.png", 64, 64, 2),
    ];
    for files in [pictures.clone(), pictures[..1].to_vec()] {
        let delivery = OutgoingDelivery {
            flags,
            ..fixture.delivery("", files)
        };
        fixture.send_only(&delivery).await.unwrap();
    }
    assert_eq!(fixture.visible_messages().len(), 3);
    assert!(
        fixture
            .visible_messages()
            .iter()
            .all(|message| message.spoiler)
    );
}

#[tokio::test]
async fn r_12_links_have_no_preview() {
    let fixture = BotFixture::new().await;
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
    let step = SendStep::Link("a.bin: https://files.example/x?sig=1".to_owned());
    let confirmed = fixture.attempt(&delivery, &step).await.unwrap();
    assert_eq!(
        (confirmed[0].file, confirmed[0].route.as_str()),
        (None, "link")
    );
    let messages = fixture.visible_messages();
    assert_eq!((messages.len(), messages[0].preview), (1, false));
    assert_eq!(messages[0].text, step.text());
}

#[tokio::test]
async fn a_large_upload_shows_an_action_while_it_runs() {
    let fixture = BotFixture::new().await;
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 2_000_000)]);
    fixture.fake.script(InjectedFault::StallDuringBody);
    let sending = std::pin::pin!(fixture.send_only(&delivery));
    let action_shown = std::pin::pin!(eventually("the action, shown twice", async || {
        let actions = fixture.fake.actions(fixture.chat);
        (actions.len() == 2).then_some(actions)
    }));
    match select(sending, action_shown).await {
        Either::Left((result, _)) => panic!("the send ended: {result:?}"),
        Either::Right((actions, _)) => assert_eq!(actions, ["upload_document"; 2]),
    }
    assert_eq!(fixture.visible_messages(), []);
}

#[tokio::test]
async fn a_chat_that_moved_is_reported_with_its_new_id_and_nothing_is_sent() {
    let fixture = BotFixture::new().await;
    let moved = fixture.fake.upgrade(fixture.chat);
    let delivery = fixture.delivery("words", vec![sample::binary_file("a.bin", 100)]);
    let error = fixture.send_only(&delivery).await.unwrap_err();
    assert_eq!(error.moved_to(), Some(moved.to_string().as_str()));
    assert_eq!(error.send_outcome(), dray_platform::SendOutcome::NotSent);
    assert_eq!(
        (
            fixture.visible_messages(),
            fixture.fake.visible_messages(moved)
        ),
        (vec![], vec![])
    );
    assert_eq!(fixture.fake.requests(), ["sendDocument"]);
}

#[tokio::test]
async fn a_reply_to_a_deleted_message_is_sent_without_the_reply() {
    let fixture = BotFixture::new().await;
    let mut delivery = fixture.delivery("words", Vec::new());
    delivery.target.reply_to = "123456".to_owned();
    fixture.send_only(&delivery).await.unwrap();
    assert_eq!(fixture.visible_messages()[0].reply_to, 0);
}

#[tokio::test]
async fn a_self_hosted_server_accepts_larger_files() {
    let self_hosted = fake_server::FakeTelegram::start_with(2_000_000_000)
        .await
        .unwrap();
    let mut options = super::options(&self_hosted);
    options.local_mode = true;
    let fixture = BotFixture {
        bot: super::TelegramPlatform::new("", options).unwrap(),
        chat: self_hosted.chat(),
        fake: self_hosted,
    };
    let file = sample::binary_file("large.bin", 60_000_000);
    let sha256 = file.sha256;
    let delivery = fixture.delivery("", vec![file]);
    let hosted = BotFixture::new().await;
    assert_eq!(hosted.steps(&delivery).await, []);
    fixture.send_only(&delivery).await.unwrap();
    let stored = fixture.visible_messages().remove(0).file.unwrap();
    assert_eq!((stored.size, stored.sha256), (60_000_000, sha256));
}
