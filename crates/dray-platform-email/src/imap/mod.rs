//! The conversation with a mailbox (IMAP: RFC 3501, 9051 and 2177), as far as reading mail needs it.
//!
//! All data from a server is limited: a response has at most [`MAX_RESPONSE_BYTES`] bytes, regardless of its announced
//! length. Mails are requested in chunks that fit.

mod response;
pub(crate) mod structure;
pub(crate) mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_platform::{ErrorKind, PlatformError};
use rustls::ClientConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::connection::{BufferedStream, MailServer, broken_connection};
use crate::inbox::options::InboxOptions;
use crate::options::{ConnectionSecurity, EmailOptions};
pub(crate) use response::FetchedMail;
use response::{
    ServerResponse, UntaggedResponse, parse_response, refusal_error, unexpected_response,
};
use value::{ImapValue, ResponseChunk, announced_literal, quote_string};

/// Most bytes of one response.
const MAX_RESPONSE_BYTES: u64 = 2 << 20;
/// Most untagged responses to one command.
const MAX_RESPONSES: usize = 10_000;

/// A connection that is logged in. Dropping it closes the connection without a `LOGOUT`.
pub(crate) struct ImapConnection {
    io: BufferedStream,
    /// Longest wait for a response or for the acceptance of written bytes.
    idle_timeout: Duration,
    /// Number of commands until now, from which tags are made.
    count: u32,
    /// Capabilities, in upper case.
    capabilities: Vec<String>,
    /// Whether new mail was announced since the last search.
    pub(crate) has_new_mail: bool,
}

