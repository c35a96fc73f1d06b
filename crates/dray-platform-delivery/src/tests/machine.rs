//! Crashes, lost answers and refusals at every moment: never two visible sends unless the platform's own means make
//! them one, never a wrong "delivered".

use std::time::Duration;

use dray_platform::{DuplicateProtection, ErrorKind};

use super::fake::FakeAction;
use super::world::{DeliveryFixture, states};
use crate::deliver::WorkEnd;
use crate::record::{FileState, WaitingReason};

const RESEND_WINDOW: DuplicateProtection = DuplicateProtection::Resend(Duration::from_mins(2));

#[tokio::test]
async fn r_13_a_lost_answer_is_unknown_where_nobody_can_be_asked() {
    for act in [FakeAction::LoseAnswer, FakeAction::LoseRequest] {
        let world = DeliveryFixture::new().await;
        world.fake.script([act]);
        let work = world.files("d", &[("a.txt", b"a"), ("b.txt", b"b")]).await;
        let report = world.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Unknown, FileState::Delivered]);
        assert!(!report.success);
        assert_eq!(world.fake.requests(), 3, "two files and the notice");
        let notice = world.fake.seen().pop().unwrap().text;
        assert_eq!(notice, "⚠️ May have been delivered: a.txt.");
    }
}

#[tokio::test]
async fn a_crash_after_the_request_left_is_unknown_and_never_repeated() {
    for act in [FakeAction::DieAfter, FakeAction::DieBefore] {
        let shown = usize::from(act == FakeAction::DieAfter);
        let mut world = DeliveryFixture::new().await;
        world.fake.script([act]);
        let work = world.files("d", &[("a.txt", b"a")]).await;
        world.die_in(&work).await;
        let report = world.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Unknown]);
        let of_file = world
            .fake
            .seen()
            .into_iter()
            .filter(|seen| !seen.files.is_empty());
        assert_eq!(of_file.count(), shown);
        assert_eq!(
            world.delivered(&work).await,
            report,
            "a redelivery changes nothing"
        );
        assert_eq!(world.fake.requests(), 2, "the file and the notice");
    }
}

#[tokio::test]
async fn r_8_a_platform_with_keys_shows_one_message_whatever_is_lost() {
    for ambiguity in [
        RESEND_WINDOW,
        DuplicateProtection::ResendAlways,
        DuplicateProtection::Reconcile,
    ] {
        for act in [
            FakeAction::LoseAnswer,
            FakeAction::LoseRequest,
            FakeAction::DieAfter,
            FakeAction::DieBefore,
        ] {
            let dies = matches!(act, FakeAction::DieAfter | FakeAction::DieBefore);
            let mut world = DeliveryFixture::with(ambiguity, |_| {}).await;
            world.fake.script([act.clone()]);
            let work = world.files("d", &[("a.txt", b"a")]).await;
            if dies {
                world.die_in(&work).await;
            }
            let report = world.delivered(&work).await;
            assert_eq!(
                states(&report),
                [FileState::Delivered],
                "{ambiguity:?} {act:?}"
            );
            assert_eq!(
                world.fake.shown(),
                ["document:a.txt|"],
                "{ambiguity:?} {act:?}"
            );
        }
    }
}

#[tokio::test]
async fn after_the_window_of_a_key_nobody_sends_again() {
    let mut world = DeliveryFixture::with(RESEND_WINDOW, |_| {}).await;
    world.fake.script([FakeAction::DieAfter]);
    let work = world.files("d", &[("a.txt", b"a")]).await;
    world.die_in(&work).await;
    world.clock.advance(Duration::from_secs(121));
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(
        world
            .fake
            .seen()
            .iter()
            .filter(|seen| !seen.files.is_empty())
            .count(),
        1
    );
}

