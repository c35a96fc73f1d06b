//! Files that an agent's final text names without a tag: mentioned paths, and pictures on other servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::contract::call_subject;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{Deadline, Fault, FaultCode, Sha256Digest};
use tokio::task::JoinSet;

use super::answer::{fixture, fixture_with, text};
use super::fixture::{DeliveryFixture, states, tenant};
use super::path::{QueueWorkers, finished_record};
use crate::record::{DeliveryRecord, FileState};

/// The signature that every PNG begins with, and more.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\npicture";
const CAT_URL: &str = "https://h.example/cat.png?sig=secret";
const DOG_URL: &str = "https://h.example/dog.png";

/// A fetcher without a network. An address without a reply is never answered.
struct FakeFetcher {
    state: Arc<Mutex<FetcherState>>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct FetcherState {
    replies: HashMap<String, Result<v1::FetchReply, Fault>>,
    requests: Vec<(Meta, v1::FetchRequest)>,
}

impl FakeFetcher {
    async fn start(bus: &Bus) -> Self {
        let state = Arc::new(Mutex::new(FetcherState::default()));
        let subject = call_subject::<v1::FetchRequest>();
        let mut responder = bus.respond_to(&subject, "egress-fetcher").await.unwrap();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut unanswered = Vec::new();
            while let Some(incoming) = responder.next().await {
                let request: v1::FetchRequest = incoming.decode().unwrap();
                let reply = lock(&shared).replies.get(&request.url).cloned();
                let meta = incoming.meta().unwrap();
                lock(&shared).requests.push((meta, request));
                match reply {
                    Some(reply) => incoming.answer(reply).await,
                    None => unanswered.push(incoming),
                }
            }
        });
        Self {
            state,
            _tasks: tasks,
        }
    }

    fn reply(&self, url: &str, reply: Result<v1::FetchReply, Fault>) {
        lock(&self.state).replies.insert(url.to_owned(), reply);
    }

    /// Refuses this address with the fault of egress-fetcher that has this detail.
    fn refuse(&self, url: &str, detail: &'static str, message: &str) {
        let fault = Fault::new(FaultCode::Denied, message).detail(detail);
        self.reply(url, Err(fault));
    }

    fn requests(&self) -> Vec<(Meta, v1::FetchRequest)> {
        lock(&self.state).requests.clone()
    }
}

fn lock(mutex: &Mutex<FetcherState>) -> MutexGuard<'_, FetcherState> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reply for these stored bytes, whose type was found to be this one.
async fn fetched(
    fixture: &DeliveryFixture,
    url: &str,
    bytes: &[u8],
    sniffed: &str,
) -> Result<v1::FetchReply, Fault> {
    let claim = fixture.claim("", bytes).await;
    Ok(v1::FetchReply {
        content: Some(ContentSource::Claim(claim).into()),
        sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
        size: bytes.len() as u64,
        sniffed_media_type: sniffed.to_owned(),
        final_url: url.split('?').next().unwrap().to_owned(),
        ..v1::FetchReply::default()
    })
}

fn with_mentions(body: &str) -> v1::SendTextRequested {
    v1::SendTextRequested {
        mentioned_files: true,
        ..text(body)
    }
}

fn with_pictures(body: &str) -> v1::SendTextRequested {
    v1::SendTextRequested {
        remote_images: true,
        ..text(body)
    }
}

async fn send(
    fixture: &DeliveryFixture,
    id: &str,
    request: &v1::SendTextRequested,
) -> v1::SendTextReply {
    let meta = fixture.meta(id);
    let sent = fixture.replica.texts.send_text(&meta, request).await;
    sent.unwrap()
}

/// A file of the sandbox whose content is its path.
async fn put_file(fixture: &DeliveryFixture, path: &str) {
    let claim = fixture.claim("f", path.as_bytes()).await;
    fixture.sandbox.put(path, "file", Some(claim));
}

/// The paths of a delivery's files; empty for a picture.
fn paths(record: &DeliveryRecord) -> Vec<&str> {
    let files = record.files.iter();
    files
        .map(|file| std::str::from_utf8(&file.path).unwrap())
        .collect()
}

#[tokio::test]
async fn mentioned_files_join_those_of_tags_once_and_stay_in_the_text() {
    let fixture = fixture().await;
    put_file(&fixture, "/w/c.csv").await;
    let prose = "I made /w/a.pdf from /w/c.csv, see `/w/b.pdf` and /w/none.pdf.";
    let request = with_mentions(&format!("{prose}\nMEDIA:/w/a.pdf"));
    let reply = send(&fixture, "d1", &request).await;
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        (prose, "d1")
    );
    assert!(reply.notices.is_empty(), "{:?}", reply.notices);
    let _workers = QueueWorkers::start(&fixture);
    let record = finished_record(&fixture, "d1").await;
    assert_eq!(paths(&record), ["/w/a.pdf", "/w/c.csv"]);
    assert_eq!(
        states(&record),
        [FileState::Delivered, FileState::Delivered]
    );
}

