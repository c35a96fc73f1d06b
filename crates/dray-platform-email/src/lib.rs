//! E-mail, sent through a submission server (platform-delivery 8; SMTP, RFC 5321 and 6409), received from a mailbox
//! (IMAP, RFC 3501, 9051 and 2177).
//!
//! - [`EmailPlatform`]: one address, as [`Platform`] and [`InboundSource`].
//! - [`EmailOptions`]: what an operator sets about it.
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
use dray_content::caption::CaptionUnit;
use dray_platform::{
    ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget, DuplicateProtection, ErrorKind,
    InboundAttachment, InboundSink, InboundSource, OutgoingDelivery, Platform, PlatformError,
    RateLimits, SendRequest, SendStep, UploadProgress, WebhookReply, WebhookRequest, plan,
};
use dray_types::Clock;
use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

pub use options::{ConnectionSecurity, EmailOptions, InboxOptions, SenderVerification};

use address::MailSender;
use smtp::SmtpConnection;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "email";
/// Route of files.
const ATTACHMENT_ROUTE: &str = "attachment";

/// One sender address.
#[derive(Debug)]
pub struct EmailPlatform {
    options: EmailOptions,
    sender: MailSender,
    tls: Arc<ClientConfig>,
    clock: Clock,
    /// Largest mail by the server's own word, in bytes; 0 before it was asked, the largest number when it has no limit.
    told: AtomicU64,
    pauses: inbox::RetryDelays,
}

impl EmailPlatform {
    /// A sender.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for options that cannot be: no server, a sender that is not an address,
    /// a password over an open connection, authorities that cannot be read.
    pub fn new(options: EmailOptions, clock: Clock) -> Result<Self, PlatformError> {
        options.check()?;
        Ok(Self {
            sender: MailSender::parse(&options.from)?,
            tls: tls::tls_config(options.ca_file.as_deref())?,
            options,
            clock,
            told: AtomicU64::new(0),
            pauses: inbox::RetryDelays::default(),
        })
    }

    async fn open(&self) -> Result<SmtpConnection, PlatformError> {
        let connection = SmtpConnection::open(&self.options, &self.tls).await?;
        self.told
            .store(connection.largest().unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(connection)
    }
}

#[async_trait]
impl Platform for EmailPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Unknown
    }

    /// Servers tell none; these keep a mailbox usable.
    fn rates(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60,
            chat_per_minute: 20,
        }
    }

    /// The configured limit, and below it what the server announces with `SIZE` (RFC 1870).
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        address::checked_address(&target.chat)?;
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

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        plan::plan_attachments(delivery, limits, ATTACHMENT_ROUTE, CaptionUnit::Chars)
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let mail = mime::OutgoingMail::new(&self.options, &self.sender, send, self.clock.now_ms())?;
        let connection = self.open().await?;
        send::send_mail(connection, &self.options, &self.sender, &mail, progress).await?;
        let confirmed = |file, size| ConfirmedFile {
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
impl InboundSource for EmailPlatform {
    /// The platform makes no requests: a mailbox is polled.
    fn webhook(&self, _request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::Auth,
            "a mailbox posts nothing to us",
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
            pauses: self.pauses,
        };
        receiver.run(deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        let Some(inbox) = &self.options.inbox else {
            return Err(PlatformError::new(
                ErrorKind::NotFound,
                "there is no mailbox",
            ));
        };
        inbox::fetch_attachment(&self.options, inbox, &self.tls, attachment).await
    }
}
