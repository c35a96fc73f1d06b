//! Bodies on their way out of the folder, read ahead by one chunk.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::{ByteStream, RemainingLength};
use tokio::task::JoinHandle;

/// Bytes of one read, and of one chunk that is sent.
const CHUNK_BYTES: u64 = 256 << 10;

/// Streams the bytes `start..start + length` of the file. While one chunk is sent, the next one is read.
pub(super) fn file_body(mut file: File, start: u64, length: u64) -> StreamingBlob {
    let reading = tokio::task::spawn_blocking(move || {
        file.seek(SeekFrom::Start(start))?;
        read_chunk(file, length)
    });
    StreamingBlob::new(ObjectBody {
        left: length,
        reading,
    })
}

struct ObjectBody {
    left: u64,
    reading: JoinHandle<io::Result<(File, Bytes)>>,
}

fn read_chunk(mut file: File, left: u64) -> io::Result<(File, Bytes)> {
    let wanted = left.min(CHUNK_BYTES);
    let mut chunk = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
    (&mut file).take(wanted).read_to_end(&mut chunk)?;
    // The file is shorter than its record says. The response head has announced the length, so the body has to fail.
    if (chunk.len() as u64) < wanted {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok((file, chunk.into()))
}

impl Stream for ObjectBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut self.reading).poll(context)) {
            Ok(Ok((file, chunk))) => {
                self.left -= chunk.len() as u64;
                let left = self.left;
                if left > 0 {
                    self.reading = tokio::task::spawn_blocking(move || read_chunk(file, left));
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
