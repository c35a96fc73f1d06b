//! Messages of users: accepted once when sent twice, fetched within limits, and forwarded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use dray_bus::Meta;
use dray_http_server::BodyError;
use dray_platform::{ErrorKind, InboundAttachment, InboundMessage, InboundSink as _};
use dray_proto::v1;
use dray_types::{ByteSize, Period, Secret};
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::fake::UserAttachment;
use super::fixture::{DeliveryFixture, chat};
use crate::config::Config;
use crate::inbound::{DurableInboundSink, listener};

pub(super) fn attachment(name: &str, size: u64) -> InboundAttachment {
    InboundAttachment {
        id: name.to_owned(),
        name: name.to_owned(),
        size,
        media_type: String::new(),
        reference: name.to_owned(),
        kind: "document".to_owned(),
        unavailable: String::new(),
    }
}

pub(super) fn message(id: &str, attachments: Vec<InboundAttachment>) -> InboundMessage {
    InboundMessage {
        target: "telegram:42".parse().unwrap(),
        message_id: id.to_owned(),
        sender: "user".to_owned(),
        text: "look".to_owned(),
        attachments,
    }
}

pub(super) async fn fixture(change: impl FnOnce(&mut Config)) -> DeliveryFixture {
    DeliveryFixture::with(dray_platform::DuplicateProtection::Unknown, change).await
}

fn sink(fixture: &DeliveryFixture) -> DurableInboundSink {
    DurableInboundSink {
        service: Arc::clone(&fixture.replica.inbound),
        account: fixture.replica.inbound.accounts.named("bot").unwrap(),
    }
}

/// All work of one kind in the stream.
pub(super) async fn published_work<W: prost::Message + Default>(
    fixture: &DeliveryFixture,
    filter: &str,
) -> Vec<(Meta, W)> {
    let filter = dray_bus::EventFilter::new(filter).from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let mut all = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        let meta = Meta::from_headers(&event.headers).unwrap();
        all.push((meta, event.decode::<W>().unwrap()));
    }
    all
}

/// Accepts a message and runs its work once.
pub(super) async fn receive(
    fixture: &DeliveryFixture,
    message: InboundMessage,
) -> Result<(), dray_bus::WorkFailure> {
    sink(fixture).message(message).await.unwrap();
    let (meta, work) = published_work::<v1::ReceiveMessage>(fixture, "dray.work.inbound.>")
        .await
        .pop()
        .unwrap();
    let cancel = CancellationToken::new();
    fixture
        .replica
        .inbound
        .receiver
        .receive(&meta, &work, 1, &cancel)
        .await
        .map(|_| ())
}

pub(super) async fn placed_uploads(fixture: &DeliveryFixture) -> Vec<v1::PlaceUpload> {
    published_work::<v1::PlaceUpload>(fixture, "dray.work.sandbox.>")
        .await
        .into_iter()
        .map(|(_, place)| place)
        .collect()
}

#[tokio::test]
async fn the_time_of_a_message_is_kept_for_deliveries_that_are_about_to_wait() {
    let fixture = fixture(|_| {}).await;
    let sink = sink(&fixture);
    sink.message(message("7", Vec::new())).await.unwrap();
    let cache = &fixture.replica.inbound.platform_cache;
    let written_ms = cache.last_message_ms(&sink.account.id(), "42").await;
    assert_eq!(written_ms, Some(fixture.clock.now_ms()));
}

