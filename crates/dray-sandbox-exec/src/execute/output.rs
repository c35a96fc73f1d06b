//! The output of a program, up to the line that reports its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_sandbox::body::Body;
use dray_sandbox::command::CommandEnd;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::live_stderr::LiveStderr;
use super::plan::OutputLimits;
use crate::channel::RunningCommand;
use crate::decode::TextDecoder;
use crate::failure::unanswered;
use crate::reply::{MAX_RESPONSE_BYTES, Nonce, Reply, find};
use crate::supervisor::{KillGuard, SupervisedCommand};

/// Time for the script to end after its last line. A process that it could not end may hold its output open.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Most encoded bytes of standard error in one frame between the output: `PIPE_BUF`, which a pipe writes atomically.
const MAX_FRAME_BYTES: usize = 4096;

/// The output of a started program. Dropping it before the end kills the program.
pub(super) struct ProgramOutput {
    running: RunningCommand,
    nonce: Nonce,
    limits: OutputLimits,
    /// Decodes a channel that carries text only.
    decoder: Option<TextDecoder>,
    buffer: BytesMut,
    /// Standard error that arrived while the program ran.
    stderr: LiveStderr,
    /// Bytes of standard output so far.
    passed_bytes: usize,
    command: Arc<SupervisedCommand>,
    guard: KillGuard,
    result: oneshot::Sender<CommandEnd>,
}

