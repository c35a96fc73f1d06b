//! The conversation with a mailbox (IMAP: RFC 3501, 9051 and 2177), as far as mails are read.
//!
//! Everything that a server may say is bounded: a response holds at most [`MAX_RESPONSE_BYTES`] bytes, regardless of
//! the length it announces. Mails are asked for in pieces that fit.

mod said;
pub(crate) mod structure;
pub(crate) mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_platform::{ErrorKind, PlatformError};
use rustls::ClientConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::inbox::options::InboxOptions;
use crate::options::{ConnectionSecurity, EmailOptions};
use crate::smtp::{MailStream, start_tls, with_timeout};
pub(crate) use said::FetchedMail;
use said::{ServerResponse, UntaggedResponse, parse_response, refusal_error, unexpected_response};
use value::{ImapValue, ResponseChunk, announced_literal, quote_string};

/// Most bytes of one response.
const MAX_RESPONSE_BYTES: u64 = 2 << 20;
/// Most responses to one command.
const MAX_RESPONSES: usize = 10_000;

/// A connection that is logged in.
pub(crate) struct ImapConnection {
    io: BufReader<Box<dyn MailStream>>,
    idle: Duration,
    count: u32,
    /// In upper case.
    offers: Vec<String>,
    /// Whether new mail was announced since the last look.
    pub(crate) has_news: bool,
}

