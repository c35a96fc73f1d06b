//! The fake server is checked with an independent client (`smtplib`), and our sender with a server that we did
//! not write (`aiosmtpd`).

use std::process::Stdio;

use dray_platform::conformance::sample;
use dray_platform::{ErrorKind, Platform as _};
use dray_testkit::python;
use dray_types::{Secret, Sha256Digest};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{deliver, delivery, sender, target};
use crate::fake_server::{
    FakeMailServer, InjectedFault, UNKNOWN_RECIPIENT, USER_NAME, USER_PASSWORD,
};
use crate::{ConnectionSecurity, EmailOptions};

#[tokio::test]
async fn smtplib_accepts_the_fake_server() {
    let fake = FakeMailServer::start(1 << 20, None).await.unwrap();
    fake.script(InjectedFault::Refuse("552 5.7.0 blocked content"));
    fake.script(InjectedFault::Refuse("451 4.3.0 try later"));
    let port = fake.options().port.to_string();
    let arguments = [&port, USER_NAME, USER_PASSWORD, UNKNOWN_RECIPIENT];
    let output = python::run_script("email_client.py", "aiosmtpd", &arguments).await;
    let expected = json!({
        "size": "1048576",
        "auth": "PLAIN LOGIN",
        "without_login": 530,
        "wrong_password": 535,
        "nobody": 550,
        "too_large": 552,
        "blocked": 552,
        "later": 451,
        "no_recipient": 503,
        "login": "LOGIN",
    });
    assert_eq!(output, expected);
    let mails = fake.mails("ada@example.org");
    let [plain, files] = mails.as_slice() else {
        panic!("{mails:?}");
    };
    assert_eq!(plain.text.trim_end(), "first\n.second");
    assert_eq!(files.text.trim_end(), "Вот он.");
    assert_eq!(files.files[0].name, "отчёт.csv");
    assert_eq!(files.files[0].media_type, "text/csv");
    assert_eq!(files.files[1].name, "a \"b\".bin");
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 300).collect();
    assert_eq!(files.files[1].sha256, Sha256Digest::of(&bytes));
}

#[tokio::test]
async fn aiosmtpd_accepts_our_mails() {
    let mut server = python::script_command("email_server.py", "aiosmtpd")
        .arg("bot")
        .arg("a password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    let options = EmailOptions {
        host: "127.0.0.1".to_owned(),
        port,
        security: ConnectionSecurity::None,
        username: "bot".to_owned(),
        password: Secret::new("a password"),
        from: "Бот <bot@example.org>".to_owned(),
        subject: "Отчёт за ноябрь, и ещё много слов, которых одна строка не вмещает".to_owned(),
        ..EmailOptions::default()
    };
    let email = sender(options.clone());
    let limits = email.limits(&target("ada@example.org")).await.unwrap();
    assert!(limits.any < 2_000_000, "{}", limits.any);
    let files = vec![
        sample::memory_file("отчёт; \"1\".csv", "a,b\n"),
        sample::binary_file("b.bin", 700_001),
    ];
    let digests: Vec<String> = files.iter().map(|file| file.sha256.to_hex()).collect();
    let mut message = delivery("First.\n.\n.Last — конец", files);
    "<root@x.example>".clone_into(&mut message.target.thread);
    deliver(&email, &message).await.unwrap();
    let mail: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    let expected = json!({
        "from": "bot@example.org",
        "to": ["ada@example.org"],
        "sender": "Бот <bot@example.org>",
        "subject": format!("Re: {}", options.subject),
        "id": "<AAAAAAAAAAAAAAAAAAAAAA@example.org>",
        "references": "<root@x.example>",
        "text": "First.\n.\n.Last — конец",
        "defects": 0,
        "files": [
            ["отчёт; \"1\".csv", "text/csv", digests[0]],
            ["b.bin", "application/octet-stream", digests[1]],
        ],
    });
    assert_eq!(mail, expected);
    let wrong = EmailOptions {
        password: Secret::new("wrong"),
        ..options
    };
    let error = deliver(&sender(wrong), &delivery("words", Vec::new())).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Auth);
    let mut elsewhere = delivery("words", Vec::new());
    "nobody@example.org".clone_into(&mut elsewhere.target.chat);
    let error = deliver(&email, &elsewhere).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
    server.stdin.take().unwrap().shutdown().await.unwrap();
    assert!(server.wait().await.unwrap().success());
}
