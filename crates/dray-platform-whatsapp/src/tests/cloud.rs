//! The Cloud API.

mod recipients;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, VisibleMessage, sample,
};
use dray_platform::{
    DeliveryTarget, ErrorKind, InboundSource as _, Platform, SendOutcome, WebhookRequest,
};
use dray_types::Secret;
use futures_util::TryStreamExt as _;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{deliver, delivery, target, visible_messages};
use crate::fake_server::{APP_SECRET, FakeCloudApi, InjectedFault, PHONE_NUMBER_ID};
use crate::kinds;
use crate::{CloudOptions, CloudPlatform};

fn options(fake: &FakeCloudApi) -> CloudOptions {
    CloudOptions {
        token: fake.token(),
        phone_number_id: PHONE_NUMBER_ID.to_owned(),
        app_secret: Secret::new(APP_SECRET),
        verify_token: Secret::new("our word"),
        base_url: fake.url(),
        ..CloudOptions::default()
    }
}

fn cloud(options: CloudOptions) -> CloudPlatform {
    CloudPlatform::new("", options).unwrap()
}

#[derive(Debug)]
struct CloudFixture {
    fake: FakeCloudApi,
}

#[async_trait]
impl PlatformFixture for CloudFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(cloud(options(&self.fake)))
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.fake.chat())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        visible_messages(self.fake.visible_messages(&target.chat))
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Fail(502),
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringBody,
            PlatformFault::TooLarge => InjectedFault::TooLarge,
            PlatformFault::ForgetFiles => InjectedFault::ForgetMessage,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("404"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(cloud(CloudOptions {
            token: Secret::new("EAAwrong"),
            ..options(&self.fake)
        })))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(cloud(CloudOptions {
            base_url: "http://127.0.0.1:1/v23.0".to_owned(),
            ..options(&self.fake)
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        let token = self.fake.token().expose().to_owned();
        vec![token, APP_SECRET.to_owned(), "EAAwrong".to_owned()]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits::default()
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = CloudFixture {
        fake: FakeCloudApi::start().await.unwrap(),
    };
    match conformance::run_all(&fixture).await {
        Ok(report) => assert_eq!(report.skipped, ["a_thread_is_kept"]),
        Err(failures) => panic!("{failures}"),
    }
}

#[tokio::test]
async fn acceptance_is_provisional_until_a_status_says_more() {
    let fake = FakeCloudApi::start().await.unwrap();
    let chat = fake.chat();
    let cloud = cloud(options(&fake));
    let delivery = delivery(&chat, vec![sample::binary_file("a.bin", 10)]);
    let confirmed = deliver(&cloud, &delivery).await.unwrap();
    assert!(confirmed.provisional);
    let event = json!({ "entry": [{ "changes": [{ "value": {
        "metadata": { "phone_number_id": PHONE_NUMBER_ID },
        "statuses": [{ "id": confirmed.message_id, "status": "failed", "errors": [{ "code": 131_053 }] }],
    } }] }] });
    let reply = cloud.webhook(&signed_request(&event, APP_SECRET)).unwrap();
    let [status] = reply.statuses.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (status.status.as_str(), status.code.as_str()),
        ("failed", "131053")
    );
    assert_eq!(status.message_id, confirmed.message_id);
}

#[tokio::test]
async fn r_11_a_closed_window_is_reported_as_its_own_kind() {
    let fake = FakeCloudApi::start().await.unwrap();
    let chat = fake.chat();
    let cloud = cloud(options(&fake));
    for (code, kind) in [
        (131_047, ErrorKind::WindowClosed),
        (131_026, ErrorKind::NotFound),
        (131_051, ErrorKind::UnsupportedKind),
        (131_000, ErrorKind::Transient),
        (999_999, ErrorKind::Unknown),
    ] {
        fake.script(InjectedFault::Refuse(code));
        let delivery = delivery(&chat, vec![sample::binary_file("a.bin", 10)]);
        let error = deliver(&cloud, &delivery).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.send_outcome()),
            (kind, SendOutcome::NotSent),
            "{code}"
        );
    }
    assert!(fake.visible_messages(&chat).is_empty());
}

#[tokio::test]
async fn a_media_type_that_the_upload_refuses_is_an_unsupported_kind() {
    let fake = FakeCloudApi::start().await.unwrap();
    let chat = fake.chat();
    let cloud = cloud(options(&fake));
    fake.script(InjectedFault::RefuseMediaType);
    let delivery = delivery(&chat, vec![sample::binary_file("a.bin", 10)]);
    let error = deliver(&cloud, &delivery).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome(), error.platform_code()),
        (ErrorKind::UnsupportedKind, SendOutcome::NotSent, "100")
    );
    assert!(fake.visible_messages(&chat).is_empty());
}

