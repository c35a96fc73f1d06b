//! Sent mails, and the responses of servers.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use dray_platform::conformance::sample;
use dray_platform::{ErrorKind, Platform as _, SendOutcome};
use dray_types::{Clock, Period};
use rustls::ServerConfig;

use super::{deliver, delivery, sender, target};
use crate::fake_server::{FakeMailServer, InjectedFault, ReceivedMail};
use crate::{ConnectionSecurity, EmailOptions, EmailPlatform};

const RECIPIENT_ADDRESS: &str = "ada@example.org";

async fn start() -> FakeMailServer {
    FakeMailServer::start(100 << 20, None).await.unwrap()
}

fn only(fake: &FakeMailServer) -> ReceivedMail {
    let mut mails = fake.mails(RECIPIENT_ADDRESS);
    assert_eq!(mails.len(), 1);
    mails.pop().unwrap()
}

#[tokio::test]
async fn a_mail_has_the_required_headers_and_its_exact_size() {
    let fake = start().await;
    let files = vec![
        sample::memory_file("отчёт 1.csv", "a,b\n"),
        sample::binary_file("b.bin", 1234),
    ];
    let message = delivery("Here it is.\n.\n.dots", files);
    let confirmed = deliver(&sender(fake.options()), &message).await.unwrap();
    let mail = only(&fake);
    assert_eq!(
        (mail.from.as_str(), mail.announced),
        ("bot@example.org", Some(mail.length))
    );
    for (name, value) in [
        ("From", "=?utf-8?B?0JHQvtGC?= <bot@example.org>"),
        ("To", RECIPIENT_ADDRESS),
        ("Date", "Tue, 14 Nov 2023 22:13:20 +0000"),
        ("Message-ID", "<AAAAAAAAAAAAAAAAAAAAAA@example.org>"),
        ("Subject", "Message for you"),
        ("Auto-Submitted", "auto-generated"),
        ("MIME-Version", "1.0"),
    ] {
        assert_eq!(mail.header(name), value);
    }
    assert_eq!(confirmed[0].message_id, mail.header("message-id"));
    assert_eq!(mail.text, "Here it is.\n.\n.dots");
    assert_eq!(mail.files[0].name, "отчёт 1.csv");
    assert_eq!(mail.files[0].media_type, "text/csv");
    assert_eq!(mail.files[1].size, 1234);
}

#[tokio::test]
async fn a_mail_as_a_file_is_not_a_part_of_the_mail() {
    let fake = start().await;
    let content = "From: eve@example.org\r\nSubject: Inner\r\n\r\nhello\r\n";
    let file = sample::memory_file("old.eml", content);
    assert_eq!(file.detected.media_type, "message/rfc822");
    let message = delivery("", vec![file]);
    deliver(&sender(fake.options()), &message).await.unwrap();
    let mail = only(&fake);
    assert_eq!(mail.files[0].name, "old.eml");
    assert_eq!(mail.files[0].media_type, "application/octet-stream");
    assert_eq!(mail.files[0].size, content.len() as u64);
}

#[tokio::test]
async fn the_same_key_gives_the_same_message_id() {
    let fake = start().await;
    let email = sender(fake.options());
    let message = delivery("words", Vec::new());
    fake.script(InjectedFault::LoseResponse);
    let error = deliver(&email, &message).await.unwrap_err();
    assert_eq!(error.send_outcome(), SendOutcome::Ambiguous);
    deliver(&email, &message).await.unwrap();
    let mails = fake.mails(RECIPIENT_ADDRESS);
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0].header("message-id"), mails[1].header("message-id"));
}

#[tokio::test]
async fn answers_belong_to_their_thread() {
    let fake = start().await;
    let email = sender(fake.options());
    let mut message = delivery("words", Vec::new());
    "<root@x.example>".clone_into(&mut message.target.thread);
    "last@x.example".clone_into(&mut message.target.reply_to);
    deliver(&email, &message).await.unwrap();
    let mail = only(&fake);
    assert_eq!(mail.header("in-reply-to"), "<last@x.example>");
    assert_eq!(
        mail.header("references"),
        "<root@x.example> <last@x.example>"
    );
    assert_eq!(mail.header("subject"), "Re: Message for you");
    "<a@b>\r\nBcc: <all@example.org".clone_into(&mut message.target.reply_to);
    let error = deliver(&email, &message).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::NoThread, SendOutcome::NotSent)
    );
}