impl ProgramOutput {
    /// Waits until the program runs or was refused.
    pub(super) async fn begin(
        running: RunningCommand,
        nonce: Nonce,
        limits: OutputLimits,
        command: Arc<SupervisedCommand>,
        stderr: Option<mpsc::Sender<Bytes>>,
        result: oneshot::Sender<CommandEnd>,
    ) -> Result<Self, Error> {
        let mut output = Self {
            guard: command.guard(),
            running,
            nonce,
            limits,
            decoder: None,
            buffer: BytesMut::new(),
            stderr: LiveStderr::new(stderr, limits.stderr),
            passed_bytes: 0,
            command,
            result,
        };
        let mark = output.nonce.mark("begin ");
        loop {
            if let Some(coding) = take_line(&mut output.buffer, &mark) {
                if let Some(coding) = coding.strip_prefix("raw ") {
                    output.stderr.set_coding(coding);
                } else {
                    output.decoder = Some(TextDecoder::new(&coding)?);
                    let text = output.buffer.split();
                    output.take(&text)?;
                }
                return Ok(output);
            }
            if output.buffer.len() > MAX_RESPONSE_BYTES {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "the output has no line that reports the start",
                ));
            }
            match output.running.stdout.next().await {
                Some(chunk) => output.buffer.extend_from_slice(&chunk?),
                None => return Err(output.refusal().await?),
            }
        }
    }

    /// The reason why the program did not start.
    async fn refusal(mut self) -> Result<Error, Error> {
        self.guard.disarm();
        self.command.set_over();
        let exit = self.running.end.await?;
        if let Some(reply) = Reply::parse(&self.buffer, &self.nonce)? {
            reply.check("text")?;
        }
        Ok(unanswered(&exit, &self.buffer, false))
    }

    /// Standard output, whose end sends the result.
    pub(super) fn into_body(self) -> Body {
        Body::new(stream::try_unfold(Some(self), async |output| {
            let Some(mut output) = output else {
                return Ok(None);
            };
            if let Some(chunk) = output.next().await? {
                return Ok(Some((chunk, Some(output))));
            }
            output.finish().await?;
            Ok(None)
        }))
    }

    /// The next bytes of standard output; `None` before the line that reports the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mark = self.nonce.mark("e");
        loop {
            let mark_position = find(&self.buffer, &mark);
            // The last bytes may be the beginning of the mark. Everything else is passed on, so that a killed program
            // loses no output.
            let passable_bytes = mark_position
                .unwrap_or_else(|| self.buffer.len() - partial_mark_length(&self.buffer, &mark));
            let chunk = self.buffer.split_to(passable_bytes);
            if let Some(chunk) = self.limit_output(chunk) {
                return Ok(Some(chunk));
            }
            let mark_kind = self.buffer.get(mark.len() - 1..mark.len() + 3);
            let mark_kind = mark_kind
                .filter(|_| mark_position.is_some())
                .map(<[u8]>::to_vec);
            match mark_kind.as_deref() {
                Some(b"end ") => return Ok(None),
                Some(b"err ") if self.take_frame(mark.len() + 3).await? => continue,
                Some(b"err ") | None => {}
                Some(_) => {
                    // This mark is output: a program that knows its nonce may write it itself.
                    let chunk = self.buffer.split_to(mark.len());
                    if let Some(chunk) = self.limit_output(chunk) {
                        return Ok(Some(chunk));
                    }
                    continue;
                }
            }
            if !self.read().await? {
                return Err(self.lost_channel_error().await);
            }
        }
    }

    /// Takes a frame of standard error from the beginning of the buffer; false when the frame is incomplete.
    async fn take_frame(&mut self, head: usize) -> Result<bool, Error> {
        let text = self.buffer.get(head..).unwrap_or_default();
        let Some(length) = text.iter().position(|byte| *byte == b'@') else {
            if text.len() > MAX_FRAME_BYTES {
                let context = "a frame of standard error has no end";
                return Err(Error::new(ErrorKind::Protocol, context));
            }
            return Ok(false);
        };
        let frame = self.buffer.split_to(head + length + 1);
        let text = frame.get(head..head + length).unwrap_or_default();
        self.stderr.take(text).await?;
        Ok(true)
    }

    /// Counts the chunk and cuts the bytes beyond the limit; `None` when no byte is left.
    fn limit_output(&mut self, chunk: BytesMut) -> Option<Bytes> {
        let remaining_bytes = self
            .limits
            .stdout
            .map(|limit| limit.saturating_sub(self.passed_bytes));
        self.passed_bytes += chunk.len();
        let mut chunk = chunk.freeze();
        chunk.truncate(remaining_bytes.unwrap_or(usize::MAX));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Reads the next bytes; false at the end.
    async fn read(&mut self) -> Result<bool, Error> {
        match self.running.stdout.next().await {
            Some(chunk) => {
                self.take(&chunk?)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Error> {
        match &mut self.decoder {
            Some(decoder) => self.buffer.extend_from_slice(&decoder.feed(chunk)?),
            None => self.buffer.extend_from_slice(chunk),
        }
        Ok(())
    }

    /// Reads the report, sends the result, and lets the script end.
    async fn finish(mut self) -> Result<(), Error> {
        let begin = self.end_mark();
        let done = [b"\n".to_vec(), self.nonce.mark("done")].concat();
        // With its encoding, standard error takes at most 3.4 times its size.
        let max_report_bytes = self.limits.stderr.saturating_mul(4) + MAX_RESPONSE_BYTES;
        let end = loop {
            if let Some(position) = find(&self.buffer, &done) {
                break position;
            }
            if self.buffer.len() > max_report_bytes {
                return Err(Error::new(ErrorKind::Protocol, "the report has no end"));
            }
            if !self.read().await? {
                return Err(self.lost_channel_error().await);
            }
        };
        let report = self.buffer.get(begin.len()..end).unwrap_or_default();
        let exceeds_limit = self
            .limits
            .stdout
            .is_some_and(|limit| self.passed_bytes > limit);
        let result = parse_report(report, self.limits.stderr, exceeds_limit)?;
        let result = self.stderr.complete(result);
        self.command.set_over();
        self.guard.disarm();
        let RunningCommand { mut stdout, end } = self.running;
        let ending = async {
            while let Some(Ok(_)) = stdout.next().await {}
            end.await
        };
        // A failure from here on concerns the end of the script, whose report is complete.
        drop(timeout(END_TIMEOUT, ending).await);
        // A caller that does not wait for it ignores the result.
        drop(self.result.send(result));
        Ok(())
    }

    /// The error for a channel that ended before the report: the channel's own, or one for the end of the script.
    async fn lost_channel_error(&mut self) -> Error {
        let end = std::mem::replace(&mut self.running.end, Box::pin(std::future::pending()));
        match end.await {
            Err(error) => error,
            Ok(exit) => {
                let context = format!(
                    "the command ended with status {} and without a report: {}",
                    exit.status,
                    exit.stderr.escape_debug()
                );
                Error::new(ErrorKind::Unavailable, context)
            }
        }
    }

    fn end_mark(&self) -> Vec<u8> {
        self.nonce.mark("end ")
    }
}

/// Length of the longest suffix of `buffer` that is a beginning of the mark.
fn partial_mark_length(buffer: &[u8], mark: &[u8]) -> usize {
    let beginnings = (1..mark.len()).rev();
    let mut found = beginnings.filter(|length| {
        let beginning = mark.get(..*length);
        beginning.is_some_and(|beginning| buffer.ends_with(beginning))
    });
    found.next().unwrap_or(0)
}

/// Removes everything up to the end of the line with the mark, and returns the text after the mark.
fn take_line(buffer: &mut BytesMut, mark: &[u8]) -> Option<String> {
    let after = find(buffer, mark)? + mark.len();
    let length = buffer
        .get(after..)?
        .iter()
        .position(|byte| *byte == b'\n')?;
    let line = buffer.split_to(after + length + 1);
    let text = line.get(after..).unwrap_or_default();
    Some(String::from_utf8_lossy(text).trim().to_owned())
}

/// Reads the report: the coding, encoded standard error, and the status between two `@` anywhere in it, because the
/// shell and the encoder write at the same time.
fn parse_report(report: &[u8], limit: usize, output_truncated: bool) -> Result<CommandEnd, Error> {
    let invalid = || Error::new(ErrorKind::Protocol, "the report of a command is malformed");
    let report = str::from_utf8(report).map_err(|_| invalid())?;
    let (coding, text) = report.split_once(' ').ok_or_else(invalid)?;
    let mut parts = text.split('@');
    let (Some(before), Some(status), Some(after), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid());
    };
    let status = status.parse().map_err(|_| invalid())?;
    let mut decoder = TextDecoder::new(coding)?;
    let mut stderr = decoder.feed(before.as_bytes())?;
    stderr.extend(decoder.feed(after.as_bytes())?);
    decoder.finish()?;
    let stderr_truncated = stderr.len() > limit;
    stderr.truncate(limit);
    Ok(CommandEnd {
        status,
        stderr,
        stderr_truncated,
        output_truncated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_mark_is_held_back() {
        for (buffer, length) in [
            ("line\n", 0),
            ("a@", 1),
            ("a@@7", 3),
            ("@@7e57 en", 9),
            ("@@@", 2),
            ("", 0),
        ] {
            assert_eq!(
                partial_mark_length(buffer.as_bytes(), b"@@7e57 end "),
                length,
                "{buffer}"
            );
        }
    }

    #[test]
    fn the_status_is_found_wherever_the_shell_wrote_it() {
        // base64 of "ab\nc"
        for report in [
            "base64 @7@YWIKYw==\n",
            "base64 YWI@7@KYw==\n",
            "base64 YWIKYw==\n@7@",
        ] {
            let end = parse_report(report.as_bytes(), 100, false).unwrap();
            assert_eq!(
                (end.status, end.stderr.as_slice()),
                (7, b"ab\nc".as_slice())
            );
        }
        let cut = parse_report(b"od 61 62 63@0@\n", 2, true).unwrap();
        assert_eq!(
            (cut.stderr.as_slice(), cut.stderr_truncated),
            (b"ab".as_slice(), true)
        );
        for wrong in [
            "base64 YWI=",
            "base64 @x@",
            "base64 @1@@2@",
            "@1@",
            "base64 @300@",
        ] {
            let error = parse_report(wrong.as_bytes(), 100, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{wrong}");
        }
    }
}
