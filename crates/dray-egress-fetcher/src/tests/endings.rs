//! Tests of the ends of fetches: effects on the breaker, the sink and the record.

use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use dray_guard::{Code, Host};
use dray_testkit::http::{ResponseScript, ResponseStep};
use dray_testkit::tls::Authority;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::fake_network::*;
use crate::error::FetchPhase;
use crate::fetch::FetchJob;
use crate::hop::{HopRequest, send_request};
use crate::label::ResponseLabels;
use crate::record::FetchRecord;
use crate::sink::{ByteSink, HashingSink, SinkError, StoredFile};
use crate::tls::TlsClient;

const FILE_URL: &str = "http://files.example.org/";

#[tokio::test(start_paused = true)]
async fn section_15_bodies_that_never_arrive_open_the_breaker() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            .then(ResponseStep::Hold),
    );
    let fetcher = fixture.fetcher();
    let mut fetches: Vec<_> = Vec::new();
    for _ in 0..2 {
        let requests = [request(FILE_URL), request(FILE_URL), request(FILE_URL)];
        fetches = futures_util::future::join_all(
            requests
                .iter()
                .map(async |request| run(&fetcher, request).await.end()),
        )
        .await;
    }
    assert_eq!(fetches, [("timeout", "body"); 3]);
    assert_eq!(run(&fetcher, &request(FILE_URL)).await.code(), "overloaded");
}

#[tokio::test(start_paused = true)]
async fn section_15_finished_bodies_refused_heads_and_redirects_are_successes() {
    let fixture = FetcherFixture::default();
    let fetcher = fixture.fetcher();
    for answer in [
        ResponseScript::ok("whole"),
        ResponseScript::status(404),
        ResponseScript::redirect(302, "http://10.0.0.1/"),
    ] {
        for is_dead in [true, true, true, true, false] {
            if is_dead {
                fixture
                    .fake_network
                    .peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
            } else {
                fixture.fake_network.serve(PUBLIC_ADDRESS, answer.clone());
            }
            let outcome = run(&fetcher, &request(FILE_URL)).await;
            assert_ne!(outcome.code(), "overloaded");
        }
    }
}

/// A sink whose store never responds when it has to remove a file.
struct StuckSink(HashingSink<Vec<u8>>);

impl ByteSink for StuckSink {
    async fn write(&mut self, chunk: Bytes) -> Result<(), SinkError> {
        self.0.write(chunk).await
    }

    async fn finish(&mut self, labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        self.0.finish(labels).await
    }

    async fn discard(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn section_14_removing_a_part_does_not_outlast_the_fetch() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let fetcher = fixture.fetcher();
    let hurried = FetchJob {
        tool_timeout: Some(Duration::from_secs(2)),
        ..request(FILE_URL)
    };
    let started = Instant::now();
    let mut sink = StuckSink(HashingSink::new(Vec::new()));
    let mut record = FetchRecord::default();
    let denied = fetcher.fetch(&hurried, &mut sink, &mut record).await;
    assert_eq!(denied.unwrap_err().code, Code::Timeout);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    // With time left, removing may take five seconds, after two retries.
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    let started = Instant::now();
    let denied = fetcher
        .fetch(&request(FILE_URL), &mut sink, &mut record)
        .await;
    assert_eq!(denied.unwrap_err().code, Code::ConnectFailed);
    assert_eq!(
        started.elapsed(),
        Duration::from_millis(5_000 + 250 + 1_000)
    );
}

#[tokio::test(start_paused = true)]
async fn section_18_the_origin_of_an_invalid_url_is_recorded() {
    let fixture = FetcherFixture::default();
    for (url, host, port) in [
        ("http://2130706433/", "2130706433", 80),
        ("http://0x7f.1:8080/?token=hunter2", "0x7f.1", 8080),
        ("http://hunter2:hunter2@h.example/", "h.example", 80),
    ] {
        let outcome = fixture.fetch(url).await;
        let first = outcome.record.tried.clone().unwrap();
        assert_eq!((first.scheme.as_str(), first.host.as_str()), ("http", host));
        assert_eq!(first.port, port);
        assert_eq!(outcome.record.hops[0].tried, Some(first));
        assert!(!format!("{:?}", outcome.record).contains("hunter2"), "S-5");
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::redirect(302, url));
        let outcome = fixture.fetch(FILE_URL).await;
        assert!(outcome.record.tried.is_none());
        let hop = outcome.record.hops.last().unwrap();
        assert_eq!(hop.index, 1);
        assert_eq!(hop.tried.as_ref().unwrap().host, host);
    }
}