#[tokio::test]
async fn a_message_sent_twice_is_accepted_once_and_its_files_are_placed_in_order() {
    let fixture = fixture(|_| {}).await;
    fixture.sandbox.bind(chat("42"));
    fixture
        .fake
        .attach("a.csv", [UserAttachment::Bytes(b"a,b\n".to_vec())]);
    fixture.fake.attach(
        "b.bin",
        [
            UserAttachment::Fails(ErrorKind::Transient),
            UserAttachment::Bytes(vec![0; 100]),
        ],
    );
    let mut unavailable_file = attachment("old.pdf", 9);
    unavailable_file.unavailable = "over 20 MB, cannot fetch".to_owned();
    let all = vec![
        attachment("a.csv", 4),
        attachment("b.bin", 100),
        unavailable_file,
        attachment("none", 1),
    ];
    let inbound = message("7", all);
    sink(&fixture).message(inbound.clone()).await.unwrap();
    receive(&fixture, inbound).await.unwrap();
    let received = published_work::<v1::ReceiveMessage>(&fixture, "dray.work.inbound.>").await;
    assert_eq!(received.len(), 1);
    let placed = placed_uploads(&fixture).await;
    let positions: Vec<_> = placed.iter().map(|place| place.position).collect();
    assert_eq!(positions, [0, 1, 2, 3]);
    assert!(
        placed
            .iter()
            .all(|place| place.session == "s" && place.message_id == "7")
    );
    let artifact = placed[0].claim.clone().unwrap().artifact.unwrap();
    assert_eq!((artifact.name.as_str(), artifact.size), ("a.csv", 4));
    assert_eq!(artifact.media_type, "text/csv");
    assert_eq!(placed[1].claim.clone().unwrap().artifact.unwrap().size, 100);
    assert_eq!(placed[2].unavailable, "over 20 MB, cannot fetch");
    assert_eq!(placed[3].unavailable, "the platform no longer has it");
    assert_eq!(fixture.fake.fetches(), 4);
}

#[tokio::test]
async fn a_file_is_cut_off_at_the_limit_for_any_announced_length() {
    let fixture = fixture(|config| {
        config.max_attachment = ByteSize::bytes(50);
        config.max_message = ByteSize::bytes(60);
    })
    .await;
    fixture.sandbox.bind(chat("42"));
    let names = ["liar", "honest", "fits", "rest"];
    for (name, size) in names.into_iter().zip([51_usize, 51, 50, 20]) {
        fixture
            .fake
            .attach(name, [UserAttachment::Bytes(vec![1; size])]);
    }
    let sizes = [0, 51, 50, 20];
    let all = names
        .into_iter()
        .zip(sizes)
        .map(|(name, size)| attachment(name, size));
    receive(&fixture, message("7", all.collect()))
        .await
        .unwrap();
    let reasons: Vec<_> = placed_uploads(&fixture)
        .await
        .into_iter()
        .map(|place| place.unavailable)
        .collect();
    assert_eq!(
        reasons,
        [
            "too large (51 B of 50 B)",
            "too large (51 B of 50 B)",
            "",
            "too large (20 B of 10 B)"
        ]
    );
    assert_eq!(
        fixture.fake.fetches(),
        2,
        "a file that is announced as too large is not fetched"
    );
}

#[tokio::test]
async fn a_fetch_without_bytes_is_ended_and_reported_to_the_agent() {
    let fixture = fixture(|config| config.fetch_idle = Period::millis(20)).await;
    fixture.sandbox.bind(chat("42"));
    fixture.fake.attach(
        "a",
        [
            UserAttachment::Stalls,
            UserAttachment::Stalls,
            UserAttachment::Stalls,
        ],
    );
    receive(&fixture, message("7", vec![attachment("a", 0)]))
        .await
        .unwrap();
    assert_eq!(
        placed_uploads(&fixture).await[0].unavailable,
        "it could not be fetched"
    );
    assert_eq!(fixture.fake.fetches(), 3);
}

#[tokio::test]
async fn a_chat_without_a_session_is_waited_for_and_then_reported() {
    let fixture = fixture(|_| {}).await;
    let inbound = message("7", vec![attachment("a", 1)]);
    for waited_seconds in [0, 90, 89] {
        fixture.clock.advance(Duration::from_secs(waited_seconds));
        let failure = receive(&fixture, inbound.clone()).await.unwrap_err();
        assert!(failure.fault().is_retryable());
        assert!(
            dray_bus::parks_work(failure.fault()),
            "the wait uses up no attempts"
        );
    }
    fixture.clock.advance(Duration::from_secs(1));
    let failure = receive(&fixture, inbound).await.unwrap_err();
    assert_eq!(failure.fault().detail, "no_session");
    assert!(!failure.fault().is_retryable());
    let notices =
        published_work::<v1::DeliverFiles>(&fixture, "dray.work.delivery-telegram.>").await;
    assert_eq!(notices.len(), 1);
    let (meta, notice) = &notices[0];
    let cancel = CancellationToken::new();
    fixture
        .replica
        .sender
        .deliver(meta, notice, &cancel)
        .await
        .unwrap();
    assert_eq!(
        fixture.fake.visible_texts(),
        ["text:|Your files were not taken: this chat is not connected to a session."]
    );
}

