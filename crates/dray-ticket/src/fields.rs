//! Parses header fields of requests.

pub(crate) use dray_service::web::text_field as field;
use dray_types::Sha256Digest;
use http::{HeaderMap, HeaderValue, header};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use crate::problem::TicketProblem;

/// The value of a header field that may appear once; `None` when the field is absent.
///
/// # Errors
///
/// [`TicketProblem::Invalid`] for a field on several lines: a proxy could act on another line than this endpoint (RFC
/// 9110 section 5.3).
fn single_field<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a HeaderValue>, TicketProblem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(TicketProblem::Invalid(
            "a header field that has one value appears more than once",
        ));
    }
    Ok(value)
}

/// Parses a header field that is an integer of ASCII digits; `None` when the field is absent.
pub(crate) fn number_field(headers: &HeaderMap, name: &str) -> Result<Option<u64>, TicketProblem> {
    let Some(value) = single_field(headers, name)? else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(parse_digits);
    number
        .map(Some)
        .ok_or(TicketProblem::Invalid("a header field is not a number"))
}

/// Parses an integer of ASCII digits; `parse` would also accept a plus sign.
fn parse_digits(text: &str) -> Option<u64> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok())
}

/// The length of the whole file in `Content-Range`; `None` when the field is absent.
///
/// # Errors
///
/// [`TicketProblem::PartialBody`] for any other range than the whole file (RFC 9110 section 14.5).
pub(crate) fn whole_range(headers: &HeaderMap) -> Result<Option<u64>, TicketProblem> {
    let Some(value) = single_field(headers, header::CONTENT_RANGE.as_str())? else {
        return Ok(None);
    };
    let length = value.to_str().ok().and_then(whole_length);
    length.map(Some).ok_or(TicketProblem::PartialBody)
}

fn whole_length(range: &str) -> Option<u64> {
    let (unit, rest) = range.trim().split_once(' ')?;
    let (positions, length) = rest.trim().split_once('/')?;
    let (first, last) = positions.split_once('-')?;
    let length = parse_digits(length)?;
    let is_whole = unit.eq_ignore_ascii_case("bytes")
        && parse_digits(first)? == 0
        && parse_digits(last)?.checked_add(1)? == length;
    is_whole.then_some(length)
}

/// Checks that the body is the file itself, without a content coding and without a transfer coding other than
/// `chunked`.
///
/// # Errors
///
/// [`TicketProblem::CodedBody`] for a content coding (RFC 9110 section 8.4), [`TicketProblem::Invalid`] for another
/// transfer coding than `chunked` (RFC 9112 section 7).
pub(crate) fn check_codings(headers: &HeaderMap) -> Result<(), TicketProblem> {
    let only = |name: header::HeaderName, coding: &str| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| value.as_bytes().eq_ignore_ascii_case(coding.as_bytes()))
    };
    if !only(header::CONTENT_ENCODING, "identity") {
        return Err(TicketProblem::CodedBody);
    }
    if !only(header::TRANSFER_ENCODING, "chunked") {
        return Err(TicketProblem::Invalid(
            "the only transfer coding is `chunked`",
        ));
    }
    Ok(())
}

/// Whether the request declares the length or the framing of its body, which may be empty.
pub(crate) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING)
}

/// Parses `Upload-Complete`, a boolean of RFC 9651; `None` when the field is absent.
pub(crate) fn upload_complete(headers: &HeaderMap) -> Result<Option<bool>, TicketProblem> {
    let Some(value) = single_field(headers, "upload-complete")? else {
        return Ok(None);
    };
    match Parser::new(value.as_bytes()).parse::<Item>() {
        Ok(Item {
            bare_item: BareItem::Boolean(complete),
            ..
        }) => Ok(Some(complete)),
        _ => Err(TicketProblem::Invalid("`Upload-Complete` is not a boolean")),
    }
}