impl ImapConnection {
    /// Connects and logs in. Each step has the timeout of the options.
    pub(crate) async fn open(
        options: &EmailOptions,
        inbox: &InboxOptions,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PlatformError> {
        let server = MailServer {
            host: &inbox.host,
            port: inbox.port,
            security: inbox.security,
            connect_timeout: options.connect_timeout.as_duration(),
            tls,
        };
        let mut connection = Self {
            io: server.connect().await?,
            idle_timeout: options.idle_timeout.as_duration(),
            count: 0,
            capabilities: Vec::new(),
            has_new_mail: false,
        };
        let is_authenticated = connection.read_greeting().await?;
        if inbox.security == ConnectionSecurity::StartTls {
            connection = connection.start_tls(server).await?;
        }
        // The capabilities are read only now, because RFC 3501, section 6.2.1, discards capabilities that were
        // announced before TLS.
        if !is_authenticated {
            connection.request_capabilities().await?;
            connection.login(inbox).await?;
        }
        // Servers announce further capabilities, such as `IDLE`, after the login.
        connection.request_capabilities().await?;
        Ok(connection)
    }

    /// Reads the greeting; returns whether the user is already authenticated, as with a client certificate.
    async fn read_greeting(&mut self) -> Result<bool, PlatformError> {
        match timeout(self.idle_timeout, self.read_response()).await {
            Ok(Ok(ServerResponse::Untagged(greeting))) => match greeting.word().as_str() {
                "OK" => Ok(false),
                "PREAUTH" => Ok(true),
                // `BYE`: too many connections, for instance.
                _ => Err(broken_connection("the server refused the connection")),
            },
            Ok(Ok(_)) => Err(PlatformError::new(
                ErrorKind::Unknown,
                "the server does not speak IMAP",
            )),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(broken_connection("the server sent no greeting in time")),
        }
    }

    async fn start_tls(mut self, server: MailServer<'_>) -> Result<Self, PlatformError> {
        self.command("STARTTLS").await.map_err(|cause| {
            PlatformError::new(ErrorKind::Auth, "the server offers no STARTTLS").caused_by(cause)
        })?;
        self.io = server.start_tls(self.io).await?;
        Ok(self)
    }

    async fn request_capabilities(&mut self) -> Result<(), PlatformError> {
        let responses = self.command("CAPABILITY").await?;
        self.capabilities = responses
            .iter()
            .filter(|response| response.word() == "CAPABILITY")
            .flat_map(|response| {
                response
                    .values
                    .iter()
                    .map(|value| value.text().to_ascii_uppercase())
            })
            .collect();
        Ok(())
    }

    /// Whether the server announced a capability, given in upper case.
    pub(crate) fn offers(&self, capability: &str) -> bool {
        self.capabilities
            .iter()
            .any(|offered| offered == capability)
    }

    async fn login(&mut self, inbox: &InboxOptions) -> Result<(), PlatformError> {
        let (user, password) = (&inbox.username, inbox.password.expose());
        let refused = |error: PlatformError| match error.kind() {
            ErrorKind::Unknown => {
                PlatformError::new(ErrorKind::Auth, "the mailbox refuses the login")
                    .caused_by(error)
            }
            _ => error,
        };
        // This mechanism is preferred, because unlike `LOGIN` it allows any characters in names and passwords.
        if self.offers("AUTH=PLAIN") {
            let tag = self.send_command("AUTHENTICATE PLAIN").await?;
            // The credentials follow the server's consent: `SASL-IR` is an extension that not all servers have.
            self.wait_for_continuation(&tag).await.map_err(refused)?;
            let credentials = STANDARD.encode(format!("\0{user}\0{password}"));
            self.write(format!("{credentials}\r\n").as_bytes()).await?;
            return self
                .wait_for_completion(&tag)
                .await
                .map(drop)
                .map_err(refused);
        }
        let auth_error = |reason: &str| PlatformError::new(ErrorKind::Auth, reason);
        // The server requires TLS or another mechanism first (RFC 3501, section 6.2.3).
        if self.offers("LOGINDISABLED") {
            return Err(auth_error("the server disabled LOGIN on this connection"));
        }
        let (Some(user), Some(password)) = (quote_string(user), quote_string(password)) else {
            return Err(auth_error(
                "LOGIN cannot carry the characters of the user name or password",
            ));
        };
        let login = self.command(&format!("LOGIN {user} {password}")).await;
        login.map(drop).map_err(refused)
    }

    /// Opens a mailbox; `is_writable` permits marks on its mails. Returns its `UIDVALIDITY`.
    pub(crate) async fn select(
        &mut self,
        mailbox: &str,
        is_writable: bool,
    ) -> Result<u64, PlatformError> {
        let name = quote_string(mailbox).ok_or_else(|| {
            PlatformError::new(ErrorKind::BadFormat, "the name of the mailbox is not ASCII")
        })?;
        // `EXAMINE` is `SELECT` without the right to change anything.
        let verb = if is_writable { "SELECT" } else { "EXAMINE" };
        let responses = self.command(&format!("{verb} {name}")).await?;
        let validity = responses.iter().find_map(|response| {
            let (_, after) = response.line.split_once("[UIDVALIDITY ")?;
            after.split_once(']')?.0.trim().parse().ok()
        });
        validity
            .ok_or_else(|| PlatformError::new(ErrorKind::Unknown, "the mailbox has no UIDVALIDITY"))
    }

    /// UIDs of mails by `UID SEARCH`, ascending and without duplicates.
    pub(crate) async fn search(&mut self, criteria: &str) -> Result<Vec<u64>, PlatformError> {
        // The flag is cleared before the command, so that mail that arrives while it runs is not missed.
        self.has_new_mail = false;
        let responses = self.command(&format!("UID SEARCH {criteria}")).await?;
        let mut uids: Vec<u64> = responses
            .iter()
            .filter(|response| response.word() == "SEARCH")
            .flat_map(|response| response.values.iter().filter_map(ImapValue::number))
            .collect();
        uids.sort_unstable();
        uids.dedup();
        Ok(uids)
    }

    /// The result of `UID FETCH` of these data items for one mail; `None` for an unknown mail.
    pub(crate) async fn fetch(
        &mut self,
        uid: u64,
        items: &str,
    ) -> Result<Option<FetchedMail>, PlatformError> {
        let responses = self.command(&format!("UID FETCH {uid} {items}")).await?;
        // A server may send data of other mails in between (RFC 3501, section 7).
        Ok(responses.into_iter().find_map(|response| {
            let [_, word, list] = response.values.as_slice() else {
                return None;
            };
            let fetched = FetchedMail(list.list()?.to_vec());
            let is_requested = word.bytes()?.eq_ignore_ascii_case(b"FETCH")
                && fetched.find("UID").and_then(ImapValue::number) == Some(uid);
            is_requested.then_some(fetched)
        }))
    }

    /// Waits for new mail with `IDLE`, for at most `max_wait`. The result is in [`ImapConnection::has_new_mail`].
    pub(crate) async fn wait(&mut self, max_wait: Duration) -> Result<(), PlatformError> {
        let tag = self.send_command("IDLE").await?;
        self.wait_for_continuation(&tag).await?;
        let waiting = async {
            while !self.has_new_mail {
                self.read_announcement().await?;
            }
            Ok::<_, PlatformError>(())
        };
        // The connection continues after a timeout, so the command is ended in both cases.
        match timeout(max_wait, waiting).await {
            Ok(waited) => waited?,
            Err(_elapsed) => {}
        }
        self.end_idle(&tag).await
    }

    /// Ends `IDLE` and reads the rest of its responses.
    async fn end_idle(&mut self, tag: &str) -> Result<(), PlatformError> {
        self.write(b"DONE\r\n").await?;
        self.wait_for_completion(tag).await.map(drop)
    }

    /// Reads one unsolicited response. Waits without its own timeout, because a mailbox may be quiet for a long time.
    async fn read_announcement(&mut self) -> Result<(), PlatformError> {
        match self.read_response().await? {
            ServerResponse::Untagged(response) => {
                self.record_announcement(&response);
                Ok(())
            }
            _ => Err(PlatformError::new(
                ErrorKind::Unknown,
                "the server sent an unexpected response",
            )),
        }
    }

    /// Sends a command, and returns all untagged responses up to its end.
    pub(crate) async fn command(
        &mut self,
        command: &str,
    ) -> Result<Vec<UntaggedResponse>, PlatformError> {
        let tag = self.send_command(command).await?;
        self.wait_for_completion(&tag).await
    }

    async fn send_command(&mut self, command: &str) -> Result<String, PlatformError> {
        self.count += 1;
        let tag = format!("d{}", self.count);
        self.write(format!("{tag} {command}\r\n").as_bytes())
            .await?;
        Ok(tag)
    }

    async fn next_response(&mut self) -> Result<ServerResponse, PlatformError> {
        match timeout(self.idle_timeout, self.read_response()).await {
            Ok(response) => response,
            Err(_) => Err(broken_connection("the connection timed out")),
        }
    }

    /// Waits until the server requests the continuation of a command.
    async fn wait_for_continuation(&mut self, tag: &str) -> Result<(), PlatformError> {
        loop {
            match self.next_response().await? {
                ServerResponse::Continue => return Ok(()),
                ServerResponse::Untagged(response) => self.record_announcement(&response),
                // The command ended without a request to continue, so it was refused.
                ServerResponse::Done(done_tag, line) if done_tag == tag => {
                    return Err(refusal_error(&line));
                }
                ServerResponse::Done(..) => return Err(unexpected_response()),
            }
        }
    }

    /// Waits until the server completes a command, and returns its untagged responses.
    async fn wait_for_completion(
        &mut self,
        tag: &str,
    ) -> Result<Vec<UntaggedResponse>, PlatformError> {
        // The number of responses is bounded here, and their size by `read_response`.
        let mut responses = Vec::new();
        loop {
            match self.next_response().await? {
                ServerResponse::Untagged(response) => {
                    self.record_announcement(&response);
                    responses.push(response);
                }
                ServerResponse::Done(done_tag, line) if done_tag == tag => {
                    let is_ok = line
                        .get(..2)
                        .is_some_and(|word| word.eq_ignore_ascii_case("OK"));
                    return if is_ok {
                        Ok(responses)
                    } else {
                        Err(refusal_error(&line))
                    };
                }
                ServerResponse::Done(..) | ServerResponse::Continue => {
                    return Err(unexpected_response());
                }
            }
            if responses.len() > MAX_RESPONSES {
                return Err(unexpected_response());
            }
        }
    }

    /// Records announcements of new mail, which may be in any response.
    fn record_announcement(&mut self, response: &UntaggedResponse) {
        let second = response
            .values
            .get(1)
            .map(ImapValue::text)
            .unwrap_or_default();
        if second.eq_ignore_ascii_case("EXISTS") {
            self.has_new_mail = true;
        }
    }

    /// Reads one response, with its literals. Not cancellation safe: a dropped future may lose a part of a line.
    async fn read_response(&mut self) -> Result<ServerResponse, PlatformError> {
        let mut chunks: Vec<ResponseChunk> = Vec::new();
        let mut remaining_bytes = MAX_RESPONSE_BYTES;
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.io).take(remaining_bytes);
            // The line is bounded before it is read: a server could send a line without an end.
            let read = bounded.read_until(b'\n', &mut line).await;
            read.map_err(|cause| broken_connection("the connection broke").caused_by(cause))?;
            remaining_bytes = remaining_bytes.saturating_sub(line.len() as u64);
            let Some(stripped) = line.strip_suffix(b"\n") else {
                // The limit cut the line, or the connection ended in it.
                return Err(if remaining_bytes == 0 {
                    unexpected_response()
                } else {
                    broken_connection("the connection was closed")
                });
            };
            let stripped = stripped.strip_suffix(b"\r").unwrap_or(stripped);
            let Some((length, literal_start)) = announced_literal(stripped) else {
                chunks.push(ResponseChunk {
                    line: stripped.to_vec(),
                    literal: None,
                });
                return parse_response(&chunks);
            };
            // The length is checked before anything is allocated for it.
            if length > remaining_bytes {
                return Err(PlatformError::new(
                    ErrorKind::Unknown,
                    "a response is too long",
                ));
            }
            let mut literal = Vec::new();
            let mut bounded = (&mut self.io).take(length);
            let read = bounded.read_to_end(&mut literal).await;
            read.map_err(|cause| broken_connection("the connection broke").caused_by(cause))?;
            if literal.len() as u64 != length {
                return Err(broken_connection("the connection was closed"));
            }
            remaining_bytes -= length;
            chunks.push(ResponseChunk {
                line: stripped.get(..literal_start).unwrap_or_default().to_vec(),
                literal: Some(literal),
            });
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), PlatformError> {
        let writing = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        match timeout(self.idle_timeout, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(broken_connection("the connection broke").caused_by(cause)),
            Err(_) => Err(broken_connection("the connection timed out")),
        }
    }

    /// Sends `LOGOUT` and closes without waiting for the response.
    pub(crate) async fn logout(mut self) {
        if let Err(error) = self.send_command("LOGOUT").await {
            tracing::debug!(%error, "could not send LOGOUT");
        }
    }
}

impl fmt::Debug for ImapConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImapConnection")
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}
