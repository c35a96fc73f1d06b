//! The envelopes of a Connect stream: a byte of flags, four bytes of length, a message (sandbox-transfer 8.5).

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use dray_sandbox::{Error, ErrorKind};

/// Longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Flag of a compressed message; this client requests no compression.
const COMPRESSED_FLAG: u8 = 1;
/// Flag of the message that ends the stream.
const END_STREAM_FLAG: u8 = 2;
/// Bytes before a message.
const HEAD_BYTES: usize = 5;

/// One envelope, by its flags.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message of the stream, without its envelope.
    Message(Bytes),
    /// The end of the stream: metadata and, if the call failed, the error.
    End(Bytes),
}

/// A message in its envelope.
pub(crate) fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD_BYTES + message.len());
    framed.put_u8(flags);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Collects the bytes of a stream and splits them into messages.
#[derive(Debug, Default)]
pub(crate) struct Frames(BytesMut);

impl Frames {
    /// Adds bytes as they arrived; they may end anywhere in a message.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole message; `None` until more bytes are fed.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Error> {
        let Some((head, _)) = self.0.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [flags, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        // The length is checked on the head alone: a length from the wire must not decide how much is buffered.
        if length > MAX_MESSAGE_BYTES || flags & COMPRESSED_FLAG != 0 || flags > END_STREAM_FLAG {
            let context = format!("an envelope with flags {flags} and {length} bytes");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
        if self.0.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.0.advance(HEAD_BYTES);
        let message = self.0.split_to(length).freeze();
        Ok(Some(if flags == END_STREAM_FLAG {
            Frame::End(message)
        } else {
            Frame::Message(message)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_chunks_of_any_size() {
        let whole = [envelope(0, b"one"), envelope(0, b""), envelope(2, b"{}")].concat();
        for step in 1..whole.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for chunk in whole.chunks(step) {
                frames.feed(chunk);
                while let Some(frame) = frames.next().unwrap() {
                    found.push(frame);
                }
            }
            let expected = [
                Frame::Message(Bytes::from_static(b"one")),
                Frame::Message(Bytes::new()),
                Frame::End(Bytes::from_static(b"{}")),
            ];
            assert_eq!(found, expected, "{step}");
        }
    }

    #[test]
    fn lengths_and_flags_that_were_not_requested_are_refused() {
        for head in [[0, 255, 255, 255, 255], [1, 0, 0, 0, 1], [4, 0, 0, 0, 1]] {
            let mut frames = Frames::default();
            frames.feed(&head);
            assert_eq!(frames.next().unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