/// Parses the SHA-256 of `Content-Digest` or `Repr-Digest` (RFC 9530); `None` when the field has no SHA-256.
pub(crate) fn digest_field(
    headers: &HeaderMap,
    name: &str,
) -> Result<Option<Sha256Digest>, TicketProblem> {
    // Several lines of a field are one list (RFC 9110 section 5.3).
    let lines: Vec<&[u8]> = headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let invalid = TicketProblem::Invalid("a digest field is not valid");
    let joined = lines.join(&b", "[..]);
    let digests = Parser::new(&joined).parse::<Dictionary>();
    let digests = digests.map_err(|_| invalid.clone())?;
    let is_digest = |entry: &ListEntry| {
        matches!(
            entry,
            ListEntry::Item(Item {
                bare_item: BareItem::ByteSequence(_),
                ..
            })
        )
    };
    // Digests of other algorithms are not compared; a text that is not a digest is an error of the sender.
    if !digests.values().all(is_digest) {
        return Err(invalid);
    }
    match digests.get("sha-256") {
        None => Ok(None),
        Some(ListEntry::Item(Item {
            bare_item: BareItem::ByteSequence(bytes),
            ..
        })) => Sha256Digest::try_from(bytes.as_slice())
            .map(Some)
            .map_err(|_| invalid),
        Some(_) => Err(invalid),
    }
}

/// The file name in `Upload-Metadata` of tus, which has pairs of a key and a base64 value. Empty without a valid name.
pub(crate) fn tus_file_name(headers: &HeaderMap) -> String {
    use base64::Engine as _;
    let metadata = field(headers, "upload-metadata").unwrap_or_default();
    let value = metadata.split(',').find_map(|pair| {
        let (key, value) = pair.trim().split_once(' ')?;
        // Some clients send `name` instead of `filename`.
        ["filename", "name"].contains(&key).then_some(value.trim())
    });
    let decoded = base64::engine::general_purpose::STANDARD.decode(value.unwrap_or_default());
    String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default()
}

/// Formats a SHA-256 as the value of a digest field.
pub(crate) fn digest_value(sha256: Sha256Digest) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(sha256.as_bytes());
    format!("sha-256=:{encoded}:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn digests_are_parsed_as_they_are_formatted() {
        let digest = Sha256Digest::of(b"abc");
        let read = |text: &str| digest_field(&headers("repr-digest", text), "repr-digest");
        assert_eq!(read(&digest_value(digest)), Ok(Some(digest)));
        let both = format!("sha-512=:AAAA:, {}", digest_value(digest));
        assert_eq!(read(&both), Ok(Some(digest)));
        assert_eq!(read("sha-512=:AAAA:"), Ok(None));
        let mut lines = headers("repr-digest", "sha-512=:AAAA:");
        lines.append(
            "repr-digest",
            HeaderValue::try_from(digest_value(digest)).unwrap(),
        );
        assert_eq!(digest_field(&lines, "repr-digest"), Ok(Some(digest)));
        for wrong in [
            "sha-256=abc",
            "sha-256=:AAAA:",
            ":::",
            "sha-256",
            "nonsense",
            "sha-512=abc",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_file_name_of_tus_metadata_is_decoded() {
        let read = |text: &str| tus_file_name(&headers("upload-metadata", text));
        assert_eq!(
            read("type dGV4dA==,filename cmVwb3J0LnBkZg=="),
            "report.pdf"
        );
        assert_eq!(read("name w5xiLnR4dA=="), "\u{dc}b.txt");
        for none in [
            "",
            "filename",
            "filename ???",
            "filename /w==",
            "type dGV4dA==",
        ] {
            assert_eq!(read(none), "", "{none}");
        }
    }

    #[test]
    fn only_the_content_range_of_a_whole_file_is_accepted() {
        let read = |text: &str| whole_range(&headers("content-range", text));
        assert_eq!(whole_range(&HeaderMap::new()), Ok(None));
        assert_eq!(read("bytes 0-5/6"), Ok(Some(6)));
        assert_eq!(read("Bytes 0-0/1"), Ok(Some(1)));
        for part in [
            "bytes 3-5/6",
            "bytes 0-4/6",
            "bytes 0-5/*",
            "bytes */6",
            "bytes 0-5",
            "bytes=0-5/6",
            "lines 0-5/6",
            "bytes 0-18446744073709551615/0",
            "",
        ] {
            assert_eq!(read(part), Err(TicketProblem::PartialBody), "{part}");
        }
    }

    #[test]
    fn numbers_have_only_digits() {
        let read = |text: &str| number_field(&headers("upload-offset", text), "upload-offset");
        assert_eq!(read("7"), Ok(Some(7)));
        for wrong in ["+7", "-7", "", "7 8", "99999999999999999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
