//! Responses of targets that are changed at random: a client gets one well-formed response for its request or none, and
//! never what a second reading of the bytes would add.

use std::path::Path;

use super::limits::detached;
use super::*;
use crate::proxy::persistent::{ExchangeEnd, exchange_once};

/// Changed responses in one run.
const CHANGED_RESPONSES: usize = 2_000;
/// Seed of the changes, so that each run makes the same ones.
const SEED: u64 = 0x5eed_2026_1127;
/// Inserted texts: parts of heads and framings that have several readings.
const INSERTED_TEXTS: [&str; 12] = [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "\0",
    "Content-Length: 1\r\n",
    "Content-Length: 5, 6\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
];

/// A generator of numbers (xorshift64).
struct RandomNumbers(u64);

impl RandomNumbers {
    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }
}

/// The responses of `fuzz/corpus/response_head`, in the order of their names.
fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/response_head");
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path| std::fs::read(path).unwrap();
    paths.iter().map(read).collect()
}

fn change(response: &[u8], random: &mut RandomNumbers) -> Vec<u8> {
    let mut changed = response.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(changed.len() + 1);
        let end = (at + random.below(8)).min(changed.len());
        match random.below(4) {
            0 => drop(changed.drain(at..end)),
            1 => changed.extend_from_within(at..end),
            _ => {
                let text = INSERTED_TEXTS[random.below(INSERTED_TEXTS.len())];
                changed.splice(at..at, text.bytes());
            }
        }
    }
    changed
}

/// How a response ends for the client that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseEnd {
    /// No complete head arrived.
    Absent,
    /// The response ended before the end that its framing declares.
    Early,
    /// The response ended where its framing declares.
    Complete,
    /// The response ended with the connection.
    Closed,
}

/// Checks what must hold of everything that a client gets.
fn check(received: &[u8], sent: &[u8]) -> ResponseEnd {
    // A response that breaks off before its head was sent ends the connection without a byte.
    if received.is_empty() {
        return ResponseEnd::Absent;
    }
    let shown = || format!("{} for {}", received.escape_ascii(), sent.escape_ascii());
    let mut fields = [httparse::EMPTY_HEADER; 160];
    let mut head = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = head.parse(received) else {
        panic!("no head: {}", shown());
    };
    assert_eq!(head.version, Some(1), "{}", shown());
    let status = head.code.unwrap();
    assert!((200..=999).contains(&status), "{}", shown());
    let values = |name: &str| -> Vec<String> {
        let named = head.headers.iter();
        named
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| String::from_utf8_lossy(field.value).into_owned())
            .collect()
    };
    for name in ["keep-alive", "proxy-connection", "upgrade", "te", "trailer"] {
        assert_eq!(values(name), [""; 0], "{name}: {}", shown());
    }
    assert!(
        values("connection").iter().all(|value| value == "close"),
        "{}",
        shown()
    );
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "{}", shown());
    let body = received.len() - length;
    // These responses have no body, regardless of their fields (RFC 9112, section 6.3).
    if matches!(status, 204 | 304) {
        assert_eq!(body, 0, "{}", shown());
        return ResponseEnd::Complete;
    }
    if let [declared] = &lengths[..] {
        let declared: usize = declared.parse().unwrap();
        // More bytes would be taken for another response.
        assert!(body <= declared, "{}", shown());
        return if body == declared {
            ResponseEnd::Complete
        } else {
            ResponseEnd::Early
        };
    }
    if let [coding] = &codings[..] {
        assert_eq!(coding, "chunked", "{}", shown());
        let end = chunked_end(&received[length..]);
        assert!(
            end.is_none_or(|end| length + end == received.len()),
            "{}",
            shown()
        );
        return end.map_or(ResponseEnd::Early, |_| ResponseEnd::Complete);
    }
    ResponseEnd::Closed
}

/// Offset at which a chunked body ends; `None` when it broke off.
fn chunked_end(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let parsed = httparse::parse_chunk_size(body.get(at..)?).unwrap();
        let httparse::Status::Complete((length, size)) = parsed else {
            return None;
        };
        at += length;
        if size == 0 {
            // Behind trailers, an empty line.
            let rest = body.get(at..)?;
            if rest.starts_with(b"\r\n") {
                return Some(at + 2);
            }
            let end = rest.windows(4).position(|end| end == b"\r\n\r\n")?;
            return Some(at + end + 4);
        }
        at += usize::try_from(size).unwrap() + 2;
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_response_reaches_the_client_as_one_response_or_not_at_all() {
    let fake_network = FetcherFixture::default().fake_network;
    let (ends, mut servers) = tokio::sync::mpsc::unbounded_channel();
    fake_network.peer(PUBLIC_ADDRESS, 80, FakePeer::Handed(ends));
    let proxy = detached(&fake_network, |_| {});
    let token = mint("chat-1", 2_000_000_000, None);
    let request = format!(
        "GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
    );
    let (corpus, mut random) = (corpus(), RandomNumbers(SEED));
    let mut passed = 0;
    for number in 0..CHANGED_RESPONSES {
        let sent = change(&corpus[number % corpus.len()], &mut random);
        let (mut client, io) = tokio::io::duplex(64 * 1024);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        let serving = async {
            let mut server: DuplexStream = servers.recv().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(server.read_u8().await.unwrap());
            }
            // The proxy may close as soon as it refuses the head.
            let _ = server.write_all(&sent).await;
        };
        let reading = async {
            // A response that breaks off ends the connection.
            let _ = client.read_to_end(&mut received).await;
        };
        tokio::join!(proxy.serve_client(io, None), serving, reading);
        check(&received, &sent);
        passed += usize::from(received.starts_with(b"HTTP/1.1 2"));
    }
    // Changes leave many responses whole, and most of the others are refused.
    assert!((100..CHANGED_RESPONSES - 100).contains(&passed), "{passed}");
}

/// The end of `sent` inside an intercepted tunnel, from a target that closes behind it, and what the client got.
async fn exchange_in_tunnel(sent: &[u8]) -> (ExchangeEnd, Vec<u8>) {
    let (near, mut server) = tokio::io::duplex(64 * 1024);
    let (io, mut far) = tokio::io::duplex(64 * 1024);
    let serving = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(server.read_u8().await.unwrap());
        }
        server.write_all(sent).await.unwrap();
        drop(server);
    };
    let (end, ()) = tokio::join!(exchange_once(Box::new(near), io), serving);
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    (end, received)
}

#[tokio::test]
async fn a_changed_response_in_a_tunnel_keeps_it_only_when_its_client_reads_the_same_end() {
    let (corpus, mut random) = (corpus(), RandomNumbers(SEED));
    let mut kept = 0;
    for number in 0..CHANGED_RESPONSES {
        let sent = change(&corpus[number % corpus.len()], &mut random);
        let (outcome, received) = exchange_in_tunnel(&sent).await;
        let end = check(&received, &sent);
        let is_expected = match outcome {
            // Another response would follow the end that the client reads.
            ExchangeEnd::Answered { keeps_client: true } => end == ResponseEnd::Complete,
            ExchangeEnd::Answered { .. } => {
                matches!(end, ResponseEnd::Complete | ResponseEnd::Closed)
            }
            ExchangeEnd::Refused => end == ResponseEnd::Absent,
            ExchangeEnd::Broken => end != ResponseEnd::Complete,
        };
        assert!(is_expected, "{outcome:?}, {end:?}: {}", sent.escape_ascii());
        kept += usize::from(end == ResponseEnd::Complete);
    }
    assert!((100..CHANGED_RESPONSES - 100).contains(&kept), "{kept}");
}
