//! Values as text for people.

use dray_presentation::name;
use dray_types::Sha256Digest;
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Most characters of a shown name, id or sentence; a longer one is cut.
pub(crate) const MAX_SHOWN_CHARACTERS: usize = 240;

/// Unreserved characters of RFC 3986 stay as they are.
const URL_PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Text from outside the console on one line, with control and bidi characters replaced, cut to
/// [`MAX_SHOWN_CHARACTERS`].
pub(crate) fn shown(text: impl AsRef<[u8]>) -> String {
    name::shown_text(text, MAX_SHOWN_CHARACTERS)
}

/// A text as part of a URL.
pub(crate) fn url_part(text: &str) -> String {
    utf8_percent_encode(text, URL_PART).to_string()
}

/// Unix milliseconds as RFC 3339; as a number when they are out of range.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|unix_ms| jiff::Timestamp::from_millisecond(unix_ms).ok())
        .map_or_else(|| unix_ms.to_string(), |time| time.to_string())
}

/// An instant, in UTC to the second; a dash for 0.
pub(crate) fn time_element(unix_ms: u64) -> Markup {
    if unix_ms == 0 {
        return html! { span.muted { "–" } };
    }
    let exact = rfc3339(unix_ms);
    // Whole seconds are read more easily; the exact time is in `title` and `datetime`.
    let shown = rfc3339(unix_ms / 1000 * 1000).replace('T', " ");
    html! { time datetime=(exact) title=(exact) { (shown.trim_end_matches('Z')) } }
}

/// A span of time for people, such as `830 ms`, `2.4 s` or `3 min`.
pub(crate) fn duration_text(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..120_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

/// Which entries of a list a page shows, counted from 1.
pub(crate) fn position_text(begin: usize, count: usize) -> String {
    match count {
        0 | 1 => (begin + count).to_string(),
        count => format!("{} to {}", begin + 1, begin + count),
    }
}

/// A number of entries as the position in a link; empty for the beginning of the list.
pub(crate) fn offset_text(offset: usize) -> String {
    match offset {
        0 => String::new(),
        offset => offset.to_string(),
    }
}

/// The path of the page of an operation.
pub(crate) fn operation_path(operation: &str) -> String {
    format!("/operations/{}", url_part(operation))
}

/// The path of the page of a stored file.
pub(crate) fn file_path(digest: Sha256Digest) -> String {
    format!("/files/{}", digest.to_hex())
}

/// The digest in a record, as a link to the page of its file; nothing for a record without one.
pub(crate) fn digest_link(sha256: &[u8]) -> Markup {
    let digest = Sha256Digest::try_from(sha256).ok();
    html! {
        @if let Some(digest) = digest {
            a href=(file_path(digest)) { code { "sha256:" (digest.to_hex()) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_are_short_and_exact() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        let element = time_element(1_800_000_000_123).into_string();
        assert!(element.contains("datetime=\"2027-01-15T08:00:00.123Z\""));
        assert!(element.contains(">2027-01-15 08:00:00<"), "{element}");
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (2_449, "2.4 s"),
            (180_000, "3 min"),
            (7_200_000, "2 h"),
        ] {
            assert_eq!(duration_text(millis), text);
        }
    }

    #[test]
    fn an_id_of_any_characters_is_one_part_of_a_path() {
        assert_eq!(
            operation_path("a/../b?c#d é"),
            "/operations/a%2F..%2Fb%3Fc%23d%20%C3%A9"
        );
    }
}
