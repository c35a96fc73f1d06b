//! A client of HTTP/2 that breaks rules: its frames are written by hand (RFC 9113, section 4).

use tokio_rustls::client::TlsStream;

use super::*;

const CONNECTION_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A field that is not indexed (RFC 7541, section 6.2.2); name and value are shorter than 127 bytes.
pub(super) fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = |text: &[u8]| vec![u8::try_from(text.len()).unwrap()];
    [&[0], &length(name)[..], name, &length(value), value].concat()
}

/// A header block; each line is `name=value`.
pub(super) fn block(fields: &[&str]) -> Vec<u8> {
    let fields = fields.iter().map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        field(name.as_bytes(), value.as_bytes())
    });
    fields.collect::<Vec<_>>().concat()
}

/// A complete head.
pub(super) fn head(stream: u32, flags: u8, fields: &[&str]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &block(fields))
}

/// The pseudo-header fields of a request for `http://files.example.org/`.
pub(super) fn request_fields<'a>(method: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let pseudo = [
        method,
        ":scheme=http",
        ":authority=files.example.org",
        ":path=/",
    ];
    [&pseudo[..], more].concat()
}

pub(super) fn get(stream: u32) -> Vec<u8> {
    head(stream, END_STREAM, &request_fields(":method=GET", &[]))
}

/// A frame of the proxy.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl ReceivedFrame {
    /// The reason of a reset, or of the end of the connection.
    pub(super) fn reason(&self) -> Reason {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        let reason = self.payload[at..at + 4].try_into().unwrap();
        Reason::from(u32::from_be_bytes(reason))
    }
}

/// How a stream ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// A response with this body.
    Whole(String),
    Reset(Reason),
    /// The connection ends, with this reason.
    GoAway(Reason),
    /// The connection is closed without a reason.
    Closed,
}

/// A connection over which frames go unchecked. It answers no frame by itself.
pub(super) struct FrameClient {
    io: TlsStream<TcpStream>,
}

impl FrameClient {
    /// A connection with these settings.
    pub(super) async fn start(fixture: &CertifiedProxy, settings: &[u8]) -> Self {
        let certificate = client_certificate(&fixture.clients, AGENT_NAME);
        let io = fixture.connect_with(Some(certificate), &[b"h2"]).await;
        let mut client = Self { io: io.unwrap() };
        client.io.write_all(CONNECTION_PREFACE).await.unwrap();
        client.send(&[frame(SETTINGS, 0, 0, settings)]).await;
        client
    }

    /// Sends frames, as far as the proxy takes them.
    pub(super) async fn send(&mut self, frames: &[Vec<u8>]) {
        let _ = self.io.write_all(&frames.concat()).await;
        let _ = self.io.flush().await;
    }

    /// The next frame; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<ReceivedFrame> {
        let mut head = [0; 9];
        self.io.read_exact(&mut head).await.ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.io.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(stream);
        Some(ReceivedFrame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// Waits for a frame of one of these kinds; `None` at the end.
    pub(super) async fn wait_for_any(&mut self, kinds: &[u8]) -> Option<ReceivedFrame> {
        loop {
            let frame = self.next().await?;
            if kinds.contains(&frame.kind) {
                return Some(frame);
            }
        }
    }

    /// Waits for the end of a stream or of the connection.
    pub(super) async fn end_of(&mut self, stream: u32) -> StreamEnd {
        let mut body = Vec::new();
        while let Some(frame) = self.next().await {
            match frame.kind {
                GOAWAY if frame.reason() != Reason::NO_ERROR => {
                    return StreamEnd::GoAway(frame.reason());
                }
                RST_STREAM if frame.stream == stream => return StreamEnd::Reset(frame.reason()),
                DATA | HEADERS if frame.stream == stream => {
                    if frame.kind == DATA {
                        body.extend(frame.payload);
                    }
                    if frame.flags & END_STREAM != 0 {
                        return StreamEnd::Whole(String::from_utf8(body).unwrap());
                    }
                }
                _ => {}
            }
        }
        StreamEnd::Closed
    }
}

/// How stream 1 of a new connection ends after these frames.
pub(super) async fn end_after(fixture: &CertifiedProxy, frames: &[Vec<u8>]) -> StreamEnd {
    let mut client = FrameClient::start(fixture, &[]).await;
    client.send(frames).await;
    client.end_of(1).await
}