#[tokio::test]
async fn a_request_that_is_lost_twice_is_not_sent_a_third_time() {
    let world = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    world
        .fake
        .script([FakeAction::LoseRequest, FakeAction::LoseRequest]);
    let work = world.files("d", &[("a.txt", b"a")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(world.fake.requests(), 3, "twice, and the notice");
}

#[tokio::test]
async fn a_request_that_was_answered_without_proof_is_not_sent_again() {
    let world = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    world.fake.script([FakeAction::ProveNothing]);
    let work = world.files("d", &[("a.txt", b"a")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(world.fake.requests(), 2, "once, and the notice");
}

#[tokio::test]
async fn a_refusal_of_a_repeat_does_not_deny_what_may_be_visible() {
    let world = DeliveryFixture::with(DuplicateProtection::ResendAlways, |_| {}).await;
    world.fake.script([
        FakeAction::LoseAnswer,
        FakeAction::Refuse(ErrorKind::Forbidden),
    ]);
    let work = world.files("d", &[("a.txt", b"a")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
}

#[tokio::test]
async fn uploads_that_nobody_sees_are_made_once() {
    let mut world = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    world.fake.prepares();
    world.fake.script([FakeAction::DieBefore]);
    let work = world.files("d", &[("a.txt", b"a")]).await;
    world.die_in(&work).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(world.fake.uploads(), 1);
}

#[tokio::test]
async fn every_class_of_refusal_ends_in_its_state() {
    use ErrorKind as Kind;
    for (kind, expected) in [
        (Kind::BadFormat, FileState::Rejected),
        (Kind::Forbidden, FileState::Rejected),
        (Kind::NotFound, FileState::Rejected),
        (Kind::Empty, FileState::Rejected),
        (Kind::Auth, FileState::Failed),
        (Kind::NoThread, FileState::Rejected),
        (Kind::TooLong, FileState::Rejected),
        (Kind::Unknown, FileState::Failed),
    ] {
        let world = DeliveryFixture::new().await;
        world.fake.script([FakeAction::Refuse(kind)]);
        let work = world.files("d", &[("a.txt", b"a")]).await;
        let report = world.delivered(&work).await;
        assert_eq!(states(&report), [expected], "{kind}");
        let file = &report.files[0];
        assert_eq!(
            (file.error_kind, file.platform_code.as_str()),
            (Some(kind.into()), "7")
        );
        assert_eq!(file.error_message, kind.sentence());
        assert!(world.fake.seen().iter().all(|seen| seen.files.is_empty()));
    }
}

#[tokio::test]
async fn what_passes_is_tried_five_times_and_no_more() {
    let world = DeliveryFixture::new().await;
    world
        .fake
        .script(vec![FakeAction::Refuse(ErrorKind::Transient); 2]);
    let work = world.files("d1", &[("a.txt", b"a")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].attempts, 3);
    world
        .fake
        .script(vec![FakeAction::Refuse(ErrorKind::Transient); 5]);
    let work = world.files("d2", &[("b.txt", b"b")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Failed]);
    assert_eq!(
        world.fake.requests(),
        3 + 5 + 1,
        "five tries and the notice"
    );
}

#[tokio::test]
async fn a_short_wait_is_sat_out_and_is_no_try() {
    let world = DeliveryFixture::new().await;
    let work = world.files("d", &[("a.txt", b"a")]).await;
    world
        .fake
        .script(vec![FakeAction::Wait(Duration::from_millis(50)); 7]);
    let begun = tokio::time::Instant::now();
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].attempts, 1);
    assert!(
        begun.elapsed() >= Duration::from_millis(350),
        "it came back too soon"
    );
}

#[tokio::test]
async fn r_19_a_long_wait_parks_the_delivery_and_no_other_chat_waits() {
    let world = DeliveryFixture::new().await;
    let hours = Duration::from_mins(97);
    world.fake.script([FakeAction::Wait(hours)]);
    let work = world.files("d1", &[("a.txt", b"a")]).await;
    let WorkEnd::Waiting(waiting) = world.deliver(&work).await.unwrap() else {
        panic!("it did not wait");
    };
    assert_eq!(waiting.waiting, Some(WaitingReason::RateLimited));
    let later = world.files("d2", &[("b.txt", b"b")]).await;
    let WorkEnd::Waiting(_) = world.deliver(&later).await.unwrap() else {
        panic!("it overtook the other");
    };
    let mut elsewhere = world.files("d3", &[("c.txt", b"c")]).await;
    elsewhere.target = Some(super::world::chat("43"));
    assert!(world.delivered(&elsewhere).await.success);
    assert_eq!(world.fake.shown(), ["document:c.txt|"]);
    // Redelivered work of the first round finds that others will go on.
    assert!(matches!(
        world.deliver(&work).await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    assert_eq!(world.fake.requests(), 2);
}

#[tokio::test]
async fn r_10_parts_that_were_not_confirmed_are_not_delivered() {
    let world = DeliveryFixture::new().await;
    world.fake.script([FakeAction::Partly(1)]);
    let png = b"\x89PNG\r\n\x1a\n0000IHDR";
    let work = world.files("d", &[("a.png", png), ("b.png", png)]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered, FileState::Failed]);
    assert!(report.files[0].lossy);
    assert_eq!(world.fake.shown()[0], "photo:a.png|");
}

#[tokio::test]
async fn a_refusal_of_the_chat_ends_its_siblings_at_once() {
    let world = DeliveryFixture::new().await;
    world.fake.script([FakeAction::Refuse(ErrorKind::NotFound)]);
    let work = world.files("d", &[("a.txt", b"a"), ("b.txt", b"b")]).await;
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Rejected, FileState::Rejected]);
    assert_eq!(world.fake.requests(), 1, "and no notice into nothing");
}

#[tokio::test]
async fn a_thread_that_is_gone_is_left_and_the_record_says_so() {
    let world = DeliveryFixture::new().await;
    world.fake.script([
        FakeAction::Refuse(ErrorKind::NoThread),
        FakeAction::Refuse(ErrorKind::NoThread),
    ]);
    let mut work = world.files("d", &[("a.txt", b"a")]).await;
    let target = work.target.as_mut().unwrap();
    target.thread = "9".to_owned();
    target.reply_to = "7".to_owned();
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    let target = report.target.unwrap();
    assert_eq!((target.thread.as_str(), target.reply_to.as_str()), ("", ""));
}
