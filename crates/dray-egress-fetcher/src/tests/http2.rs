//! Tests of fetches over HTTP/2: the choice of the version, and every guard of the pipeline over it.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_testkit::http::{ResponseScript, ScriptedResponder, serve_request};
use dray_testkit::tls::{Authority, TlsOffer};
use h2::Reason;
use http::{HeaderMap, Response, Version};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fake_network::*;
use crate::fetch::FetchJob;

const FILE_URL: &str = "https://files.example.org/";

/// The response of a server of HTTP/2 to a request.
#[derive(Clone)]
enum Http2Reply {
    /// Status, fields and a complete body.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Fields and a part of a body, then a reset with this reason.
    Part(Vec<(&'static str, String)>, Vec<u8>, Reason),
    /// A reset with this reason before the head.
    Reset(Reason),
    /// No response; the connection stays open.
    Silence,
}

/// A fetcher, and a server at `files.example.org` that speaks HTTP/2 and HTTP/1.1 over TLS.
struct Http2Fixture {
    fetcher: FetcherFixture,
    /// Fields of each request over HTTP/2.
    received: Arc<Mutex<Vec<HeaderMap>>>,
    _server: JoinSet<()>,
}

impl Http2Fixture {
    /// The server answers its connections with these replies, in order, and all further ones with the last.
    fn start(replies: Vec<Http2Reply>) -> Self {
        let authority = Authority::new().unwrap();
        let offer = TlsOffer {
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..TlsOffer::default()
        };
        let acceptor = authority.acceptor_with("files.example.org", offer).unwrap();
        let fetcher = FetcherFixture {
            bundle: Some(authority.pem()),
            ..FetcherFixture::default()
        };
        let (ends, mut connections) = tokio::sync::mpsc::unbounded_channel();
        fetcher
            .fake_network
            .peer(PUBLIC_ADDRESS, 443, FakePeer::Handed(ends));
        let received = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let received_fields = Arc::clone(&received);
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut serving = JoinSet::new();
            let mut replies = replies.into_iter().peekable();
            while let Some(end) = connections.recv().await {
                let reply = replies.next().unwrap();
                if replies.peek().is_none() {
                    replies = vec![reply.clone()].into_iter().peekable();
                }
                serving.spawn(serve(
                    acceptor.clone(),
                    end,
                    reply,
                    Arc::clone(&received_fields),
                ));
            }
        });
        Self {
            fetcher,
            received,
            _server: server,
        }
    }

    async fn fetch(&self) -> FetchResult {
        self.fetcher.fetch(FILE_URL).await
    }

    /// HTTP version of each hop.
    fn versions(outcome: &FetchResult) -> Vec<Option<http::Version>> {
        let hops = outcome.record.hops.iter();
        hops.map(|hop| hop.http_version).collect()
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    end: tokio::io::DuplexStream,
    reply: Http2Reply,
    received: Arc<Mutex<Vec<HeaderMap>>>,
) {
    let stream = acceptor.accept(end).await.unwrap();
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        let responder = ScriptedResponder::always(ResponseScript::ok("over 1.1"));
        serve_request(stream, &responder).await.unwrap();
        return;
    }
    let mut server = h2::server::handshake(stream).await.unwrap();
    let (request, mut respond) = server.accept().await.unwrap().unwrap();
    received.lock().unwrap().push(request.headers().clone());
    let head = |status: u16, fields: Vec<(&'static str, String)>| {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(name, value);
        }
        response.body(()).unwrap()
    };
    match reply {
        Http2Reply::Whole(status, fields, body) => {
            let mut sending = respond.send_response(head(status, fields), false).unwrap();
            sending.send_data(body.into(), true).unwrap();
        }
        Http2Reply::Part(fields, body, reason) => {
            let mut sending = respond.send_response(head(200, fields), false).unwrap();
            sending.send_data(body.into(), false).unwrap();
            // paused clock: everything is sent, since the reset drops what waits
            let _ = tokio::time::timeout(Duration::from_millis(1), server.accept()).await;
            sending.send_reset(reason);
        }
        Http2Reply::Reset(reason) => respond.send_reset(reason),
        Http2Reply::Silence => {}
    }
    while server.accept().await.is_some() {}
}

fn whole(body: &[u8]) -> Http2Reply {
    Http2Reply::Whole(200, Vec::new(), body.to_vec())
}

fn field(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_owned())
}

#[tokio::test(start_paused = true)]
async fn t_4_the_server_chooses_between_both_versions() {
    let fixture = Http2Fixture::start(vec![whole(b"hello")]);
    let outcome = fixture.fetch().await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"hello".as_slice())
    );
    assert_eq!(Http2Fixture::versions(&outcome), [Some(Version::HTTP_2)]);
    assert!(outcome.record.length_verified, "B-3");
    assert_eq!(fixture.received.lock().unwrap().len(), 1);
    // A server without TLS gets HTTP/1.1.
    let plain = FetcherFixture::default();
    let outcome = plain.fetch("http://files.example.org/").await;
    assert_eq!(Http2Fixture::versions(&outcome), [Some(Version::HTTP_11)]);
}