#[test]
fn every_text_is_uploaded_as_plain_text() {
    for (name, content, expected) in [
        ("a.csv", "a,b\n1,2\n", "text/plain"),
        ("a.json", "{\"a\": 1}\n", "text/plain"),
        ("a.md", "# Title\n", "text/plain"),
        ("a.html", "<!DOCTYPE html><html></html>", "text/plain"),
        ("a.pdf", "%PDF-1.7\n", "application/pdf"),
    ] {
        let file = sample::memory_file(name, content);
        assert_eq!(kinds::upload_media_type(&file), expected, "{name}");
    }
}

fn signed_request(event: &Value, secret: &str) -> WebhookRequest {
    let body = event.to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let digits = dray_types::hex::hex_digits(&mac.finalize().into_bytes());
    WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![("x-hub-signature-256".to_owned(), format!("sha256={digits}"))],
        body: Bytes::from(body),
    }
}

fn message_event(message: &Value) -> Value {
    json!({ "entry": [{ "changes": [{ "value": {
        "metadata": { "phone_number_id": PHONE_NUMBER_ID }, "messages": [message],
    } }] }] })
}

#[tokio::test]
async fn only_signed_webhooks_are_read() {
    let fake = FakeCloudApi::start().await.unwrap();
    let event = message_event(
        &json!({ "from": "49", "id": "wamid.1", "type": "text", "text": { "body": "hi" } }),
    );
    let cloud_of = |secret: &str| {
        cloud(CloudOptions {
            app_secret: Secret::new(secret),
            ..options(&fake)
        })
    };
    let with_secret = cloud_of(APP_SECRET);
    assert_eq!(
        with_secret
            .webhook(&signed_request(&event, APP_SECRET))
            .unwrap()
            .messages
            .len(),
        1
    );
    let mut changed = signed_request(&event, APP_SECRET);
    changed.body = Bytes::from_static(b"{}");
    let mut unsigned = signed_request(&event, APP_SECRET);
    unsigned.headers.clear();
    for request in [signed_request(&event, "other"), changed, unsigned] {
        assert_eq!(
            with_secret.webhook(&request).unwrap_err().kind(),
            ErrorKind::Auth
        );
    }
    assert!(cloud_of("").webhook(&signed_request(&event, "")).is_err());
}

#[tokio::test]
async fn the_webhook_is_verified_with_our_token_only() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let verification = |query: &str| WebhookRequest {
        method: "GET".to_owned(),
        query: query.to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let valid_query = "hub.mode=subscribe&hub.verify_token=our+word&hub.challenge=158%3Cb%3E";
    let reply = cloud.webhook(&verification(valid_query)).unwrap();
    assert_eq!(reply.body, Some(("text/plain", "158b".to_owned())));
    for wrong_query in [
        "",
        "hub.mode=subscribe&hub.verify_token=&hub.challenge=1",
        "hub.mode=other&hub.verify_token=our+word&hub.challenge=1",
    ] {
        assert!(
            cloud.webhook(&verification(wrong_query)).is_err(),
            "{wrong_query}"
        );
    }
}

#[tokio::test]
async fn media_of_users_is_fetched_from_known_hosts_only() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let id = fake.keep(b"hello".to_vec());
    let document = json!({
        "from": "49", "id": "wamid.1", "type": "document",
        "document": { "id": id, "filename": "a.txt", "mime_type": "text/plain", "caption": "look" },
    });
    let voice = json!({
        "from": "49", "id": "wamid.xyz", "type": "audio", "audio": { "id": id, "mime_type": "audio/ogg; codecs=opus", "voice": true },
    });
    let reply = cloud
        .webhook(&signed_request(&message_event(&document), APP_SECRET))
        .unwrap();
    let message = &reply.messages[0];
    assert_eq!(
        (message.text.as_str(), message.attachments[0].name.as_str()),
        ("look", "a.txt")
    );
    let stream = cloud.fetch(&message.attachments[0]).await.unwrap();
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"hello");
    let reply = cloud
        .webhook(&signed_request(&message_event(&voice), APP_SECRET))
        .unwrap();
    let attachment = &reply.messages[0].attachments[0];
    assert_eq!(attachment.kind, "voice");
    assert_eq!(attachment.name, "voice_zyxdimaw.ogg");
    for reference in ["404", "../106/messages", ""] {
        let mut other = attachment.clone();
        reference.clone_into(&mut other.reference);
        let error = cloud.fetch(&other).await.map(drop).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::BadFormat),
            "{reference}: {error}"
        );
    }
}

