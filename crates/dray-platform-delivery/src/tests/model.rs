//! Random failures, crashes and redeliveries, and the messages that users see.

use std::time::Duration;

use dray_platform::{DuplicateProtection, ErrorKind, Route};
use proptest::prelude::*;

use super::fake::FakeAction;
use super::fixture::DeliveryFixture;
use crate::deliver::WorkEnd;
use crate::record::{DeliveryRecord, FileState};

fn any_action() -> impl Strategy<Value = FakeAction> {
    prop_oneof![
        4 => Just(FakeAction::Show),
        2 => Just(FakeAction::LoseResponse),
        2 => Just(FakeAction::LoseRequest),
        2 => Just(FakeAction::CrashAfter),
        2 => Just(FakeAction::CrashBefore),
        2 => Just(FakeAction::Refuse(ErrorKind::Transient)),
        1 => Just(FakeAction::Refuse(ErrorKind::Forbidden)),
        1 => Just(FakeAction::Refuse(ErrorKind::TooLarge)),
        1 => Just(FakeAction::Refuse(ErrorKind::WindowClosed)),
        1 => Just(FakeAction::Wait(Duration::from_mins(97))),
        1 => Just(FakeAction::Wait(Duration::from_millis(2))),
        1 => Just(FakeAction::ShowSome(0)),
    ]
}

fn ambiguity() -> impl Strategy<Value = DuplicateProtection> {
    prop_oneof![
        Just(DuplicateProtection::Unknown),
        Just(DuplicateProtection::Reconcile),
        Just(DuplicateProtection::ResendAlways),
        Just(DuplicateProtection::Resend(Duration::from_mins(2))),
    ]
}

/// Redelivers, restarts and waits until the delivery has ended.
async fn run_to_the_end(fixture: &mut DeliveryFixture, id: &str) {
    for _ in 0..60 {
        let crashed = {
            let running = fixture.resume(id);
            tokio::pin!(running);
            tokio::select! {
                ended = &mut running => match ended.unwrap() {
                    WorkEnd::Finished(_) => return,
                    WorkEnd::Waiting(_) => false,
                },
                () = fixture.fake.crashed() => true,
            }
        };
        if crashed {
            fixture.restart();
            continue;
        }
        fixture.clock.advance(Duration::from_mins(100));
        let account = fixture.replica.inbound.accounts.named("bot").unwrap();
        fixture.replica.receipts.log.index.refresh().await.unwrap();
        fixture
            .replica
            .inbound
            .statuses
            .window_opened(&account, "42")
            .await;
    }
    panic!("it never ends: {:?}", fixture.record(id).await);
}

async fn check(ambiguity: DuplicateProtection, script: Vec<FakeAction>, count: usize) {
    let mut fixture = DeliveryFixture::with(ambiguity, |config| {
        config.delivery_timeout = dray_types::Period::secs(5 * 86_400);
        config.window_timeout = dray_types::Period::secs(7 * 86_400);
    })
    .await;
    fixture.fake.script(script.clone());
    let names = ["a.txt", "b.txt", "c.txt"];
    let files: Vec<(&str, &[u8])> = names[..count]
        .iter()
        .map(|name| (*name, name.as_bytes()))
        .collect();
    let work = fixture.files("d", &files).await;
    let meta = fixture.meta("d");
    let key = crate::records::record_key(&meta.tenant, &meta.operation);
    let begun_at_ms = fixture.clock.now_ms();
    let record = DeliveryRecord::begin(&meta, work, begun_at_ms, 5 * 86_400_000);
    fixture
        .replica
        .receipts
        .log
        .records
        .write(&key, record, 0)
        .await
        .unwrap();
    run_to_the_end(&mut fixture, "d").await;
    let report = fixture.record("d").await;
    let messages = fixture.fake.visible_messages();
    for file in &report.files {
        let shown = messages
            .iter()
            .filter(|message| message.files.contains(&file.name))
            .count();
        let linked = messages
            .iter()
            .filter(|message| message.route == Route::Link && message.text.contains(&file.name))
            .count();
        let context = format!("{ambiguity:?} {script:?} {:?} {messages:?}", file.state);
        assert!(file.state.is_final(), "{context}");
        assert!(shown <= 1 && linked <= 1, "two visible sends: {context}");
        match file.state {
            FileState::Delivered => assert_eq!(shown, 1, "a wrong `delivered`: {context}"),
            FileState::DeliveredAsLink => {
                assert_eq!(linked, 1, "a wrong `delivered_as_link`: {context}");
            }
            FileState::Unknown => {}
            _ => assert_eq!(shown, 0, "a wrong `{:?}`: {context}", file.state),
        }
    }
    let all_shown = report.files.iter().all(|file| file.state.is_shown());
    assert_eq!(report.success, all_shown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn users_never_see_a_file_twice_and_receipts_are_always_correct(
        ambiguity in ambiguity(),
        script in proptest::collection::vec(any_action(), 0..9),
        count in 1_usize..=3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(check(ambiguity, script, count));
    }
}