#[tokio::test]
async fn one_replica_polls_and_another_takes_over() {
    let fixture = fixture(|_| {}).await;
    assert!(sink(&fixture).take_lease("one").await);
    assert!(!sink(&fixture).take_lease("two").await);
    assert!(sink(&fixture).take_lease("one").await, "renewed");
    fixture.clock.advance(std::time::Duration::from_secs(31));
    assert!(sink(&fixture).take_lease("two").await);
    assert!(!sink(&fixture).take_lease("one").await);
    fixture.clock.advance(std::time::Duration::from_secs(31));
    fixture.fake.wrote(message("9", Vec::new()));
    let stop = CancellationToken::new();
    let mut polling = tokio::task::JoinSet::new();
    polling.spawn(sink(&fixture).poll("three".to_owned(), stop.clone()));
    dray_testkit::eventually("a poll", async || (fixture.fake.polls() == 1).then_some(())).await;
    stop.cancel();
    polling.join_next().await.unwrap().unwrap();
    assert_eq!(fixture.published("inbound").await.len(), 1);
    assert!(
        sink(&fixture).take_lease("four").await,
        "the lease was given back"
    );
}

#[tokio::test]
async fn a_client_that_stalls_in_its_request_loses_its_connection() {
    let fixture = fixture(|_| {}).await;
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (inbound, stop) = (
        Arc::clone(&fixture.replica.inbound),
        CancellationToken::new(),
    );
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(listener::serve_until(inbound, socket, stop.clone()));
    // The clock advances to the next timeout when all tasks wait.
    tokio::time::pause();
    let head = "POST /platforms/bot/webhook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n";
    for start in ["", head, &format!("{head}\r\n{{")] {
        #[expect(clippy::disallowed_methods, reason = "a client of this test")]
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(start.as_bytes()).await.unwrap();
        let mut response = String::new();
        let read = client.read_to_string(&mut response);
        let read = tokio::time::timeout(std::time::Duration::from_hours(1), read).await;
        read.expect("the server closes the connection").unwrap();
        assert!(!response.contains(" 200 "), "{start:?}: {response}");
    }
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}

/// A request to the inbound listener under a host name that it accepts.
pub(super) fn post(path: &str) -> axum::http::request::Builder {
    Request::post(path).header("host", "localhost:1")
}