impl ImapConnection {
    /// Connects and logs in.
    pub(crate) async fn open(
        options: &EmailOptions,
        inbox: &InboxOptions,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PlatformError> {
        let wait = options.connect_timeout.as_duration();
        let host = inbox.host.trim_start_matches('[').trim_end_matches(']');
        let connecting = async {
            #[expect(
                clippy::disallowed_methods,
                reason = "the address is the operator's word"
            )]
            let tcp = TcpStream::connect((host, inbox.port)).await;
            let tcp = tcp
                .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
                .map_err(|cause| broken_connection("no connection").caused_by(cause))?;
            let io: Box<dyn MailStream> = match inbox.security {
                ConnectionSecurity::Tls => start_tls(Box::new(tcp), host, tls).await?,
                ConnectionSecurity::StartTls | ConnectionSecurity::None => Box::new(tcp),
            };
            Ok(BufReader::new(io))
        };
        let mut connection = Self {
            io: with_timeout(wait, connecting).await?,
            idle: options.idle_timeout.as_duration(),
            count: 0,
            offers: Vec::new(),
            has_news: false,
        };
        let is_known = connection.greeted().await?;
        if inbox.security == ConnectionSecurity::StartTls {
            connection = connection.start_tls(host, wait, tls).await?;
        }
        if !is_known {
            connection.capabilities().await?;
            connection.login(inbox).await?;
        }
        connection.capabilities().await?;
        Ok(connection)
    }

    /// Reads the greeting; whether the server knows us already.
    async fn greeted(&mut self) -> Result<bool, PlatformError> {
        match timeout(self.idle, self.said()).await {
            Ok(Ok(ServerResponse::Untagged(told))) => match told.word().as_str() {
                "OK" => Ok(false),
                "PREAUTH" => Ok(true),
                _ => Err(broken_connection("the server does not want us now")),
            },
            Ok(Ok(_)) => Err(PlatformError::new(ErrorKind::Unknown, "this is no mailbox")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(broken_connection("no greeting in time")),
        }
    }

    async fn start_tls(
        mut self,
        host: &str,
        wait: Duration,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PlatformError> {
        self.command("STARTTLS").await.map_err(|cause| {
            PlatformError::new(ErrorKind::Auth, "the server offers no STARTTLS").caused_by(cause)
        })?;
        // What came before the handshake was not protected; it must not count as if it had been.
        if !self.io.buffer().is_empty() {
            let why = "the server spoke before the handshake";
            return Err(PlatformError::new(ErrorKind::Auth, why));
        }
        let io = with_timeout(wait, start_tls(self.io.into_inner(), host, tls)).await?;
        self.io = BufReader::new(io);
        Ok(self)
    }

    async fn capabilities(&mut self) -> Result<(), PlatformError> {
        let told = self.command("CAPABILITY").await?;
        self.offers = told
            .iter()
            .filter(|told| told.word() == "CAPABILITY")
            .flat_map(|told| {
                told.values
                    .iter()
                    .map(|value| value.text().to_ascii_uppercase())
            })
            .collect();
        Ok(())
    }

    /// Whether the server offers this.
    pub(crate) fn offers(&self, what: &str) -> bool {
        self.offers.iter().any(|offer| offer == what)
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
        if self.offers("AUTH=PLAIN") {
            let tag = self.begin("AUTHENTICATE PLAIN").await?;
            self.continued(&tag).await.map_err(refused)?;
            let told = STANDARD.encode(format!("\0{user}\0{password}"));
            self.write(format!("{told}\r\n").as_bytes()).await?;
            return self.end(&tag).await.map(drop).map_err(refused);
        }
        let wrong = |why: &str| PlatformError::new(ErrorKind::Auth, why);
        if self.offers("LOGINDISABLED") {
            return Err(wrong("the server takes no login here"));
        }
        let (Some(user), Some(password)) = (quote_string(user), quote_string(password)) else {
            return Err(wrong("the server takes no login with such characters"));
        };
        let login = self.command(&format!("LOGIN {user} {password}")).await;
        login.map(drop).map_err(refused)
    }

    /// Opens a mailbox, to read or to mark mails in it; its `UIDVALIDITY`.
    pub(crate) async fn select(
        &mut self,
        mailbox: &str,
        marks: bool,
    ) -> Result<u64, PlatformError> {
        let name = quote_string(mailbox).ok_or_else(|| {
            PlatformError::new(ErrorKind::BadFormat, "a mailbox has an ASCII name")
        })?;
        let word = if marks { "SELECT" } else { "EXAMINE" };
        let told = self.command(&format!("{word} {name}")).await?;
        let validity = told.iter().find_map(|told| {
            let (_, after) = told.line.split_once("[UIDVALIDITY ")?;
            after.split_once(']')?.0.trim().parse().ok()
        });
        validity
            .ok_or_else(|| PlatformError::new(ErrorKind::Unknown, "the mailbox has no UIDVALIDITY"))
    }

    /// Numbers of mails by `UID SEARCH`, ascending.
    pub(crate) async fn search(&mut self, criteria: &str) -> Result<Vec<u64>, PlatformError> {
        self.has_news = false;
        let told = self.command(&format!("UID SEARCH {criteria}")).await?;
        let mut all: Vec<u64> = told
            .iter()
            .filter(|told| told.word() == "SEARCH")
            .flat_map(|told| told.values.iter().filter_map(ImapValue::number))
            .collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// What `UID FETCH` returns of one mail, name and value in turn; `None` for an unknown mail.
    pub(crate) async fn fetch(
        &mut self,
        uid: u64,
        what: &str,
    ) -> Result<Option<FetchedMail>, PlatformError> {
        let told = self.command(&format!("UID FETCH {uid} {what}")).await?;
        Ok(told.into_iter().find_map(|told| {
            let [_, word, list] = told.values.as_slice() else {
                return None;
            };
            let fetched = FetchedMail(list.list()?.to_vec());
            let is_it = word.bytes()?.eq_ignore_ascii_case(b"FETCH")
                && fetched.find("UID").and_then(ImapValue::number) == Some(uid);
            is_it.then_some(fetched)
        }))
    }

    /// Waits for news, at most so long. Gives back nothing; [`ImapConnection::has_news`] says.
    pub(crate) async fn wait(&mut self, longest: Duration) -> Result<(), PlatformError> {
        let tag = self.begin("IDLE").await?;
        self.continued(&tag).await?;
        let waiting = async {
            while !self.has_news {
                self.note().await?;
            }
            Ok::<_, PlatformError>(())
        };
        match timeout(longest, waiting).await {
            Ok(told) => told?,
            Err(_elapsed) => {}
        }
        self.done(&tag).await
    }

    /// Ends a wait.
    async fn done(&mut self, tag: &str) -> Result<(), PlatformError> {
        self.write(b"DONE\r\n").await?;
        self.end(tag).await.map(drop)
    }

    /// Reads one unsolicited response.
    async fn note(&mut self) -> Result<(), PlatformError> {
        match self.said().await? {
            ServerResponse::Untagged(told) => {
                self.heard(&told);
                Ok(())
            }
            _ => Err(PlatformError::new(
                ErrorKind::Unknown,
                "an answer without a question",
            )),
        }
    }

    /// Sends a command, and reads all that is said up to its end.
    pub(crate) async fn command(
        &mut self,
        command: &str,
    ) -> Result<Vec<UntaggedResponse>, PlatformError> {
        let tag = self.begin(command).await?;
        self.end(&tag).await
    }

    async fn begin(&mut self, command: &str) -> Result<String, PlatformError> {
        self.count += 1;
        let tag = format!("d{}", self.count);
        self.write(format!("{tag} {command}\r\n").as_bytes())
            .await?;
        Ok(tag)
    }

    async fn next(&mut self) -> Result<ServerResponse, PlatformError> {
        match timeout(self.idle, self.said()).await {
            Ok(said) => said,
            Err(_) => Err(broken_connection("nothing moved in time")),
        }
    }

    /// Waits until the server wants more of a command.
    async fn continued(&mut self, tag: &str) -> Result<(), PlatformError> {
        loop {
            match self.next().await? {
                ServerResponse::Continue => return Ok(()),
                ServerResponse::Untagged(told) => self.heard(&told),
                ServerResponse::Done(found, line) if found == tag => {
                    return Err(refusal_error(&line));
                }
                ServerResponse::Done(..) => return Err(unexpected_response()),
            }
        }
    }

    async fn end(&mut self, tag: &str) -> Result<Vec<UntaggedResponse>, PlatformError> {
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                ServerResponse::Untagged(told) => {
                    self.heard(&told);
                    all.push(told);
                }
                ServerResponse::Done(found, line) if found == tag => {
                    let is_done = line
                        .get(..2)
                        .is_some_and(|word| word.eq_ignore_ascii_case("OK"));
                    return if is_done {
                        Ok(all)
                    } else {
                        Err(refusal_error(&line))
                    };
                }
                ServerResponse::Done(..) | ServerResponse::Continue => {
                    return Err(unexpected_response());
                }
            }
            if all.len() > MAX_RESPONSES {
                return Err(unexpected_response());
            }
        }
    }

    /// Takes note of what matters at any time.
    fn heard(&mut self, told: &UntaggedResponse) {
        let second = told.values.get(1).map(ImapValue::text).unwrap_or_default();
        if second.eq_ignore_ascii_case("EXISTS") {
            self.has_news = true;
        }
    }

    /// Reads one thing that the server says.
    async fn said(&mut self) -> Result<ServerResponse, PlatformError> {
        let mut pieces: Vec<ResponseChunk> = Vec::new();
        let mut left = MAX_RESPONSE_BYTES;
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.io).take(left);
            let read = bounded.read_until(b'\n', &mut line).await;
            read.map_err(|cause| broken_connection("the connection broke").caused_by(cause))?;
            left = left.saturating_sub(line.len() as u64);
            let Some(stripped) = line.strip_suffix(b"\n") else {
                return Err(if left == 0 {
                    unexpected_response()
                } else {
                    broken_connection("the connection was closed")
                });
            };
            let stripped = stripped.strip_suffix(b"\r").unwrap_or(stripped);
            let Some((length, at)) = announced_literal(stripped) else {
                pieces.push(ResponseChunk {
                    line: stripped.to_vec(),
                    literal: None,
                });
                return parse_response(&pieces);
            };
            if length > left {
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
            left -= length;
            pieces.push(ResponseChunk {
                line: stripped.get(..at).unwrap_or_default().to_vec(),
                literal: Some(literal),
            });
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), PlatformError> {
        let writing = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        match timeout(self.idle, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(broken_connection("the connection broke").caused_by(cause)),
            Err(_) => Err(broken_connection("nothing moved in time")),
        }
    }

    /// Says goodbye without waiting for it to be heard.
    pub(crate) async fn logout(mut self) {
        if let Err(error) = self.begin("LOGOUT").await {
            tracing::debug!(%error, "no goodbye");
        }
    }
}

fn broken_connection(why: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Transient, why)
}

impl fmt::Debug for ImapConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("offers", &self.offers)
            .finish_non_exhaustive()
    }
}
