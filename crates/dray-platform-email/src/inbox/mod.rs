//! The way in: a mailbox that is polled, and notifies of new mail where the server does that.
//!
//! A mail is marked as seen only when its message is stored, so that what was not stored is found again. Mails
//! that are not taken are marked too, and logged. No state is kept here: what is not marked is new.

mod auth;
mod decode;
mod fetch;
pub(crate) mod mail;
pub(crate) mod options;

use std::sync::Arc;
use std::time::Duration;

use dray_platform::{ErrorKind, InboundSink, PlatformError};
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

/// Most bytes of a head, and of the words of a mail, that are read.
const MAX_HEAD_BYTES: u64 = 256 * 1024;
const MAX_TEXT_BYTES: u64 = 128 * 1024;
/// Most parts of words that are put together.
const MAX_TEXT_PARTS: usize = 5;
/// How often a mail that cannot be read is tried.
const MAX_ATTEMPTS: u32 = 5;

/// Waits after failures: the first, and the longest of those that double.
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

/// What a receiver works with.
#[derive(Debug)]
pub(crate) struct MailReceiver<'a> {
    pub(crate) options: &'a EmailOptions,
    pub(crate) inbox: &'a InboxOptions,
    pub(crate) own: &'a MailSender,
    pub(crate) tls: &'a Arc<ClientConfig>,
    pub(crate) pauses: RetryDelays,
}

/// A mail that failed, and how often.
type Stuck = Option<(u64, u32)>;

impl MailReceiver<'_> {
    /// Receives until `stop`. Ends by itself only when the login is refused.
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let mut pause = self.pauses.first;
        let mut stuck = None;
        while !stop.is_cancelled() {
            let mut has_worked = false;
            let ended = self
                .connection(deliver, stop, &mut stuck, &mut has_worked)
                .await;
            let Err(error) = ended else {
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
                pause = self.pauses.first;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            pause = (pause * 2).min(self.pauses.longest);
        }
        Ok(())
    }

    /// One connection, up to its end.
    async fn connection(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
        stuck: &mut Stuck,
        has_worked: &mut bool,
    ) -> Result<(), PlatformError> {
        let opening = async {
            let mut connection = ImapConnection::open(self.options, self.inbox, self.tls).await?;
            let validity = connection.select(&self.inbox.mailbox, true).await?;
            Ok::<_, PlatformError>((connection, validity))
        };
        let (mut connection, validity) = tokio::select! {
            opened = opening => opened?,
            () = stop.cancelled() => return Ok(()),
        };
        while !stop.is_cancelled() {
            let mut new = connection.search("UNSEEN UNDELETED").await?;
            // A mail that failed does not hold up the others.
            new.sort_by_key(|uid| stuck.is_some_and(|(stuck, _)| stuck == *uid));
            for uid in new {
                if stop.is_cancelled() {
                    break;
                }
                let place = MailLocation { validity, uid };
                // What was begun is stored to the end even when we are to stop.
                self.one(&mut connection, place, deliver, stuck).await?;
                *has_worked = true;
            }
            *has_worked = true;
            if connection.has_news {
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
        tokio::time::sleep(self.inbox.poll_wait.as_duration()).await;
        Ok(())
    }

    /// Takes one mail, or says why not, and marks it.
    async fn one(
        &self,
        connection: &mut ImapConnection,
        place: MailLocation,
        deliver: &dyn InboundSink,
        stuck: &mut Stuck,
    ) -> Result<(), PlatformError> {
        let tries = match stuck {
            Some((uid, tries)) if *uid == place.uid => *tries,
            _ => 0,
        };
        if tries >= MAX_ATTEMPTS {
            tracing::error!(
                uid = place.uid,
                "a mail cannot be read and is left as it is"
            );
            return mark_seen(connection, place.uid).await;
        }
        let read = self.read(connection, place).await.inspect_err(|error| {
            // A connection that breaks says nothing against the mail.
            let counts = error.kind() != ErrorKind::Transient;
            *stuck = Some((place.uid, tries + u32::from(counts)));
        })?;
        // From here on nothing is wrong with the mail itself.
        *stuck = None;
        match read {
            MailOutcome::Gone => return Ok(()),
            MailOutcome::Refused(why) => {
                tracing::info!(uid = place.uid, why, "a mail is not taken")
            }
            MailOutcome::Taken(message) => deliver.message(*message).await?,
        }
        mark_seen(connection, place.uid).await
    }

    async fn read(
        &self,
        connection: &mut ImapConnection,
        place: MailLocation,
    ) -> Result<MailOutcome, PlatformError> {
        let what = format!("(UID RFC822.SIZE BODY.PEEK[HEADER]<0.{MAX_HEAD_BYTES}>)");
        let Some(told) = connection.fetch(place.uid, &what).await? else {
            return Ok(MailOutcome::Gone);
        };
        let head = told.body("HEADER").unwrap_or_default();
        let head = match MailHead::read(self.inbox, self.own, head) {
            Ok(head) => head,
            Err(why) => return Ok(MailOutcome::Refused(why)),
        };
        let octets = told.find("RFC822.SIZE").and_then(ImapValue::number);
        let parts = match connection.fetch(place.uid, "(UID BODYSTRUCTURE)").await? {
            Some(told) => reported_parts(&told),
            None => return Ok(MailOutcome::Gone),
        };
        let words = self.words(connection, place.uid, parts.as_deref()).await?;
        let message = head.message(
            self.inbox,
            place,
            &words,
            (parts.as_deref(), octets.unwrap_or_default()),
        );
        Ok(MailOutcome::Taken(Box::new(message)))
    }

    /// What the mail says: its plain words, or those of its markup where there are none.
    async fn words(
        &self,
        connection: &mut ImapConnection,
        uid: u64,
        parts: Option<&[BodyPart]>,
    ) -> Result<String, PlatformError> {
        let of = |media_type: &'static str| {
            let parts = parts.unwrap_or_default().iter();
            parts.filter(move |part| part.is_words() && part.media_type == media_type)
        };
        let mut wanted: Vec<&BodyPart> = of("text/plain").take(MAX_TEXT_PARTS).collect();
        if wanted.is_empty() {
            wanted.extend(of("text/html").take(1));
        }
        let mut all = String::new();
        for part in wanted {
            let section = &part.section;
            let what = format!("(UID BODY.PEEK[{section}]<0.{MAX_TEXT_BYTES}>)");
            let told = connection.fetch(uid, &what).await?;
            let body = told.as_ref().and_then(|told| told.body(section));
            let words = mail::part_text(part, body.unwrap_or_default());
            if !all.is_empty() && !words.trim().is_empty() {
                all.push('\n');
            }
            all.push_str(words.trim_end());
        }
        Ok(all)
    }
}

/// What came of a mail.
enum MailOutcome {
    /// It was removed.
    Gone,
    /// It is not taken, and why.
    Refused(&'static str),
    Taken(Box<dray_platform::InboundMessage>),
}

fn reported_parts(told: &FetchedMail) -> Option<Vec<BodyPart>> {
    structure::body_parts(told.find("BODYSTRUCTURE")?)
}

async fn mark_seen(connection: &mut ImapConnection, uid: u64) -> Result<(), PlatformError> {
    let command = format!("UID STORE {uid} +FLAGS.SILENT (\\Seen)");
    connection.command(&command).await.map(drop)
}
