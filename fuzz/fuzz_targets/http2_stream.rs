//! A stream of HTTP/2 between a client of the proxy and the strict reader of HTTP/1.1.
//!
//! `q`: fields of a head (`name 0x1f value 0x1e …`) and, after `0x1d`, a body. The strict reader reads exactly the
//! request that the client sent, and nothing behind it, or the request is refused. `p`: bytes of the proxy. The client
//! gets exactly the response in these bytes, or no whole response.

#![no_main]

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use dray_egress_fetcher::proxy::head::{
    MAX_HEAD_BYTES, ProxyRequest, RequestFraming, RequestRecipient, RequestTarget, head_length,
    parse_head,
};
use dray_egress_fetcher::proxy::http2::stream::{StreamIo, serve_as_http1};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// The preface of a client and its empty settings (RFC 9113, section 3.4).
const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Capacity of each direction of the connection in memory.
const PIPE_BYTES: usize = 256 * 1024;
/// Time in which every stream ends; the clock is paused.
const END_TIMEOUT: Duration = Duration::from_mins(1);

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, bytes)) = bytes.split_first() else {
        return;
    };
    if bytes.len() > 16 * 1024 {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let checking = async {
        match mode {
            b'q' => check_request(bytes).await,
            b'p' => check_response(bytes).await,
            _ => {}
        }
    };
    let ended = runtime.block_on(async { tokio::time::timeout(END_TIMEOUT, checking).await });
    ended.expect("the stream ends");
});

/// Serves all streams of a connection with `serve`, while the client does its part.
async fn serve_while<F: Future<Output = ()>, T>(
    io: DuplexStream,
    serve: impl Fn(StreamIo) -> F,
    client: impl Future<Output = T>,
) -> T {
    let serving = async {
        let mut connection = h2::server::handshake(io).await.unwrap();
        let mut streams = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = connection.accept() => match accepted {
                    Some(Ok((request, respond))) => {
                        streams.push(serve_as_http1(request, respond, END_TIMEOUT / 4, &serve));
                    }
                    _ => break,
                },
                Some(()) = streams.next() => {}
            }
        }
        // The client has its end of the connection, or sees that it is closed.
        drop(connection);
        while streams.next().await.is_some() {}
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = client => done,
        () = serving => unreachable!(),
    }
}

type Field = (Vec<u8>, Vec<u8>);

/// A request that the strict reader accepted: its body, or the bytes of its tunnel.
struct ReadRequest {
    request: ProxyRequest,
    body: Vec<u8>,
}

async fn check_request(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0x1d);
    let (head, body) = (parts.next().unwrap_or_default(), parts.next());
    let fields: Vec<Field> = head
        .split(|byte| *byte == 0x1e)
        .map(|field| {
            let mut parts = field.splitn(2, |byte| *byte == 0x1f);
            let mut next = || parts.next().unwrap_or_default().to_vec();
            (next(), next())
        })
        .collect();
    let read = RefCell::new(None);
    let serve = |io| async {
        let found = read_request(io).await;
        *read.borrow_mut() = found;
    };
    let (near, mut far) = tokio::io::duplex(PIPE_BYTES);
    let client = async {
        let frames = request_frames(&fields, body);
        far.write_all(&[PREFACE_AND_SETTINGS, &frames].concat())
            .await
            .unwrap();
        read_to_stream_end(&mut far).await;
    };
    serve_while(near, serve, client).await;
    if let Some(read) = read.into_inner() {
        assert_same(&fields, body, &read);
    }
}

/// The frames of stream 1.
fn request_frames(fields: &[Field], body: Option<&[u8]>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A field that is not indexed (RFC 7541, section 6.2.2).
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    let end = u8::from(body.is_none());
    let mut frames = frame(1, 4 | end, &block);
    if let Some(body) = body {
        frames.extend(frame(0, 1, body));
    }
    frames
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn push_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        return block.push(u8::try_from(length).unwrap());
    };
    block.push(0x7f);
    while rest >= 0x80 {
        block.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
        rest /= 0x80;
    }
    block.push(u8::try_from(rest).unwrap());
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 1]);
    frame.extend_from_slice(payload);
    frame
}

