//! Sizes, links, file ids, texts and empty files.

use std::time::Duration;

use dray_platform::{DuplicateProtection, ErrorKind, Route, StatusUpdate};

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, states};
use crate::deliver::WorkEnd;
use crate::link::LinkPolicy;
use crate::record::FileState;

#[tokio::test]
async fn r_6_a_refusal_of_the_size_sets_the_limit_and_changes_the_route() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::Limit(100)]);
    let bytes = vec![b'x'; 500];
    let work = fixture.files("d1", &[("big.bin", &bytes)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::DeliveredAsLink]);
    assert!(report.success);
    assert_eq!(fixture.fake.requests(), 2, "the upload and the link");
    let work = fixture
        .files("d2", &[("big.bin", &bytes), ("small.bin", b"x")])
        .await;
    let report = fixture.delivered(&work).await;
    assert_eq!(
        states(&report),
        [FileState::DeliveredAsLink, FileState::Delivered]
    );
    assert_eq!(fixture.fake.requests(), 4, "it is not uploaded again");
}

#[tokio::test]
async fn r_12_a_link_works_and_is_not_in_the_result() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.limit(10);
    let mut work = fixture
        .files("d", &[("big.bin", b"0123456789abcdef")])
        .await;
    work.message = "look".to_owned();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::DeliveredAsLink]);
    let messages = fixture.fake.visible_messages();
    assert_eq!(
        (messages[0].route, messages[0].text.as_str()),
        (Route::Text, "look")
    );
    assert_eq!(
        messages[1].route,
        Route::Link,
        "adapters switch previews off for this route"
    );
    assert!(
        messages[1].files.is_empty() && messages[1].bytes.is_empty(),
        "the link carries its file"
    );
    assert!(
        messages[1]
            .text
            .contains("until 2026-11-21 00:00 UTC (for 24 hours)"),
        "{}",
        messages[1].text
    );
    assert!(messages[1].text.contains("X-Amz-Signature"));
    let file = &report.files[0];
    assert_eq!(file.url_expires_at_ms, super::fixture::NOW_MS + 86_400_000);
    let record = fixture.record("d").await;
    let everything = format!("{record:?}");
    assert!(!everything.contains("X-Amz"), "no signed URL is kept");
    assert!(!report.result_json.contains("http"));
    assert!(
        report
            .result_json
            .contains(r#""url_expires":"2026-11-21T00:00:00Z""#)
    );
}

#[tokio::test]
async fn without_links_both_numbers_are_reported() {
    for links in [LinkPolicy::Never, LinkPolicy::Auto] {
        // The store of this fixture is on loopback, which no user can reach.
        let fixture =
            DeliveryFixture::with(DuplicateProtection::Unknown, |config| config.links = links)
                .await;
        fixture.fake.limit(1024);
        let work = fixture.files("d", &[("big.bin", &[0; 2048])]).await;
        let report = fixture.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Rejected]);
        let file = &report.files[0];
        assert_eq!(file.error_kind, Some(ErrorKind::TooLarge.into()));
        assert_eq!(
            file.error_message,
            "The file is too large for this chat (2.0 KB of 1.0 KB)."
        );
        assert_eq!(
            report.notice,
            "⚠️ Couldn't deliver: big.bin. Reason: too large for this chat (2.0 KB of 1.0 KB)."
        );
    }
}

#[tokio::test]
async fn r_2_an_empty_file_is_reported_if_the_platform_does_not_accept_it() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::Refuse(ErrorKind::Empty)]);
    let work = fixture
        .files("d", &[("none.txt", b""), ("a.txt", b"a")])
        .await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Rejected, FileState::Delivered]);
    assert_eq!(report.files[0].error_message, "The file is empty.");
    assert_eq!(
        report.notice,
        "⚠️ Couldn't deliver: none.txt. Reason: empty."
    );
}