#[tokio::test(start_paused = true)]
async fn retries_a_refused_stream_and_uses_http_1_1_where_it_is_required() {
    let refused = Http2Reply::Reset(Reason::REFUSED_STREAM);
    let fixture = Http2Fixture::start(vec![refused.clone(), refused, whole(b"third")]);
    let outcome = fixture.fetch().await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"third".as_slice())
    );
    assert_eq!(outcome.record.retries, 2);
    let required = Http2Reply::Reset(Reason::HTTP_1_1_REQUIRED);
    let fixture = Http2Fixture::start(vec![required]);
    let outcome = fixture.fetch().await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"over 1.1".as_slice())
    );
    assert_eq!(
        Http2Fixture::versions(&outcome),
        [None, Some(Version::HTTP_11)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_reset_continues_by_range_and_is_never_taken_as_whole() {
    let tag = field("etag", "\"v1\"");
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let part = Http2Reply::Part(vec![tag.clone()], b"hel".to_vec(), reason);
        let range = field("content-range", "bytes 3-4/5");
        let rest = Http2Reply::Whole(206, vec![tag.clone(), range], b"lo".to_vec());
        let fixture = Http2Fixture::start(vec![part, rest]);
        let outcome = fixture.fetch().await;
        assert_eq!(
            (outcome.code(), outcome.body.as_slice()),
            ("ok", b"hello".as_slice())
        );
        let received = fixture.received.lock().unwrap().clone();
        assert_eq!(received[1]["range"], "bytes=3-");
        assert_eq!(received[1]["if-range"], "\"v1\"");
        // Without a validator nothing proves that the rest belongs to it.
        let part = Http2Reply::Part(Vec::new(), b"hel".to_vec(), reason);
        let outcome = Http2Fixture::start(vec![part]).fetch().await;
        assert_eq!(outcome.end(), ("truncated", "body"), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_2_b_5_limits_of_size_and_decompression_hold() {
    let limited = async |reply: Http2Reply, size_limit: u64| {
        let fixture = Http2Fixture::start(vec![reply]);
        let job = FetchJob {
            size_limit,
            ..request(FILE_URL)
        };
        run(&fixture.fetcher.fetcher(), &job).await
    };
    assert_eq!(limited(whole(&[b'x'; 1000]), 1000).await.code(), "ok");
    assert_eq!(
        limited(whole(&[b'x'; 1001]), 1000).await.code(),
        "too_large"
    );
    let announced = vec![field("content-length", "1001")];
    let announced = Http2Reply::Whole(200, announced, vec![b'x'; 1001]);
    assert_eq!(limited(announced, 1000).await.end(), ("too_large", "head"));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![0; 4 << 20]).unwrap();
    let gzip = gzip.finish().unwrap();
    let coded = Http2Reply::Whole(200, vec![field("content-encoding", "gzip")], gzip);
    let outcome = limited(coded, 8 << 20).await;
    assert_eq!(
        outcome.end(),
        ("decode_error", "body"),
        "more than 1,000 to 1"
    );
    let mut text = Vec::new();
    for line in 0..100_000_u32 {
        writeln!(text, "{}", line.wrapping_mul(2_654_435_761)).unwrap();
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&text).unwrap();
    let gzip = gzip.finish().unwrap();
    let coded = Http2Reply::Whole(200, vec![field("content-encoding", "gzip")], gzip);
    assert_eq!(limited(coded.clone(), 8 << 20).await.body, text);
    assert_eq!(limited(coded, 900_000).await.end(), ("too_large", "body"));
}

#[tokio::test(start_paused = true)]
async fn i_3_redirects_and_blocked_targets_are_judged_as_over_http_1_1() {
    let to = |location| Http2Reply::Whole(302, vec![field("location", location)], Vec::new());
    let fixture = Http2Fixture::start(vec![to("/next"), whole(b"hello")]);
    let outcome = fixture.fetch().await;
    assert_eq!((outcome.code(), outcome.record.redirect_count), ("ok", 1));
    assert_eq!(fixture.fetcher.fake_network.dialled().len(), 2, "no reuse");
    for (location, code) in [
        ("https://10.0.0.1/", "ssrf_blocked"),
        ("http://files.example.org/", "redirect_downgrade"),
        ("https://localhost/", "blocked_host"),
    ] {
        let outcome = Http2Fixture::start(vec![to(location)]).fetch().await;
        assert_eq!(outcome.code(), code);
    }
    let status = Http2Reply::Whole(404, Vec::new(), b"gone".to_vec());
    let outcome = Http2Fixture::start(vec![status]).fetch().await;
    assert_eq!((outcome.code(), outcome.body.len()), ("http_status", 0));
}

#[tokio::test(start_paused = true)]
async fn section_14_a_silent_server_ends_at_the_head_timeout() {
    let fixture = Http2Fixture::start(vec![Http2Reply::Silence]);
    let started = tokio::time::Instant::now();
    let outcome = fixture.fetch().await;
    assert_eq!(outcome.end(), ("timeout", "head"));
    assert_eq!(started.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn t_4_a_fetcher_that_has_http_2_switched_off_does_not_offer_it() {
    let fixture = Http2Fixture::start(vec![whole(b"over 2")]);
    let fetcher = FetcherFixture {
        http2: false,
        bundle: fixture.fetcher.bundle.clone(),
        fake_network: fixture.fetcher.fake_network.clone(),
        ..FetcherFixture::default()
    };
    let outcome = fetcher.fetch(FILE_URL).await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"over 1.1".as_slice())
    );
}
