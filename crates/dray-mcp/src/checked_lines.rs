//! Lines of the standard input that are not messages get an error, with the id of the request if it can be read. The
//! library drops some of them silently and responds to others without an id, and a client would wait for a response.

use std::io;

use futures_util::future::BoxFuture;
use rmcp::model::ErrorData;
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::message_check::{RejectedMessage, check_message};
use crate::open_requests::{OpenRequests, answered_id};

/// Longest message in bytes, as the library has it.
const MAX_LINE_BYTES: usize = 16 << 20;
/// UTF-8 byte order mark, which some editors and shells of Windows write first. The library skips it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes of checked lines that wait for the library.
const PIPE_BYTES: usize = 64 << 10;

/// A transport over lines, of which only messages are handed to the library.
pub(crate) struct CheckedTransport<W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, DuplexStream, W>,
    rejected: mpsc::Receiver<RejectedMessage>,
    open: OpenRequests,
    /// Sends an error; kept, because the library may drop the future that waits for it.
    pending: Option<BoxFuture<'static, io::Result<()>>>,
    /// Reads the lines until it is dropped.
    _reading: JoinSet<()>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> CheckedTransport<W> {
    pub(crate) fn new(reader: impl AsyncRead + Send + Unpin + 'static, writer: W) -> Self {
        let (forward, lines) = tokio::io::duplex(PIPE_BYTES);
        let (sender, rejected) = mpsc::channel(1);
        let mut reading = JoinSet::new();
        reading.spawn(check_lines(reader, forward, sender));
        Self {
            inner: AsyncRwTransport::new_server(lines, writer),
            rejected,
            open: OpenRequests::default(),
            pending: None,
            _reading: reading,
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for CheckedTransport<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (open, answered) = (self.open.clone(), answered_id(&item).cloned());
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            open.close(answered.as_ref());
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(sending) = &mut self.pending {
                let sent = sending.await;
                self.pending = None;
                sent.ok()?;
            }
            tokio::select! {
                // Errors come first: they were found before the end of the input.
                biased;
                Some(rejected) = self.rejected.recv() => {
                    let response = rejected.into_response();
                    self.pending = Some(Box::pin(self.inner.send(response)));
                }
                message = self.inner.receive() => {
                    let message = message?;
                    match self.open.admit(&message) {
                        Ok(()) => return Some(message),
                        // No further line is read until the client has taken the error.
                        Err(refusal) => self.pending = Some(Box::pin(self.inner.send(*refusal))),
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Forwards lines that are messages, and reports the others.
async fn check_lines(
    reader: impl AsyncRead + Unpin,
    mut forward: DuplexStream,
    rejected: mpsc::Sender<RejectedMessage>,
) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let Ok(available) = reader.fill_buf().await else {
            return;
        };
        let is_over = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(available.len(), |end| end + 1);
        if line.len() + count > MAX_LINE_BYTES {
            is_too_long = true;
            line = Vec::new();
        }
        if !is_too_long {
            line.extend_from_slice(available.get(..count).unwrap_or_default());
        }
        reader.consume(count);
        if end.is_none() && !is_over {
            continue;
        }
        if is_over {
            if line.is_empty() && !is_too_long {
                return;
            }
            // The last line of the input may have no end.
            line.push(b'\n');
        }
        let error = if is_too_long {
            let message = format!("The message is longer than {} MiB.", MAX_LINE_BYTES >> 20);
            let error = ErrorData::invalid_request(message, None);
            Some(RejectedMessage::new(error, None))
        } else {
            check_line(&line)
        };
        let is_open = match error {
            Some(error) => rejected.send(error).await.is_ok(),
            None => forward.write_all(&line).await.is_ok(),
        };
        if !is_open || is_over {
            return;
        }
        line.clear();
        is_too_long = false;
    }
}

/// The response to a line that is not a message; `None` for other lines. An empty line and a notification get none.
fn check_line(line: &[u8]) -> Option<RejectedMessage> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return None;
    }
    check_message(line).filter(|rejected| !rejected.is_notification())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use rmcp::model::{JsonRpcMessage, RequestId};
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::open_requests::MAX_OPEN_REQUESTS;

    /// Sends lines, and returns what is written until the input ends.
    async fn answers_to(lines: &[u8]) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let (output, mut answers) = tokio::io::duplex(1 << 20);
        let mut transport = CheckedTransport::new(server, output);
        let sent = async {
            client.write_all(lines).await.unwrap();
            drop(client);
        };
        let received = async {
            while transport.receive().await.is_some() {}
            drop(transport);
        };
        tokio::join!(sent, received);
        let mut text = String::new();
        answers.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_line_that_is_not_json_gets_an_error() {
        let text =
            answers_to(b"{bad\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\xff\n").await;
        let codes: Vec<_> = text.lines().map(error_code).collect();
        assert_eq!(codes, [-32700, -32700]);
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_read_gets_an_error_with_its_id() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (params, code) in [
            // Half of a surrogate pair, as from a text that was cut within an emoji.
            (r#"{"name":"read","arguments":{"path":"\ud83d"}}"#, -32700),
            (r#"{"name":"list","arguments":{"offset":1e400}}"#, -32700),
            (
                &format!(r#"{{"name":"read","arguments":{{"path":{deep}}}}}"#),
                -32700,
            ),
            (r#"{"name":"read","_meta":5}"#, -32600),
            ("[]", -32600),
        ] {
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{params}}}"#);
            let text = answers_to(format!("{line}\n").as_bytes()).await;
            assert_eq!(
                text.lines().map(error_code).collect::<Vec<_>>(),
                [code],
                "{text}"
            );
            let message: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(message["id"], "a", "{text}");
        }
    }

    #[tokio::test]
    async fn a_message_without_a_readable_id_gets_one_error_without_an_id() {
        for line in [
            "{}",
            "[]",
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        ] {
            let text = answers_to(format!("{line}\n").as_bytes()).await;
            assert_eq!(
                text.lines().map(error_code).collect::<Vec<_>>(),
                [-32600],
                "{line}"
            );
        }
        let unknown = br#"{"jsonrpc":"2.0","method":"notifications/other","params":5}"#;
        assert_eq!(answers_to(&[unknown, b"\n".as_slice()].concat()).await, "");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_gets_an_error() {
        let mut line = vec![b' '; MAX_LINE_BYTES];
        line.extend(b"{}\n");
        let text = answers_to(&line).await;
        assert_eq!(text.lines().map(error_code).collect::<Vec<_>>(), [-32600]);
    }

    #[tokio::test]
    async fn a_line_with_a_byte_order_mark_is_a_message() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let (output, _answers) = tokio::io::duplex(1 << 10);
        let mut transport = CheckedTransport::new(server, output);
        let line = b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        client.write_all(line).await.unwrap();
        assert!(transport.receive().await.is_some());
        client.write_all(b"\xef\xbb\xbf{bad\n").await.unwrap();
        drop(client);
        assert!(transport.receive().await.is_none());
    }

    #[tokio::test]
    async fn a_last_line_without_an_end_is_a_message() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let (output, _answers) = tokio::io::duplex(1 << 10);
        let mut transport = CheckedTransport::new(server, output);
        client
            .write_all(ping(1).trim_end().as_bytes())
            .await
            .unwrap();
        drop(client);
        assert!(transport.receive().await.is_some());
        assert!(transport.receive().await.is_none());
        let text = answers_to(b"{bad").await;
        assert_eq!(text.lines().map(error_code).collect::<Vec<_>>(), [-32700]);
    }

    #[tokio::test]
    async fn an_error_is_sent_once_though_its_future_is_dropped() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        // Shorter than the error, so that sending it waits.
        let (output, mut answers) = tokio::io::duplex(16);
        let mut transport = CheckedTransport::new(server, output);
        client.write_all(b"{bad\n").await.unwrap();
        drop(client);
        let mut text = Vec::new();
        let mut has_ended = false;
        for _ in 0..1000 {
            has_ended = matches!(transport.receive().now_or_never(), Some(None));
            if has_ended {
                break;
            }
            let mut part = [0; 16];
            if let Some(read) = answers.read(&mut part).now_or_never() {
                text.extend_from_slice(&part[..read.unwrap()]);
            }
            tokio::task::yield_now().await;
        }
        assert!(has_ended);
        drop(transport);
        answers.read_to_end(&mut text).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().map(error_code).collect::<Vec<_>>(), [-32700]);
    }

    fn ping(id: usize) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n")
    }

    #[tokio::test]
    async fn requests_above_the_limit_are_refused_until_one_has_its_response_or_is_cancelled() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let (output, mut answers) = tokio::io::duplex(1 << 20);
        let mut transport = CheckedTransport::new(server, output);
        for id in 0..MAX_OPEN_REQUESTS {
            client.write_all(ping(id).as_bytes()).await.unwrap();
            assert!(transport.receive().await.is_some());
        }
        // One too many, and one whose id is in use.
        let refused = [ping(1000), ping(7)].concat();
        let cancelled =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#;
        let lines = format!("{refused}{cancelled}\n{}", ping(1001));
        client.write_all(lines.as_bytes()).await.unwrap();
        let next = transport.receive().await.unwrap();
        assert!(matches!(next, JsonRpcMessage::Notification(_)), "{next:?}");
        let next = transport.receive().await.unwrap();
        assert!(matches!(next, JsonRpcMessage::Request(_)), "{next:?}");
        let error = ErrorData::invalid_request("any", None);
        let response = TxJsonRpcMessage::<RoleServer>::error(error, Some(RequestId::Number(5)));
        transport.send(response).await.unwrap();
        client.write_all(ping(1002).as_bytes()).await.unwrap();
        assert!(transport.receive().await.is_some());
        drop((client, transport));
        let mut text = String::new();
        answers.read_to_string(&mut text).await.unwrap();
        let ids = text.lines().map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            message["id"].as_i64().unwrap()
        });
        assert_eq!(ids.collect::<Vec<_>>(), [1000, 7, 5], "{text}");
    }

    fn error_code(line: &str) -> i64 {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        message["error"]["code"].as_i64().unwrap()
    }
}
