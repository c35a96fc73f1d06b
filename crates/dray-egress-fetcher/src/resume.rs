//! The data for the range request of the rest of an interrupted body (`Range`, `If-Range`: RFC 9110, sections 13.1.5
//! and 14).
//!
//! Only a strong validator proves that the rest belongs to the part that is stored already.

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, ETAG, HeaderValue, LAST_MODIFIED};

use crate::coding::ContentCoding;
use crate::validator::{is_strong_tag, single_value};

/// A date proves the version only if the last change was this long before the response (RFC 9110, section 8.8.2.2). A
/// minute also covers clocks that differ a little.
const MIN_AGE: Duration = Duration::from_mins(1);

/// The rest of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyResumption {
    /// Body bytes that were received already, before decoding.
    pub received: u64,
    /// Total body bytes, if the server named them.
    pub total: Option<u64>,
    /// Coding of the body, which the rest must have too.
    pub coding: Option<ContentCoding>,
    /// A strong entity tag, or the date of the last change.
    pub validator: HeaderValue,
}

impl BodyResumption {
    /// Whether a part belongs to the same version. A part must repeat the entity tag; it may leave out the date
    /// (RFC 9110, section 15.3.7).
    pub fn is_same_version(&self, headers: &HeaderMap) -> bool {
        if is_strong_tag(&self.validator) {
            return single_value(headers, &ETAG) == Some(&self.validator);
        }
        single_value(headers, &LAST_MODIFIED).is_none_or(|date| *date == self.validator)
    }

    /// Whether a response without a part names no other version. Unlike a part, it need not repeat the entity tag.
    pub fn may_be_same_version(&self, headers: &HeaderMap) -> bool {
        let has_no_tag = is_strong_tag(&self.validator) && !headers.contains_key(ETAG);
        has_no_tag || self.is_same_version(headers)
    }
}

/// The strong validator of a response, if it has one.
pub fn strong_validator(headers: &HeaderMap) -> Option<HeaderValue> {
    // A date is never used beside an entity tag, not even a weak one (RFC 9110, section 13.1.5).
    if headers.contains_key(ETAG) {
        return single_value(headers, &ETAG)
            .filter(|tag| is_strong_tag(tag))
            .cloned();
    }
    let modified = single_value(headers, &LAST_MODIFIED)?;
    let parse = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
    let age = parse(single_value(headers, &DATE)?)?
        .duration_since(parse(modified)?)
        .ok()?;
    (age >= MIN_AGE).then(|| modified.clone())
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_a_strong_validator_proves_the_version() {
        let old = "Sat, 21 Nov 2026 10:00:00 GMT";
        for (fields, expected) in [
            (vec![(ETAG, "\"a-1\"")], Some("\"a-1\"")),
            (vec![(ETAG, "W/\"a-1\"")], None),
            (vec![(ETAG, "a-1")], None),
            (vec![(ETAG, "\"a\""), (ETAG, "\"b\"")], None),
            (vec![(ETAG, "\"a\"b\"")], None),
            (
                vec![
                    (LAST_MODIFIED, old),
                    (DATE, "Sat, 21 Nov 2026 10:01:00 GMT"),
                ],
                Some(old),
            ),
            (
                vec![
                    (LAST_MODIFIED, old),
                    (DATE, "Sat, 21 Nov 2026 10:00:59 GMT"),
                ],
                None,
            ),
            (vec![(LAST_MODIFIED, old)], None),
            (
                vec![
                    (ETAG, "W/\"a\""),
                    (LAST_MODIFIED, old),
                    (DATE, "Sun, 22 Nov 2026 10:00:00 GMT"),
                ],
                None,
            ),
        ] {
            let validator = strong_validator(&headers(&fields));
            let expected = expected.map(HeaderValue::from_static);
            assert_eq!(validator, expected, "{fields:?}");
        }
    }

    #[test]
    fn resumes_only_the_same_version() {
        let resume = |validator| BodyResumption {
            received: 5,
            total: None,
            coding: None,
            validator: HeaderValue::from_static(validator),
        };
        let tagged = resume("\"a\"");
        assert!(tagged.is_same_version(&headers(&[(ETAG, "\"a\"")])));
        assert!(!tagged.is_same_version(&headers(&[(ETAG, "\"b\"")])));
        assert!(!tagged.is_same_version(&headers(&[])));
        let dated = resume("Sat, 21 Nov 2026 10:00:00 GMT");
        assert!(dated.is_same_version(&headers(&[])));
        let other = headers(&[(LAST_MODIFIED, "Sat, 21 Nov 2026 11:00:00 GMT")]);
        assert!(!dated.is_same_version(&other));
    }
}