/// Reads frames to the end of stream 1 or of the connection.
async fn read_to_stream_end(io: &mut DuplexStream) {
    let mut head = [0; 9];
    while io.read_exact(&mut head).await.is_ok() {
        let [high, middle, low, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if io.read_exact(&mut payload).await.is_err() {
            return;
        }
        match (kind, flags & 1) {
            // Reset or the end of the connection; or the last frame of a response.
            (3 | 7, _) | (0 | 1, 1) => return,
            _ => {}
        }
    }
}

/// The proxy of one stream: reads its request strictly and grants it. `None` for what it refuses.
async fn read_request(mut io: StreamIo) -> Option<ReadRequest> {
    let mut bytes = Vec::new();
    let length = loop {
        match head_length(&bytes, 0) {
            Some(length) => break length,
            None if bytes.len() > MAX_HEAD_BYTES => return None,
            None if io.read_buf(&mut bytes).await.ok()? == 0 => return None,
            None => {}
        }
    };
    let request = parse_head(&bytes[..length], RequestRecipient::Proxy).ok()?;
    let mut rest = bytes.split_off(length);
    let is_tunnel = matches!(request.target, RequestTarget::Authority(_));
    let mut body = Vec::new();
    if !is_tunnel {
        loop {
            let found = match request.framing {
                RequestFraming::Empty => Some((Vec::new(), 0)),
                RequestFraming::Length(length) => {
                    let length = usize::try_from(length).ok()?;
                    rest.get(..length).map(|body| (body.to_vec(), length))
                }
                RequestFraming::Chunked => read_chunks(&rest),
            };
            if let Some((found, end)) = found {
                body = found;
                rest.drain(..end);
                break;
            }
            // A request that breaks off has not been read.
            if io.read_buf(&mut rest).await.ok()? == 0 {
                return None;
            }
        }
    }
    let grant: &[u8] = if is_tunnel {
        b"HTTP/1.1 200 OK\r\n\r\n"
    } else {
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    };
    io.write_all(grant).await.ok()?;
    if is_tunnel {
        io.read_to_end(&mut rest).await.ok()?;
        return Some(ReadRequest {
            request,
            body: rest,
        });
    }
    io.shutdown().await.ok()?;
    // The client may be gone; what came before that counts.
    let _ = io.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "bytes behind the request: {rest:?}");
    Some(ReadRequest { request, body })
}

/// A whole body in chunks, and the length of its coding. `None` when it is not complete.
fn read_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes.get(at..)?;
        let end = line.windows(2).position(|end| end == b"\r\n")?;
        let digits = line[..end]
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit());
        let digits: String = digits.map(|byte| char::from(*byte)).collect();
        let size = usize::from_str_radix(&digits, 16).ok()?;
        at += end + 2;
        if size == 0 {
            break;
        }
        let chunk = bytes.get(at..at.checked_add(size)?.checked_add(2)?)?;
        body.extend_from_slice(chunk.strip_suffix(b"\r\n")?);
        at += size + 2;
    }
    // Trailers, and the empty line.
    loop {
        let end = bytes.get(at..)?.windows(2).position(|end| end == b"\r\n")?;
        at += end + 2;
        if end == 0 {
            return Some((body, at));
        }
    }
}

/// Checks that the request is the one that the client sent, in the form of HTTP/1.1.
fn assert_same(fields: &[Field], body: Option<&[u8]>, read: &ReadRequest) {
    let request = &read.request;
    let value_of = |name: &[u8]| {
        let mut values = fields.iter().filter(|(other, _)| other == name);
        let value = values.next().map(|(_, value)| value.as_slice());
        assert!(values.next().is_none(), "two pseudo-header fields");
        value.unwrap_or_default()
    };
    let text_of = |name| String::from_utf8(value_of(name).to_vec()).unwrap();
    let authority = text_of(b":authority");
    assert_eq!(request.method.as_str().as_bytes(), value_of(b":method"));
    let is_tunnel = request.method == "CONNECT";
    let expected = if is_tunnel {
        RequestTarget::Authority(authority.clone())
    } else {
        // A fragment is not sent on.
        let path = text_of(b":path").split('#').next().unwrap().to_owned();
        let path = if path.is_empty() { "/" } else { &path };
        RequestTarget::Absolute(format!("{}://{authority}{path}", text_of(b":scheme")))
    };
    assert_eq!(request.target, expected);
    assert!(!request.is_http_10);
    assert_eq!(read.body, body.unwrap_or_default());
    let mut sent: Vec<Field> = fields
        .iter()
        .filter(|(name, _)| !name.starts_with(b":") && name != b"cookie")
        .cloned()
        .collect();
    // Empty cookie fields have no meaning.
    let crumbs: Vec<&[u8]> = fields
        .iter()
        .filter(|(name, _)| name == b"cookie")
        .map(|(_, value)| value.as_slice())
        .filter(|crumb| !crumb.is_empty())
        .collect();
    let has = |name: &[u8]| fields.iter().any(|(other, _)| other == name);
    if has(b"cookie") {
        sent.push((b"cookie".to_vec(), crumbs.join(&b"; "[..])));
    }
    if !has(b"host") {
        sent.push((b"host".to_vec(), authority.into_bytes()));
    }
    if body.is_some() && !is_tunnel && !has(b"content-length") {
        sent.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
    }
    let mut received: Vec<Field> = request
        .fields
        .iter()
        .map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()))
        .collect();
    // The order of fields with other names has no meaning.
    sent.sort_by(|(one, _), (other, _)| one.cmp(other));
    received.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(received, sent);
}

