//! The fake server is checked with an independent client: matrix-nio.

use std::time::Duration;

use dray_types::Sha256Digest;
use serde_json::json;

use crate::fake_server::{ACCESS_TOKEN, BOT_USER, FakeHomeserver, InjectedFault, OTHER_USER};

#[tokio::test]
async fn matrix_nio_accepts_the_fake_homeserver() {
    let fake = FakeHomeserver::start(200_000).await.unwrap();
    let room = fake.room();
    fake.alias("#room:fake.example", &room);
    fake.user_writes(&room, &json!({ "msgtype": "m.text", "body": "привет" }));
    // The first two events succeed.
    fake.script(InjectedFault::Nothing);
    fake.script(InjectedFault::Nothing);
    fake.script(InjectedFault::RateLimit(Duration::from_secs(97)));
    fake.script(InjectedFault::Refuse(403, "M_FORBIDDEN"));
    let arguments = [&fake.url(), ACCESS_TOKEN, &room, OTHER_USER];
    let output = dray_testkit::python::run_script("matrix_client.py", "nio", &arguments).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 40).collect();
    let digest = Sha256Digest::of(&bytes);
    let messages = fake.visible_messages(&room);
    let [file] = messages.as_slice() else {
        panic!("{messages:?}");
    };
    assert_eq!(file.file.as_ref().unwrap().sha256, digest);
    let expected = json!({
        "me": BOT_USER,
        "limit": 200_000,
        "alias": room,
        "nowhere": "M_NOT_FOUND",
        "uri": file.content["url"],
        "download": digest.to_hex(),
        "gone": "M_NOT_FOUND",
        "large": "M_TOO_LARGE",
        "event": file.event_id,
        "same": true,
        "limited": ["M_LIMIT_EXCEEDED", 97_000],
        "refused": "M_FORBIDDEN",
        "files": [[BOT_USER, "отчёт.csv", file.content["url"]]],
        "texts": [[OTHER_USER, "привет"]],
        "last": [file.event_id],
        "silence": 0,
        "token": "M_UNKNOWN_TOKEN",
    });
    assert_eq!(output, expected);
}
