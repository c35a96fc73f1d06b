//! E-mail, sent through a submission server (platform-delivery 8; SMTP, RFC 5321 and 6409), received from a mailbox
//! (IMAP, RFC 3501, 9051 and 2177).
//!
//! - [`Email`]: one address, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about it.
//! - `double` (feature `double`): a server that speaks the same wire, for tests and the demo.
//!
//! What it does not do: it never sends a mail again whose answer was lost, and never removes a mail.

mod address;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod imap;
mod inbox;
mod mime;
mod options;
mod reply;
mod send;
mod smtp;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Deliver, Delivery, Error, ErrorKind, InboundAttachment,
    Inbox, Limits, Platform, Progress, Rates, Send, Step, Target, WebhookReply, WebhookRequest,
    plan,
};
use dray_types::Clock;
use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

pub use options::{InboxOptions, Options, Security, Verify};

use address::Sender;
use smtp::Connection;

/// The platform's name in targets.
const NAME: &str = "email";
/// Route of files.
const ATTACHMENT: &str = "attachment";

/// One sender address.
#[derive(Debug)]
pub struct Email {
    options: Options,
    sender: Sender,
    tls: Arc<ClientConfig>,
    clock: Clock,
    /// Largest mail by the server's own word, in bytes; 0 before it was asked, the largest number when it has no limit.
    told: AtomicU64,
    pauses: inbox::Pauses,
}

impl Email {
    /// A sender.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for options that cannot be: no server, a sender that is not an address,
    /// a password over an open connection, authorities that cannot be read.
    pub fn new(options: Options, clock: Clock) -> Result<Self, Error> {
        options.check()?;
        Ok(Self {
            sender: Sender::parse(&options.from)?,
            tls: tls::config(options.ca_file.as_deref())?,
            options,
            clock,
            told: AtomicU64::new(0),
            pauses: inbox::Pauses::default(),
        })
    }

    async fn open(&self) -> Result<Connection, Error> {
        let connection = Connection::open(&self.options, &self.tls).await?;
        self.told
            .store(connection.largest().unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(connection)
    }
}

#[async_trait]
impl Platform for Email {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::Unknown
    }

    /// Servers tell none; these keep a mailbox usable.
    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 60,
            chat_per_minute: 20,
        }
    }

    /// The configured limit, and below it what the server announces with `SIZE` (RFC 1870).
    async fn limits(&self, target: &Target) -> Result<Limits, Error> {
        address::checked(&target.chat)?;
        if self.told.load(Ordering::Relaxed) == 0 {
            match self.open().await {
                Ok(connection) => connection.quit().await,
                Err(error) => {
                    tracing::debug!(%error, "the server's limit is unknown; the configured one holds");
                }
            }
        }
        Ok(self.options.limits(self.told.load(Ordering::Relaxed)))
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        plan::attachments(delivery, limits, ATTACHMENT, Unit::Chars)
    }

    async fn send(&self, send: Send<'_>, progress: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        let mail = mime::Mail::new(&self.options, &self.sender, send, self.clock.now_ms())?;
        let connection = self.open().await?;
        send::send(connection, &self.options, &self.sender, &mail, progress).await?;
        let confirmed = |file, size| Confirmed {
            file,
            message_id: mail.id.clone(),
            file_id: String::new(),
            size,
            route: send.step.route().to_owned(),
            provisional: false,
        };
        if send.step.files().is_empty() {
            return Ok(vec![confirmed(None, None)]);
        }
        let files = plan::files_of(send.delivery, send.step);
        Ok(files
            .map(|(index, file)| confirmed(Some(index), Some(file.size)))
            .collect())
    }
}

#[async_trait]
impl Inbox for Email {
    /// The platform makes no requests: a mailbox is polled.
    fn webhook(&self, _request: &WebhookRequest) -> Result<WebhookReply, Error> {
        Err(Error::new(ErrorKind::Auth, "a mailbox posts nothing to us"))
    }

    async fn poll(&self, deliver: &dyn Deliver, stop: CancellationToken) -> Result<(), Error> {
        let Some(inbox) = &self.options.inbox else {
            return Ok(());
        };
        let receiver = inbox::Receiver {
            options: &self.options,
            inbox,
            own: &self.sender,
            tls: &self.tls,
            pauses: self.pauses,
        };
        receiver.run(deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        let Some(inbox) = &self.options.inbox else {
            return Err(Error::new(ErrorKind::NotFound, "there is no mailbox"));
        };
        inbox::fetch(&self.options, inbox, &self.tls, attachment).await
    }
}
