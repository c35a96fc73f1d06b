//! Checks our events with a receiver that uses aiohttp and verifies signatures as the documentation says.

use std::process::Stdio;

use dray_platform::ErrorKind;
use dray_platform::conformance::{repeat_only_step, sample};
use dray_types::{Clock, Secret};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{NOW_SECONDS, deliver, delivery};
use crate::{WebhookAddress, WebhookOptions, WebhookPlatform};

fn sender(port: u16, secret: &str) -> WebhookPlatform {
    let hook = WebhookAddress {
        url: Secret::new(format!("http://127.0.0.1:{port}/")),
        secret: Secret::new(secret),
        allow_http: true,
        upload_limit: None,
    };
    let options = WebhookOptions {
        hooks: [("7".to_owned(), hook)].into(),
        ..WebhookOptions::default()
    };
    WebhookPlatform::new("", options, Clock::manual(NOW_SECONDS * 1000)).unwrap()
}

#[tokio::test]
async fn aiohttp_accepts_our_events() {
    let mut server = dray_testkit::python::script_command("webhook_server.py", "aiohttp")
        .arg("a secret, ключ")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    let webhook = sender(port, "a secret, ключ");
    let files = vec![
        sample::memory_file("отчёт 1.csv", "a,b\n"),
        sample::binary_file("b.bin", 300_001),
    ];
    let digests: Vec<String> = files.iter().map(|file| file.sha256.to_hex()).collect();
    let outgoing = delivery("Вот он: \"1\"", files);
    let confirmed = deliver(&webhook, &outgoing, "one").await.unwrap();
    assert_eq!(confirmed[0].message_id, "taken-0");
    let received: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(received["event"]["caption"], "Вот он: \"1\"");
    assert_eq!(received["event"]["files"][1]["sha256"], digests[1].as_str());
    assert_eq!(
        received["files"],
        json!([
            ["отчёт 1.csv", "text/csv", 4, digests[0]],
            ["b.bin", "application/octet-stream", 300_001, digests[1]],
        ])
    );
    let repeated = repeat_only_step(&webhook, &outgoing, "one").await.unwrap();
    assert_eq!(repeated, confirmed);
    let message = delivery("only words", Vec::new());
    deliver(&webhook, &message, "two").await.unwrap();
    let received: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&received["event"]["caption"], &received["files"]),
        (&json!("only words"), &json!([]))
    );
    let error = deliver(&sender(port, "wrong"), &message, "three")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    server.stdin.take().unwrap().shutdown().await.unwrap();
    assert!(server.wait().await.unwrap().success());
}
