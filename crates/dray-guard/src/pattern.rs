//! Host patterns of allowlists (section 4): `example.com` and `*.example.com`.
//!
//! Patterns match canonical hosts by whole labels. [`crate::policy`] decides whether a list applies.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use psl::Psl as _;

use crate::canon::{CanonicalUrl, Host};

/// Longest name in characters, without a root dot (H-1, RFC 1035 2.3.4).
const MAX_NAME_CHARACTERS: usize = 253;
/// Longest label in characters (RFC 1035 2.3.4).
const MAX_LABEL_CHARACTERS: usize = 63;
/// Blanks that are trimmed around items (H-4).
const TRIMMED_BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// One pattern: a host name, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern {
    /// Lower case, no root dot, no leading `*.`.
    name: String,
    /// Whether the pattern matches every name below `name`, at any depth, but not `name` itself (H-3).
    wildcard: bool,
}

/// The hosts of an allow list or a deny list; order, case, duplicates and root dots of the text do not matter (H-4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPatterns(BTreeSet<HostPattern>);

/// The reason why a pattern or a list of them is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The list is not blank and still names no host.
    #[error("the host list is not blank but holds no pattern; leave it blank for no list")]
    NoPattern,
    /// An item of the list is empty.
    #[error("the host list has an empty item")]
    EmptyItem,
    /// The text begins like JSON and is not an array of strings.
    #[error("the host list begins with [ but is not a JSON array of strings")]
    Json(#[source] serde_json::Error),
    /// The pattern is not ASCII; patterns are written in punycode (H-2).
    #[error("host pattern {pattern:?} is not ASCII{}", suggestion_hint(.suggestion.as_deref()))]
    NotAscii {
        /// The pattern as the operator wrote it.
        pattern: String,
        /// The punycode form that was probably meant.
        suggestion: Option<String>,
    },
    /// `*` somewhere else than as the whole first label.
    #[error("host pattern {0:?} may use * only as a leading *. before a name")]
    Wildcard(String),
    /// A scheme, port, path, user info, brackets or a network.
    #[error("host pattern {0:?} must be a bare host name")]
    NotAHost(String),
    /// An empty or overlong label, a hyphen at its edge, or a character that no host name has.
    #[error(
        "host pattern {0:?} has an invalid label; labels are 1 to 63 of a-z 0-9 _ - without a hyphen at the edges"
    )]
    Label(String),
    /// A single label: a local name, which is never fetched.
    #[error("host pattern {0:?} needs at least two labels")]
    SingleLabel(String),
    /// The last label is a number: an address, not a name.
    #[error("host pattern {0:?} is an address; patterns are host names")]
    Address(String),
    /// More than 253 characters.
    #[error("host pattern {0:?} is longer than 253 characters")]
    TooLong(String),
}

fn suggestion_hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |form| format!("; write {form:?}"))
}

impl HostPattern {
    /// Reads one pattern; blanks around it are ignored.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for any text that is not a host name of two labels or more, alone or after `*.`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let text = text.trim_matches(TRIMMED_BLANKS);
        if text.is_empty() {
            return Err(PatternError::EmptyItem);
        }
        if !text.is_ascii() {
            return Err(not_ascii(text));
        }
        let lower = text.to_ascii_lowercase();
        // One root dot is dropped (H-4), as in `example.com.`.
        let rootless = lower.strip_suffix('.').unwrap_or(&lower);
        let (name, wildcard) = match rootless.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (rootless, false),
        };
        // `*` alone, `a.*.b`, `*a.b` and a second `*` all end here (H-2).
        if name.contains('*') {
            return Err(PatternError::Wildcard(text.to_owned()));
        }
        if name.contains([':', '/', '@', '[', ']', '?', '#', '%', '\\']) {
            return Err(PatternError::NotAHost(text.to_owned()));
        }
        // The total length (H-1), which includes the `*.`.
        if rootless.len() > MAX_NAME_CHARACTERS {
            return Err(PatternError::TooLong(text.to_owned()));
        }
        check_labels(text, name, wildcard)?;
        Ok(Self {
            name: name.to_owned(),
            wildcard,
        })
    }

    /// An entry that is an address. No name of a URL looks like one, so it matches nothing.
    fn of_address(text: &str) -> Self {
        Self {
            name: text.trim_matches(TRIMMED_BLANKS).to_ascii_lowercase(),
            wildcard: false,
        }
    }

    /// Whether this entry is an address, which matches no host.
    pub fn is_address(&self) -> bool {
        let last = self.name.rsplit('.').next().unwrap_or_default();
        self.name.contains(':') || last.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Whether a canonical name (lower case, no root dot) matches (H-3).
    pub fn matches(&self, name: &str) -> bool {
        if !self.wildcard {
            return self.name == name;
        }
        name.strip_suffix(self.name.as_str())
            // The dot is a label border: `notexample.com` ends in `example.com` as text only.
            .and_then(|below| below.strip_suffix('.'))
            // `.example.com` is not a name.
            .is_some_and(|below| !below.is_empty())
    }

    /// Whether it allows every registration below a public suffix, such as `*.com` (H-5): legal, worth a warning.
    pub fn covers_public_suffix(&self) -> bool {
        self.wildcard
            && psl::List
                .suffix(self.name.as_bytes())
                .is_some_and(|suffix| suffix.as_bytes() == self.name.as_bytes())
    }
}

