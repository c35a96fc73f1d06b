//! E-mail, sent through a submission server (platform-delivery 8; SMTP, RFC 5321 and 6409), received from a mailbox
//! (IMAP, RFC 3501, 9051 and 2177).
//!
//! - [`EmailPlatform`]: one address, as [`Platform`] and [`InboundSource`].
//! - [`EmailOptions`]: its configuration.
//! - `fake_server` (feature `fake-server`): a server with the same protocol, for tests and the demo.
//!
//! What it does not do: it never repeats a mail whose response was lost, and never removes a mail from the mailbox.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_email::{EmailOptions, EmailPlatform};
//! use dray_types::Clock;
//!
//! let options = EmailOptions {
//!     host: "smtp.example.org".to_owned(),
//!     from: "Bot <bot@example.org>".to_owned(),
//!     ..EmailOptions::default()
//! };
//! let sender = EmailPlatform::new(options, Clock::system())?;
//! assert_eq!(sender.name(), "email");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod address;
mod connection;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod hex_escape;
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
use dray_platform::{
    AccountCheck, AccountOptions, ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget,
    DuplicateProtection, ErrorKind, FilePermission, InboundAttachment, InboundSink, InboundSource,
    OutgoingDelivery, Platform, PlatformError, RateLimits, Route, SendRequest, SendStep,
    UploadProgress, WebhookReply, WebhookRequest, plan,
};
use dray_presentation::caption::CaptionUnit;
use dray_types::Clock;
use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

pub use options::{ConnectionSecurity, EmailOptions, InboxOptions, SenderVerification};

use address::MailSender;
use smtp::SmtpConnection;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "email";
/// Route of files.
const ATTACHMENT_ROUTE: Route = Route::Attachment;

/// One sender address at one server, and its mailbox where the options name one.
#[derive(Debug)]
pub struct EmailPlatform {
    options: EmailOptions,
    sender: MailSender,
    tls: Arc<ClientConfig>,
    clock: Clock,
    /// Largest mail that the server announced, in bytes; 0 before the first connection, the largest number for no
    /// limit.
    announced_limit: AtomicU64,
    retry_delays: inbox::RetryDelays,
}

impl EmailPlatform {
    /// A sender with these options. Opens no connection.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for invalid options: a missing server, a sender that is not an
    /// address, a password over an open connection, certificate authorities that cannot be read.
    pub fn new(options: EmailOptions, clock: Clock) -> Result<Self, PlatformError> {
        options.check()?;
        Ok(Self {
            sender: MailSender::parse(&options.from)?,
            tls: tls::tls_config(options.ca_file.as_deref())?,
            options,
            clock,
            announced_limit: AtomicU64::new(0),
            retry_delays: inbox::RetryDelays::default(),
        })
    }

    async fn open(&self) -> Result<SmtpConnection, PlatformError> {
        let connection = SmtpConnection::open(&self.options, &self.tls).await?;
        // Every connection refreshes it, because an operator of the server may change it.
        self.announced_limit.store(
            connection.max_mail_bytes().unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        Ok(connection)
    }
}

impl AccountOptions for EmailOptions {
    type Account = EmailPlatform;

    fn open_account(&self, _account: &str, clock: &Clock) -> Result<EmailPlatform, PlatformError> {
        EmailPlatform::new(self.clone(), clock.clone())
    }
}

#[async_trait]
impl Platform for EmailPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // A server may deliver two mails with one `Message-ID`, so sending again is not safe.
        DuplicateProtection::Unknown
    }

    /// Servers announce no limits of rates; these keep a mailbox usable.
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60,
            chat_per_minute: 20,
        }
    }

    /// Logs in, and names the sender in a transaction that is reset, so that no mail is sent (RFC 5321, 4.1.1.5).
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let mut connection = self.open().await?;
        let sender = &self.sender.address;
        let files = match send::check_sender(&mut connection, sender).await {
            Ok(()) => FilePermission::Allowed,
            Err(error) if error.kind() == ErrorKind::Transient => return Err(error),
            // The login works, but the server does not let it use this address.
            Err(_) => {
                FilePermission::Denied("the server refuses the address of the sender".to_owned())
            }
        };
        connection.quit().await;
        let limit = self.announced_limit.load(Ordering::Relaxed);
        let limits = self.options.limits(limit);
        Ok(AccountCheck::accepted(sender.clone(), files).with_limits(limits))
    }

    /// The configured limit, or the one that the server announces with `SIZE` (RFC 1870) where that is smaller.
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        address::checked_address(&target.chat)?;
        if self.announced_limit.load(Ordering::Relaxed) == 0 {
            match self.open().await {
                Ok(connection) => connection.quit().await,
                // The server may be reachable when the mail is sent, so this delivery does not fail here.
                Err(error) => {
                    tracing::debug!(%error, "the server's limit is unknown; using the configured one");
                }
            }
        }
        Ok(self
            .options
            .limits(self.announced_limit.load(Ordering::Relaxed)))
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        plan::plan_attachments(delivery, limits, ATTACHMENT_ROUTE, CaptionUnit::Chars)
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        // The mail is built before connecting: an invalid target costs no connection.
        let mail = mime::OutgoingMail::new(&self.options, &self.sender, send, self.clock.now_ms())?;
        let connection = self.open().await?;
        send::send_mail(connection, &self.options, &self.sender, &mail, progress).await?;
        let confirmed = |file, size| ConfirmedFile {
            file,
            message_id: mail.id.clone(),
            file_id: String::new(),
            size,
            route: send.step.route(),
            // A bounce that arrives in the mailbox corrects it.
            provisional: self.options.inbox.is_some(),
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
impl InboundSource for EmailPlatform {
    /// Always refused: a mailbox is polled.
    fn webhook(&self, _request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::Auth,
            "a mailbox sends no webhooks",
        ))
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        let Some(inbox) = &self.options.inbox else {
            return Ok(());
        };
        let receiver = inbox::MailReceiver {
            options: &self.options,
            inbox,
            own: &self.sender,
            tls: &self.tls,
            retry_delays: self.retry_delays,
        };
        receiver.run(deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        let Some(inbox) = &self.options.inbox else {
            return Err(PlatformError::new(
                ErrorKind::NotFound,
                "no mailbox is configured",
            ));
        };
        inbox::fetch_attachment(&self.options, inbox, &self.tls, attachment).await
    }
}