#[tokio::test]
async fn messages_to_other_numbers_and_reactions_are_ignored() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let mut event = message_event(
        &json!({ "from": "49", "id": "wamid.1", "type": "text", "text": { "body": "hi" } }),
    );
    event["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"] = "1".into();
    assert!(
        cloud
            .webhook(&signed_request(&event, APP_SECRET))
            .unwrap()
            .messages
            .is_empty()
    );
    let value = event["entry"][0]["changes"][0]["value"].as_object_mut();
    value.unwrap().remove("metadata");
    let of_no_number = cloud.webhook(&signed_request(&event, APP_SECRET)).unwrap();
    assert!(of_no_number.messages.is_empty());
    let reaction = message_event(
        &json!({ "from": "49", "id": "wamid.1", "type": "reaction", "reaction": {} }),
    );
    assert!(
        cloud
            .webhook(&signed_request(&reaction, APP_SECRET))
            .unwrap()
            .messages
            .is_empty()
    );
}

#[tokio::test]
async fn answers_of_people_that_are_no_text_have_their_content_as_text() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let contact = json!({ "name": { "formatted_name": "Bo" }, "phones": [{ "phone": "+49 1" }, { "phone": "+49 2" }] });
    for (kind, content, expected) in [
        (
            "button",
            json!({ "payload": "p", "text": "Yes, send it" }),
            "Yes, send it",
        ),
        (
            "interactive",
            json!({ "type": "button_reply", "button_reply": { "id": "1", "title": "Later" } }),
            "Later",
        ),
        (
            "interactive",
            json!({ "type": "list_reply", "list_reply": { "id": "1", "title": "Blue", "description": "a colour" } }),
            "Blue\na colour",
        ),
        (
            "location",
            json!({ "latitude": 52.5, "longitude": 13.25, "name": "Home", "address": "A 1" }),
            "Location: Home, A 1, 52.5, 13.25",
        ),
        ("contacts", json!([contact]), "Contact: Bo, +49 1, +49 2"),
        (
            "order",
            json!({ "text": "please", "product_items": [{ "product_retailer_id": "x-1", "quantity": 2 }] }),
            "please\nOrder: 2 × x-1",
        ),
    ] {
        let message = json!({ "from": "49", "id": "wamid.1", "type": kind, kind: content });
        let request = signed_request(&message_event(&message), APP_SECRET);
        let reply = cloud.webhook(&request).unwrap();
        let texts: Vec<_> = reply.messages.iter().map(|message| &message.text).collect();
        assert_eq!(texts, [expected]);
        assert_eq!(reply.messages[0].target.chat, "49");
    }
    let unsupported = json!({ "from": "49", "id": "wamid.1", "type": "unsupported", "errors": [{ "code": 131_051 }] });
    let request = signed_request(&message_event(&unsupported), APP_SECRET);
    assert_eq!(cloud.webhook(&request).unwrap().messages.len(), 1);
}

#[test]
fn invalid_options_are_refused() {
    let valid = CloudOptions {
        token: Secret::new("EAA"),
        phone_number_id: "1".to_owned(),
        ..CloudOptions::default()
    };
    assert!(CloudPlatform::new("", valid.clone()).is_ok());
    for wrong in [
        CloudOptions {
            token: Secret::default(),
            ..valid.clone()
        },
        CloudOptions {
            phone_number_id: "../me".to_owned(),
            ..valid.clone()
        },
        CloudOptions {
            base_url: "nowhere".to_owned(),
            ..valid
        },
    ] {
        assert_eq!(
            CloudPlatform::new("", wrong).unwrap_err().kind(),
            ErrorKind::BadFormat
        );
    }
}

#[tokio::test]
async fn pywa_accepts_the_fake_api() {
    let fake = FakeCloudApi::start().await.unwrap();
    let person = fake.chat();
    let media = fake.keep(b"hello".to_vec());
    let token = fake.token().expose().to_owned();
    let url = fake.url();
    let arguments = [&*url, &*token, PHONE_NUMBER_ID, &*person, &*media];
    let output = dray_testkit::python::run_script("whatsapp_client.py", "pywa", &arguments).await;
    let messages = fake.visible_messages(&person);
    assert_eq!(output["document"], messages[0].id);
    let (name, content) = messages[0].file.clone().unwrap();
    assert_eq!(
        (name.as_deref(), content.size),
        (Some("отчёт.bin"), 102_400)
    );
    assert_eq!(output["text"], messages[1].id);
    assert_eq!(output["size"], 5);
    assert_eq!(output["person"], 131_026);
}

#[tokio::test]
async fn an_account_check_reads_the_number_and_its_status() {
    let fake = FakeCloudApi::start().await.unwrap();
    let check = cloud(options(&fake)).check_account().await.unwrap();
    assert_eq!(check.identity, "+1 555-010-0100 Fake");
    assert!(matches!(
        check.files,
        dray_platform::FilePermission::PerChat(_)
    ));
    fake.report_status("BANNED");
    let files = cloud(options(&fake)).check_account().await.unwrap().files;
    assert!(
        matches!(files, dray_platform::FilePermission::Denied(reason) if reason.contains("BANNED"))
    );
    let wrong = cloud(CloudOptions {
        token: Secret::new("wrong"),
        ..options(&fake)
    });
    let refused = wrong.check_account().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Auth);
}