pub(super) async fn send_request(
    fixture: &DeliveryFixture,
    request: Request<Body>,
) -> (StatusCode, serde_json::Value) {
    let response = listener::inbound_router(Arc::clone(&fixture.replica.inbound))
        .oneshot(request)
        .await
        .unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn a_webhook_is_accepted_only_with_a_signature_a_known_account_and_an_own_host() {
    let fixture = fixture(|_| {}).await;
    let body = serde_json::to_string(&message("7", Vec::new())).unwrap();
    let path = "/platforms/bot/webhook";
    let request =
        |builder: axum::http::request::Builder| builder.body(Body::from(body.clone())).unwrap();
    let unsigned = request(post(path));
    assert_eq!(
        send_request(&fixture, unsigned).await.0,
        StatusCode::UNAUTHORIZED
    );
    let unknown_account = request(post("/platforms/other/webhook").header("x-signed", "1"));
    assert_eq!(
        send_request(&fixture, unknown_account).await.0,
        StatusCode::NOT_FOUND
    );
    let other_host = Request::post(path)
        .header("host", "evil.example")
        .header("x-signed", "1");
    assert_eq!(
        send_request(&fixture, request(other_host)).await.0,
        StatusCode::MISDIRECTED_REQUEST
    );
    let huge = post(path)
        .header("x-signed", "1")
        .body(Body::from(vec![b'x'; 2 << 20]))
        .unwrap();
    assert_eq!(
        send_request(&fixture, huge).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let stalled = Err::<Bytes, _>(BodyError::Stalled(Duration::from_mins(1)));
    let stalled = post(path)
        .header("x-signed", "1")
        .body(Body::from_stream(futures_util::stream::iter([stalled])))
        .unwrap();
    assert_eq!(
        send_request(&fixture, stalled).await.0,
        StatusCode::REQUEST_TIMEOUT
    );
    let malformed = post(path)
        .header("x-signed", "1")
        .body(Body::from("{"))
        .unwrap();
    assert_eq!(
        send_request(&fixture, malformed).await.0,
        StatusCode::BAD_REQUEST
    );
    assert!(fixture.published("inbound").await.is_empty());
    for _ in 0..2 {
        let valid = request(post(path).header("x-signed", "1"));
        assert_eq!(send_request(&fixture, valid).await.0, StatusCode::OK);
    }
    assert_eq!(
        fixture.published("inbound").await.len(),
        1,
        "sent twice, stored once"
    );
}

/// A service that accepts uploads of at most 100 bytes with this token, and a session for its chat.
async fn upload_fixture(token: &str) -> DeliveryFixture {
    let clock = dray_types::Clock::system();
    let fixture = DeliveryFixture::at(
        clock,
        dray_platform::DuplicateProtection::Unknown,
        |config| {
            config
                .upload_tokens
                .insert("acme".to_owned(), Secret::new(token));
            config.max_attachment = ByteSize::bytes(100);
        },
    )
    .await;
    fixture.sandbox.bind(chat("42"));
    fixture
}

#[tokio::test]
async fn an_upload_with_a_token_is_stored_and_placed() {
    let token = "0123456789abcdef";
    let fixture = upload_fixture(token).await;
    let announced = |size: usize| format!(r#"{{"session":"s","name":"../a.txt","size":{size}}}"#);
    let request = |token: &str, body: String| {
        post("/uploads")
            .header("authorization", format!("Bearer {token}"))
            .body(Body::from(body))
            .unwrap()
    };
    assert_eq!(
        send_request(&fixture, request("wrong", announced(5)))
            .await
            .0,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        send_request(&fixture, request(token, "[]".to_owned()))
            .await
            .0,
        StatusCode::BAD_REQUEST
    );
    let (status, grant) = send_request(&fixture, request(token, announced(101))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(grant["error"]["detail"], "upload_too_large");
    let without_session = r#"{"session":"","name":"a.txt","size":5}"#.to_owned();
    let (status, grant) = send_request(&fixture, request(token, without_session)).await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "no session would receive the file: {grant}"
    );
    let (status, grant) = send_request(&fixture, request(token, announced(5))).await;
    assert_eq!(status, StatusCode::OK);
    let id = grant["upload_id"].as_str().unwrap().to_owned();
    let finish = || {
        post(&format!("/uploads/{id}/finish"))
            .header("authorization", format!("Bearer {token}"))
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(
        send_request(&fixture, finish()).await.0,
        StatusCode::NOT_FOUND,
        "nothing was uploaded yet"
    );
    put(&grant, b"12345").await;
    let (status, first) = send_request(&fixture, finish()).await;
    assert_eq!(status, StatusCode::OK, "{first}");
    assert_eq!(
        (first["name"].as_str(), first["size"].as_u64()),
        (Some("a.txt"), Some(5))
    );
    let (_, repeated) = send_request(&fixture, finish()).await;
    assert_eq!(repeated, first, "finishing twice is finishing once");
    let placed = placed_uploads(&fixture).await;
    assert_eq!(placed.len(), 1);
    assert_eq!(
        (placed[0].session.as_str(), placed[0].name.as_str()),
        ("s", "a.txt")
    );
}

/// Uploads bytes with the granted URL, as a browser does.
#[expect(
    clippy::disallowed_methods,
    reason = "the test is the browser, the address is the test's own store"
)]
pub(super) async fn put(grant: &serde_json::Value, bytes: &[u8]) {
    use std::fmt::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let url = url::Url::parse(grant["url"].as_str().unwrap()).unwrap();
    let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut stream = tokio::net::TcpStream::connect(&host).await.unwrap();
    let path = &url[url::Position::BeforePath..];
    let mut head = format!("PUT {path} HTTP/1.1\r\nconnection: close\r\n");
    let mut has_host = false;
    let mut has_length = false;
    for (name, value) in grant["headers"].as_object().unwrap() {
        has_host |= name.eq_ignore_ascii_case("host");
        has_length |= name.eq_ignore_ascii_case("content-length");
        write!(head, "{name}: {}\r\n", value.as_str().unwrap()).unwrap();
    }
    if !has_host {
        write!(head, "host: {host}\r\n").unwrap();
    }
    if !has_length {
        write!(head, "content-length: {}\r\n", bytes.len()).unwrap();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
