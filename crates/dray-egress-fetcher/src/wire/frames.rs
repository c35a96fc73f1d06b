//! Counts the frames of HTTP/2 below its library (egress-security R-1, I-7).
//!
//! The library reads every frame that has arrived before its user gets the first one, and stores interim responses
//! without a limit; many short frames cost time. Therefore this module counts frames while bytes are read, by their
//! nine-byte heads. It skips payloads.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{MAX_INTERIM_BYTES, MAX_INTERIM_RESPONSES, WireError};
use crate::dial::Io;

/// Size of the head of a frame (RFC 9113, section 4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// Most header blocks: of interim responses, of the final one, and its trailers. The connection has one stream.
const MAX_HEADER_BLOCKS: u32 = MAX_INTERIM_RESPONSES + 2;
/// Most frames that carry no data: settings, pings, window updates, empty data frames and all others.
const MAX_CONTROL_FRAMES: u64 = 1000;
/// Bytes of data that permit one more control frame, for servers that measure a long transfer by pings.
const DATA_BYTES_PER_CONTROL_FRAME: u64 = 16 * 1024;
/// Type of a DATA frame (RFC 9113, section 6.1).
const DATA_FRAME: u8 = 0;
/// Type of a HEADERS frame (RFC 9113, section 6.2).
const HEADERS_FRAME: u8 = 1;

/// The error that ended reading, of which the HTTP/2 library keeps only the text. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadFailure(Arc<Mutex<Option<io::Error>>>);

impl ReadFailure {
    /// Takes the error, if reading has failed.
    pub(crate) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        kind.into()
    }
}

/// Counts interim responses and their bytes.
#[derive(Debug, Default)]
pub(crate) struct InterimCount {
    responses: u32,
    bytes: u64,
}

impl InterimCount {
    /// Adds a response with this many bytes.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), WireError> {
        self.responses += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.responses > MAX_INTERIM_RESPONSES || self.bytes > MAX_INTERIM_BYTES {
            return Err(WireError::TooManyInterimResponses);
        }
        Ok(())
    }
}

/// A stream of HTTP/2 that ends with an error when the server sends too many frames without data.
pub(crate) struct FrameIo {
    io: Box<dyn Io>,
    scanner: FrameScanner,
    failure: ReadFailure,
}

impl FrameIo {
    /// Wraps the stream of one connection; `failure` gets the error that ends it.
    pub(crate) fn new(io: Box<dyn Io>, failure: ReadFailure) -> Self {
        Self {
            io,
            scanner: FrameScanner::default(),
            failure,
        }
    }
}

impl AsyncRead for FrameIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Err(error) = ready!(Pin::new(&mut self.io).poll_read(cx, buffer)) {
            return Poll::Ready(Err(self.failure.set(error)));
        }
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        let scanned = self.scanner.scan(bytes);
        Poll::Ready(scanned.map_err(|error| self.failure.set(io::Error::other(error))))
    }
}

super::pass_writes_on!(FrameIo);

/// Finds the frames in the bytes of a server.
#[derive(Debug, Default)]
struct FrameScanner {
    /// The bytes of an incomplete head of a frame.
    head: Vec<u8>,
    /// Number of payload bytes of the current frame that are still to be skipped.
    payload: u64,
    header_blocks: u32,
    control_frames: u64,
    data_bytes: u64,
}

impl FrameScanner {
    fn scan(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        while !bytes.is_empty() {
            let skipped = bytes
                .len()
                .min(usize::try_from(self.payload).unwrap_or(usize::MAX));
            self.payload -= skipped as u64;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let missing = FRAME_HEAD_BYTES - self.head.len();
            let (start, rest) = bytes.split_at(bytes.len().min(missing));
            self.head.extend_from_slice(start);
            bytes = rest;
            if let [high, middle, low, kind, ..] = *self.head.as_slice()
                && self.head.len() == FRAME_HEAD_BYTES
            {
                self.payload = u64::from(u32::from_be_bytes([0, high, middle, low]));
                self.head.clear();
                self.count(kind)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: u8) -> Result<(), WireError> {
        match kind {
            DATA_FRAME if self.payload > 0 => {
                self.data_bytes = self.data_bytes.saturating_add(self.payload);
            }
            HEADERS_FRAME => {
                self.header_blocks += 1;
                if self.header_blocks > MAX_HEADER_BLOCKS {
                    return Err(WireError::TooManyInterimResponses);
                }
            }
            _ => {
                self.control_frames += 1;
                let additional = self.data_bytes / DATA_BYTES_PER_CONTROL_FRAME;
                if self.control_frames > MAX_CONTROL_FRAMES + additional {
                    return Err(WireError::TooManyControlFrames);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.resize(FRAME_HEAD_BYTES + payload, 7);
        frame
    }

    /// Scans all bytes in one read, and checks that reading byte by byte gives the same result.
    fn scan(bytes: &[u8]) -> Result<(), WireError> {
        let whole = FrameScanner::default().scan(bytes);
        let mut scanner = FrameScanner::default();
        let byte_by_byte = bytes.iter().try_for_each(|byte| scanner.scan(&[*byte]));
        assert_eq!(whole, byte_by_byte);
        whole
    }

    #[test]
    fn r_1_eighteen_header_blocks_pass_and_one_more_does_not() {
        let block = frame(HEADERS_FRAME, 20);
        assert_eq!(scan(&block.repeat(18)), Ok(()));
        assert_eq!(
            scan(&block.repeat(19)),
            Err(WireError::TooManyInterimResponses)
        );
    }

    #[test]
    fn i_7_frames_without_data_are_bounded_in_proportion_to_data() {
        for (kind, payload) in [
            (0, 0),
            (2, 5),
            (3, 4),
            (4, 0),
            (6, 8),
            (8, 4),
            (9, 0),
            (77, 3),
        ] {
            let control = frame(kind, payload);
            assert_eq!(scan(&control.repeat(1000)), Ok(()), "{kind}");
            assert_eq!(
                scan(&control.repeat(1001)),
                Err(WireError::TooManyControlFrames),
                "{kind}"
            );
        }
        let mut long = frame(DATA_FRAME, 16 * 1024).repeat(10);
        long.extend(frame(6, 8).repeat(1010));
        assert_eq!(scan(&long), Ok(()));
        long.extend(frame(6, 8));
        assert_eq!(scan(&long), Err(WireError::TooManyControlFrames));
    }

    #[test]
    fn r_1_interim_responses_are_bounded_by_number_and_by_bytes() {
        let mut count = InterimCount::default();
        for _ in 0..16 {
            assert_eq!(count.add(4096), Ok(()));
        }
        assert_eq!(count.add(0), Err(WireError::TooManyInterimResponses));
        let mut count = InterimCount::default();
        assert_eq!(count.add(64 * 1024), Ok(()));
        assert_eq!(count.add(1), Err(WireError::TooManyInterimResponses));
    }
}
