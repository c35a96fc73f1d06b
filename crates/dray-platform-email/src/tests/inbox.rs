//! Mails of users, from a real mailbox.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_platform::conformance::RecordingSink;
use dray_platform::{
    ErrorKind, InboundAttachment, InboundMessage, InboundSource as _, PlatformError, WebhookRequest,
};
use dray_types::{ByteSize, Period, Secret};
use futures_util::TryStreamExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::dovecot::{DovecotServer, ProxyAction, TamperingProxy};
use super::{deliver, delivery, sender};
use crate::imap::ImapConnection;
use crate::inbox::RetryDelays;
use crate::{ConnectionSecurity, EmailOptions, EmailPlatform};

pub(super) fn with_short_delays(options: EmailOptions) -> EmailPlatform {
    let mut email = sender(options);
    email.retry_delays = RetryDelays {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(50),
    };
    email
}

async fn next_message(received: &mut UnboundedReceiver<InboundMessage>) -> InboundMessage {
    let next = tokio::time::timeout(Duration::from_mins(1), received.recv()).await;
    next.expect("a mail comes").unwrap()
}

/// Receives until this many mails were accepted.
async fn receive_mails(email: &EmailPlatform, refuses: u32, count: usize) -> Vec<InboundMessage> {
    let (sink, mut received) = RecordingSink::new(refuses);
    let stop = CancellationToken::new();
    let polling = email.poll(&sink, stop.clone());
    let taking = async {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(next_message(&mut received).await);
        }
        stop.cancel();
        all
    };
    let polling = async {
        polling.await.unwrap();
    };
    let ((), all) = tokio::join!(polling, taking);
    all
}

async fn fetch_bytes(
    email: &EmailPlatform,
    file: &InboundAttachment,
) -> Result<Vec<u8>, PlatformError> {
    let chunks: Vec<Bytes> = email.fetch(file).await?.try_collect().await?;
    Ok(chunks.concat())
}

/// Opens a mailbox for reading and changing, as a mail program does.
async fn open_mailbox(options: &EmailOptions, mailbox: &str) -> ImapConnection {
    let email = sender(options.clone());
    let inbox = options.inbox.clone().unwrap();
    let mut connection = ImapConnection::open(options, &inbox, &email.tls)
        .await
        .unwrap();
    connection.select(mailbox, true).await.unwrap();
    connection
}