#[tokio::test(start_paused = true)]
async fn section_18_a_dropped_fetch_is_recorded_with_phase_and_times() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .slow("files.example.org", Duration::from_secs(2));
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let fetcher = fixture.fetcher();
    let request = request(FILE_URL);
    for (seconds, phase) in [(1, FetchPhase::Dns), (5, FetchPhase::Head)] {
        let mut record = FetchRecord::default();
        let mut sink = HashingSink::new(Vec::new());
        let time = Duration::from_secs(seconds);
        let fetching = fetcher.fetch(&request, &mut sink, &mut record);
        assert!(tokio::time::timeout(time, fetching).await.is_err());
        assert_eq!(record.ended(), Some(phase));
        assert_eq!(record.times.total, time);
        assert_eq!(record.times.dns, Duration::from_secs(seconds.min(2)));
        assert_eq!(
            record.times.head,
            Duration::from_secs(seconds.saturating_sub(2))
        );
        assert_eq!(record.ended(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn section_18_a_failed_connection_records_the_dialled_addresses() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.code(), "connect_failed");
    let hop = &outcome.record.hops[0];
    assert_eq!(
        hop.chosen,
        Some(format!("{PUBLIC_ADDRESS}:80").parse().unwrap())
    );
    assert_eq!(hop.peer, None);
}

/// Responds to one request with `head`; once `read` resolves, it breaks the TLS session with a record that cannot be
/// decrypted.
async fn garble(
    far: DuplexStream,
    acceptor: TlsAcceptor,
    head: &str,
    read: oneshot::Receiver<()>,
) -> io::Result<DuplexStream> {
    let mut tls = acceptor.accept(far).await?;
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        tls.read_buf(&mut received).await?;
    }
    tls.write_all(head.as_bytes()).await?;
    tls.flush().await?;
    read.await.map_err(io::Error::other)?;
    let (mut raw, _) = tls.into_inner();
    raw.write_all(b"\x17\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
        .await?;
    Ok(raw)
}

#[tokio::test]
async fn section_17_a_tls_session_that_breaks_in_the_body_is_a_tls_error() {
    let authority = Authority::new().unwrap();
    let tls = TlsClient::new(Some(&authority.pem())).unwrap();
    let name = Host::Name(canonical("files.example.org"));
    let agent = http::HeaderValue::from_static("test");
    let hop_request = HopRequest {
        host: "files.example.org",
        path_and_query: "/",
        user_agent: &agent,
        credential: None,
        resume: None,
        conditions: Vec::new(),
    };
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = authority.acceptor("files.example.org").unwrap();
        let (head_read, read) = oneshot::channel();
        let (code, raw) = tokio::join!(
            async {
                let (io, _) = tls.handshake(Box::new(near), &name).await.unwrap();
                let (_, mut wire) = send_request(io, hop_request.clone()).await.unwrap();
                head_read.send(()).unwrap();
                wire.next().await.unwrap_err().code()
            },
            garble(far, acceptor, head, read)
        );
        assert!(raw.is_ok());
        assert_eq!(code, Code::TlsError);
    }
}

/// A sink that accepts no bytes.
struct FullSink;

impl ByteSink for FullSink {
    async fn write(&mut self, _chunk: Bytes) -> Result<(), SinkError> {
        Err(SinkError::new("no room"))
    }

    async fn finish(&mut self, _labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        Err(SinkError::new("no room"))
    }

    async fn discard(&mut self) {}
}

/// Records the size of the largest chunk.
#[derive(Default)]
struct LargestChunkSink(usize);

impl ByteSink for LargestChunkSink {
    async fn write(&mut self, chunk: Bytes) -> Result<(), SinkError> {
        self.0 = self.0.max(chunk.len());
        Ok(())
    }

    async fn finish(&mut self, _labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        Err(SinkError::new("only the sizes of chunks matter"))
    }

    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn b_1_bodies_arrive_in_chunks_of_at_most_64_kib() {
    let body = vec![b'x'; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&body).unwrap();
    let coded = encoder.finish().unwrap();
    let gzip: &[(&str, &str)] = &[("Content-Encoding", "gzip")];
    for script in [
        ResponseScript::ok(&body),
        ResponseScript::with_fields(gzip, &coded),
    ] {
        let fixture = FetcherFixture::default();
        fixture.fake_network.serve(PUBLIC_ADDRESS, script);
        let mut sink = LargestChunkSink::default();
        let mut record = FetchRecord::default();
        let fetcher = fixture.fetcher();
        let result = fetcher
            .fetch(&request(FILE_URL), &mut sink, &mut record)
            .await;
        assert_eq!(result.unwrap_err().code, Code::SinkFailed);
        assert_eq!(record.counts.stored, 1 << 20);
        assert!((1..=64 * 1024).contains(&sink.0), "{}", sink.0);
    }
}

#[tokio::test(start_paused = true)]
async fn i_7_b_2_only_stored_bytes_count_as_stored() {
    let fixture = FetcherFixture::default();
    let mut record = FetchRecord::default();
    let denied = fixture
        .fetcher()
        .fetch(&request(FILE_URL), &mut FullSink, &mut record)
        .await
        .unwrap_err();
    assert_eq!(denied.code, Code::SinkFailed);
    assert_eq!((record.counts.wire, record.counts.stored), (5, 0));
    let small = FetchJob {
        size_limit: 4,
        ..request(FILE_URL)
    };
    let coded = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::raw(coded));
    let outcome = run(&fixture.fetcher(), &small).await;
    assert_eq!(outcome.code(), "too_large");
    assert_eq!(outcome.record.counts.stored, 0);
}
