//! One session of the server: RFC 5321 with `SIZE`, `AUTH`, `STARTTLS` and enhanced codes.

use std::io;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_rustls::TlsAcceptor;

use super::parse::MailParser;
use super::{
    InjectedFault, ReceivedMail, SharedState, UNKNOWN_RECIPIENT, USER_NAME, USER_PASSWORD,
};
use crate::connection::MailStream;

/// Longest line, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

struct MailSession<'a> {
    shared: &'a SharedState,
    io: BufReader<Box<dyn MailStream>>,
    protected: bool,
    is_logged_in: bool,
    from: Option<String>,
    announced: Option<u64>,
    to: Vec<String>,
}

/// Result of a command: whether the session continues.
type SessionResult = io::Result<bool>;

pub(super) async fn serve_connection(
    shared: &SharedState,
    io: Box<dyn MailStream>,
) -> io::Result<()> {
    let mut session = MailSession {
        shared,
        io: BufReader::new(io),
        protected: false,
        is_logged_in: false,
        from: None,
        announced: None,
        to: Vec::new(),
    };
    session.write_line("220 fake.example.org ESMTP").await?;
    while let Some(line) = session.read_line().await? {
        let line = String::from_utf8_lossy(&line).into_owned();
        let verb: String = line.chars().take_while(char::is_ascii_alphabetic).collect();
        // The command is handled here and not in `command`, because the handshake consumes the stream of the session.
        if verb.eq_ignore_ascii_case("STARTTLS") {
            session = session.start_tls().await?;
        } else if !session.command(&verb.to_ascii_uppercase(), &line).await? {
            break;
        }
    }
    Ok(())
}