#[tokio::test]
async fn invalid_addresses_reach_no_server() {
    let fake = start().await;
    let email = sender(fake.options());
    for wrong in [
        "ada",
        "ada@example.org>\r\nDATA",
        "a@b,c@d",
        "Ada <ada@example.org>",
    ] {
        let mut message = delivery("words", Vec::new());
        wrong.clone_into(&mut message.target.chat);
        let error = email.limits(&message.target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{wrong:?}");
        let error = deliver(&email, &message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{wrong:?}");
    }
    assert_eq!(fake.received(), 0);
}

#[tokio::test]
async fn a_refused_mail_is_reported_with_its_code_and_not_stored() {
    let fake = start().await;
    let email = sender(fake.options());
    for (fault, kind, code) in [
        (
            InjectedFault::Refuse("552 5.7.0 blocked content"),
            ErrorKind::UnsupportedKind,
            "5.7.0",
        ),
        (
            InjectedFault::Refuse("552 message too big"),
            ErrorKind::TooLarge,
            "552",
        ),
        (
            InjectedFault::Refuse("554 5.7.1 spam"),
            ErrorKind::Forbidden,
            "5.7.1",
        ),
        (
            InjectedFault::RefuseSender("421 4.7.0 slow down"),
            ErrorKind::Transient,
            "4.7.0",
        ),
        (
            InjectedFault::RefuseSender("550 5.7.60 not yours"),
            ErrorKind::Forbidden,
            "5.7.60",
        ),
    ] {
        fake.script(fault);
        let error = deliver(&email, &delivery("words", Vec::new()))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.send_outcome(), error.platform_code()),
            (kind, SendOutcome::NotSent, code)
        );
    }
    assert!(fake.mails(RECIPIENT_ADDRESS).is_empty());
}

#[tokio::test]
async fn a_refusal_during_the_body_is_reported() {
    let fake = start().await;
    let email = sender(fake.options());
    fake.script(InjectedFault::RefuseDuringBody("552 5.3.4 enough"));
    let large = delivery("", vec![sample::binary_file("a.bin", 17_000_000)]);
    let error = deliver(&email, &large).await.unwrap_err();
    assert_eq!(error.send_outcome(), SendOutcome::NotSent);
    // A reset may arrive before the reply; then the connection is broken.
    assert!(
        matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Transient),
        "{error}"
    );
    assert!(fake.mails(RECIPIENT_ADDRESS).is_empty());
}

#[tokio::test]
async fn a_send_without_a_response_is_ambiguous() {
    let fake = start().await;
    fake.script(InjectedFault::Stall);
    let options = EmailOptions {
        response_timeout: Period::millis(50),
        ..fake.options()
    };
    let error = deliver(&sender(options), &delivery("words", Vec::new()))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Transient, SendOutcome::Ambiguous)
    );
}

#[tokio::test]
async fn r_6_the_announced_size_lowers_the_limit() {
    let fake = FakeMailServer::start(1 << 20, None).await.unwrap();
    let email = sender(fake.options());
    let limits = email.limits(&target(RECIPIENT_ADDRESS)).await.unwrap();
    assert!((300_000..700_000).contains(&limits.any), "{}", limits.any);
    assert_eq!(limits.request, Some(limits.any));
    let fitting = usize::try_from(limits.any).unwrap();
    let fitting_delivery = delivery("", vec![sample::binary_file("a.bin", fitting)]);
    deliver(&email, &fitting_delivery).await.unwrap();
    // The plan was made before the server reported its limit.
    let steps = email.plan(
        &delivery("", vec![sample::binary_file("b.bin", 2 << 20)]),
        &EmailOptions::default().limits(0),
    );
    let large = delivery("", vec![sample::binary_file("b.bin", 2 << 20)]);
    let send = dray_platform::SendRequest {
        delivery: &large,
        step: &steps[0],
        prepared: "",
        key: "k",
        repeated: false,
    };
    let error = email.send(send, &super::NoProgress).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(
        error
            .numbers()
            .is_some_and(|(size, allowed)| size > allowed)
    );
}

/// A server's TLS, and the PEM file of its authority.
fn tls() -> (Arc<ServerConfig>, tempfile::NamedTempFile) {
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(certificate.cert.pem().as_bytes()).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key.into())
        .unwrap();
    (Arc::new(config), file)
}

#[tokio::test]
async fn r_9_the_password_is_sent_over_tls_only() {
    let (config, authority) = tls();
    let fake = FakeMailServer::start(1 << 20, Some(config)).await.unwrap();
    let protected = EmailOptions {
        security: ConnectionSecurity::StartTls,
        ca_file: Some(authority.path().to_owned().into()),
        ..fake.options()
    };
    let message = delivery("words", Vec::new());
    deliver(&sender(protected.clone()), &message).await.unwrap();
    assert!(only(&fake).protected);
    // A server with an untrusted certificate.
    let stranger = EmailOptions {
        ca_file: None,
        ..protected.clone()
    };
    let error = deliver(&sender(stranger), &message).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
    // A proxy that writes before the handshake.
    fake.script(InjectedFault::SpeakBeforeTls);
    fake.script(InjectedFault::SpeakBeforeTls);
    let error = deliver(&sender(protected.clone()), &message)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    // A server, or a proxy, that does not offer TLS.
    let open = start().await;
    let stripped = EmailOptions {
        port: open.options().port,
        ..protected
    };
    let error = deliver(&sender(stripped), &message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(open.mails(RECIPIENT_ADDRESS).is_empty());
}

#[tokio::test]
async fn a_silent_server_ends_in_a_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = EmailOptions {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        security: ConnectionSecurity::None,
        from: "bot@example.org".to_owned(),
        idle_timeout: Period::millis(50),
        ..EmailOptions::default()
    };
    let email = EmailPlatform::new(options, Clock::manual(super::NOW_MS)).unwrap();
    let message = delivery("words", Vec::new());
    let sending = deliver(&email, &message);
    let done = tokio::time::timeout(Duration::from_secs(20), sending).await;
    let error = done.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
}
