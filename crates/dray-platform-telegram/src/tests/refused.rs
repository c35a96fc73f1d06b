//! Tests of refusals, lost responses and partial successes.

use std::time::Duration;

use dray_platform::conformance::sample;
use dray_platform::{ErrorKind, Platform as _, PlatformError, Route, SendOutcome};
use dray_types::Period;

use super::BotFixture;
use crate::fake_server::InjectedFault;

fn kind_and_outcome(error: &PlatformError) -> (ErrorKind, SendOutcome) {
    (error.kind(), error.send_outcome())
}

#[tokio::test]
async fn every_refusal_of_the_table_is_reported_and_shows_nothing() {
    for (code, reason, kind) in [
        (400, "message thread not found", ErrorKind::NoThread),
        (400, "chat not found", ErrorKind::NotFound),
        (403, "bot was blocked by the user", ErrorKind::Forbidden),
        (400, "file must be non-empty", ErrorKind::Empty),
        (400, "VOICE_MESSAGES_FORBIDDEN", ErrorKind::UnsupportedKind),
        (413, "Request Entity Too Large", ErrorKind::TooLarge),
        (400, "can't parse entities", ErrorKind::BadFormat),
        (400, "message caption is too long", ErrorKind::TooLong),
        (400, "who knows", ErrorKind::Unknown),
    ] {
        let fixture = BotFixture::new().await;
        fixture
            .fake
            .script(InjectedFault::Refuse(code, reason.to_owned()));
        let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
        let error = fixture.send_only(&delivery).await.unwrap_err();
        assert_eq!(
            kind_and_outcome(&error),
            (kind, SendOutcome::NotSent),
            "{reason}"
        );
        assert_eq!(error.platform_code(), code.to_string());
        assert!(error.context().contains(reason));
        assert_eq!(fixture.visible_messages(), []);
        assert_eq!(fixture.fake.requests().len(), 1, "{reason} was tried again");
    }
}

#[tokio::test]
async fn pictures_that_are_refused_arrive_as_documents() {
    for reason in [
        "PHOTO_INVALID_DIMENSIONS",
        "IMAGE_PROCESS_FAILED",
        "PHOTO_SAVE_FILE_INVALID",
        "PHOTO_EXT_INVALID",
    ] {
        let fixture = BotFixture::new().await;
        let files = vec![sample::jpeg_file("1.jpg", 1), sample::jpeg_file("2.jpg", 2)];
        let delivery = fixture.delivery("words", files);
        let step = fixture.steps(&delivery).await.remove(0);
        fixture
            .fake
            .script(InjectedFault::Refuse(400, reason.to_owned()));
        let error = fixture.attempt(&delivery, &step).await.unwrap_err();
        let document_step = fixture.bot.fallback(&delivery, &step, &error).unwrap();
        fixture.attempt(&delivery, &document_step).await.unwrap();
        assert_eq!(fixture.kinds(), ["document", "document"], "{reason}");
        assert_eq!(fixture.visible_messages()[0].text, "words");
    }
}

#[tokio::test]
async fn a_missing_or_invalid_thread_is_reported() {
    let fixture = BotFixture::new().await;
    for thread in ["99", "general"] {
        let mut delivery = fixture.delivery("words", Vec::new());
        delivery.target.thread = thread.to_owned();
        let error = fixture.send_only(&delivery).await.unwrap_err();
        assert_eq!(
            kind_and_outcome(&error),
            (ErrorKind::NoThread, SendOutcome::NotSent)
        );
    }
    assert_eq!(fixture.visible_messages(), []);
}

#[tokio::test]
async fn a_file_id_of_another_kind_is_stale() {
    let fixture = BotFixture::new().await;
    let song = fixture.delivery("", vec![sample::mp3_file("a.mp3")]);
    let known = fixture.send_only(&song).await.unwrap().remove(0).file_id;
    let mut picture = sample::jpeg_file("a.jpg", 1);
    picture.file_id = Some(known);
    let error = fixture
        .send_only(&fixture.delivery("", vec![picture]))
        .await
        .unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::StaleFileId, SendOutcome::NotSent)
    );
}

#[tokio::test]
async fn a_file_that_is_sent_by_its_id_has_the_name_of_its_upload() {
    let fixture = BotFixture::new().await;
    let first = fixture.delivery("", vec![sample::binary_file("a.bin", 10)]);
    let known = fixture.send_only(&first).await.unwrap().remove(0);
    let mut renamed = sample::binary_file("b.bin", 10);
    renamed.file_id = Some(known.file_id);
    let second = fixture.delivery("", vec![renamed]);
    fixture.send_only(&second).await.unwrap();
    let names: Vec<String> = fixture
        .visible_messages()
        .into_iter()
        .filter_map(|message| message.file?.name)
        .collect();
    assert_eq!(names, ["a.bin", "a.bin"]);
    assert!(fixture.bot.ids_keep_names(known.route));
    assert!(!fixture.bot.ids_keep_names(Route::Photo));
}

