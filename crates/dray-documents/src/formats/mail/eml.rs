//! Internet messages (RFC 5322, MIME).
//!
//! The library reads headers, with their encoded words and addresses. This module walks the parts. It does not decode
//! attachments, and limits the nesting of parts.

use std::borrow::Cow;
use std::rc::Rc;

use mail_parser::{
    Address as Addresses, DateTime, HeaderName, Message, MessageParser, MimeHeaders,
};

use super::decode;
use super::message::{Address, AttachedFile, Body, MailMessage};
use super::note::is_note;
use crate::container::Input;
use crate::encoding::{self, DetectedEncoding};
use crate::formats::text::source;
use crate::formats::{ConversionHint, collapse_white_space, web};
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::Markdown;

/// Most bytes of headers that are read.
const MAX_HEADER_BYTES: usize = 256 * 1024;
/// Zones that have a name (RFC 5322, 4.3).
const NAMED_ZONES: [&str; 12] = [
    "GMT", "UT", "UTC", "Z", "EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT",
];
/// Greatest depth of parts within parts; deeper parts are left out with a warning.
const MAX_PART_DEPTH: usize = 32;

/// A message in its transfer format: headers, bodies, and a list of attachments that are not opened.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let bytes = source::read_bytes(input, out.budget())?;
    // Some programs export a message with a byte-order mark, which would be part of the first header.
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(());
    }
    // A mailbox begins each message with a line that is not a header.
    let bytes = match bytes.strip_prefix(b"From ") {
        Some(rest) => after_line(rest),
        None => bytes,
    };
    let part = Part::of(bytes);
    let mut message = part.message();
    let walked = message.read_parts(&part, out);
    message.write(out)?;
    walked?;
    if out.is_empty() {
        return Err(Failure::NoText);
    }
    Ok(())
}

/// Writes the bodies of a message without its headers and attachments, such as a web page with its pictures in one file
/// (MHTML, RFC 2557).
///
/// # Errors
///
/// The limit that was reached; earlier content is kept.
pub(in crate::formats) fn write_bodies(bytes: &[u8], out: &mut Markdown) -> Result<(), Failure> {
    let part = Part::of(bytes);
    let mut page = MailMessage::default();
    let walked = page.read_parts(&part, out);
    // The other parts of a page are its pictures and styles; they are not listed.
    page.attachments.clear();
    page.write(out)?;
    Ok(walked?)
}

impl MailMessage {
    /// Reads the bodies and the list of attachments from `part` and the parts in it.
    fn read_parts(&mut self, part: &Part<'_>, out: &mut Markdown) -> Result<(), Limit> {
        let mut parts = Parts {
            budget: &Rc::clone(out.budget()),
            attachments: Vec::new(),
            deep: false,
        };
        let walked = parts.walk(part, 0);
        if parts.deep {
            out.warn("parts nested too deeply are not shown");
        }
        self.attachments = parts.attachments;
        self.bodies = walked?;
        Ok(())
    }
}

/// The lines after the first one.
fn after_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.and_then(|end| bytes.get(end + 1..)).unwrap_or_default()
}

/// A message or a part of one: its headers and its content.
struct Part<'a> {
    headers: Option<Message<'static>>,
    body: &'a [u8],
}