/// Checks the labels of section 4. A wildcard may precede a single label: it then covers a public suffix (H-5).
fn check_labels(text: &str, name: &str, wildcard: bool) -> Result<(), PatternError> {
    if !name.split('.').all(is_label) {
        return Err(PatternError::Label(text.to_owned()));
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    // RFC 1123 2.1: the last label of a host name is never all digits, that of an address always is.
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(PatternError::Address(text.to_owned()));
    }
    if !wildcard && last.len() == name.len() {
        return Err(PatternError::SingleLabel(text.to_owned()));
    }
    Ok(())
}

/// Whether it is 1 to 63 of `[a-z0-9_-]` without a hyphen at an edge; the underscore occurs in the wild.
pub(crate) fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_CHARACTERS).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn not_ascii(text: &str) -> PatternError {
    let (star, name) = match text.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", text),
    };
    let suggestion = idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::URL)
        .ok()
        // A suggestion that would be refused too is worse than none.
        .filter(|mapped| mapped.split('.').all(is_label))
        .map(|mapped| format!("{star}{mapped}"));
    PatternError::NotAscii {
        pattern: text.to_owned(),
        suggestion,
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::parse(text)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

impl HostPatterns {
    /// Reads each item as a pattern. No item at all gives the empty set, which matches nothing.
    ///
    /// # Errors
    ///
    /// [`PatternError`] of the first item that is not a pattern.
    pub fn parse<I>(items: I) -> Result<Self, PatternError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        items
            .into_iter()
            .map(|item| HostPattern::parse(item.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads an operator's allowlist: as [`parse`](Self::parse), but an address is an entry too. It matches no host
    /// (P-2), so a list of addresses refuses every host, and the process starts.
    ///
    /// # Errors
    /// The first item that is neither a pattern nor an address.
    pub fn parse_allowlist<I>(items: I) -> Result<Self, PatternError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        items
            .into_iter()
            .map(|item| {
                let text = item.as_ref();
                // Brackets as in a URL, so that `[::1]` is recognised as the address that it is.
                let bare = text.trim_matches(TRIMMED_BLANKS).trim_matches(['[', ']']);
                if bare.parse::<IpAddr>().is_ok() {
                    return Ok(HostPattern::of_address(bare));
                }
                match HostPattern::parse(text) {
                    // Addresses that `IpAddr` does not parse, such as `010.0.0.1`.
                    Err(PatternError::Address(text)) => Ok(HostPattern::of_address(&text)),
                    other => other,
                }
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether one of the patterns matches the canonical name.
    pub fn matches_name(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether any pattern matches the host of `url`. Addresses (P-2) and hosts written with a root dot (H-3)
    /// match no pattern.
    pub fn matches(&self, url: &CanonicalUrl) -> bool {
        match url.host() {
            Host::Name(name) => !url.root_dot() && self.matches_name(name.as_str()),
            Host::Ip(_) => false,
        }
    }

    /// Whether the list has no pattern: it then matches no host.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns in a fixed order, independent of how the list was written.
    pub fn iter(&self) -> impl Iterator<Item = &HostPattern> {
        self.0.iter()
    }

    /// Patterns that cover a public suffix, to be logged at start (H-5).
    pub fn over_public_suffixes(&self) -> impl Iterator<Item = &HostPattern> {
        self.0
            .iter()
            .filter(|pattern| pattern.covers_public_suffix())
    }
}

/// Reads a list that an operator wrote: comma-separated, or a JSON array of strings (P-4).
///
/// Blank text is `None`, *no list*. Text that is not blank and yields no pattern is an error, as is an empty item
/// among others.
pub fn parse_admin_list(text: &str) -> Result<Option<HostPatterns>, PatternError> {
    let text = text.trim_matches(TRIMMED_BLANKS);
    if text.is_empty() {
        // Blank is unset, as in the peer (P-4).
        return Ok(None);
    }
    let items: Vec<String> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(PatternError::Json)?
    } else {
        text.split(',').map(str::to_owned).collect()
    };
    if items
        .iter()
        .all(|item| item.trim_matches(TRIMMED_BLANKS).is_empty())
    {
        return Err(PatternError::NoPattern);
    }
    // An empty item is not skipped: among others it is a typo, and an error at start (P-4).
    HostPatterns::parse_allowlist(items).map(Some)
}

#[cfg(test)]
mod tests;