#[tokio::test]
async fn r_7_known_bytes_are_sent_by_id_until_the_platform_forgets_them() {
    let fixture = DeliveryFixture::new().await;
    let work = fixture.files("d1", &[("a.txt", b"abc")]).await;
    fixture.delivered(&work).await;
    let work = fixture.files("d2", &[("other name.txt", b"abc")]).await;
    fixture.delivered(&work).await;
    let by_id: Vec<_> = fixture
        .fake
        .visible_messages()
        .iter()
        .map(|seen| seen.by_id)
        .collect();
    assert_eq!(by_id, [false, true]);
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::StaleFileId)]);
    let work = fixture.files("d3", &[("a.txt", b"abc")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    let last = fixture.fake.visible_messages().pop().unwrap();
    assert!(
        !last.by_id && last.bytes == b"abc",
        "the bytes went up again"
    );
}

#[tokio::test]
async fn a_rate_limit_of_the_request_for_limits_holds_the_chat() {
    let fixture = DeliveryFixture::new().await;
    let wait = Duration::from_mins(5);
    fixture.fake.delay_limits(wait);
    let work = fixture.files("d1", &[("a.txt", b"abc")]).await;
    let ended = fixture.deliver(&work).await.unwrap();
    assert!(matches!(ended, WorkEnd::Waiting(_)));
    let inbound = &fixture.replica.inbound;
    let account = inbound.accounts.named("bot").unwrap();
    let limiter = &inbound.questions.limiter;
    assert_eq!(limiter.held(&account.id(), "42"), wait);
}

#[tokio::test]
async fn r_7_an_id_that_keeps_the_name_of_its_upload_is_used_for_that_name_only() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.keep_names();
    for (id, name) in [("d1", "a.txt"), ("d2", "b.txt"), ("d3", "b.txt")] {
        let work = fixture.files(id, &[(name, b"abc")]).await;
        fixture.delivered(&work).await;
    }
    let seen = fixture.fake.visible_messages();
    let by_id: Vec<_> = seen.iter().map(|seen| seen.by_id).collect();
    assert_eq!(by_id, [false, false, true]);
}

#[tokio::test]
async fn r_7_the_upload_of_a_refused_id_is_made_again() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.prepares();
    let work = fixture.files("d1", &[("a.txt", b"abc")]).await;
    fixture.delivered(&work).await;
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::StaleFileId)]);
    let work = fixture.files("d2", &[("a.txt", b"abc")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    // One upload of the first delivery, one that returned the known id, and one after the refusal of this id.
    assert_eq!(fixture.fake.uploads(), 3);
    assert!(!fixture.fake.visible_messages()[1].by_id);
}

#[tokio::test]
async fn r_7_an_id_whose_media_a_later_status_refuses_is_not_used_again() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let statuses = &fixture.replica.inbound.statuses;
    let refused = |message: &str| StatusUpdate {
        message_id: message.to_owned(),
        status: "failed".to_owned(),
        code: "131053".to_owned(),
    };
    fixture.fake.script([FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"abc")]).await;
    fixture.delivered(&work).await;
    statuses.status(&account, &refused("m1")).await.unwrap();
    // The link that replaces the file is `m2`.
    assert!(matches!(
        fixture.resume("d1").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    // This status arrives before the confirmation of its message is stored.
    statuses.status(&account, &refused("m3")).await.unwrap();
    fixture.fake.script([FakeAction::Accept]);
    for id in ["d2", "d3"] {
        let work = fixture.files(id, &[("a.txt", b"abc")]).await;
        fixture.delivered(&work).await;
    }
    let seen = fixture.fake.visible_messages();
    let by_id: Vec<_> = seen
        .iter()
        .filter(|seen| !seen.files.is_empty())
        .map(|seen| seen.by_id)
        .collect();
    assert_eq!(by_id, [false, false, false]);
}

#[tokio::test]
async fn a_refused_kind_is_sent_by_the_fallback_and_then_as_a_link() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.fall_back_to(Route::Document);
    let png = b"\x89PNG\r\n\x1a\n0000IHDR";
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::UnsupportedKind)]);
    let work = fixture.files("d1", &[("a.png", png)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(
        (report.files[0].route, report.files[0].lossy),
        (Some(Route::Document), false)
    );
    fixture
        .fake
        .script(vec![FakeAction::Refuse(ErrorKind::UnsupportedKind); 2]);
    let work = fixture
        .files("d2", &[("b.png", &[png, &b"x"[..]].concat())])
        .await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::DeliveredAsLink]);
}

