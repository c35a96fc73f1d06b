//! Inbound mail: a mailbox that is polled, or that announces new mail where the server can.
//!
//! A mail is marked as seen only after its message was stored, so that other mails are found again. Mails that are not
//! accepted are also marked, and logged. The receiver has no other state: every mail without the mark is new.

mod auth;
mod bounce;
mod decode;
mod fetch;
pub(crate) mod mail;
pub(crate) mod options;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dray_platform::{ErrorKind, InboundSink, PlatformError, StatusUpdate};
use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

use crate::address::MailSender;
use crate::imap::structure::{self, BodyPart};
use crate::imap::value::ImapValue;
use crate::imap::{FetchedMail, ImapConnection};
use crate::options::EmailOptions;

pub(crate) use fetch::fetch_attachment;
use mail::{MailHead, MailLocation};
use options::InboxOptions;
use text::MAX_TEXT_BYTES;

/// Most bytes of a head that are read.
const MAX_HEAD_BYTES: u64 = 256 * 1024;
/// Attempts to read a mail before it is marked and ignored.
const MAX_ATTEMPTS: u32 = 5;

/// Delays after failures: the first one, and the limit of the doubled ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryDelays {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Default for RetryDelays {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_mins(1),
        }
    }
}

/// A receiver with the options that all of its connections share.
#[derive(Debug)]
pub(crate) struct MailReceiver<'a> {
    pub(crate) options: &'a EmailOptions,
    pub(crate) inbox: &'a InboxOptions,
    pub(crate) own: &'a MailSender,
    pub(crate) tls: &'a Arc<ClientConfig>,
    pub(crate) retry_delays: RetryDelays,
}

/// Mails that could not be read, by UID, each with the number of failures that the mail itself caused.
///
/// Each mail has its own count: with one count for the mailbox, two such mails would reset each other's, and later
/// mails would never be read.
#[derive(Debug, Default)]
struct FailedMails {
    /// The `UIDVALIDITY` that the UIDs belong to.
    validity: u64,
    failures: BTreeMap<u64, u32>,
}

impl FailedMails {
    /// Removes mails that were read meanwhile, and sorts failed ones after the others.
    fn sort(&mut self, validity: u64, new: &mut [u64]) {
        if self.validity != validity {
            self.validity = validity;
            self.failures.clear();
        }
        self.failures.retain(|uid, _| new.contains(uid));
        new.sort_by_key(|uid| self.failures.get(uid).copied());
    }

    fn count(&self, uid: u64) -> u32 {
        self.failures.get(&uid).copied().unwrap_or_default()
    }
}