#[tokio::test]
async fn complaint_20834_a_mentioned_file_is_sent_only_on_request() {
    let fixture = fixture().await;
    let reply = send(&fixture, "d1", &text("I made /w/a.pdf.")).await;
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        ("I made /w/a.pdf.", "")
    );
    assert!(fixture.published("delivery").await.is_empty());
}

#[tokio::test]
async fn a_mentioned_file_that_the_tool_sent_in_the_turn_is_not_sent_again() {
    let fixture = fixture().await;
    let tool = super::path::request(&["/w/a.pdf"]);
    let meta = fixture.meta("d1");
    fixture.replica.intake.accept(&meta, &tool).await.unwrap();
    fixture.replica.texts.note_turn(&meta, &tool).await;
    let reply = send(&fixture, "d2", &with_mentions("I sent /w/a.pdf.")).await;
    assert_eq!(reply.delivery_id, "");
    let request = v1::SendTextRequested {
        turn: "u".to_owned(),
        ..with_mentions("I sent /w/a.pdf.")
    };
    let reply = send(&fixture, "d3", &request).await;
    assert_eq!(reply.delivery_id, "d3", "another turn is another request");
}

#[tokio::test]
async fn tags_mentions_and_pictures_share_the_limit_of_files() {
    let fixture = fixture_with(|config| config.max_files = 3).await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    for url in [CAT_URL, DOG_URL] {
        fetcher.reply(
            url,
            fetched(&fixture, url, url.as_bytes(), "image/png").await,
        );
    }
    for path in ["/w/c.csv", "/w/d.csv", "/w/e.csv"] {
        put_file(&fixture, path).await;
    }
    let pictures = format!("![]({CAT_URL}) ![]({DOG_URL})");
    let request = v1::SendTextRequested {
        mentioned_files: true,
        ..with_pictures(&format!("MEDIA:/w/a.pdf and /w/c.csv {pictures}"))
    };
    let reply = send(&fixture, "d1", &request).await;
    assert_eq!(reply.text, format!("and /w/c.csv  ![]({DOG_URL})"));
    assert_eq!(fetcher.requests().len(), 1);
    // The first delivery ends before the second begins, which would otherwise wait for its place in the chat.
    let _workers = QueueWorkers::start(&fixture);
    let record = finished_record(&fixture, "d1").await;
    assert_eq!(paths(&record), ["/w/a.pdf", "/w/c.csv", ""]);
    let full = v1::SendTextRequested {
        text: format!("MEDIA:/w/a.pdf /w/c.csv /w/d.csv /w/e.csv {pictures}"),
        ..request
    };
    let reply = send(&fixture, "d2", &full).await;
    assert!(reply.text.ends_with(&pictures), "{}", reply.text);
    assert_eq!(fetcher.requests().len(), 1);
    let record = finished_record(&fixture, "d2").await;
    assert_eq!(paths(&record), ["/w/a.pdf", "/w/c.csv", "/w/d.csv"]);
}

#[tokio::test]
async fn a_remote_picture_is_fetched_once_sent_as_a_file_and_cut_from_the_text() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    fetcher.reply(CAT_URL, fetched(&fixture, CAT_URL, PNG, "image/png").await);
    let body = format!("Look:\n\n![a cat]({CAT_URL})\n\nAgain <img src=\"{CAT_URL}\">!");
    let reply = send(&fixture, "d1", &with_pictures(&body)).await;
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        ("Look:\n\nAgain !", "d1")
    );
    assert!(reply.image_notices.is_empty(), "{:?}", reply.image_notices);
    let requests = fetcher.requests();
    assert_eq!(requests.len(), 1);
    let (meta, request) = &requests[0];
    assert_eq!(request.url, CAT_URL);
    assert_eq!(request.sink(), v1::Sink::ClaimOnly);
    assert!(request.size_limit_bytes > 0 && request.tool_timeout_ms > 0);
    assert_eq!(
        (&meta.tenant, meta.operation.as_str()),
        (&tenant(), "d1-i0")
    );
    assert_eq!(meta.session.as_ref().unwrap().as_str(), "s");
    let _workers = QueueWorkers::start(&fixture);
    let record = finished_record(&fixture, "d1").await;
    assert_eq!(states(&record), [FileState::Delivered]);
    assert_eq!(record.files[0].name, "cat.png");
    assert_eq!(fixture.fake.visible_messages()[0].bytes, PNG);
}

