//! A small NATS client that returns the exact responses of the server.
//!
//! The real client reports a refused publish as an event while the caller waits until its timeout, so a test could not
//! distinguish a refusal from an outage. Here every command is followed by a PING, and everything before the PONG is
//! the response.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection of one identity.
pub(super) struct WireClient {
    stream: BufReader<TcpStream>,
    inbox: String,
    replies: u32,
    messages: VecDeque<WireMessage>,
}

/// A message that arrived.
#[derive(Debug)]
pub(super) struct WireMessage {
    /// Whether it arrived on the identity's inbox, and not on a subscription of the test.
    is_in_inbox: bool,
    /// The subject on which a response is awaited; empty if none is.
    pub(super) reply: String,
    pub(super) payload: Vec<u8>,
}

/// The text of the first error that the server sent.
pub(super) type Refusal = String;

impl WireClient {
    /// Logs in and subscribes to the identity's own inbox.
    pub(super) fn connect(server: SocketAddr, user: &str, password: &str) -> Result<Self, Refusal> {
        let stream = TcpStream::connect(server).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut client = Self {
            stream: BufReader::new(stream),
            inbox: format!("_INBOX_{user}"),
            replies: 0,
            messages: VecDeque::new(),
        };
        let hello = client.line();
        assert!(hello.starts_with("INFO "), "{hello}");
        let login = serde_json::json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "user": user, "pass": password, "lang": "test", "version": "1", "protocol": 1,
        });
        client.send(format!("CONNECT {login}\r\n").as_bytes())?;
        let inbox = format!("{}.>", client.inbox);
        client.subscribe(&inbox, None)?;
        Ok(client)
    }

    /// Publishes, and returns whether the server refused it.
    pub(super) fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), Refusal> {
        self.put(subject, "", "", payload)
    }

    /// Subscribes, in a queue group or not, and returns whether the server refused it.
    pub(super) fn subscribe(&mut self, subject: &str, queue: Option<&str>) -> Result<(), Refusal> {
        self.replies += 1;
        let queue = queue.map(|queue| format!("{queue} ")).unwrap_or_default();
        self.send(format!("SUB {subject} {queue}{}\r\n", self.replies).as_bytes())
    }

    /// Publishes with headers and waits for the reply.
    pub(super) fn request(
        &mut self,
        subject: &str,
        headers: &str,
        payload: &[u8],
    ) -> Result<WireMessage, Refusal> {
        self.replies += 1;
        let reply = format!("{}.{}", self.inbox, self.replies);
        self.put(subject, &reply, headers, payload)?;
        Ok(self.wait(true))
    }

    /// Publishes with headers.
    pub(super) fn publish_with_headers(
        &mut self,
        subject: &str,
        headers: &str,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        self.put(subject, "", headers, payload)
    }

    /// Publishes with any subject for the reply.
    pub(super) fn publish_for_reply(
        &mut self,
        subject: &str,
        reply: &str,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        self.put(subject, reply, "", payload)
    }

    /// Returns once the server has handled everything that was sent before, and counts the messages that have arrived on
    /// subscriptions of the test.
    pub(super) fn arrived(&mut self) -> usize {
        // A refusal does not matter here: nothing is sent.
        let _ = self.send(b"");
        let on_subscriptions = self.messages.iter().filter(|message| !message.is_in_inbox);
        on_subscriptions.count()
    }

    /// The next reply in the inbox.
    pub(super) fn next_reply(&mut self) -> WireMessage {
        self.wait(true)
    }

    /// The next message on a subscription of the test.
    pub(super) fn next(&mut self) -> WireMessage {
        self.wait(false)
    }

    fn wait(&mut self, is_in_inbox: bool) -> WireMessage {
        loop {
            let buffered = self
                .messages
                .iter()
                .position(|message| message.is_in_inbox == is_in_inbox);
            if let Some(message) = buffered.and_then(|index| self.messages.remove(index)) {
                return message;
            }
            let line = self.line();
            self.store_message(&line);
        }
    }

    fn put(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &str,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let mut command = if headers.is_empty() {
            format!("PUB {subject} {reply} {}\r\n", payload.len()).into_bytes()
        } else {
            let head = format!("NATS/1.0\r\n{headers}\r\n\r\n");
            let total = head.len() + payload.len();
            format!("HPUB {subject} {reply} {} {total}\r\n{head}", head.len()).into_bytes()
        };
        command.extend_from_slice(payload);
        command.extend_from_slice(b"\r\n");
        self.send(&command)
    }

    /// Sends a command and a PING; the first error before the PONG is the refusal.
    fn send(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let both = [command, b"PING\r\n"].concat();
        self.stream.get_mut().write_all(&both).unwrap();
        let mut answer = Ok(());
        loop {
            let line = self.line();
            if line == "PONG" {
                return answer;
            }
            if let Some(refusal) = line.strip_prefix("-ERR ") {
                answer = answer.and(Err(refusal.to_owned()));
                if refusal.contains("Authorization") {
                    return answer;
                }
            } else {
                self.store_message(&line);
            }
        }
    }

    /// Reads the rest of a message whose first line this is, and stores the message.
    fn store_message(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        if !matches!(words[0], "MSG" | "HMSG") {
            return;
        }
        let head: usize = if words[0] == "HMSG" {
            words[words.len() - 2].parse().unwrap()
        } else {
            0
        };
        let total: usize = words[words.len() - 1].parse().unwrap();
        // `MSG subject sid [reply] total`, `HMSG subject sid [reply] head total`
        let without_reply = if head > 0 { 5 } else { 4 };
        let reply = if words.len() > without_reply {
            words[3]
        } else {
            ""
        };
        let mut body = vec![0; total + 2];
        self.stream.read_exact(&mut body).unwrap();
        self.messages.push_back(WireMessage {
            // The inbox is the first subscription; a pulled message arrives there under its own subject.
            is_in_inbox: words[2] == "1",
            reply: reply.to_owned(),
            payload: body[head..total].to_vec(),
        });
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server responds in time");
        line.trim_end().to_owned()
    }
}
