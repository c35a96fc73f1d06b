//! Streams the bodies of responses from files, and reads one chunk ahead.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use tokio::task::JoinHandle;

/// Bytes of one read, and of one chunk that is sent.
const CHUNK_BYTES: u64 = 256 << 10;

/// Streams the bytes `start..start + length` of the file. While one chunk is sent, the next one is read.
pub(super) fn file_body(file: File, start: u64, length: u64) -> StreamingBlob {
    let range = FileRange {
        file,
        start,
        left: length,
    };
    StreamingBlob::new(ObjectBody {
        left: length,
        reading: tokio::task::spawn_blocking(move || range.read_chunk()),
    })
}

struct ObjectBody {
    left: u64,
    reading: JoinHandle<io::Result<(FileRange, Bytes)>>,
}

/// The part of a file that is still to be read.
struct FileRange {
    file: File,
    start: u64,
    left: u64,
}

impl FileRange {
    /// Reads the next chunk, usually with one system call: `Read::read_to_end` begins with 8 KiB and doubles them.
    fn read_chunk(mut self) -> io::Result<(Self, Bytes)> {
        let chunk_length = usize::try_from(self.left.min(CHUNK_BYTES)).unwrap_or_default();
        let mut chunk = Vec::with_capacity(chunk_length);
        while chunk.len() < chunk_length {
            let offset = self.start + chunk.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut chunk), offset) {
                // The file is shorter than its record says. The response head has announced the length, so the body
                // has to fail.
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A vector may have more capacity than requested, and the record of the object follows its bytes.
        chunk.truncate(chunk_length);
        self.start += chunk_length as u64;
        self.left -= chunk_length as u64;
        Ok((self, chunk.into()))
    }
}

impl Stream for ObjectBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut self.reading).poll(context)) {
            Ok(Ok((range, chunk))) => {
                self.left = range.left;
                if self.left > 0 {
                    self.reading = tokio::task::spawn_blocking(move || range.read_chunk());
                }
                Poll::Ready(Some(Ok(chunk)))
            }
            Ok(Err(error)) => {
                // Ends the stream after the error.
                self.left = 0;
                Poll::Ready(Some(Err(error.into())))
            }
            Err(error) => {
                self.left = 0;
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }
}

impl ByteStream for ObjectBody {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.left)
            .map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}
