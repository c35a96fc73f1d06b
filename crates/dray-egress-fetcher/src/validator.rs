//! Reads the validators of a response (RFC 9110, section 8.8): entity tags, and fields that must occur once.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Longest entity tag that is kept and sent back, in bytes.
const MAX_TAG_BYTES: usize = 256;

/// The value of a field that occurs exactly once. Of two values, it is unknown which one the server meant.
pub(crate) fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Whether a value is an entity tag, strong or weak.
pub(crate) fn is_entity_tag(value: &HeaderValue) -> bool {
    is_quoted_tag(opaque_tag(value))
}

/// Whether a value is a strong entity tag.
pub(crate) fn is_strong_tag(value: &HeaderValue) -> bool {
    is_quoted_tag(value.as_bytes())
}

/// Whether a server that names the entity tag `named` means the content with the tag `stored`. A strong tag is only
/// equal to itself (RFC 9110, section 8.8.3.2).
pub(crate) fn is_same_tag(named: &HeaderValue, stored: &HeaderValue) -> bool {
    named == stored || (!is_strong_tag(named) && opaque_tag(named) == opaque_tag(stored))
}

/// A tag without the `W/` of a weak one.
fn opaque_tag(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    bytes.strip_prefix(b"W/").unwrap_or(bytes)
}

/// `"…"` of visible ASCII characters.
fn is_quoted_tag(tag: &[u8]) -> bool {
    tag.len() <= MAX_TAG_BYTES
        && tag
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""))
            .is_some_and(|inner| {
                inner
                    .iter()
                    .all(|byte| byte.is_ascii_graphic() && *byte != b'"')
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strong_tag_equals_only_itself_and_a_weak_one_both_forms() {
        for (named, stored, is_same) in [
            ("\"a\"", "\"a\"", true),
            ("\"a\"", "\"b\"", false),
            ("\"a\"", "W/\"a\"", false),
            ("W/\"a\"", "\"a\"", true),
            ("W/\"a\"", "W/\"a\"", true),
            ("W/\"a\"", "W/\"b\"", false),
        ] {
            let [named, stored] = [named, stored].map(HeaderValue::from_static);
            assert_eq!(
                is_same_tag(&named, &stored),
                is_same,
                "{named:?} {stored:?}"
            );
        }
    }
}