impl MailSession<'_> {
    async fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.io.write_all(format!("{line}\r\n").as_bytes()).await?;
        self.io.flush().await
    }

    /// A line without its end; `None` at the end of the connection.
    async fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        (&mut self.io)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .await?;
        // A line without its end: the connection broke, or the line is too long.
        if line.pop() != Some(b'\n') {
            return Ok(None);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    async fn command(&mut self, verb: &str, line: &str) -> SessionResult {
        let needs_tls = self.shared.tls.is_some() && !self.protected;
        match verb {
            "EHLO" => self.hello().await?,
            "HELO" => self.write_line("250 fake.example.org").await?,
            "NOOP" => self.write_line("250 2.0.0 ok").await?,
            "RSET" => {
                // RFC 5321, section 4.1.1.5.
                self.reset_transaction();
                self.write_line("250 2.0.0 ok").await?;
            }
            "QUIT" => {
                self.write_line("221 2.0.0 bye").await?;
                return Ok(false);
            }
            _ if needs_tls => self.write_line("530 5.7.0 STARTTLS first").await?,
            "AUTH" => self.login(line).await?,
            _ if !self.is_logged_in => self.write_line("530 5.7.0 log in first").await?,
            "MAIL" => self.sender(line).await?,
            "RCPT" => self.recipient(line).await?,
            "DATA" if self.to.is_empty() => self.write_line("503 5.5.1 no recipients").await?,
            "DATA" => return self.data().await,
            _ => self.write_line("502 5.5.2 unknown").await?,
        }
        Ok(true)
    }

    fn reset_transaction(&mut self) {
        self.from = None;
        self.announced = None;
        self.to.clear();
    }

    async fn hello(&mut self) -> io::Result<()> {
        self.reset_transaction();
        let tls = if self.shared.tls.is_some() && !self.protected {
            "250-STARTTLS\r\n"
        } else {
            // A server with TLS offers logins only after the handshake.
            "250-AUTH PLAIN LOGIN\r\n"
        };
        let largest = self.shared.largest;
        self.write_line(&format!(
            "250-fake.example.org\r\n250-SIZE {largest}\r\n{tls}250 ENHANCEDSTATUSCODES"
        ))
        .await
    }

    async fn start_tls(mut self) -> io::Result<Self> {
        let Some(tls) = self.shared.tls.clone().filter(|_| !self.protected) else {
            self.write_line("502 5.5.1 no TLS").await?;
            return Ok(self);
        };
        if self
            .shared
            .fault(|fault| *fault == InjectedFault::SpeakBeforeTls)
            .is_some()
        {
            self.write_line("220 go\r\n250 injected").await?;
        } else {
            self.write_line("220 2.0.0 go").await?;
        }
        let io = TlsAcceptor::from(tls).accept(self.io.into_inner()).await?;
        // RFC 3207, section 4.2: data from before the handshake is discarded.
        Ok(Self {
            shared: self.shared,
            io: BufReader::new(Box::new(io)),
            protected: true,
            is_logged_in: false,
            from: None,
            announced: None,
            to: Vec::new(),
        })
    }

    async fn login(&mut self, line: &str) -> io::Result<()> {
        let mut words = line.split_whitespace().skip(1);
        let mechanism = words.next().unwrap_or_default().to_ascii_uppercase();
        let initial_response = words.next().map(str::to_owned);
        self.is_logged_in = match mechanism.as_str() {
            "PLAIN" => {
                let credentials = match initial_response {
                    Some(credentials) => credentials,
                    // An empty challenge: the client sends its response after it (RFC 4954).
                    None => self.challenge("").await?,
                };
                decode_base64(&credentials) == format!("\0{USER_NAME}\0{USER_PASSWORD}")
            }
            "LOGIN" => {
                let user = match initial_response {
                    Some(user) => user,
                    None => self.challenge("VXNlcm5hbWU6").await?,
                };
                let password = self.challenge("UGFzc3dvcmQ6").await?;
                decode_base64(&user) == USER_NAME && decode_base64(&password) == USER_PASSWORD
            }
            _ => return self.write_line("504 5.5.4 mechanism").await,
        };
        if self.is_logged_in {
            self.write_line("235 2.7.0 welcome").await
        } else {
            self.write_line("535 5.7.8 bad credentials").await
        }
    }

    async fn challenge(&mut self, challenge: &str) -> io::Result<String> {
        self.write_line(&format!("334 {challenge}")).await?;
        let line = self.read_line().await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn sender(&mut self, line: &str) -> io::Result<()> {
        if let Some(InjectedFault::RefuseSender(response)) = self
            .shared
            .fault(|fault| matches!(fault, InjectedFault::RefuseSender(_)))
        {
            return self.write_line(response).await;
        }
        let Some(from) = path_address(line, "FROM:") else {
            return self.write_line("501 5.5.4 syntax").await;
        };
        let upper = line.to_ascii_uppercase();
        let size = upper
            .split_whitespace()
            .find_map(|word| word.strip_prefix("SIZE="));
        self.announced = size.and_then(|size| size.parse().ok());
        if self
            .announced
            .is_some_and(|size| size > self.shared.largest)
        {
            return self.write_line("552 5.3.4 too big").await;
        }
        self.from = Some(from);
        self.write_line("250 2.1.0 ok").await
    }

    async fn recipient(&mut self, line: &str) -> io::Result<()> {
        match path_address(line, "TO:") {
            _ if self.from.is_none() => self.write_line("503 5.5.1 sender first").await,
            None => self.write_line("501 5.5.4 syntax").await,
            Some(to) if to == UNKNOWN_RECIPIENT => self.write_line("550 5.1.1 no such user").await,
            Some(to) => {
                self.to.push(to);
                self.write_line("250 2.1.5 ok").await
            }
        }
    }

    async fn data(&mut self) -> SessionResult {
        self.write_line("354 go").await?;
        let fault = self.shared.fault(|fault| {
            !matches!(
                fault,
                InjectedFault::SpeakBeforeTls | InjectedFault::RefuseSender(_)
            )
        });
        let mut parser = Some(MailParser::default());
        let mut length = 0;
        loop {
            let Some(line) = self.read_line().await? else {
                return Ok(false);
            };
            // The bytes are counted with the line ends, as the client counts sent bytes.
            self.shared
                .received
                .fetch_add(line.len() as u64 + 2, Ordering::SeqCst);
            match fault {
                Some(InjectedFault::CloseDuringBody) => return Ok(false),
                Some(InjectedFault::RefuseDuringBody(response)) => {
                    self.write_line(response).await?;
                    return Ok(false);
                }
                _ => {}
            }
            if line == b"." {
                break;
            }
            length += line.len() as u64 + 2;
            // Dot stuffing (RFC 5321, section 4.5.2).
            let line = line.strip_prefix(b".").unwrap_or(&line);
            if parser
                .as_mut()
                .is_some_and(|parser| parser.line(line).is_err())
            {
                // The rest is still read, because the client expects a response only after the last line.
                parser = None;
            }
        }
        if let Some(InjectedFault::Refuse(response)) = fault {
            self.reset_transaction();
            self.write_line(response).await?;
            return Ok(true);
        }
        self.store_mail(parser, length, fault.as_ref()).await
    }

    async fn store_mail(
        &mut self,
        parser: Option<MailParser>,
        length: u64,
        fault: Option<&InjectedFault>,
    ) -> SessionResult {
        // The actual length is checked, because `SIZE` is only an announcement.
        if length > self.shared.largest {
            self.write_line("552 5.3.4 too big").await?;
            return Ok(true);
        }
        let Some(Ok(mail)) = parser.map(MailParser::end) else {
            self.write_line("554 5.6.0 no mail").await?;
            return Ok(true);
        };
        let mail = ReceivedMail {
            from: self.from.take().unwrap_or_default(),
            to: std::mem::take(&mut self.to),
            length,
            announced: self.announced.take(),
            protected: self.protected,
            ..mail
        };
        self.shared.lock().mails.push(mail);
        match fault {
            Some(InjectedFault::LoseResponse) => return Ok(false),
            Some(InjectedFault::Gibberish) => self.write_line("<html>").await?,
            Some(InjectedFault::Stall) => std::future::pending().await,
            _ => self.write_line("250 2.0.0 kept").await?,
        }
        Ok(true)
    }
}

fn decode_base64(text: &str) -> String {
    let bytes = STANDARD.decode(text.trim()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// The address in angle brackets after a word.
fn path_address(line: &str, word: &str) -> Option<String> {
    let index = line.to_ascii_uppercase().find(word)?;
    let after = line.get(index + word.len()..)?.trim_start();
    let (address, _) = after.strip_prefix('<')?.split_once('>')?;
    Some(address.to_owned())
}