impl MailReceiver<'_> {
    /// Receives until `stop`. Ends by itself only when the login is refused.
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let mut retry_delay = self.retry_delays.first;
        let mut failed = FailedMails::default();
        while !stop.is_cancelled() {
            // `connection` sets it after progress, so that the delay after the next failure is the first one again.
            let mut has_worked = false;
            let ended = self
                .connection(deliver, stop, &mut failed, &mut has_worked)
                .await;
            let Err(error) = ended else {
                // Without an error the connection ended because of `stop`.
                continue;
            };
            if error.kind() == ErrorKind::Auth {
                return Err(error);
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the mailbox cannot be read"
            );
            if has_worked {
                retry_delay = self.retry_delays.first;
            }
            tokio::select! {
                () = tokio::time::sleep(retry_delay) => {}
                () = stop.cancelled() => {}
            }
            retry_delay = (retry_delay * 2).min(self.retry_delays.longest);
        }
        Ok(())
    }

    /// Receives over one connection until it ends. `failed` outlives the connection, because a failure ends the
    /// connection.
    async fn connection(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
        failed: &mut FailedMails,
        has_worked: &mut bool,
    ) -> Result<(), PlatformError> {
        let opening = async {
            let mut connection = ImapConnection::open(self.options, self.inbox, self.tls).await?;
            // The mailbox is opened to mark mails.
            let validity = connection.select(&self.inbox.mailbox, true).await?;
            Ok::<_, PlatformError>((connection, validity))
        };
        let (mut connection, validity) = tokio::select! {
            opened = opening => opened?,
            () = stop.cancelled() => return Ok(()),
        };
        while !stop.is_cancelled() {
            // `UNDELETED`: a mail that another client is about to remove is ignored.
            let mut new = connection.search("UNSEEN UNDELETED").await?;
            // A mail that failed does not block the others.
            failed.sort(validity, &mut new);
            for uid in new {
                if stop.is_cancelled() {
                    break;
                }
                let location = MailLocation { validity, uid };
                // A started mail is stored completely even if the receiver should stop.
                self.receive_mail(&mut connection, location, deliver, failed)
                    .await?;
                *has_worked = true;
            }
            *has_worked = true;
            // New mail was announced while the mails above were read: `IDLE` would not announce it again.
            if connection.has_new_mail {
                continue;
            }
            tokio::select! {
                waited = self.wait(&mut connection) => waited?,
                () = stop.cancelled() => {}
            }
        }
        connection.logout().await;
        Ok(())
    }

    async fn wait(&self, connection: &mut ImapConnection) -> Result<(), PlatformError> {
        if connection.offers("IDLE") {
            return connection.wait(self.inbox.idle_wait.as_duration()).await;
        }
        // Without `IDLE` the next search finds new mail.
        tokio::time::sleep(self.inbox.poll_wait.as_duration()).await;
        Ok(())
    }

    /// Stores one mail or logs why it is not accepted, and marks it.
    async fn receive_mail(
        &self,
        connection: &mut ImapConnection,
        location: MailLocation,
        deliver: &dyn InboundSink,
        failed: &mut FailedMails,
    ) -> Result<(), PlatformError> {
        let attempts = failed.count(location.uid);
        if attempts >= MAX_ATTEMPTS {
            tracing::error!(
                uid = location.uid,
                "could not read a mail, which stays in the mailbox"
            );
            // The mail is marked, because every search would find it again. Its content stays in the mailbox.
            return mark_seen(connection, location.uid).await;
        }
        // Only failures to read the mail count: a message that cannot be stored is not the fault of the mail.
        let read = self
            .read_mail(connection, location)
            .await
            .inspect_err(|error| {
                // A broken connection is not a fault of the mail.
                let is_mail_fault = error.kind() != ErrorKind::Transient;
                failed
                    .failures
                    .insert(location.uid, attempts + u32::from(is_mail_fault));
            })?;
        // From here on, failures are not caused by the mail.
        failed.failures.remove(&location.uid);
        match read {
            // Another client removed the mail since the search.
            MailOutcome::Removed => return Ok(()),
            MailOutcome::Refused(reason) => {
                tracing::info!(uid = location.uid, reason, "skipped a mail");
            }
            MailOutcome::Accepted(message) => deliver.message(*message).await?,
            MailOutcome::Bounced(update) => deliver.status(update).await?,
        }
        mark_seen(connection, location.uid).await
    }

    async fn read_mail(
        &self,
        connection: &mut ImapConnection,
        location: MailLocation,
    ) -> Result<MailOutcome, PlatformError> {
        // `PEEK` does not set `\Seen`; the mark follows when the message is stored.
        let what = format!("(UID RFC822.SIZE BODY.PEEK[HEADER]<0.{MAX_HEAD_BYTES}>)");
        let Some(fetched) = connection.fetch(location.uid, &what).await? else {
            return Ok(MailOutcome::Removed);
        };
        let head = fetched.body("HEADER").unwrap_or_default();
        if bounce::is_report(head) {
            return read_report(connection, location.uid).await;
        }
        let head = match MailHead::read(self.inbox, self.own, head) {
            Ok(head) => head,
            Err(reason) => return Ok(MailOutcome::Refused(reason)),
        };
        let octets = fetched.find("RFC822.SIZE").and_then(ImapValue::number);
        // The parts are requested after the head, so that a mail that is not accepted needs no further request.
        let parts = match connection
            .fetch(location.uid, "(UID BODYSTRUCTURE)")
            .await?
        {
            Some(fetched) => reported_parts(&fetched),
            None => return Ok(MailOutcome::Removed),
        };
        let mail_text = self
            .part_text(connection, location.uid, parts.as_deref())
            .await?;
        let message = head.message(
            self.inbox,
            location,
            &mail_text,
            (parts.as_deref(), octets.unwrap_or_default()),
        );
        Ok(MailOutcome::Accepted(Box::new(message)))
    }

    /// The text of the mail: its text parts in their order, one of several alternatives.
    async fn part_text(
        &self,
        connection: &mut ImapConnection,
        uid: u64,
        parts: Option<&[BodyPart]>,
    ) -> Result<String, PlatformError> {
        let mut mail_text = String::new();
        let parts = parts.unwrap_or_default();
        for part in text::read_texts(parts) {
            let section = &part.section;
            let items = format!("(UID BODY.PEEK[{section}]<0.{MAX_TEXT_BYTES}>)");
            let fetched = connection.fetch(uid, &items).await?;
            let body = fetched.as_ref().and_then(|fetched| fetched.body(section));
            let part_text = text::part_text(part, body.unwrap_or_default());
            if !mail_text.is_empty() && !part_text.trim().is_empty() {
                mail_text.push('\n');
            }
            mail_text.push_str(part_text.trim_end());
        }
        if text::has_further_texts(parts) {
            mail_text.push_str("\n[Further texts are attached.]");
        }
        Ok(mail_text)
    }
}

/// The result of reading a mail.
enum MailOutcome {
    /// Another client removed it.
    Removed,
    /// The mail is not accepted, for this reason.
    Refused(&'static str),
    Accepted(Box<dray_platform::InboundMessage>),
    /// A mail of this account could not be delivered.
    Bounced(StatusUpdate),
}

/// Reads a report about the delivery of a mail.
async fn read_report(
    connection: &mut ImapConnection,
    uid: u64,
) -> Result<MailOutcome, PlatformError> {
    let without_failure = || MailOutcome::Refused("the report names no mail that failed");
    let Some(fetched) = connection.fetch(uid, "(UID BODYSTRUCTURE)").await? else {
        return Ok(MailOutcome::Removed);
    };
    let parts = reported_parts(&fetched).unwrap_or_default();
    let Some((outcome, mail)) = bounce::report_parts(&parts) else {
        return Ok(without_failure());
    };
    let peek =
        |part: &BodyPart| format!("BODY.PEEK[{}]<0.{}>", part.section, bounce::MAX_PART_BYTES);
    let items = format!("(UID {} {})", peek(outcome), peek(mail));
    let Some(fetched) = connection.fetch(uid, &items).await? else {
        return Ok(MailOutcome::Removed);
    };
    let content = |part: &BodyPart| {
        let bytes = fetched.body(&part.section).unwrap_or_default();
        bounce::decoded(part, bytes)
    };
    let failure = bounce::reported_failure(&content(outcome), &content(mail));
    Ok(failure.map_or_else(without_failure, MailOutcome::Bounced))
}

fn reported_parts(fetched: &FetchedMail) -> Option<Vec<BodyPart>> {
    structure::body_parts(fetched.find("BODYSTRUCTURE")?)
}

async fn mark_seen(connection: &mut ImapConnection, uid: u64) -> Result<(), PlatformError> {
    // `SILENT`: the new flags are known.
    let command = format!("UID STORE {uid} +FLAGS.SILENT (\\Seen)");
    connection.command(&command).await.map(drop)
}
