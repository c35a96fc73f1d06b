//! Tests of HTTP/2 with raw frames: what is sent, what is refused, and that every flood ends early.

use std::sync::LazyLock;
use std::time::Duration;

use http::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinSet;

use super::super::MAX_HEAD_BYTES;
use super::*;
use crate::head::judge_head;
use dray_guard::Code;

mod floods;
mod messages;

static USER_AGENT: LazyLock<HeaderValue> = LazyLock::new(|| HeaderValue::from_static("dray/test"));
/// The first bytes of a client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// `:status: 200` in the static table of HPACK (RFC 7541, appendix A).
const STATUS_200: &[u8] = &[0x88];
/// `:status: 206` in the same table.
const STATUS_206: &[u8] = &[0x8a];

/// A frame of stream 1, or of the connection where its type has no stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let stream = u8::from(!matches!(kind, SETTINGS | PING | GOAWAY));
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

/// A field that is not indexed (RFC 7541, section 6.2.2); name and value are shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0, u8::try_from(name.len()).unwrap()];
    field.extend_from_slice(name.as_bytes());
    field.push(u8::try_from(value.len()).unwrap());
    field.extend_from_slice(value.as_bytes());
    field
}

/// A whole header block in one frame.
fn headers(flags: u8, block: &[&[u8]]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, &block.concat())
}

/// The settings of the server, and its acknowledgement of those of the client, from which on the windows of the client
/// hold.
fn server_settings() -> Vec<u8> {
    [frame(SETTINGS, 0, &[]), frame(SETTINGS, ACK, &[])].concat()
}

/// Behaviour of the server after its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Holds,
    Closes,
}

/// Status and body, or the reason, for a server that sends its settings and then these frames.
async fn exchange(frames: &[Vec<u8>], ending: Ending) -> Result<(u16, Vec<u8>), Code> {
    let mut bytes = server_settings();
    bytes.extend(frames.concat());
    exchange_bytes(bytes, ending).await
}

async fn exchange_bytes(bytes: Vec<u8>, ending: Ending) -> Result<(u16, Vec<u8>), Code> {
    let (near, mut far) = tokio::io::duplex(4 << 20);
    let mut server = JoinSet::new();
    server.spawn(async move {
        // Fails when the client closes the connection early.
        let _ = far.write_all(&bytes).await;
        if ending == Ending::Holds {
            let _ = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
        }
    });
    let fetched = tokio::time::timeout(Duration::from_secs(10), read_all(Box::new(near))).await;
    fetched.unwrap_or(Err(Code::Timeout))
}

/// A server that sends `rest` when the client reads the body, and so opens the window of the connection.
async fn serve_in_window(mut far: DuplexStream, head: Vec<u8>, rest: Vec<u8>) -> io::Result<()> {
    far.write_all(&[server_settings(), head].concat()).await?;
    far.read_exact(&mut [0; PREFACE.len()]).await?;
    while read_frame(&mut far).await? != (WINDOW_UPDATE, 0) {}
    far.write_all(&rest).await?;
    tokio::io::copy(&mut far, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Reads a frame of the client; its type and stream.
async fn read_frame(io: &mut DuplexStream) -> io::Result<(u8, u32)> {
    let mut head = [0; 9];
    io.read_exact(&mut head).await?;
    let [high, middle, low, kind, _, stream @ ..] = head;
    let length = u32::from_be_bytes([0, high, middle, low]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    io.read_exact(&mut payload).await?;
    Ok((kind, u32::from_be_bytes(stream)))
}

async fn read_all(io: Box<dyn Io>) -> Result<(u16, Vec<u8>), Code> {
    let response = send_http2_request(io, request()).await;
    let (parts, mut wire) = response.map_err(|error| error.code())?;
    judge_head(&parts, u64::MAX)?;
    let mut body = Vec::new();
    while let Some(chunk) = wire.next().await.map_err(|error| error.code())? {
        assert!(chunk.len() <= MAX_HEAD_BYTES, "B-1");
        body.extend_from_slice(&chunk);
    }
    Ok((parts.status.as_u16(), body))
}

fn request() -> HopRequest<'static> {
    HopRequest {
        host: "files.example.org:8443",
        path_and_query: "/a%20b?x=1",
        user_agent: &USER_AGENT,
        credential: None,
        resume: None,
        conditions: Vec::new(),
    }
}
