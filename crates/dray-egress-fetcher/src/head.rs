//! Judges a response head: framing, status, range and coding (egress-security 11).
//!
//! Pure: decides by the parsed head. [`crate::hop`] configures the parser to refuse folding, bare CR and HTTP/0.9, and
//! its tests check that.

use std::time::Duration;

use dray_guard::Code;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER, TRANSFER_ENCODING,
};
use http::response::Parts;
use http::{HeaderMap, Version};

use crate::coding::ContentCoding;
use crate::label::ResponseLabels;
use crate::resume::{BodyResumption, strong_validator};

/// The consequence of a response head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadDecision {
    /// A body follows, to be received as planned.
    Body(BodyPlan),
    /// A redirect, with the raw bytes of every `Location` field.
    Redirect(Vec<Vec<u8>>),
}

/// Framing, coding and labels of the body, from a head that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPlan {
    /// Status of the response.
    pub status: u16,
    /// How the end of the body is known.
    pub framing: BodyFraming,
    /// The coding to undo.
    pub coding: Option<ContentCoding>,
    /// Total bytes of the body, from the `Content-Range` of a 206.
    pub whole: Option<u64>,
    /// The server's statements about the file.
    pub labels: ResponseLabels,
    /// A strong validator of this version of the file, if the server sends one.
    pub validator: Option<HeaderValue>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// The response has no body to read: status 204 or 205, or a rest without bytes.
    Empty,
    /// The body ends after this many bytes.
    Length(u64),
    /// The body ends with the last chunk.
    Chunked,
    /// The body ends with the frame that ends its stream (HTTP/2).
    Framed,
    /// The body ends with the connection.
    Close,
}

/// Judges a head. `limit` is the most bytes that the body may have.
pub fn judge_head(parts: &Parts, limit: u64) -> Result<HeadDecision, Code> {
    // The framing is judged before the status: ambiguous framing is refused with every status, as in request smuggling
    // one of two parsers would end the body elsewhere (R-3, R-4).
    let framing = body_framing(parts.version, &parts.headers)?;
    let status = parts.status.as_u16();
    let (framing, whole) = match status {
        101 => return Err(Code::MalformedResponse),
        204 | 205 => (BodyFraming::Empty, None),
        206 => (framing, Some(whole_range(&parts.headers)?)),
        200..=299 => (framing, None),
        301 | 302 | 303 | 307 | 308 => {
            return Ok(HeadDecision::Redirect(raw_values(
                &parts.headers,
                &LOCATION,
            )));
        }
        other => return Err(Code::HttpStatus(other)),
    };
    match framing {
        // The length is checked before a byte of the body is read (R-4).
        BodyFraming::Length(length) if length > limit => return Err(Code::TooLarge),
        BodyFraming::Empty
        | BodyFraming::Length(_)
        | BodyFraming::Chunked
        | BodyFraming::Framed
        | BodyFraming::Close => {}
    }
    Ok(HeadDecision::Body(BodyPlan {
        status,
        framing,
        // No coding was requested, but object stores send the one with which the file was uploaded (B-4).
        coding: content_coding(&parts.headers)?,
        whole,
        labels: ResponseLabels::of(&parts.headers),
        validator: strong_validator(&parts.headers),
    }))
}

/// Judges the response to a request for the rest of a body. Only the rest of the same version is a body. A 416 with the
/// received length is a rest without bytes: the connection broke between the last byte and the mark of the end.
///
/// # Errors
///
/// Those of [`judge_head`] for a status that is neither 206 nor 416; `truncated` for everything that does not continue
/// the body, including another 416.
pub fn judge_remainder(
    parts: &Parts,
    limit: u64,
    resume: &BodyResumption,
) -> Result<HeadDecision, Code> {
    let status = parts.status.as_u16();
    if status == 416 && confirms_complete_body(&parts.headers, resume) {
        body_framing(parts.version, &parts.headers)?;
        if resume.received > limit {
            return Err(Code::TooLarge);
        }
        return Ok(HeadDecision::Body(BodyPlan {
            // A rest with bytes has this status too.
            status: 206,
            framing: BodyFraming::Empty,
            coding: resume.coding,
            whole: Some(resume.received),
            labels: ResponseLabels::default(),
            validator: Some(resume.validator.clone()),
        }));
    }
    if status == 416 {
        // The file became shorter, or the server contradicts itself: what is stored cannot be continued.
        return Err(Code::Truncated);
    }
    if status != 206 {
        return match judge_head(parts, limit)? {
            // The server sends the whole file again, because it changed (`If-Range`) or because the server knows no
            // ranges. The stored part cannot be continued.
            HeadDecision::Body(_) => Err(Code::Truncated),
            redirect @ HeadDecision::Redirect(_) => Ok(redirect),
        };
    }
    let framing = body_framing(parts.version, &parts.headers)?;
    let total = parse_rest(&parts.headers, resume.received).ok_or(Code::Truncated)?;
    let is_same = resume.total.is_none_or(|expected| expected == total)
        && content_coding(&parts.headers)? == resume.coding
        && resume.is_same_version(&parts.headers);
    let is_whole_rest = match framing {
        BodyFraming::Length(length) => length == total.saturating_sub(resume.received),
        BodyFraming::Empty | BodyFraming::Chunked | BodyFraming::Framed | BodyFraming::Close => {
            true
        }
    };
    if !is_same || !is_whole_rest {
        return Err(Code::Truncated);
    }
    if total > limit {
        return Err(Code::TooLarge);
    }
    Ok(HeadDecision::Body(BodyPlan {
        status,
        framing,
        coding: resume.coding,
        whole: Some(total),
        labels: ResponseLabels::of(&parts.headers),
        validator: Some(resume.validator.clone()),
    }))
}

