//! A stream of HTTP/2 that asks for a tunnel, as the connection of a client of HTTP/1.1.
//!
//! Its bytes pass between the frames of the client and the rest of the proxy without a buffer of their own: an idle
//! tunnel holds the states of its stream alone. The proxy writes a head of HTTP/1.1, which becomes the response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::{TranslationError, http1_head, remove_connection_fields};

/// Most header fields of a response of the proxy itself.
const MAX_RESPONSE_FIELDS: usize = 16;
/// Most bytes of its head.
const MAX_RESPONSE_HEAD_BYTES: usize = 16 * 1024;

/// The stream of a tunnel.
#[derive(Debug)]
pub(super) struct TunnelIo {
    /// The rest of the head of the request, then of the last frame of the client.
    unread: Bytes,
    /// Whether `unread` is a part of the head, which is not in the window of the client.
    is_head: bool,
    up: RecvStream,
    down: Downward,
}

/// What the client has got.
#[derive(Debug)]
enum Downward {
    /// Nothing: the bytes are the beginning of a head.
    Head {
        respond: SendResponse<Bytes>,
        bytes: Vec<u8>,
    },
    /// The head of a response; the rest is its body, or the bytes of the tunnel.
    Body {
        stream: SendStream<Bytes>,
        /// Whether the tunnel was granted.
        is_granted: bool,
    },
    /// Everything.
    Ended,
}

impl TunnelIo {
    /// The connection of a request for a tunnel.
    ///
    /// # Errors
    ///
    /// A head that HTTP/1.1 does not have. The stream is reset.
    pub(super) fn new(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Result<Self, TranslationError> {
        let (parts, up) = request.into_parts();
        let parts = match http1_head(parts, false) {
            Ok(parts) => parts,
            Err(error) => {
                respond.send_reset(Reason::PROTOCOL_ERROR);
                return Err(error);
            }
        };
        Ok(Self {
            unread: head_bytes(&parts),
            is_head: true,
            up,
            down: Downward::Head {
                respond,
                bytes: Vec::new(),
            },
        })
    }

    /// Takes bytes of the head, and begins the response once they are complete. Returns how many were taken.
    fn write_head(&mut self, more: &[u8]) -> io::Result<usize> {
        let Downward::Head { respond, bytes } = &mut self.down else {
            return Ok(0);
        };
        let before = bytes.len();
        bytes.extend_from_slice(more);
        let Some((response, length)) = read_response(bytes)? else {
            return Ok(more.len());
        };
        let is_granted = response.status().is_success();
        let response = if is_granted {
            Response::new(())
        } else {
            response
        };
        let stream = respond.send_response(response, false).map_err(broken)?;
        self.down = Downward::Body { stream, is_granted };
        Ok(length.saturating_sub(before))
    }
}

/// The head of a request for a tunnel. h2 has refused characters that could end a line or a field.
fn head_bytes(parts: &Parts) -> Bytes {
    let mut head = format!("{} {} HTTP/1.1\r\n", parts.method, parts.uri).into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// The response of a head that is complete, and the length of the head.
fn read_response(bytes: &[u8]) -> io::Result<Option<(Response<()>, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let length = match parsed.parse(bytes).map_err(invalid)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if bytes.len() < MAX_RESPONSE_HEAD_BYTES => return Ok(None),
        httparse::Status::Partial => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut response = Response::new(());
    *response.status_mut() = parsed
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        // An interim response would need a further one.
        .filter(|status| !status.is_informational())
        .ok_or(io::ErrorKind::InvalidData)?;
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            response.headers_mut().append(name, value);
        }
    }
    remove_connection_fields(response.headers_mut());
    Ok(Some((response, length)))
}

/// The failure of a stream that its client has reset, or whose connection broke, as TCP shows it.
fn broken(error: impl Into<h2::Error>) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error.into())
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            self.is_head = false;
            match ready!(self.up.poll_data(cx)) {
                Some(chunk) => self.unread = chunk.map_err(broken)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(self.unread.get(..count).unwrap_or_default());
        self.unread.advance(count);
        if !self.is_head {
            // Only now may the client send more.
            let window = self.up.flow_control();
            window.release_capacity(count).map_err(broken)?;
        }
        if self.unread.is_empty() {
            // A slice keeps the memory of its whole frame.
            self.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = match &mut self.down {
            Downward::Head { .. } => return Poll::Ready(self.write_head(bytes)),
            Downward::Body { stream, .. } => stream,
            Downward::Ended => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        stream.reserve_capacity(bytes.len());
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(capacity) => {
                    capacity.map_err(broken)?;
                }
                // Without a next capacity the stream is closed.
                None => return Poll::Ready(Err(broken(Reason::CANCEL))),
            }
        }
        let count = stream.capacity().min(bytes.len());
        let chunk = Bytes::copy_from_slice(bytes.get(..count).unwrap_or_default());
        stream.send_data(chunk, false).map_err(broken)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection sends what it has as soon as it can.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Downward::Body { stream, .. } = &mut self.down {
            stream.send_data(Bytes::new(), true).map_err(broken)?;
            self.down = Downward::Ended;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelIo {
    fn drop(&mut self) {
        match &mut self.down {
            Downward::Head { respond, .. } => respond.send_reset(Reason::INTERNAL_ERROR),
            // A tunnel that breaks off ends for the client like one that was closed; TLS inside shows the difference.
            Downward::Body {
                stream,
                is_granted: true,
            } => {
                // The client may have reset it.
                let _ = stream.send_data(Bytes::new(), true);
            }
            // The rest of a refusal that the client did not take.
            Downward::Body { stream, .. } => stream.send_reset(Reason::CANCEL),
            Downward::Ended => {}
        }
    }
}
