//! The conversation with a submission server: greeting, TLS, login, commands and replies.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_platform::{ErrorKind, PlatformError};
use rustls::ClientConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use crate::connection::{BufferedStream, MailServer, broken_connection};
use crate::options::{ConnectionSecurity, EmailOptions};
use crate::reply::{SmtpReply, SmtpStage};

/// Longest line of a reply, in bytes. The standard allows 512 bytes, but servers send longer ones.
const MAX_LINE_BYTES: u64 = 2048;
/// Most lines of one reply.
const MAX_LINES: usize = 100;

/// A connection that was greeted, protected and logged in. Dropping it closes it without a `QUIT`.
pub(crate) struct SmtpConnection {
    io: BufferedStream,
    /// Longest wait for a reply or for the acceptance of written bytes.
    idle_timeout: Duration,
    /// Extensions that the server offers, in upper case.
    offers: Vec<String>,
}

impl SmtpConnection {
    /// Connects, starts TLS and logs in, according to the options.
    pub(crate) async fn open(
        options: &EmailOptions,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PlatformError> {
        let server = MailServer {
            host: &options.host,
            port: options.port,
            security: options.security,
            connect_timeout: options.connect_timeout.as_duration(),
            tls,
        };
        let mut connection = Self {
            io: server.connect().await?,
            idle_timeout: options.idle_timeout.as_duration(),
            offers: Vec::new(),
        };
        connection
            .reply(connection.idle_timeout)
            .await?
            .expect(220, SmtpStage::Hello)?;
        connection.hello(options).await?;
        if options.security == ConnectionSecurity::StartTls {
            connection = connection.start_tls(options, server).await?;
        }
        connection.login(options).await?;
        Ok(connection)
    }

    async fn hello(&mut self, options: &EmailOptions) -> Result<(), PlatformError> {
        let reply = self.command(&format!("EHLO {}", options.hello)).await?;
        let offers = reply.expect(250, SmtpStage::Hello)?.lines;
        self.offers = offers
            .into_iter()
            // The first line names the server.
            .skip(1)
            .map(|line| line.to_ascii_uppercase())
            .collect();
        Ok(())
    }

    async fn start_tls(
        mut self,
        options: &EmailOptions,
        server: MailServer<'_>,
    ) -> Result<Self, PlatformError> {
        // TLS is always required, because an attacker in the network could remove the offer.
        if !self.offers.iter().any(|offer| offer == "STARTTLS") {
            return Err(PlatformError::new(
                ErrorKind::Auth,
                "the server offers no STARTTLS",
            ));
        }
        self.command("STARTTLS")
            .await?
            .expect(220, SmtpStage::Hello)?;
        let mut connection = Self {
            io: server.start_tls(self.io).await?,
            idle_timeout: self.idle_timeout,
            // RFC 3207, section 4.2: extensions that were offered before the handshake are discarded.
            offers: Vec::new(),
        };
        connection.hello(options).await?;
        Ok(connection)
    }

    async fn login(&mut self, options: &EmailOptions) -> Result<(), PlatformError> {
        if options.username.is_empty() {
            return Ok(());
        }
        let (user, password) = (&options.username, options.password.expose());
        let mechanisms = self.offers.iter().find(|offer| offer.starts_with("AUTH"));
        let has_mechanism = |name: &str| {
            // Old servers write `AUTH=LOGIN`.
            let mut words = mechanisms.iter().flat_map(|offer| offer.split([' ', '=']));
            words.any(|word| word == name)
        };
        // Without any known mechanism `PLAIN` is tried, because its refusal has a more precise reason.
        let reply = if has_mechanism("PLAIN") || !has_mechanism("LOGIN") {
            let credentials = STANDARD.encode(format!("\0{user}\0{password}"));
            self.command(&format!("AUTH PLAIN {credentials}")).await?
        } else {
            // `LOGIN` is in no RFC, but some servers offer nothing else. They ask for the name and then for the
            // password.
            self.command("AUTH LOGIN")
                .await?
                .expect(334, SmtpStage::Login)?;
            let user = self.command(&STANDARD.encode(user)).await?;
            user.expect(334, SmtpStage::Login)?;
            self.command(&STANDARD.encode(password)).await?
        };
        reply.expect(235, SmtpStage::Login).map(drop)
    }

    /// Largest mail that the server accepts, in bytes; `None` if it announces no limit.
    pub(crate) fn max_mail_bytes(&self) -> Option<u64> {
        let announced = self
            .offers
            .iter()
            .find_map(|offer| offer.strip_prefix("SIZE "))?;
        // Zero means no fixed limit (RFC 1870, section 4).
        announced.trim().parse().ok().filter(|size| *size > 0)
    }

    /// Whether the server supports `SIZE` (RFC 1870), which allows announcing the size of a mail.
    pub(crate) fn supports_size(&self) -> bool {
        self.offers
            .iter()
            .any(|offer| offer == "SIZE" || offer.starts_with("SIZE "))
    }

    /// Sends a command and reads its reply. Both have the idle timeout.
    pub(crate) async fn command(&mut self, line: &str) -> Result<SmtpReply, PlatformError> {
        self.write(format!("{line}\r\n").as_bytes()).await?;
        self.reply(self.idle_timeout).await
    }

    /// Writes and flushes, within the idle timeout.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), PlatformError> {
        let writing = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        let written = tokio::time::timeout(self.idle_timeout, writing).await;
        io_result(written, "the connection broke while writing")
    }

    /// Reads a reply, waiting for each of its lines at most `wait`.
    pub(crate) async fn reply(&mut self, wait: Duration) -> Result<SmtpReply, PlatformError> {
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            // The line is bounded, because a line may never end.
            let mut bounded = (&mut self.io).take(MAX_LINE_BYTES);
            let reading = bounded.read_until(b'\n', &mut line);
            let read = tokio::time::timeout(wait, reading).await;
            io_result(read, "the connection broke while reading")?;
            // The server closed the connection.
            if line.is_empty() {
                return Err(broken_connection("the connection was closed"));
            }
            let malformed_reply =
                || PlatformError::new(ErrorKind::Unknown, "could not parse the reply");
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let code = text.get(..3).and_then(|code| code.parse::<u16>().ok());
            let code = code
                // A line that the limit cut has no end, and counts as unreadable.
                .filter(|code| (200..600).contains(code) && line.ends_with(b"\n"))
                .ok_or_else(malformed_reply)?;
            lines.push(text.get(4..).unwrap_or_default().to_owned());
            match text.as_bytes().get(3) {
                None | Some(b' ') => return Ok(SmtpReply { code, lines }),
                Some(b'-') if lines.len() < MAX_LINES => {}
                Some(_) => return Err(malformed_reply()),
            }
        }
    }

    /// Sends `QUIT` and closes without waiting for the reply.
    pub(crate) async fn quit(mut self) {
        if let Err(error) = self.write(b"QUIT\r\n").await {
            tracing::debug!(%error, "could not send QUIT");
        }
    }
}

fn io_result<T>(
    result: Result<io::Result<T>, tokio::time::error::Elapsed>,
    description: &str,
) -> Result<(), PlatformError> {
    match result {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(cause)) => Err(broken_connection(description).caused_by(cause)),
        Err(_) => Err(broken_connection("the connection timed out")),
    }
}

impl fmt::Debug for SmtpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpConnection")
            .field("offers", &self.offers)
            .finish_non_exhaustive()
    }
}