/// The wait that a 429 or 503 asks for: seconds, or a date counted from the `Date` of the response.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let delay_text = text(&RETRY_AFTER)?.trim();
    if let Some(seconds) = parse_digits(delay_text.as_bytes()) {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(delay_text).ok()?;
    let now = httpdate::parse_http_date(text(&DATE)?).ok()?;
    // A date in the past means no delay.
    Some(until.duration_since(now).unwrap_or_default())
}

fn raw_values(headers: &HeaderMap, name: &HeaderName) -> Vec<Vec<u8>> {
    headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes().to_vec())
        .collect()
}

/// R-2, R-3 and R-4: one unambiguous framing or none at all.
pub(crate) fn body_framing(version: Version, headers: &HeaderMap) -> Result<BodyFraming, Code> {
    let is_http2 = version == Version::HTTP_2;
    if version != Version::HTTP_11 && version != Version::HTTP_10 && !is_http2 {
        return Err(Code::MalformedResponse);
    }
    let encodings = raw_values(headers, &TRANSFER_ENCODING);
    let lengths = raw_values(headers, &CONTENT_LENGTH);
    match (encodings.as_slice(), lengths.split_first()) {
        ([], None) if is_http2 => Ok(BodyFraming::Framed),
        ([], None) => Ok(BodyFraming::Close),
        // Repeated equal lengths may count as one (RFC 9110, section 8.6).
        ([], Some((length, others))) if others.iter().all(|other| other == length) => {
            parse_digits(length)
                .map(BodyFraming::Length)
                .ok_or(Code::MalformedResponse)
        }
        // The coding is compared exactly: hyper lets `xchunked` and `chunked, gzip` pass and delivers the framing as
        // content (R-3).
        ([encoding], None) if encoding == b"chunked" && version == Version::HTTP_11 => {
            Ok(BodyFraming::Chunked)
        }
        _ => Err(Code::MalformedResponse),
    }
}

/// A decimal number without sign, blank or overflow.
fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// R-5: the length of a 206 that contains the whole file; every other part is refused.
fn whole_range(headers: &HeaderMap) -> Result<u64, Code> {
    let ranges = raw_values(headers, &CONTENT_RANGE);
    let [range] = ranges.as_slice() else {
        return Err(Code::UnexpectedPartial);
    };
    parse_whole(range).ok_or(Code::UnexpectedPartial)
}

/// Reads `n` of `bytes 0-(n-1)/n`.
fn parse_whole(range: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(range).ok()?;
    let (last, total) = text.strip_prefix("bytes 0-")?.split_once('/')?;
    let last = parse_digits(last.as_bytes())?;
    let total = parse_digits(total.as_bytes())?;
    (last.checked_add(1) == Some(total)).then_some(total)
}

/// Reads `n` of the single field `bytes received-(n-1)/n`.
fn parse_rest(headers: &HeaderMap, received: u64) -> Option<u64> {
    let ranges = raw_values(headers, &CONTENT_RANGE);
    let [range] = ranges.as_slice() else {
        return None;
    };
    let text = std::str::from_utf8(range).ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let [first, last, total] = [first, last, total].map(|number| parse_digits(number.as_bytes()));
    let (first, last, total) = (first?, last?, total?);
    (first == received && last >= first && last.checked_add(1) == Some(total)).then_some(total)
}

/// Whether a 416 says that the received part is the whole body. A server evaluates the range only for the version of
/// `If-Range`; for another one it sends the whole file (RFC 9110, section 13.1.5).
fn confirms_complete_body(headers: &HeaderMap, resume: &BodyResumption) -> bool {
    let ranges = raw_values(headers, &CONTENT_RANGE);
    let [range] = ranges.as_slice() else {
        return false;
    };
    let total = range.strip_prefix(b"bytes */").and_then(parse_digits);
    total == Some(resume.received)
        && resume.total.is_none_or(|known| known == resume.received)
        && resume.may_be_same_version(headers)
}

/// Reads the content coding (B-4): none, or exactly one that is known.
fn content_coding(headers: &HeaderMap) -> Result<Option<ContentCoding>, Code> {
    let fields = raw_values(headers, &CONTENT_ENCODING);
    let mut codings = fields
        .iter()
        .flat_map(|field| field.split(|byte| *byte == b','))
        .map(|coding| coding.trim_ascii().to_ascii_lowercase())
        // Empty elements of a list do not count (RFC 9110, section 5.6.1).
        .filter(|coding| !coding.is_empty());
    match (codings.next().as_deref(), codings.next()) {
        (None, _) | (Some(b"identity"), None) => Ok(None),
        (Some(b"gzip" | b"x-gzip"), None) => Ok(Some(ContentCoding::Gzip)),
        (Some(b"deflate"), None) => Ok(Some(ContentCoding::Deflate)),
        (Some(b"br"), None) => Ok(Some(ContentCoding::Brotli)),
        (Some(b"zstd"), None) => Ok(Some(ContentCoding::Zstandard)),
        _ => Err(Code::UnsupportedEncoding),
    }
}

#[cfg(test)]
mod tests;
