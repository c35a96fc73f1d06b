//! A mail with its attachments, as pieces of known length (RFC 5322, 2045, 2046).
//!
//! Everything but headers and boundaries is in base64, so that no line begins with a dot and none is long.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_content::name;
use dray_platform::{ErrorKind, OutgoingFile, PlatformError, SendRequest, plan};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::address::{self, MailSender};
use crate::inbox::mail;
use crate::options::EmailOptions;

/// Bytes in one line of base64.
const BASE64_LINE_BYTES: usize = 57;

/// One piece of a mail.
#[derive(Debug)]
pub(crate) enum MailChunk<'a> {
    /// As it is.
    Text(String),
    /// A file, to be encoded while it is read.
    File(&'a OutgoingFile),
}

/// A mail.
#[derive(Debug)]
pub(crate) struct OutgoingMail<'a> {
    /// `Message-ID`, with its brackets: the same for the same key.
    pub(crate) id: String,
    /// Address of the recipient.
    pub(crate) to: &'a str,
    /// What it consists of.
    pub(crate) pieces: Vec<MailChunk<'a>>,
}

impl<'a> OutgoingMail<'a> {
    /// Puts a step into a mail. `now` is in Unix milliseconds.
    pub(crate) fn new(
        options: &EmailOptions,
        sender: &MailSender,
        send: SendRequest<'a>,
        now: u64,
    ) -> Result<Self, PlatformError> {
        let to = address::checked_address(&send.delivery.target.chat)?;
        let id = address::message_id(&format!("{}@{}", send.key, sender.domain()))?;
        let mut head = format!(
            "Date: {}\r\nFrom: {}\r\nTo: {to}\r\nMessage-ID: {id}\r\n",
            header_date(now)?,
            sender.header,
        );
        let answered = write_thread(send, sender, &mut head)?;
        let subject = if answered {
            format!("Re: {}", options.subject)
        } else {
            options.subject.clone()
        };
        append_text(
            &mut head,
            format_args!(
                "Subject: {}\r\nMIME-Version: 1.0\r\nAuto-Submitted: auto-generated\r\n",
                address::header_words(&subject)
            ),
        );
        let mut pieces = Vec::new();
        if send.step.files().is_empty() {
            head.push_str(&text_part(send.step.text()));
        } else {
            let boundary = format!("dray-{}", send.key);
            append_text(
                &mut head,
                format_args!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n"),
            );
            if !send.step.text().is_empty() {
                append_text(
                    &mut head,
                    format_args!("--{boundary}\r\n{}\r\n", text_part(send.step.text())),
                );
            }
            for (_, file) in plan::files_of(send.delivery, send.step) {
                append_text(
                    &mut head,
                    format_args!("--{boundary}\r\n{}", attachment_headers(file)),
                );
                pieces.push(MailChunk::Text(std::mem::take(&mut head)));
                pieces.push(MailChunk::File(file));
                head.push_str("\r\n");
            }
            append_text(&mut head, format_args!("--{boundary}--\r\n"));
        }
        pieces.push(MailChunk::Text(head));
        Ok(Self { id, to, pieces })
    }

    /// Its exact length on the wire, in bytes, without the dot that ends it.
    pub(crate) fn length(&self) -> u64 {
        let lengths = self.pieces.iter().map(|piece| match piece {
            MailChunk::Text(text) => text.len() as u64,
            MailChunk::File(file) => {
                let characters = file.size.div_ceil(3) * 4;
                characters + 2 * characters.div_ceil(76)
            }
        });
        lengths.sum()
    }
}

fn header_date(now: u64) -> Result<String, PlatformError> {
    let wrong = || PlatformError::new(ErrorKind::Unknown, "the time is none");
    let now = i64::try_from(now).map_err(|_| wrong())?;
    let now = Timestamp::from_millisecond(now).map_err(|cause| wrong().caused_by(cause))?;
    jiff::fmt::rfc2822::to_string(&now.to_zoned(TimeZone::UTC))
        .map_err(|cause| wrong().caused_by(cause))
}