#[tokio::test]
async fn an_album_of_known_files_uploads_nothing() {
    let fixture = BotFixture::new().await;
    let mut files = vec![
        sample::png_file("1.png", 64, 64, 1),
        sample::png_file("2.png", 64, 64, 2),
        sample::png_file("3.png", 64, 64, 3),
    ];
    let confirmed = fixture
        .send_only(&fixture.delivery("", files.clone()))
        .await
        .unwrap();
    files[0].file_id = Some(confirmed[0].file_id.clone());
    files[2].file_id = Some(confirmed[2].file_id.clone());
    fixture
        .send_only(&fixture.delivery("", files))
        .await
        .unwrap();
    let messages = fixture.visible_messages();
    assert_eq!(messages.len(), 6);
    for index in 0..3 {
        assert_eq!(messages[index].file, messages[index + 3].file);
    }
}

#[tokio::test]
async fn r_1_an_album_that_fails_half_way_is_partial() {
    for shown_items in [0, 2] {
        let fixture = BotFixture::new().await;
        let files = (0..4)
            .map(|number| sample::png_file("p.png", 64, 64, number))
            .collect();
        let inner = "Too Many Requests: retry after 8".to_owned();
        fixture
            .fake
            .script(InjectedFault::BreakAlbum(shown_items, inner));
        let error = fixture
            .send_only(&fixture.delivery("", files))
            .await
            .unwrap_err();
        assert_eq!(
            kind_and_outcome(&error),
            (ErrorKind::RateLimited, SendOutcome::Partial)
        );
        assert_eq!(error.retry_after(), Some(Duration::from_secs(8)));
        assert_eq!(fixture.visible_messages().len(), shown_items);
        assert_eq!(fixture.fake.requests().len(), 1, "tried again");
    }
}

#[tokio::test]
async fn an_album_with_fewer_items_than_sent_is_not_delivered() {
    let fixture = BotFixture::new().await;
    let files = (0..3)
        .map(|number| sample::png_file("p.png", 64, 64, number))
        .collect();
    fixture.fake.script(InjectedFault::ShortAlbum(2));
    let error = fixture
        .send_only(&fixture.delivery("", files))
        .await
        .unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::Unknown, SendOutcome::Partial)
    );
}

#[tokio::test]
async fn a_file_of_another_length_than_sent_is_not_delivered() {
    let fixture = BotFixture::new().await;
    fixture.fake.script(InjectedFault::MisstateSize(99));
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
    let error = fixture.send_only(&delivery).await.unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::Unknown, SendOutcome::Partial)
    );
    assert_eq!(fixture.visible_messages().len(), 1);
}

#[tokio::test]
async fn a_send_that_the_server_stops_reading_counts_as_not_sent() {
    let fixture = BotFixture::with(|options| options.idle_timeout = Period::millis(300)).await;
    fixture.fake.script(InjectedFault::StallDuringBody);
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 30_000_000)]);
    let error = fixture.send_only(&delivery).await.unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
    assert_eq!(fixture.visible_messages(), []);
}

#[tokio::test]
async fn r_13_a_send_without_a_response_is_ambiguous() {
    let fixture = BotFixture::with(|options| options.response_timeout = Period::millis(300)).await;
    fixture.fake.script(InjectedFault::NeverRespond);
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
    let error = fixture.send_only(&delivery).await.unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::Transient, SendOutcome::Ambiguous)
    );
    // The server may still read the request when its client gives up.
    dray_testkit::eventually("the message", async || {
        (fixture.visible_messages().len() == 1).then_some(())
    })
    .await;
    assert_eq!(fixture.fake.requests(), ["sendDocument"]);
}

#[tokio::test]
async fn an_error_page_of_a_proxy_is_classified_by_its_status() {
    for (status, kind, outcome) in [
        (413, ErrorKind::TooLarge, SendOutcome::NotSent),
        (429, ErrorKind::RateLimited, SendOutcome::NotSent),
        (403, ErrorKind::Forbidden, SendOutcome::NotSent),
        (504, ErrorKind::Transient, SendOutcome::Ambiguous),
        (302, ErrorKind::Unknown, SendOutcome::NotSent),
    ] {
        let fixture = BotFixture::new().await;
        fixture.fake.script(InjectedFault::FailAfterBody(status));
        let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 100)]);
        let error = fixture.send_only(&delivery).await.unwrap_err();
        assert_eq!(kind_and_outcome(&error), (kind, outcome), "{status}");
    }
}

#[tokio::test]
async fn a_file_over_the_servers_own_limit_is_too_large() {
    let fixture = BotFixture::with(|options| {
        options.upload_limit = Some(dray_types::ByteSize::mib(80));
    })
    .await;
    let delivery = fixture.delivery("", vec![sample::binary_file("a.bin", 52_428_801)]);
    let error = fixture.send_only(&delivery).await.unwrap_err();
    assert_eq!(
        kind_and_outcome(&error),
        (ErrorKind::TooLarge, SendOutcome::NotSent)
    );
    assert_eq!(fixture.visible_messages(), []);
}
