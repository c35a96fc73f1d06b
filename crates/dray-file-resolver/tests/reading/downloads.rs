//! External documents: one download for all reads of a conversation, and a separate policy check for every other
//! caller.

use std::sync::atomic::Ordering;

use dray_proto::v1;
use dray_proto::v1::document_source::Source;
use dray_types::{Fault, FaultCode, SessionId, Sha256Digest};

use crate::fixture::{ReadingFixture, lock};

const LINES_URL: &str = "https://a.example/lines.txt";

fn page(text: &str) -> v1::FetchReply {
    v1::FetchReply {
        content: Some(v1::Content {
            body: Some(v1::content::Body::Inline(
                text.to_owned().into_bytes().into(),
            )),
        }),
        sha256: Sha256Digest::of(text.as_bytes()).as_bytes().to_vec(),
        size: text.len() as u64,
        media_type: "text/plain".to_owned(),
        ..v1::FetchReply::default()
    }
}

fn of(range: &str) -> v1::ReadAttachmentRequest {
    v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(Source::Url(LINES_URL.to_owned())),
        }),
        range: range.to_owned(),
        ..v1::ReadAttachmentRequest::default()
    }
}

async fn read(
    fixture: &ReadingFixture,
    session: &str,
    request: &v1::ReadAttachmentRequest,
) -> String {
    let session = SessionId::new(session).unwrap();
    let meta = fixture.meta().with_session(session);
    let reply = fixture.bus.call(&meta, request).await.unwrap();
    assert_eq!(reply.outcome, "inline", "{reply:?}");
    fixture.read(reply.output).await
}

fn fetches(fixture: &ReadingFixture) -> usize {
    fixture.fetches.load(Ordering::SeqCst)
}

#[tokio::test]
async fn concurrent_reads_and_later_pages_of_a_conversation_are_one_download() {
    let fixture = ReadingFixture::new().await;
    lock(&fixture.outside).insert(LINES_URL.to_owned(), Ok(page("one\ntwo\nthree\n")));
    let (first, second) = (of("lines 1-1"), of("lines 2-2"));
    let (one, two) = tokio::join!(read(&fixture, "s", &first), read(&fixture, "s", &second));
    assert!(one.contains("one") && two.contains("two"), "{one}\n{two}");
    let third = read(&fixture, "s", &of("lines 3-3")).await;
    assert!(third.contains("three"), "{third}");
    assert_eq!(fetches(&fixture), 1);
}

#[tokio::test]
async fn another_conversation_and_another_policy_are_judged_by_the_fetcher() {
    let fixture = ReadingFixture::new().await;
    lock(&fixture.outside).insert(LINES_URL.to_owned(), Ok(page("text")));
    read(&fixture, "s", &of("")).await;
    read(&fixture, "t", &of("")).await;
    assert_eq!(fetches(&fixture), 2);
    let mut judged = of("");
    judged.external_url_fetch = Some(v1::AppPolicy {
        enabled: Some(false),
        host_allowlist: None,
    });
    let denied = Fault::new(
        FaultCode::Denied,
        "External URL fetching is disabled by this app.",
    )
    .detail("disabled_by_app");
    lock(&fixture.outside).insert(LINES_URL.to_owned(), Err(denied));
    let meta = fixture.meta().with_session(SessionId::new("s").unwrap());
    let reply = fixture.bus.call(&meta, &judged).await.unwrap();
    assert_eq!((reply.outcome.as_str(), fetches(&fixture)), ("refuse", 3));
}

#[tokio::test]
async fn a_failed_download_is_tried_again_and_a_lifetime_of_zero_keeps_nothing() {
    let fixture = ReadingFixture::with(&[("file-resolver.reading.download_lifetime", "0s")]).await;
    let gone = Fault::new(FaultCode::NotFound, "The page does not exist.").detail("http_status");
    lock(&fixture.outside).insert(LINES_URL.to_owned(), Err(gone));
    let meta = fixture.meta();
    assert_eq!(
        fixture.bus.call(&meta, &of("")).await.unwrap().outcome,
        "refuse"
    );
    lock(&fixture.outside).insert(LINES_URL.to_owned(), Ok(page("text")));
    for _ in 0..2 {
        read(&fixture, "s", &of("")).await;
    }
    assert_eq!(fetches(&fixture), 3);
}