async fn check_response(sent: &[u8]) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let serve = |mut io: StreamIo| async move {
        let mut head = Vec::new();
        while head_length(&head, 0).is_none() {
            if io.read_buf(&mut head).await.unwrap_or_default() == 0 {
                return;
            }
        }
        // The other end closes as soon as it has read a whole response.
        let _ = io.write_all(sent).await;
    };
    let client = async {
        let (mut sender, connection) = h2::client::handshake(far).await.unwrap();
        let request = http::Request::get("http://files.example.org/")
            .body(())
            .unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let reading = async {
            let (head, mut body) = response.await?.into_parts();
            let mut whole = Vec::new();
            while let Some(chunk) = body.data().await {
                let chunk: Bytes = chunk?;
                body.flow_control().release_capacity(chunk.len())?;
                whole.extend_from_slice(&chunk);
            }
            Ok::<_, h2::Error>((head, whole))
        };
        tokio::select! {
            read = reading => read,
            ended = connection => Err(ended.expect_err("an end before the response")),
        }
    };
    if let Ok((head, body)) = serve_while(near, serve, client).await {
        assert_is_response(sent, &head, &body);
    }
}

/// Checks that the response of the client is the first final response in `sent`, up to its end.
fn assert_is_response(mut sent: &[u8], head: &http::response::Parts, body: &[u8]) {
    let lines = loop {
        let Some(length) = head_length(sent, 0) else {
            return;
        };
        let (text, rest) = sent.split_at(length);
        sent = rest;
        // The proxy does not write a bare LF, which hyper reads as the end of a line.
        let mut ends = text.iter().zip([0].iter().chain(text));
        if ends.any(|(byte, before)| *byte == b'\n' && *before != b'\r') {
            return;
        }
        let is_interim = text.get(9) == Some(&b'1');
        if !is_interim {
            break text.split(|byte| *byte == b'\n').collect::<Vec<_>>();
        }
    };
    assert!(!head.status.is_informational());
    let status = head.status.as_str().as_bytes();
    assert_eq!(lines[0].get(9..12), Some(status));
    let fields: Vec<Field> = lines[1..]
        .iter()
        .filter_map(|line| {
            let mut parts = line.splitn(2, |byte| *byte == b':');
            let name = parts.next()?.to_ascii_lowercase();
            Some((name, parts.next()?.trim_ascii().to_vec()))
        })
        .collect();
    for (name, value) in &head.headers {
        let field = (name.as_str().into(), value.as_bytes().to_vec());
        assert!(fields.contains(&field), "{name}: {value:?} was not sent");
    }
    let has = |name: &[u8]| fields.iter().any(|(other, _)| other == name);
    // A body with another last coding ends with the connection (RFC 9112, section 6.3).
    let is_chunked = fields
        .iter()
        .rfind(|(name, _)| name == b"transfer-encoding")
        .and_then(|(_, value)| value.rsplit(|byte| *byte == b',').next())
        .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
    if matches!(head.status.as_u16(), 204 | 304) {
        assert!(body.is_empty());
    } else if is_chunked {
        let (chunks, _) = read_chunks(sent).expect("a last chunk");
        assert_eq!(body, chunks);
    } else if has(b"content-length") && !has(b"transfer-encoding") {
        assert!(sent.starts_with(body), "another body");
        // The values are compared as numbers: `00` is a length, too (RFC 9110, section 8.6).
        let is_length = |(name, value): &Field| {
            let text = str::from_utf8(value).unwrap_or_default();
            name == b"content-length" && text.parse() == Ok(body.len())
        };
        assert!(fields.iter().any(is_length));
    } else {
        assert_eq!(body, sent);
    }
}