#[tokio::test]
async fn files_of_a_refused_album_are_sent_one_by_one() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([
        FakeAction::Refuse(ErrorKind::TooLarge),
        FakeAction::Show,
        FakeAction::Refuse(ErrorKind::Forbidden),
    ]);
    let png = |tail: &[u8]| [b"\x89PNG\r\n\x1a\n0000IHDR", tail].concat();
    let (a, b) = (png(b"a"), png(b"b"));
    let mut work = fixture.files("d", &[("a.png", &a), ("b.png", &b)]).await;
    work.message = "both".to_owned();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered, FileState::Rejected]);
    assert_eq!(fixture.fake.visible_texts()[0], "photo:a.png|both");
}

#[tokio::test]
async fn a_text_that_is_too_long_is_split() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::TooLong)]);
    let mut work = fixture.files("d", &[("a.txt", b"a")]).await;
    work.message = "one two three four five six seven".to_owned();
    let report = fixture.delivered(&work).await;
    assert!(report.success);
    let shown = fixture.fake.visible_texts();
    let text: Vec<_> = fixture
        .fake
        .visible_messages()
        .into_iter()
        .map(|seen| seen.text)
        .collect();
    assert_eq!(
        text.concat().replace(' ', ""),
        "onetwothreefourfivesixseven"
    );
    assert!(shown.len() > 2, "{shown:?}");
    assert_eq!(shown.last().unwrap(), "document:a.txt|");
}

#[tokio::test]
async fn a_text_that_cannot_be_sent_does_not_stop_files_and_is_reported() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::BadFormat)]);
    let mut work = fixture.files("d", &[("a.txt", b"a")]).await;
    work.message = "longer than the caption may be here".to_owned();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(fixture.fake.visible_texts(), ["document:a.txt|"]);
    assert_eq!(
        report.notice,
        "⚠️ The message that goes with the files could not be shown."
    );
}

#[tokio::test]
async fn r_1_a_refused_text_without_files_is_not_a_success() {
    let fixture = DeliveryFixture::new().await;
    let forbidden = FakeAction::Refuse(ErrorKind::Forbidden);
    for (id, action, success) in [("d1", FakeAction::Show, true), ("d2", forbidden, false)] {
        fixture.fake.script([action]);
        let mut work = fixture.files(id, &[]).await;
        work.message = "hello".to_owned();
        assert_eq!(fixture.delivered(&work).await.success, success, "{id}");
    }
}

#[tokio::test]
async fn r_1_an_empty_file_does_not_fail_its_album() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([
        FakeAction::Refuse(ErrorKind::Empty),
        FakeAction::Refuse(ErrorKind::Empty),
        FakeAction::Show,
    ]);
    let png = |tail: &[u8]| [b"\x89PNG\r\n\x1a\n0000IHDR", tail].concat();
    let (a, b) = (png(b"a"), png(b"b"));
    let work = fixture.files("d", &[("a.png", &a), ("b.png", &b)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Rejected, FileState::Delivered]);
}

#[tokio::test]
async fn a_missing_stored_file_fails_alone() {
    let fixture = DeliveryFixture::new().await;
    let mut work = fixture
        .files("d", &[("a.txt", b"a"), ("b.txt", b"b")])
        .await;
    let claim = work.files[0].claim.as_mut().unwrap();
    let artifact = claim.artifact.as_mut().unwrap();
    artifact.sha256 = vec![7; 32];
    claim.created_at_ms = 1;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Failed, FileState::Delivered]);
    assert_eq!(report.files[0].error_kind, Some(ErrorKind::Source.into()));
}