impl<'a> Part<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let (head, body) = split_headers(bytes);
        // The parser requires a line end after the last header.
        let head: Cow<'_, [u8]> = if head.ends_with(b"\n") {
            head.into()
        } else {
            [head, b"\n"].concat().into()
        };
        let parser = MessageParser::new()
            .with_mime_headers()
            .with_address_headers()
            .header_text(HeaderName::Subject)
            // The raw text is read, because a parsed date would include the next line if its zone is a single letter.
            .header_raw(HeaderName::Date);
        let parsed = |head: &[u8]| parser.parse_headers(head).map(Message::into_owned);
        let headers = parsed(&head);
        let headers = match readable_headers(&head, bytes, headers.as_ref()) {
            Some(readable) => parsed(&readable),
            None => headers,
        };
        Self { headers, body }
    }

    /// The list of headers.
    fn message(&self) -> MailMessage {
        let Some(headers) = &self.headers else {
            return MailMessage::default();
        };
        let date = headers.header_raw(HeaderName::Date).unwrap_or_default();
        let date = rfc3339_date(date).unwrap_or_else(|| date.to_owned());
        MailMessage {
            from: header_addresses(headers.from()),
            to: header_addresses(headers.to()),
            cc: header_addresses(headers.cc()),
            date,
            subject: headers.subject().unwrap_or_default().to_owned(),
            ..MailMessage::default()
        }
    }

    /// Type and subtype, lower case; plain text by default.
    fn mime(&self) -> String {
        let content_type = self
            .headers
            .as_ref()
            .and_then(|headers| headers.content_type());
        match content_type {
            Some(content_type) => format!(
                "{}/{}",
                content_type.ctype(),
                content_type.subtype().unwrap_or_default()
            )
            .to_ascii_lowercase(),
            None => "text/plain".to_owned(),
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.content_type()?.attribute(name)
    }

    fn file_name(&self) -> Option<&str> {
        self.headers.as_ref()?.attachment_name()
    }

    fn is_attached(&self) -> bool {
        self.headers
            .as_ref()
            .and_then(|headers| headers.content_disposition())
            .is_some_and(|disposition| disposition.ctype().eq_ignore_ascii_case("attachment"))
    }

    fn transfer(&self) -> String {
        self.headers
            .as_ref()
            .and_then(|headers| headers.content_transfer_encoding())
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    /// The content as text.
    fn text(&self, html: bool) -> String {
        let decoded = match self.transfer().as_str() {
            "base64" => decode::decode_base64(self.body),
            "quoted-printable" => decode::quoted_printable(self.body),
            _ => self.body.to_vec(),
        };
        let charset = self.attribute("charset");
        if charset.is_some_and(|label| label.eq_ignore_ascii_case("utf-7")) {
            return source::line_feeds(decode::decode_utf7(&decoded));
        }
        let label = charset.filter(|label| DetectedEncoding::of_label(label).is_some());
        let text = match label {
            // Text that is declared as ASCII and is not may have any encoding.
            Some(label) if !label.eq_ignore_ascii_case("us-ascii") => {
                encoding::decode_text(&decoded, Some(label))
            }
            _ if html => web::page_text(&decoded, None),
            _ => encoding::decode_text(&decoded, None),
        };
        source::line_feeds(text.into_owned())
    }

    /// The part's entry among the attachments.
    fn attachment(&self, mime: String) -> AttachedFile {
        let inner_subject =
            (mime == "message/rfc822").then(|| Part::of(self.body).message().subject);
        let name = match self.file_name() {
            Some(name) => name.to_owned(),
            None => inner_subject.unwrap_or_default(),
        };
        let size = match self.transfer().as_str() {
            "base64" => decode::base64_size(self.body),
            "quoted-printable" => decode::quoted_printable(self.body).len() as u64,
            _ => self.body.len() as u64,
        };
        AttachedFile {
            name,
            mime,
            size: Some(size),
        }
    }
}

/// Converts headers with non-ASCII bytes that are not UTF-8 to UTF-8. Old programs write them in the encoding of the
/// body.
fn readable_headers(head: &[u8], whole: &[u8], headers: Option<&Message<'_>>) -> Option<Vec<u8>> {
    if std::str::from_utf8(head).is_ok() {
        return None;
    }
    let label = headers
        .and_then(|headers| headers.content_type())
        .and_then(|content_type| content_type.attribute("charset"));
    let is_usable = |found: &DetectedEncoding| match found {
        DetectedEncoding::Known(known) => {
            *known != encoding_rs::UTF_8 && known.is_ascii_compatible()
        }
        _ => false,
    };
    let found = label
        .filter(|label| !label.eq_ignore_ascii_case("us-ascii"))
        .and_then(DetectedEncoding::of_label)
        .filter(is_usable)
        .or_else(|| Some(encoding::find_encoding(whole)).filter(is_usable))
        .unwrap_or_else(|| encoding::find_encoding(head));
    let text = encoding::decode_text(head, Some(found.name()));
    Some(text.into_owned().into_bytes())
}

/// Formats a date as numbers; `None` when the text is not a date, or when its zone is a word without a known offset.
fn rfc3339_date(date: &str) -> Option<String> {
    let has_known_zone = date
        .split('(')
        .next()?
        .split_whitespace()
        .next_back()
        .is_some_and(|zone| {
            !zone.starts_with(|character: char| character.is_ascii_alphabetic())
                || NAMED_ZONES
                    .iter()
                    .any(|name| zone.eq_ignore_ascii_case(name))
        });
    let line = collapse_white_space(date);
    DateTime::parse_rfc822(&format!("{line}\n"))
        .filter(|date| has_known_zone && date.is_valid())
        .map(|date| date.to_rfc3339())
}

/// The walk over parts.
struct Parts<'b> {
    budget: &'b Budget,
    attachments: Vec<AttachedFile>,
    deep: bool,
}