/// Waits until all mails of a mailbox are marked.
async fn all_are_seen(options: &EmailOptions) {
    let mut connection = open_mailbox(options, "INBOX").await;
    let waiting = async {
        while !connection.search("UNSEEN").await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
    waited.expect("mails are marked");
}

const AUTHENTICATION_RESULTS: &str =
    "Authentication-Results: mx.our.example; dmarc=pass header.from=example.org";

/// A mail of a listed person with an attachment.
fn mail(number: u32, content: &[u8]) -> Vec<u8> {
    let mut lines = String::new();
    for line in STANDARD.encode(content).as_bytes().chunks(76) {
        lines.push_str(std::str::from_utf8(line).unwrap());
        lines.push_str("\r\n");
    }
    format!(
        "{AUTHENTICATION_RESULTS}\r\nFrom: Ada <ada@example.org>\r\nTo: bot@our.example\r\nSubject: No {number}\r\n\
         Message-ID: <{number}@example.org>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         --b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
         =D0=92=D0=BE=D1=82.\r\n--b\r\nContent-Type: text/csv; name=other.csv\r\n\
         Content-Disposition: attachment; filename*=utf-8''%D0%BE.csv\r\nContent-Transfer-Encoding: base64\r\n\r\n\
         {lines}--b--\r\n"
    )
    .into_bytes()
}

fn content(length: usize) -> Vec<u8> {
    (0..=255).cycle().take(length).collect()
}

#[tokio::test]
async fn a_mail_is_received_with_its_text_and_files_and_marked() {
    let dovecot = DovecotServer::start();
    let options = dovecot.options(None);
    dovecot.put("INBOX", &mail(1, &content(700_001)));
    let email = with_short_delays(options.clone());
    let messages = receive_mails(&email, 0, 1).await;
    let message = &messages[0];
    assert_eq!(message.text, "No 1\n\nВот.");
    assert_eq!(
        (message.sender.as_str(), message.target.chat.as_str()),
        ("ada@example.org", "ada@example.org")
    );
    assert_eq!(message.message_id, "<1@example.org>");
    let file = &message.attachments[0];
    assert_eq!(
        (file.name.as_str(), file.media_type.as_str()),
        ("о.csv", "text/csv")
    );
    assert!(file.size.abs_diff(700_001) < 4, "{}", file.size);
    assert_eq!(fetch_bytes(&email, file).await.unwrap(), content(700_001));
    all_are_seen(&options).await;
}

/// A mail of a listed person with these parts: media type and text.
fn mixed_mail(parts: &[(&str, &str)]) -> Vec<u8> {
    let head = format!(
        "{AUTHENTICATION_RESULTS}\r\nFrom: ada@example.org\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    );
    let parts = parts
        .iter()
        .map(|(media_type, text)| format!("--b\r\nContent-Type: {media_type}\r\n\r\n{text}\r\n"));
    format!("{head}{}--b--\r\n", parts.collect::<String>()).into_bytes()
}

#[tokio::test]
async fn all_texts_of_a_mail_are_read_in_their_order() {
    let dovecot = DovecotServer::start();
    let (html, pdf) = ("text/html", "application/pdf; name=a.pdf");
    let picture = ("image/png; name=a.png", "x");
    let with_footer = [
        (html, "<p>Please cancel order 17</p>"),
        (pdf, "x"),
        ("text/plain", "Sent from my iPhone"),
    ];
    dovecot.put("INBOX", &mixed_mail(&with_footer));
    let around_a_file = [(html, "<p>before</p>"), (pdf, "x"), (html, "<p>after</p>")];
    dovecot.put("INBOX", &mixed_mail(&around_a_file));
    let texts = ["1", "2", "3", "4", "5", "6", "7"].map(|text| [("text/plain", text), picture]);
    dovecot.put("INBOX", &mixed_mail(texts.as_flattened()));
    let email = with_short_delays(dovecot.options(None));
    let messages = receive_mails(&email, 0, 3).await;
    let lines = |message: &InboundMessage| -> Vec<String> {
        let lines = message.text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        lines(&messages[0]),
        ["Please cancel order 17", "Sent from my iPhone"]
    );
    assert_eq!(messages[0].attachments.len(), 1);
    assert_eq!(lines(&messages[1]), ["before", "after"]);
    let further = "[Further texts are attached.]";
    assert_eq!(lines(&messages[2]), ["1", "2", "3", "4", "5", further]);
    let files = &messages[2].attachments;
    assert_eq!(files.len(), 9);
    assert_eq!(fetch_bytes(&email, &files[7]).await.unwrap(), b"6");
    assert_eq!(fetch_bytes(&email, &files[8]).await.unwrap(), b"7");
}

#[tokio::test]
async fn a_mail_that_arrives_during_the_wait_is_delivered() {
    let dovecot = DovecotServer::start();
    let email = with_short_delays(dovecot.options(None));
    let (sink, mut received) = RecordingSink::new(0);
    let stop = CancellationToken::new();
    let polling = email.poll(&sink, stop.clone());
    let taking = async {
        for number in 1..4 {
            dovecot.put("INBOX", &mail(number, b"x"));
            let message = next_message(&mut received).await;
            assert_eq!(message.message_id, format!("<{number}@example.org>"));
        }
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, taking);
    polled.unwrap();
}

#[tokio::test]
async fn mails_that_could_not_be_stored_are_found_again_in_order() {
    let dovecot = DovecotServer::start();
    let options = dovecot.options(None);
    for number in 1..4 {
        dovecot.put("INBOX", &mail(number, b"x"));
    }
    let messages = receive_mails(&with_short_delays(options.clone()), 2, 3).await;
    let ids: Vec<_> = messages
        .iter()
        .map(|message| message.message_id.as_str())
        .collect();
    assert_eq!(
        ids,
        ["<1@example.org>", "<2@example.org>", "<3@example.org>"]
    );
    all_are_seen(&options).await;
}

#[tokio::test]
async fn mails_of_unlisted_senders_are_marked_and_not_accepted() {
    let dovecot = DovecotServer::start();
    let options = dovecot.options(None);
    let mail_text = String::from_utf8(mail(1, b"x")).unwrap();
    dovecot.put(
        "INBOX",
        mail_text.replace(AUTHENTICATION_RESULTS, "X: y").as_bytes(),
    );
    dovecot.put("INBOX", mail_text.replace("ada@", "ada@evil.").as_bytes());
    dovecot.put(
        "INBOX",
        format!("Auto-Submitted: auto-replied\r\n{mail_text}").as_bytes(),
    );
    dovecot.put("INBOX", &mail(2, b"x"));
    let messages = receive_mails(&with_short_delays(options.clone()), 0, 1).await;
    assert_eq!(messages[0].message_id, "<2@example.org>");
    all_are_seen(&options).await;
}

#[tokio::test]
async fn the_same_mail_twice_is_one_message() {
    let dovecot = DovecotServer::start();
    dovecot.put("INBOX", &mail(1, b"x"));
    dovecot.put("INBOX", &mail(1, b"x"));
    let messages = receive_mails(&with_short_delays(dovecot.options(None)), 0, 2).await;
    let same = |message: &InboundMessage| (message.target.clone(), message.message_id.clone());
    assert_eq!(same(&messages[0]), same(&messages[1]));
}

#[tokio::test]
async fn a_connection_that_breaks_or_stalls_loses_nothing() {
    for action in [ProxyAction::Cut, ProxyAction::Stall] {
        let dovecot = DovecotServer::start();
        let proxy = TamperingProxy::start(&dovecot).await;
        let options = EmailOptions {
            idle_timeout: Period::millis(500),
            ..dovecot.options(Some(&proxy))
        };
        dovecot.put("INBOX", &mail(1, &content(600_000)));
        for words in [
            &b"UIDVALIDITY"[..],
            b"SEARCH",
            b"BODY[HEADER]",
            b"BODYSTRUCTURE",
            b"BODY[1]",
        ] {
            proxy.rule((words, 5, action));
        }
        let email = with_short_delays(options.clone());
        let messages = receive_mails(&email, 0, 1).await;
        let file = &messages[0].attachments[0];
        proxy.rule((b"BODY[2]", 100_000, action));
        proxy.rule((b"BODY[2]<262144>", 100, action));
        for _ in 0..2 {
            let error = fetch_bytes(&email, file).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Transient, "{action:?}");
        }
        // A server that is slow for another reason also exceeds the short timeout, which loses nothing either.
        let mut received = fetch_bytes(&email, file).await;
        for _ in 0..5 {
            if received.is_err() {
                received = fetch_bytes(&email, file).await;
            }
        }
        assert_eq!(received.unwrap(), content(600_000));
    }
}

#[tokio::test]
async fn mails_with_reassigned_uids_are_found_by_their_message_id() {
    let dovecot = DovecotServer::start();
    let mut options = dovecot.options(None);
    "Work".clone_into(&mut options.inbox.as_mut().unwrap().mailbox);
    let without_message_id = String::from_utf8(mail(2, b"two")).unwrap();
    let without_message_id = without_message_id.replace("Message-ID", "X-Id");
    dovecot.put("Work", &mail(1, b"one"));
    dovecot.put("Work", without_message_id.as_bytes());
    let email = with_short_delays(options.clone());
    let messages = receive_mails(&email, 0, 2).await;
    assert!(
        messages[1].message_id.starts_with("uid-"),
        "{}",
        messages[1].message_id
    );
    let mut mail_program = open_mailbox(&options, "INBOX").await;
    for command in ["DELETE Work", "CREATE Work"] {
        mail_program.command(command).await.unwrap();
    }
    dovecot.put("Work", without_message_id.as_bytes());
    dovecot.put("Work", &mail(1, b"one"));
    assert_eq!(
        fetch_bytes(&email, &messages[0].attachments[0])
            .await
            .unwrap(),
        b"one"
    );
    let error = fetch_bytes(&email, &messages[1].attachments[0])
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotFound,
        "another mail may have its number now"
    );
}

