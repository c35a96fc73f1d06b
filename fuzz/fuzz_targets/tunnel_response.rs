//! Raw bytes as the response of a target inside an intercepted tunnel. The client gets at most one response, with one
//! reading. The tunnel continues only after an end that the client reads too. Otherwise bytes of one target could
//! become the response to the next request.

#![no_main]

use dray_egress_fetcher::proxy::persistent::{ExchangeEnd, exchange_once};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Hop-by-hop fields, which a proxy must not forward (RFC 9110, section 7.6.1).
const HOP_FIELDS: [&str; 5] = ["keep-alive", "proxy-connection", "te", "trailer", "upgrade"];

fuzz_target!(|sent: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (end, received) = runtime.block_on(exchange(sent));
    let read = read_response(&received);
    match end {
        ExchangeEnd::Answered { keeps_client: true } => assert_eq!(read, ResponseEnd::Complete),
        ExchangeEnd::Answered { .. } => {
            assert!(matches!(read, ResponseEnd::Complete | ResponseEnd::Closed));
        }
        ExchangeEnd::Refused => assert_eq!(read, ResponseEnd::Absent),
        ExchangeEnd::Broken => assert_ne!(read, ResponseEnd::Complete),
    }
});

/// The end of the exchange, and the bytes that the client got. The target closes after its bytes.
async fn exchange(sent: &[u8]) -> (ExchangeEnd, Vec<u8>) {
    let (near, mut server) = tokio::io::duplex(64 * 1024);
    let (io, mut client) = tokio::io::duplex(64 * 1024);
    let serving = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(server.read_u8().await.unwrap());
        }
        // The proxy may close as soon as it refuses the response.
        let _ = server.write_all(sent).await;
        drop(server);
    };
    let mut received = Vec::new();
    let reading = client.read_to_end(&mut received);
    let (end, (), _) = tokio::join!(exchange_once(Box::new(near), io), serving, reading);
    (end, received)
}

/// How a response ends for a client that reads it strictly.
#[derive(Debug, PartialEq, Eq)]
enum ResponseEnd {
    /// The client got no byte.
    Absent,
    /// The response ends before the end that its framing declares.
    Early,
    /// The response ends where its framing declares.
    Complete,
    /// The response ends with the connection.
    Closed,
}

fn read_response(received: &[u8]) -> ResponseEnd {
    if received.is_empty() {
        return ResponseEnd::Absent;
    }
    let mut ends = received.windows(4);
    let length = ends.position(|end| end == b"\r\n\r\n").expect("a head");
    let (head, body) = received.split_at(length + 4);
    let head = String::from_utf8_lossy(&head[..length]);
    let mut lines = head.split("\r\n");
    let status: u16 = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok())
        .expect("a status line");
    assert!(status >= 200);
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    for line in lines {
        assert!(!line.contains(['\r', '\n', '\0']));
        let (name, value) = line.split_once(": ").expect("a field");
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
        match name {
            "content-length" => lengths.push(value.parse::<usize>().unwrap()),
            "transfer-encoding" => codings.push(value),
            "connection" => assert_eq!(value, "close"),
            name => assert!(!HOP_FIELDS.contains(&name), "{name}"),
        }
    }
    assert!(lengths.len() + codings.len() <= 1, "two framings");
    match (status, lengths.first(), codings.first()) {
        // Such responses have no body, even where their fields declare one (RFC 9112, section 6.3).
        (204 | 304, ..) => {
            assert!(body.is_empty());
            ResponseEnd::Complete
        }
        (_, Some(length), _) => {
            assert!(body.len() <= *length, "bytes after the response");
            if body.len() == *length {
                ResponseEnd::Complete
            } else {
                ResponseEnd::Early
            }
        }
        (_, _, Some(coding)) => {
            assert_eq!(*coding, "chunked");
            read_chunks(body)
        }
        _ => ResponseEnd::Closed,
    }
}

fn read_chunks(mut body: &[u8]) -> ResponseEnd {
    loop {
        let Some(end) = body.windows(2).position(|end| end == b"\r\n") else {
            return ResponseEnd::Early;
        };
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(chunk) = body.get(end + 2..end + 4 + size) else {
            return ResponseEnd::Early;
        };
        assert!(chunk.ends_with(b"\r\n"));
        body = &body[end + 4 + size..];
        if size == 0 {
            assert!(body.is_empty(), "bytes after the response");
            return ResponseEnd::Complete;
        }
    }
}