impl Parts<'_> {
    /// The bodies in a part; attachments are listed.
    fn walk(&mut self, part: &Part<'_>, depth: usize) -> Result<Vec<Body>, Limit> {
        self.budget.element()?;
        self.budget.clock()?;
        let mime = part.mime();
        let boundary = part.attribute("boundary").filter(|value| !value.is_empty());
        if let (Some(kind), Some(boundary)) = (mime.strip_prefix("multipart/"), boundary) {
            if depth >= MAX_PART_DEPTH {
                self.deep = true;
                return Ok(Vec::new());
            }
            let inner = split_parts(part.body, boundary.as_bytes());
            return self.walk_multipart(kind, &inner, depth);
        }
        // A part with a file's name is an attachment. The message itself may have one without being one.
        let is_body = !part.is_attached() && (part.file_name().is_none() || depth == 0);
        match mime.as_str() {
            "text/html" if is_body => Ok(vec![Body::Html(part.text(true))]),
            "text/plain" | "text/" if is_body => Ok(vec![Body::Plain(part.text(false))]),
            // A multipart without a boundary has only text.
            mime if is_body && mime.starts_with("multipart/") => {
                Ok(vec![Body::Plain(part.text(false))])
            }
            _ => {
                self.attachments.push(part.attachment(mime));
                Ok(Vec::new())
            }
        }
    }

    /// Of alternatives, the first one with plain text that is not only a note about HTML, otherwise the last one with any
    /// text; of other multiparts, all parts.
    fn walk_multipart(
        &mut self,
        kind: &str,
        inner: &[&[u8]],
        depth: usize,
    ) -> Result<Vec<Body>, Limit> {
        let mut selected = Vec::new();
        for bytes in inner {
            let bodies: Vec<Body> = self
                .walk(&Part::of(bytes), depth + 1)?
                .into_iter()
                .filter(|body| !body.is_blank())
                .collect();
            if kind != "alternative" {
                selected.extend(bodies);
            } else if !bodies.is_empty() && (!has_plain(&selected) || is_note(&selected, &bodies)) {
                selected = bodies;
            }
        }
        Ok(selected)
    }
}

fn has_plain(bodies: &[Body]) -> bool {
    bodies.iter().any(|body| matches!(body, Body::Plain(_)))
}

/// Headers and body, which are before and after the first blank line.
fn split_headers(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(length) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
    {
        let line = bytes.get(at..at + length).unwrap_or_default();
        if line.is_empty() || line == b"\r" {
            let (head, body) = bytes.split_at(at + length + 1);
            // The library parses all headers together; a head of megabytes would take seconds.
            return (head.get(..MAX_HEADER_BYTES).unwrap_or(head), body);
        }
        at += length + 1;
    }
    (bytes.get(..MAX_HEADER_BYTES).unwrap_or(bytes), &[])
}

/// The parts between boundaries; the text before the first boundary is a note for old readers.
fn split_parts<'a>(body: &'a [u8], boundary: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut start = None;
    let mut at = 0;
    while at < body.len() {
        let rest = body.get(at..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or_default();
        let tail = line
            .strip_prefix(b"--")
            .and_then(|line| line.strip_prefix(boundary))
            .map(<[u8]>::trim_ascii_end);
        let ends = tail == Some(b"--");
        if ends || tail == Some(b"") {
            if let Some(start) = start {
                // The line end before a boundary belongs to the boundary.
                let part = body.get(start..at).unwrap_or_default();
                let part = part.strip_suffix(b"\n").unwrap_or(part);
                parts.push(part.strip_suffix(b"\r").unwrap_or(part));
            }
            start = (!ends).then_some(at + length);
        }
        at += length;
    }
    if let Some(start) = start {
        parts.push(body.get(start..).unwrap_or_default());
    }
    parts
}

/// Names and addresses; groups are opened.
fn header_addresses(header: Option<&Addresses<'_>>) -> Vec<Address> {
    header
        .into_iter()
        .flat_map(Addresses::iter)
        .map(|source| Address {
            name: source.name().unwrap_or_default().to_owned(),
            address: source.address().unwrap_or_default().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