#[tokio::test]
async fn a_remote_picture_is_only_fetched_on_request() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    let body = format!("![a cat]({CAT_URL})");
    let reply = send(&fixture, "d1", &text(&body)).await;
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        (body.as_str(), "")
    );
    assert!(fetcher.requests().is_empty());
}

#[tokio::test]
async fn a_picture_that_is_refused_or_another_file_stays_in_the_text_with_a_notice() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    fetcher.refuse(CAT_URL, "policy_denied", "Not allowed.");
    let page = fetched(&fixture, DOG_URL, b"<html>", "text/html").await;
    fetcher.reply(DOG_URL, page);
    let body = format!("![]({CAT_URL}) and ![]({DOG_URL}) and ![]({CAT_URL})");
    let reply = send(&fixture, "d1", &with_pictures(&body)).await;
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        (body.as_str(), "")
    );
    assert_eq!(
        reply.image_notices,
        [
            "https://h.example/cat.png: Not allowed.",
            "https://h.example/dog.png: The address has no picture.",
        ]
    );
    assert!(fixture.published("delivery").await.is_empty());
}

#[tokio::test]
async fn pictures_stay_links_without_a_notice_when_the_operator_fetches_nothing() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    fetcher.refuse(CAT_URL, "disabled_by_admin", "Fetching is disabled.");
    let body = format!("![]({CAT_URL})");
    let reply = send(&fixture, "d1", &with_pictures(&body)).await;
    assert_eq!(reply.text, body);
    assert!(reply.image_notices.is_empty(), "{:?}", reply.image_notices);
}

#[tokio::test]
async fn a_repeated_call_fetches_and_sends_nothing_again() {
    let mut fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    fetcher.reply(CAT_URL, fetched(&fixture, CAT_URL, PNG, "image/png").await);
    fetcher.refuse(DOG_URL, "policy_denied", "Not allowed.");
    let request = with_pictures(&format!("One ![]({CAT_URL}) two ![]({DOG_URL})"));
    let first = send(&fixture, "d1", &request).await;
    assert_eq!(fetcher.requests().len(), 2);
    // Another outcome must not change what the first call returned.
    fetcher.refuse(CAT_URL, "policy_denied", "Not allowed.");
    fetcher.reply(DOG_URL, fetched(&fixture, DOG_URL, PNG, "image/png").await);
    fixture.restart();
    assert_eq!(send(&fixture, "d1", &request).await, first);
    assert_eq!(fetcher.requests().len(), 2);
    assert_eq!(fixture.published("delivery").await, ["d1"]);
    let other = send(&fixture, "d2", &request).await;
    assert_ne!(
        other.text, first.text,
        "another operation is another request"
    );
    assert_eq!(fetcher.requests().len(), 4);
}

#[tokio::test]
async fn pictures_above_the_limit_stay_in_the_text() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    let mut mentions = Vec::new();
    for number in 0..18 {
        let url = format!("https://h.example/{number}.png");
        fetcher.reply(&url, fetched(&fixture, &url, PNG, "image/png").await);
        mentions.push(format!("![]({url})"));
    }
    let reply = send(&fixture, "d1", &with_pictures(&mentions.join("\n"))).await;
    assert_eq!(fetcher.requests().len(), 16);
    assert_eq!(reply.text, mentions[16..].join("\n"));
    let _workers = QueueWorkers::start(&fixture);
    let record = finished_record(&fixture, "d1").await;
    assert_eq!(record.files.len(), 1, "the same bytes are sent once");
}

#[tokio::test]
async fn a_slow_picture_leaves_time_to_send_the_others() {
    let fixture = fixture().await;
    let fetcher = FakeFetcher::start(&fixture.bus).await;
    fetcher.reply(CAT_URL, fetched(&fixture, CAT_URL, PNG, "image/png").await);
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(2));
    let meta = fixture.meta("d1").with_deadline(deadline);
    let request = with_pictures(&format!("![]({DOG_URL}) ![]({CAT_URL})"));
    let reply = fixture.replica.texts.send_text(&meta, &request).await;
    let reply = reply.unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        (format!("![]({DOG_URL})").as_str(), "d1")
    );
    assert_eq!(
        reply.image_notices,
        ["https://h.example/dog.png: The picture did not arrive in time."]
    );
    let requests = fetcher.requests();
    assert!(requests.iter().all(|(meta, _)| meta.deadline < deadline));
}