#[tokio::test]
async fn a_vanished_mail_is_reported() {
    let dovecot = DovecotServer::start();
    let options = dovecot.options(None);
    dovecot.put("INBOX", &mail(1, b"x"));
    let email = with_short_delays(options.clone());
    let messages = receive_mails(&email, 0, 1).await;
    let mut mail_program = open_mailbox(&options, "INBOX").await;
    mail_program
        .command("UID STORE 1 +FLAGS (\\Deleted)")
        .await
        .unwrap();
    mail_program.command("EXPUNGE").await.unwrap();
    let error = fetch_bytes(&email, &messages[0].attachments[0])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_huge_attachment_is_not_fetched() {
    let dovecot = DovecotServer::start();
    let mut options = dovecot.options(None);
    options.inbox.as_mut().unwrap().download_limit = ByteSize::mib(2);
    dovecot.put("INBOX", &mail(1, &content(8 << 20)));
    let email = with_short_delays(options);
    let messages = receive_mails(&email, 0, 1).await;
    let file = &messages[0].attachments[0];
    assert_eq!(file.unavailable, "too large (8.0 MB of 2.0 MB)");
    assert_eq!(
        fetch_bytes(&email, file).await.unwrap_err().kind(),
        ErrorKind::TooLarge
    );
}

#[tokio::test]
async fn malformed_mails_are_read_as_far_as_possible() {
    let dovecot = DovecotServer::start();
    let options = dovecot.options(None);
    let head = format!("{AUTHENTICATION_RESULTS}\r\nFrom: ada@example.org\r\n");
    let bodies = [
        "Subject: no body".to_owned(),
        "Content-Type: multipart/mixed\r\n\r\n--b\r\n\r\nno boundary\r\n".to_owned(),
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nno end".to_owned(),
        "Content-Type: ;;;=\r\nContent-Transfer-Encoding: what\r\n\r\n\u{fffd}\0bytes".to_owned(),
        format!("Subject: {}\r\n\r\nlong", "x".repeat(100_000)),
        format!("{}\r\n\r\ndeep", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n".repeat(50)),
        "Content-Type: application/pdf; name=\"../../a\\\"b.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!!".to_owned(),
    ];
    for body in &bodies {
        dovecot.put("INBOX", format!("{head}{body}\r\n").as_bytes());
    }
    let email = with_short_delays(options.clone());
    let messages = receive_mails(&email, 0, bodies.len()).await;
    for message in &messages {
        for file in &message.attachments {
            fetch_bytes(&email, file).await.unwrap();
        }
    }
    assert!(messages[2].text.contains("no end"), "{}", messages[2].text);
    assert_eq!(messages[6].attachments.len(), 1);
    all_are_seen(&options).await;
}

#[tokio::test]
async fn a_refused_login_ends_the_polling() {
    let dovecot = DovecotServer::start();
    let (sink, _received) = RecordingSink::new(0);
    let mut wrong = dovecot.options(None);
    wrong.inbox.as_mut().unwrap().password = Secret::new("wrong password");
    let mut open = dovecot.options(None);
    open.inbox.as_mut().unwrap().security = ConnectionSecurity::StartTls;
    for options in [wrong, open] {
        let polled = with_short_delays(options)
            .poll(&sink, CancellationToken::new())
            .await;
        let error = polled.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(!error.to_string().contains("wrong password"));
    }
}

#[tokio::test]
async fn a_tagged_conversation_is_answered_to_its_own_address() {
    let fake = crate::fake_server::FakeMailServer::start(1 << 20, None)
        .await
        .unwrap();
    let email = sender(fake.options());
    let mut message = delivery("words", Vec::new());
    "+case-7".clone_into(&mut message.target.thread);
    deliver(&email, &message).await.unwrap();
    let mails = fake.mails("ada@example.org");
    assert_eq!(mails[0].header("Reply-To"), "bot+case-7@example.org");
    assert_eq!(mails[0].header("References"), "");
    "+x\r\nBcc: eve@evil.example".clone_into(&mut message.target.thread);
    let error = deliver(&email, &message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoThread);
}

#[tokio::test]
async fn without_a_mailbox_nothing_is_polled_and_there_is_no_webhook() {
    let fake = crate::fake_server::FakeMailServer::start(1 << 20, None)
        .await
        .unwrap();
    let email = sender(fake.options());
    let (sink, _received) = RecordingSink::new(0);
    email.poll(&sink, CancellationToken::new()).await.unwrap();
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    assert_eq!(email.webhook(&request).unwrap_err().kind(), ErrorKind::Auth);
}
