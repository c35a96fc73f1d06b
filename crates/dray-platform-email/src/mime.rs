//! A mail with its attachments, as chunks of known length (RFC 5322, 2045, 2046).
//!
//! All content is base64, except headers and boundaries, so no line begins with a dot, and none is too long.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_platform::{ErrorKind, OutgoingFile, PlatformError, SendRequest, plan};
use dray_presentation::name;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::address::{self, MailSender};
use crate::inbox::mail;
use crate::options::EmailOptions;

/// Bytes in one line of base64: 76 characters (RFC 2045, 6.8).
const BASE64_LINE_BYTES: usize = 57;

/// A piece of a mail in the order in which it is written.
#[derive(Debug)]
pub(crate) enum MailChunk<'a> {
    /// Headers, boundaries or encoded text, written unchanged.
    Text(String),
    /// A file, to be encoded while it is read.
    File(&'a OutgoingFile),
}

/// A mail, ready to be written. Files are not open yet.
#[derive(Debug)]
pub(crate) struct OutgoingMail<'a> {
    /// `Message-ID`, with its brackets. Equal keys result in equal ids.
    pub(crate) id: String,
    /// Address of the recipient.
    pub(crate) to: &'a str,
    /// The chunks of the mail in their order.
    pub(crate) chunks: Vec<MailChunk<'a>>,
}

impl<'a> OutgoingMail<'a> {
    /// Makes the mail of a step. `now` is in Unix milliseconds.
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
        let is_reply = write_thread(send, sender, &mut head)?;
        let subject = if is_reply {
            format!("Re: {}", options.subject)
        } else {
            options.subject.clone()
        };
        append_text(
            &mut head,
            format_args!(
                // RFC 3834: with this header, automatic responders do not respond.
                "Subject: {}\r\nMIME-Version: 1.0\r\nAuto-Submitted: auto-generated\r\n",
                address::header_words(&subject)
            ),
        );
        let mut chunks = Vec::new();
        if send.step.files().is_empty() {
            head.push_str(&text_part(send.step.text()));
        } else {
            // Base64 has no dashes, so no content can contain the boundary.
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
                chunks.push(MailChunk::Text(std::mem::take(&mut head)));
                chunks.push(MailChunk::File(file));
                // The line end before a boundary belongs to the boundary (RFC 2046, 5.1.1).
                head.push_str("\r\n");
            }
            append_text(&mut head, format_args!("--{boundary}--\r\n"));
        }
        chunks.push(MailChunk::Text(head));
        Ok(Self { id, to, chunks })
    }

    /// The mail's exact length on the wire, in bytes, without the dot that ends it. It is announced before a byte is
    /// written.
    pub(crate) fn length(&self) -> u64 {
        let lengths = self.chunks.iter().map(|chunk| match chunk {
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
    let time_out_of_range = || PlatformError::new(ErrorKind::Unknown, "the time is out of range");
    let now = i64::try_from(now).map_err(|_| time_out_of_range())?;
    let now =
        Timestamp::from_millisecond(now).map_err(|cause| time_out_of_range().caused_by(cause))?;
    jiff::fmt::rfc2822::to_string(&now.to_zoned(TimeZone::UTC))
        .map_err(|cause| time_out_of_range().caused_by(cause))
}

/// Appends formatted text. Writing to a string cannot fail.
fn append_text(text: &mut String, more: fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

/// Adds the headers of a reply and of its thread; returns whether the mail is a reply. A thread `+tag` becomes the
/// address to which replies go.
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
        // The complete address is checked: with a tag, the local part may become too long.
        if !mail::is_tag(tag) || address::checked_address(&address).is_err() {
            return Err(PlatformError::new(
                ErrorKind::NoThread,
                "not a conversation tag",
            ));
        }
        append_text(head, format_args!("Reply-To: {address}\r\n"));
        thread = "";
    }
    let mut thread_ids = Vec::new();
    for id in [thread, target.reply_to.as_str()] {
        if !id.is_empty() {
            thread_ids.push(address::message_id(id)?);
        }
    }
    // Otherwise a reply to the first mail of a thread would list that mail twice.
    thread_ids.dedup();
    let Some(last) = thread_ids.last() else {
        return Ok(false);
    };
    append_text(
        head,
        format_args!(
            "In-Reply-To: {last}\r\nReferences: {}\r\n",
            thread_ids.join("\r\n ")
        ),
    );
    Ok(true)
}

/// Headers and body of a text part.
fn text_part(text: &str) -> String {
    // Base64 keeps line ends as they are, and text in mail has CRLF (RFC 2045, 6.8).
    let canonical = text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut encoder = Base64LineEncoder::default();
    let mut body = encoder.push(canonical.as_bytes());
    body.push_str(&encoder.finish());
    format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{body}"
    )
}

/// Headers of an attachment, with its name in the form of RFC 2231.
fn attachment_headers(file: &OutgoingFile) -> String {
    let disposition = name::attachment_disposition(&name::clean_name(&file.name));
    // If both forms are present, mail clients use the plain form and would show the replaced characters.
    let disposition_value = match disposition.rsplit_once("; filename*=") {
        Some((_, extended)) => format!("attachment;\r\n filename*={extended}"),
        None => disposition.replacen("; ", ";\r\n ", 1),
    };
    // Mails in a mail must not be base64 (RFC 2046, section 5.2.1): mail programs show the characters as an empty mail.
    let media_type = match file.detected.media_type {
        mail if mail.starts_with("message/") => "application/octet-stream",
        other => other,
    };
    format!(
        "Content-Type: {media_type}\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: {disposition_value}\r\n\r\n"
    )
}

/// Encodes base64 in lines of 76 characters, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Base64LineEncoder {
    rest: Vec<u8>,
}

impl Base64LineEncoder {
    /// Adds bytes, and returns all complete lines.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / BASE64_LINE_BYTES * BASE64_LINE_BYTES;
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        encode_base64(&lines)
    }

    /// Returns the last line, which may be shorter. May be empty.
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
    fn lines_are_the_same_for_every_chunk_size() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let whole = encode_base64(&bytes);
        assert!(whole.lines().all(|line| line.len() <= 76));
        for size in [1, 2, 56, 57, 58, 999, 1000] {
            let mut encoder = Base64LineEncoder::default();
            let mut chunks: String = bytes
                .chunks(size)
                .map(|chunk| encoder.push(chunk))
                .collect();
            chunks.push_str(&encoder.finish());
            assert_eq!(chunks, whole, "{size}");
        }
        let joined: String = whole.lines().collect();
        assert_eq!(STANDARD.decode(joined).unwrap(), bytes);
    }

    #[test]
    fn dates_have_the_format_of_mails() {
        assert_eq!(
            header_date(1_700_000_000_000).unwrap(),
            "Tue, 14 Nov 2023 22:13:20 +0000"
        );
        assert!(header_date(u64::MAX).is_err());
    }
}
