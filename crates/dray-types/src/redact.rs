//! Values that must not appear unchanged in logs or responses.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::invisible::is_unprintable;

/// A URL as it may be shown: scheme, host, port and path; no user info, query or fragment.
///
/// The query may contain a signature, and the user info a password (messaging-reliability L-1, quickapps R8).
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(String);

/// Longest shown form of a URL, in characters (egress-security 17).
const MAX_SHOWN_CHARACTERS: usize = 200;
/// Longest shown form of a text that is not a URL, in characters (egress-security 17).
const MAX_UNPARSED_CHARACTERS: usize = 80;

impl RedactedUrl {
    /// Redacts the text of a URL without normalizing its spelling: at most 200 characters, with control characters
    /// escaped.
    ///
    /// If the text does not parse as an absolute URL with a host, its first 80 characters remain, escaped.
    pub fn from_text(text: &str) -> Self {
        // Parsing affects only the length: secrets are also cut from text that no parser accepts.
        let parses = Url::parse(text).is_ok_and(|url| url.has_host());
        // The query is cut first, so that no later step can bring the query back.
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let visible = text.get(..end).unwrap_or_default();
        let without_secrets = match split_scheme(visible) {
            Some((scheme, rest)) => format!("{scheme}:{}", without_user_info(rest)),
            None => visible
                // Without slashes user info may be anywhere: `http:u:p@h/x`.
                .rsplit_once('@')
                .map_or(visible, |(_, host)| host)
                .to_owned(),
        };
        Self(escape_invisible(
            &without_secrets,
            if parses {
                MAX_SHOWN_CHARACTERS
            } else {
                MAX_UNPARSED_CHARACTERS
            },
        ))
    }

    /// The reduced text, safe to show.
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

/// Splits a scheme from the text after its colon, if that text begins with a slash or backslash. Parsers find user info
/// after any number of them.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(scheme, rest)| {
        scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
            // WHATWG parsers read a backslash as a slash.
            && rest.starts_with(['/', '\\'])
    })
}

/// Slashes, authority and path without everything up to the last `@` of the authority.
fn without_user_info(rest: &str) -> String {
    let after = rest.trim_start_matches(['/', '\\']);
    let slashes = rest.strip_suffix(after).unwrap_or_default();
    // Only a slash ends it. For one parser a backslash is part of the password, and for another it ends the authority.
    let end = after.find('/').unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    let host = authority
        // The last `@`, because a password may contain one.
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{slashes}{host}{path}")
}

/// Escapes invisible characters, and stops before the result exceeds `limit` characters.
fn escape_invisible(text: &str, limit: usize) -> String {
    let mut escaped = String::with_capacity(text.len().min(limit));
    let mut remaining = limit;
    for character in text.chars() {
        let is_escaped = is_unprintable(character);
        let length = if is_escaped {
            character.escape_unicode().len()
        } else {
            1
        };
        // An escape is kept whole or not at all: half of one would read as text.
        let Some(left) = remaining.checked_sub(length) else {
            break;
        };
        remaining = left;
        if is_escaped {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// The problem of a TOML text that may have secrets, from the error of its parser: the line and a message without a value.
/// The display of such an error has the whole line.
pub fn toml_problem(text: &str, position: Option<usize>, message: &str) -> String {
    let before = position.and_then(|position| text.get(..position));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    // Serde quotes a value of the wrong type, which may be a secret that was pasted by mistake.
    let message = match message {
        quoted if quoted.starts_with("invalid ") => "a value has the wrong type",
        quoted if quoted.starts_with("unknown variant ") => "a value is not one of the known ones",
        other => other,
    };
    format!("line {line}: {}", message.replace('\n', " "))
}

/// A credential. Prints and serialises as `***`; the value leaves only through [`Secret::expose`].
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a value, which prints as `***` from here on.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the secret itself, for the code that sends it. Do not store or print it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the value is empty: the secret is not set.
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
        // An empty value is not masked, to show that the secret is not set.
        serializer.serialize_str(if self.is_empty() { "" } else { "***" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_user_info_query_and_fragment() {
        let check = |text: &str, expected: &str| {
            assert_eq!(RedactedUrl::from_text(text).as_str(), expected);
        };
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
        for hidden in ['\u{ad}', '\u{61c}', '\u{2060}', '\u{e0041}'] {
            let escaped = format!("http://h/{}", hidden.escape_unicode());
            check(&format!("http://h/{hidden}"), &escaped);
        }
        assert_eq!(
            RedactedUrl::from_text(&format!("http://h/{}", "x".repeat(999)))
                .as_str()
                .len(),
            200
        );
        assert_eq!(RedactedUrl::from_text(&"x".repeat(999)).as_str().len(), 80);
    }

    #[test]
    fn the_redacted_form_is_within_its_limit_after_escaping() {
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
