//! The messages of a program, one on each line of its output. `rmcp` skips a line that it cannot read, and the caller
//! would then wait for a response that has already arrived.

use rmcp::model::ServerJsonRpcMessage;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::BYTE_ORDER_MARK;
use super::limits::{InboundLimits, ValueCounter};
use crate::error::{CloseReason, WireError};

/// Most bytes that are kept for the next line after a longer one.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The output of a program. A line that is too long, has too many values or is a message that cannot be read ends it,
/// and the cause is recorded.
pub(super) struct MessageLines<R> {
    output: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    values: ValueCounter,
    /// Length of the line of the last message.
    message_bytes: usize,
    inbound: InboundLimits,
    close_reason: CloseReason,
}

impl<R: AsyncRead + Unpin> MessageLines<R> {
    /// Lines of at most `limit` bytes each. Lines that are not messages are counted in `inbound`.
    pub(super) fn new(
        output: R,
        limit: usize,
        inbound: InboundLimits,
        close_reason: CloseReason,
    ) -> Self {
        Self {
            output: BufReader::new(output),
            limit,
            line: Vec::new(),
            values: ValueCounter::default(),
            message_bytes: 0,
            inbound,
            close_reason,
        }
    }

    /// The next message; `None` at the end. Cancel safe: the beginning of a line is kept for the next call.
    pub(super) async fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = match self.read_line().await {
                Ok(()) => self.parse(),
                Err(error) => Err(error),
            };
            self.values = ValueCounter::default();
            self.line.clear();
            self.line.shrink_to(MAX_KEPT_BYTES);
            match message {
                Ok(None) => {}
                Ok(message) => return message,
                Err(error) => {
                    self.close_reason.set(error);
                    return None;
                }
            }
        }
    }

    /// Number of bytes of the message that [`Self::next`] returned last.
    pub(super) const fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// The message in the line that was read.
    fn parse(&mut self) -> Result<Option<ServerJsonRpcMessage>, WireError> {
        let message = parse_line(&self.line)?;
        self.message_bytes = self.line.len();
        if message.is_none() {
            self.inbound.count_unused(self.line.len())?;
        }
        Ok(message)
    }

    /// Reads to the end of the line.
    async fn read_line(&mut self) -> Result<(), WireError> {
        loop {
            let chunk = self.output.fill_buf().await.map_err(|error| {
                let cause = std::io::Error::from(error.kind());
                WireError::Broken(Some(cause.into()))
            })?;
            if chunk.is_empty() {
                // A last line may have no end.
                let is_end = self.line.is_empty();
                return if is_end {
                    Err(WireError::Broken(None))
                } else {
                    Ok(())
                };
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or(chunk);
            if self.line.len() + part.len() > self.limit {
                return Err(WireError::TooLong(self.limit));
            }
            self.values.add(part)?;
            self.line.extend_from_slice(part);
            let read_bytes = part.len() + usize::from(end.is_some());
            self.output.consume(read_bytes);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

/// The message in a line; `None` for a line that is not a message, such as output for a person.
fn parse_line(line: &[u8]) -> Result<Option<ServerJsonRpcMessage>, WireError> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    match serde_json::from_slice(line.trim_ascii()) {
        Ok(message) => Ok(Some(message)),
        Err(_) if may_be_response(line) => {
            Err(WireError::Malformed("one of its messages cannot be read"))
        }
        Err(error) => {
            tracing::debug!(%error, "an MCP program wrote a line that is not a message");
            Ok(None)
        }
    }
}

/// Whether a request may wait for a line that cannot be read.
fn may_be_response(line: &[u8]) -> bool {
    let name = b"\"jsonrpc\"";
    let is_message = line.trim_ascii_start().starts_with(b"{")
        && line.windows(name.len()).any(|part| part == name);
    is_message
        && serde_json::from_slice::<Value>(line)
            .map_or(true, |message| message.get("method").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of an output, and the cause of its end.
    async fn read(output: &[u8]) -> (usize, String) {
        let close_reason = CloseReason::default();
        let inbound = InboundLimits::default();
        let mut lines = MessageLines::new(output, 10_000, inbound, close_reason.clone());
        let mut messages = 0;
        while lines.next().await.is_some() {
            messages += 1;
        }
        (messages, close_reason.cause().to_string())
    }

    const RESPONSE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    #[tokio::test]
    async fn lines_that_are_no_messages_are_left_out_and_the_last_line_may_have_no_end() {
        let ended = "the connection ended before the answer came";
        let noise = "listening\n\n{}\n[]\n{'debug': 1}\n\x01\n";
        let output = format!("{noise}\u{feff}{RESPONSE}\r\n{noise}  {RESPONSE}");
        assert_eq!(read(output.as_bytes()).await, (2, ended.to_owned()));
        // A notification that cannot be read is not a response.
        let notification = r#"{"jsonrpc":"1.0","method":"x"}"#;
        let output = format!("{notification}\n{RESPONSE}\n");
        assert_eq!(read(output.as_bytes()).await, (1, ended.to_owned()));
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_read_ends_the_output() {
        let deep = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}",
            "[".repeat(200)
        );
        let not_utf8 = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":\"\xff\"}}";
        for line in [
            deep.as_bytes(),
            not_utf8,
            br#"{"jsonrpc":"2.0","id":1}"#,
            br#"{"jsonrpc":"2.0","id":1,"result"#,
        ] {
            let output = [line, b"\n", RESPONSE.as_bytes(), b"\n"].concat();
            let expected =
                "the server does not respond as an MCP server: one of its messages cannot be read";
            assert_eq!(read(&output).await, (0, expected.to_owned()), "{line:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_without_end_that_are_not_messages_end_the_output() {
        let expected =
            "the server does not respond as an MCP server: it sends too many messages".to_owned();
        assert_eq!(read(&b"y\n".repeat(200_001)).await, (0, expected));
    }

    #[tokio::test]
    async fn a_line_above_the_limit_ends_the_output() {
        let output = "x".repeat(10_001);
        let expected = "the answer is longer than 10000 bytes";
        assert_eq!(read(output.as_bytes()).await, (0, expected.to_owned()));
    }
}