/// Adds to a string, which cannot fail.
fn append_text(text: &mut String, more: fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

/// Adds what it answers and which thread it belongs to; whether it does. A thread `+tag` is named by the address that
/// answers go to.
fn write_thread(
    send: SendRequest<'_>,
    sender: &MailSender,
    head: &mut String,
) -> Result<bool, PlatformError> {
    let target = &send.delivery.target;
    let mut thread = target.thread.as_str();
    if let Some(tag) = thread.strip_prefix('+') {
        let local = sender
            .address
            .split_once('@')
            .map_or("", |(local, _)| local);
        let address = format!("{local}+{tag}@{}", sender.domain());
        if !mail::is_tag(tag) || address::checked_address(&address).is_err() {
            return Err(PlatformError::new(ErrorKind::NoThread, "this is no tag"));
        }
        append_text(head, format_args!("Reply-To: {address}\r\n"));
        thread = "";
    }
    let mut known = Vec::new();
    for id in [thread, target.reply_to.as_str()] {
        if !id.is_empty() {
            known.push(address::message_id(id)?);
        }
    }
    known.dedup();
    let Some(last) = known.last() else {
        return Ok(false);
    };
    append_text(
        head,
        format_args!(
            "In-Reply-To: {last}\r\nReferences: {}\r\n",
            known.join("\r\n ")
        ),
    );
    Ok(true)
}

/// Headers and body of a text.
fn text_part(text: &str) -> String {
    let canonical = text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut encoder = Base64LineEncoder::default();
    let mut body = encoder.push(canonical.as_bytes());
    body.push_str(&encoder.finish());
    format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{body}"
    )
}

/// Headers of an attachment, with the name in the form of RFC 2231.
fn attachment_headers(file: &OutgoingFile) -> String {
    let disposition = name::attachment_disposition(&name::clean_name(&file.name));
    // Readers of mail take the plain form where there are both, and show the wrong name.
    let called = match disposition.rsplit_once("; filename*=") {
        Some((_, extended)) => format!("attachment;\r\n filename*={extended}"),
        None => disposition.replacen("; ", ";\r\n ", 1),
    };
    format!(
        "Content-Type: {}\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: {called}\r\n\r\n",
        file.detected.media_type
    )
}

/// Base64 in lines of 76 characters, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Base64LineEncoder {
    rest: Vec<u8>,
}

impl Base64LineEncoder {
    /// All whole lines that there are now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / BASE64_LINE_BYTES * BASE64_LINE_BYTES;
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        encode_base64(&lines)
    }

    /// The last line.
    pub(crate) fn finish(&mut self) -> String {
        encode_base64(&std::mem::take(&mut self.rest))
    }
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len() * 4 / 3 + bytes.len() / 28 + 8);
    for line in bytes.chunks(BASE64_LINE_BYTES) {
        STANDARD.encode_string(line, &mut encoded);
        encoded.push_str("\r\n");
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let whole = encode_base64(&bytes);
        assert!(whole.lines().all(|line| line.len() <= 76));
        for size in [1, 2, 56, 57, 58, 999, 1000] {
            let mut encoder = Base64LineEncoder::default();
            let mut pieces: String = bytes
                .chunks(size)
                .map(|piece| encoder.push(piece))
                .collect();
            pieces.push_str(&encoder.finish());
            assert_eq!(pieces, whole, "{size}");
        }
        let joined: String = whole.lines().collect();
        assert_eq!(STANDARD.decode(joined).unwrap(), bytes);
    }

    #[test]
    fn dates_are_those_of_mails() {
        assert_eq!(
            header_date(1_700_000_000_000).unwrap(),
            "Tue, 14 Nov 2023 22:13:20 +0000"
        );
        assert!(header_date(u64::MAX).is_err());
    }
}
