//! Conditions and byte ranges of requests (RFC 9110, sections 13 and 14).

use http::{HeaderMap, HeaderName, header};

/// The text of a field; `None` if it is missing or not ASCII.
pub fn text_field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the lists of entity tags in all fields of this name have this one; `None` without such a field. Repeated
/// fields are one list (RFC 9110, section 5.3). `weak` compares weakly, as `If-None-Match` does.
pub fn field_has_etag(
    headers: &HeaderMap,
    name: HeaderName,
    etag: &str,
    weak: bool,
) -> Option<bool> {
    let lists = headers.get_all(name);
    let mut is_listed = None;
    for list in lists {
        let is_in_list = list.to_str().is_ok_and(|list| has_etag(list, etag, weak));
        is_listed = Some(is_listed.unwrap_or(false) || is_in_list);
    }
    is_listed
}

/// Whether a list of entity tags has this one (RFC 9110, section 8.8.3.2).
fn has_etag(list: &str, etag: &str, weak: bool) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    list.split(',').map(str::trim).any(|candidate| {
        candidate == "*"
            || if weak {
                opaque(candidate) == opaque(etag)
            } else {
                // In a strong comparison, a weak tag equals no tag, not even itself.
                candidate == etag && !etag.starts_with("W/")
            }
    })
}

/// A byte range inside the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Byte after the last one.
    pub end: u64,
}

/// The range of a request begins after the end of the content: status 416.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the range begins after the {size} bytes of the content")]
pub struct RangeNotSatisfiable {
    /// Bytes of the content.
    pub size: u64,
}

/// The one range of a request (RFC 9110, section 14.1.2). `None` means the complete content: the request has no range,
/// or one that a server may ignore, such as several ranges.
///
/// # Errors
///
/// [`RangeNotSatisfiable`].
pub fn byte_range(
    headers: &HeaderMap,
    size: u64,
) -> Result<Option<ByteRange>, RangeNotSatisfiable> {
    let range = text_field(headers, header::RANGE.as_str());
    let Some(spec) = range.and_then(|range| range.strip_prefix("bytes=")) else {
        return Ok(None);
    };
    let Some((first, last)) = spec.trim().split_once('-') else {
        return Ok(None);
    };
    let number = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (start, end) = match (number(first), number(last)) {
        (Some(start), Some(last)) if start > last => return Ok(None),
        (Some(start), Some(last)) => (start, last.saturating_add(1).min(size)),
        (Some(start), None) if last.trim().is_empty() => (start, size),
        (None, Some(suffix)) if first.trim().is_empty() && suffix > 0 => {
            (size.saturating_sub(suffix), size)
        }
        _ => return Ok(None),
    };
    if start >= size {
        return Err(RangeNotSatisfiable { size });
    }
    Ok(Some(ByteRange { start, end }))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn ranges_are_those_of_the_rfc() {
        let range = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            byte_range(&HeaderMap::from_iter([(header::RANGE, value)]), 10)
        };
        let some = |start, end| Ok(Some(ByteRange { start, end }));
        assert_eq!(range("bytes=0-4"), some(0, 5));
        assert_eq!(range("bytes=3-"), some(3, 10));
        assert_eq!(range("bytes=-3"), some(7, 10));
        assert_eq!(range("bytes=-30"), some(0, 10));
        assert_eq!(range("bytes=3-99999999999999999999999"), some(3, 10));
        for ignored in [
            "bytes=1-2,4-5",
            "lines=1-2",
            "bytes=5-4",
            "bytes=-",
            "bytes=a-b",
        ] {
            assert_eq!(range(ignored), Ok(None), "{ignored}");
        }
        for outside in ["bytes=10-", "bytes=99999999999999999999999-"] {
            assert_eq!(
                range(outside),
                Err(RangeNotSatisfiable { size: 10 }),
                "{outside}"
            );
        }
    }

    #[test]
    fn repeated_fields_form_one_list_of_tags() {
        let found = |lists: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for list in lists {
                headers.append(header::IF_MATCH, HeaderValue::from_static(list));
            }
            field_has_etag(&headers, header::IF_MATCH, "\"a\"", false)
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&["\"b\"", "\"a\""]), Some(true));
        assert_eq!(found(&["\"b\"", "\"c\""]), Some(false));
    }

    #[test]
    fn weak_tags_are_equal_for_caches_and_never_for_parts() {
        for (list, etag, weak, strong) in [
            ("\"a\"", "\"a\"", true, true),
            ("W/\"a\"", "\"a\"", true, false),
            ("W/\"a\"", "W/\"a\"", true, false),
            ("\"a\"", "W/\"a\"", true, false),
            ("\"b\", \"a\"", "\"a\"", true, true),
            ("*", "\"a\"", true, true),
            ("\"b\"", "\"a\"", false, false),
        ] {
            assert_eq!(has_etag(list, etag, true), weak, "{list} {etag}");
            assert_eq!(has_etag(list, etag, false), strong, "{list} {etag}");
        }
    }
}
