//! Standard input as a stream of bytes, read by a separate thread.
//!
//! A blocked read delays the end of neither a command nor a server: its thread ends with the process. In contrast, the
//! runtime waits for reads of `tokio::io::stdin` when it shuts down, and the other end may stay open without a byte.

use std::io::{self, Read};
use std::thread;

use bytes::Bytes;
use futures_util::stream;
use tokio::io::AsyncRead;
use tokio::sync::mpsc::{Sender, channel};
use tokio_util::io::StreamReader;

use crate::outcome::CommandFailure;

/// Most bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

/// Reads standard input from now on. Nothing else in the process may read it afterwards.
pub(crate) fn read_standard_input()
-> Result<impl AsyncRead + Send + Unpin + 'static + use<>, CommandFailure> {
    read_in_thread(io::stdin()).map_err(CommandFailure::local("cannot read standard input"))
}

fn read_in_thread<R: Read + Send + 'static>(
    mut input: R,
) -> io::Result<impl AsyncRead + Send + Unpin + 'static + use<R>> {
    // The channel holds one chunk: the other end waits while the content is not used.
    let (sender, mut chunks) = channel(1);
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || forward_chunks(&mut input, &sender))?;
    let chunks = stream::poll_fn(move |context| chunks.poll_recv(context));
    Ok(StreamReader::new(chunks))
}

/// Forwards the input until it ends or fails, or until the receiver is dropped.
fn forward_chunks(input: &mut impl Read, chunks: &Sender<io::Result<Bytes>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let chunk = match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(Bytes::copy_from_slice(
                buffer.get(..count).unwrap_or_default(),
            )),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let has_failed = chunk.is_err();
        if chunks.blocking_send(chunk).is_err() || has_failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;
    use tokio::runtime::Builder;

    use super::*;

    #[tokio::test]
    async fn the_input_arrives_completely_and_ends() {
        let content = vec![7; CHUNK_BYTES * 3 + 1];
        let mut input = read_in_thread(io::Cursor::new(content.clone())).unwrap();
        let mut received = Vec::new();
        input.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, content);
    }

    #[tokio::test]
    async fn a_failure_of_the_input_is_an_error_after_what_was_read() {
        struct FailingInput(bool);
        impl Read for FailingInput {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                buffer[0] = b'x';
                Ok(1)
            }
        }
        let mut input = read_in_thread(FailingInput(false)).unwrap();
        let mut received = Vec::new();
        let error = input.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(received, b"x");
    }

    #[test]
    fn an_input_that_stays_open_does_not_delay_the_end_of_the_runtime() {
        let (reader, mut writer) = io::pipe().unwrap();
        let runtime = Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            let mut input = read_in_thread(reader).unwrap();
            writer.write_all(b"x").unwrap();
            assert_eq!(input.read_u8().await.unwrap(), b'x');
        });
        // The drop waits forever while a blocking task of the runtime reads.
        drop(runtime);
        drop(writer);
    }
}
