//! Values that must not appear in logs or answers as they are.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

/// A URL as it may be shown: scheme, host, port and path; no user info, query or fragment.
///
/// The query may hold a signature, the user info a password (messaging-reliability L-1, quickapps R8).
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(String);

/// Longest shown form, in characters.
const MAX_SHOWN_CHARACTERS: usize = 200;
/// Longest shown form of a text that is not a URL, in characters.
const SHOWN_UNPARSED: usize = 80;

impl RedactedUrl {
    /// Reduces a parsed URL.
    pub fn from_url(url: &Url) -> Self {
        Self::from_text(url.as_str())
    }

    /// Reduces the text of a URL, which stays spelt as it was written: at most 200 characters with controls
    /// escaped; for text that does not parse as an absolute URL with a host, its first 80 characters, escaped.
    pub fn from_text(text: &str) -> Self {
        let parses = Url::parse(text).is_ok_and(|url| url.has_host());
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let visible = text.get(..end).unwrap_or_default();
        let shown = match split_scheme(visible) {
            Some((scheme, rest)) => format!("{scheme}:{}", without_user_info(rest)),
            None => visible
                .rsplit_once('@')
                .map_or(visible, |(_, host)| host)
                .to_owned(),
        };
        Self(escape_invisible(
            &shown,
            if parses {
                MAX_SHOWN_CHARACTERS
            } else {
                SHOWN_UNPARSED
            },
        ))
    }

    /// The text to show.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedactedUrl({})", self.0)
    }
}

/// Splits a scheme from what follows its colon, when that begins with a slash of either kind: parsers find user
/// info behind any number of them.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(scheme, rest)| {
        scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
            && rest.starts_with(['/', '\\'])
    })
}

/// Slashes, authority and path without everything up to the last `@` of the authority.
fn without_user_info(rest: &str) -> String {
    let after = rest.trim_start_matches(['/', '\\']);
    let slashes = rest.strip_suffix(after).unwrap_or_default();
    let end = after.find('/').unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{slashes}{host}{path}")
}

/// Characters that change how a line reads without being seen: controls, separators, bidi overrides.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes what would not be seen, and ends before the escaped form would have more than `limit` characters.
fn escape_invisible(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    let mut room = limit;
    for character in text.chars() {
        let is_escaped = is_invisible(character);
        let length = if is_escaped {
            character.escape_unicode().len()
        } else {
            1
        };
        let Some(left) = room.checked_sub(length) else {
            break;
        };
        room = left;
        if is_escaped {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A credential. Prints and serialises as `***`; the value leaves only through [`Secret::expose`].
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.is_empty() { "" } else { "***" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_user_info_query_and_fragment() {
        let check =
            |text: &str, shown: &str| assert_eq!(RedactedUrl::from_text(text).as_str(), shown);
        check(
            "https://u:p@h.example:8443/a/b?X-Amz-Signature=s#f",
            "https://h.example:8443/a/b",
        );
        check("http://2130706433/x", "http://2130706433/x");
        check("http://u:p\\@h/x", "http://h/x");
        check("http:u:p@h/x", "h/x");
        check("http:/u:p@h://x", "http:/h://x");
        check("http:///u:p@h/x@y", "http:///h/x@y");
        check("http:\\\\u:p@h/x", "http:\\\\h/x");
        check("not a url?secret", "not a url");
        check("u:p@h/x?secret", "h/x");
        check("a\u{202e}b\n", "a\\u{202e}b\\u{a}");
        assert_eq!(
            RedactedUrl::from_text(&format!("http://h/{}", "x".repeat(999)))
                .as_str()
                .len(),
            200
        );
        assert_eq!(RedactedUrl::from_text(&"x".repeat(999)).as_str().len(), 80);
    }

    #[test]
    fn the_shown_form_is_as_short_as_promised_after_escaping() {
        let hidden = "\u{202e}".repeat(300);
        let parsed = RedactedUrl::from_text(&format!("http://h/{hidden}"));
        assert_eq!(parsed.as_str().chars().count(), 9 + 23 * 8);
        let other = RedactedUrl::from_text(&format!("abc{hidden}"));
        assert_eq!(other.as_str().chars().count(), 3 + 9 * 8);
        assert!(other.as_str().ends_with("\\u{202e}"), "no escape is cut");
    }

    #[test]
    fn secrets_do_not_print() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {secret}"), "*** ***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }
}
