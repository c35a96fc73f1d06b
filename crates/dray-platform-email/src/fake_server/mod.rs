//! A submission server, for tests and the demo. It parses mails while they arrive and stores their visible content;
//! attachments are only hashed.

mod parse;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_types::{Secret, Sha256Digest};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::options::{ConnectionSecurity, EmailOptions};

/// The only valid user.
pub const USER_NAME: &str = "bot";
/// The password of [`USER_NAME`].
pub const USER_PASSWORD: &str = "fake-password-of-a-mailbox";
/// The sender in [`FakeMailServer::options`].
pub const SENDER_ADDRESS: &str = "bot@example.org";
/// A recipient that does not exist.
pub const UNKNOWN_RECIPIENT: &str = "nobody@example.org";

/// A fault to inject into the next mail, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The mail is read completely, and the reply is this line; the mail is not stored.
    Refuse(&'static str),
    /// The reply to `MAIL FROM` is this line.
    RefuseSender(&'static str),
    /// The mail is stored, but the connection is closed without a reply.
    LoseResponse,
    /// The mail is stored, and the reply is not valid SMTP.
    Gibberish,
    /// The connection is closed after the first bytes.
    CloseDuringBody,
    /// This line is written after the first bytes, and the connection closed.
    RefuseDuringBody(&'static str),
    /// The mail is stored, and no reply is sent.
    Stall,
    /// A second line is sent in the same packet as the reply that accepts `STARTTLS`.
    SpeakBeforeTls,
}

/// An attachment that the server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailFile {
    /// The file's name, decoded (RFC 2231).
    pub name: String,
    /// Media type as sent.
    pub media_type: String,
    /// Number of bytes after decoding.
    pub size: u64,
    /// SHA-256 digest of the decoded bytes.
    pub sha256: Sha256Digest,
}

/// A mail as its recipient gets it, with its envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedMail {
    /// Sender of the envelope.
    pub from: String,
    /// Recipients of the envelope.
    pub to: Vec<String>,
    /// Bytes that were sent, without the final dot.
    pub length: u64,
    /// `SIZE` of `MAIL FROM`, in bytes.
    pub announced: Option<u64>,
    /// Headers, unfolded, as sent.
    pub headers: Vec<(String, String)>,
    /// Text with single line feeds.
    pub text: String,
    /// Attachments in the order of the mail.
    pub files: Vec<MailFile>,
    /// Whether the mail arrived over TLS.
    pub protected: bool,
}

impl ReceivedMail {
    /// The first header of this name, in any case; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        parse::header_value(&self.headers, name)
    }
}

/// State that all sessions share.
#[derive(Debug)]
struct SharedState {
    state: Mutex<FakeState>,
    received: AtomicU64,
    largest: u64,
    tls: Option<Arc<ServerConfig>>,
}

#[derive(Debug, Default)]
struct FakeState {
    mails: Vec<ReceivedMail>,
    faults: Vec<InjectedFault>,
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, is_match: impl Fn(&InjectedFault) -> bool) -> Option<InjectedFault> {
        let mut state = self.lock();
        let index = state.faults.iter().position(is_match)?;
        Some(state.faults.remove(index))
    }
}

/// A server on a loopback port; it ends, sessions included, when it is dropped.
#[derive(Debug)]
pub struct FakeMailServer {
    shared: Arc<SharedState>,
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl FakeMailServer {
    /// Starts a server that accepts mails of at most `largest` bytes. With a TLS configuration it offers `STARTTLS` and
    /// refuses mails without it.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(largest: u64, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedState {
            state: Mutex::default(),
            received: AtomicU64::new(0),
            largest,
            tls,
        });
        let mut serving = JoinSet::new();
        let session_state = Arc::clone(&shared);
        serving.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                // Removes ended sessions, or the set would grow.
                while sessions.try_join_next().is_some() {}
                let shared = Arc::clone(&session_state);
                sessions.spawn(async move {
                    // Errors are ignored, because some tests break connections.
                    let _ = session::serve_connection(&shared, Box::new(socket)).await;
                });
            }
        });
        Ok(Self {
            shared,
            address,
            _serving: serving,
        })
    }

    /// Options of a sender that uses this server, without TLS.
    pub fn options(&self) -> EmailOptions {
        EmailOptions {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            security: ConnectionSecurity::None,
            username: USER_NAME.to_owned(),
            password: Secret::new(USER_PASSWORD),
            // The text is not ASCII, so that every test has an encoded word.
            from: format!("Бот <{SENDER_ADDRESS}>"),
            ..EmailOptions::default()
        }
    }

    /// Adds a fault. Each mail uses the first one that applies to it.
    pub fn script(&self, fault: InjectedFault) {
        self.shared.lock().faults.push(fault);
    }

    /// The mails to a recipient, oldest first.
    pub fn mails(&self, to: &str) -> Vec<ReceivedMail> {
        let state = self.shared.lock();
        let addressed = state
            .mails
            .iter()
            .filter(|mail| mail.to.iter().any(|recipient| recipient == to));
        addressed.cloned().collect()
    }

    /// Bytes of mails read until now.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }
}
