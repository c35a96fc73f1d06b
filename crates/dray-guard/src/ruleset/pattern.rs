//! Patterns of names, hosts and media types. Matching takes at most (pattern × text) steps, even for many
//! wildcards.

use std::collections::HashSet;

use crate::canon::Host;
use crate::pattern::{HostPattern, PatternError};

/// Longest pattern in bytes.
pub(super) const MAX_PATTERN_BYTES: usize = 512;

/// Names of tenants, sessions, apps or certificates: exact ones, and patterns with `*` for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameList {
    exact: HashSet<String>,
    globs: Vec<String>,
}

impl NameList {
    pub(super) fn insert(&mut self, pattern: &str) {
        if pattern.contains('*') {
            self.globs.push(pattern.to_owned());
        } else {
            self.exact.insert(pattern.to_owned());
        }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.exact.contains(name)
            || self
                .globs
                .iter()
                .any(|glob| matches_glob(glob.as_bytes(), name.as_bytes()))
    }
}

/// Whether a name matches a pattern, in which `*` stands for any text.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    matches_glob(pattern.as_bytes(), name.as_bytes())
}

/// Whether `text` matches `glob`, in which `*` stands for any text.
pub(super) fn matches_glob(glob: &[u8], text: &[u8]) -> bool {
    matches_sequence(glob, text, |item| *item == b'*', |item, byte| item == byte)
}

/// Matches a sequence with wildcards of any length. After a mismatch only the last wildcard takes one element more,
/// because it can take every element that an earlier wildcard could take.
pub(super) fn matches_sequence<P, T>(
    pattern: &[P],
    text: &[T],
    is_any: impl Fn(&P) -> bool,
    is_match: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut pattern_index, mut text_index) = (0, 0);
    // The index after the last wildcard in the pattern, and the index in the text at which that wildcard ends.
    let mut last_wildcard: Option<(usize, usize)> = None;
    while let Some(element) = text.get(text_index) {
        match pattern.get(pattern_index) {
            Some(item) if is_any(item) => {
                pattern_index += 1;
                last_wildcard = Some((pattern_index, text_index));
            }
            Some(item) if is_match(item, element) => {
                pattern_index += 1;
                text_index += 1;
            }
            _ => {
                let Some((after_wildcard, wildcard_end)) = last_wildcard else {
                    return false;
                };
                pattern_index = after_wildcard;
                text_index = wildcard_end + 1;
                last_wildcard = Some((after_wildcard, text_index));
            }
        }
    }
    pattern.iter().skip(pattern_index).all(is_any)
}

/// Hosts of a rule. Names and suffixes are looked up in hash sets, so that long lists take no additional time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostList {
    exact: HashSet<String>,
    /// Names below which everything matches.
    suffixes: HashSet<String>,
    /// Patterns with `*` for exactly one label, by their labels.
    labels: Vec<Vec<String>>,
}

impl HostList {
    /// Adds `example.com`, `*.example.com` (every name below), or a name with `*` in place of a later label.
    pub(super) fn insert(&mut self, text: &str) -> Result<(), PatternError> {
        let (first, rest) = text.split_once('.').unwrap_or((text, ""));
        if rest.split('.').all(|label| label != "*") {
            let pattern = HostPattern::parse(text)?.to_string();
            match pattern.strip_prefix("*.") {
                Some(name) => self.suffixes.insert(name.to_owned()),
                None => self.exact.insert(pattern),
            };
            return Ok(());
        }
        // A pattern must be valid when each wildcard is replaced by a label. The last two labels must not be wildcards.
        let mut later_labels = rest.rsplit('.');
        let has_name = later_labels
            .by_ref()
            .take(2)
            .filter(|label| *label != "*")
            .count()
            == 2;
        if first == "*" || !has_name {
            return Err(PatternError::Wildcard(text.to_owned()));
        }
        let sample_labels: Vec<&str> = text
            .split('.')
            .map(|label| if label == "*" { "x" } else { label })
            .collect();
        HostPattern::parse(&sample_labels.join(".")).map_err(|error| error_about(error, text))?;
        let labels = text.trim_end_matches('.').to_ascii_lowercase();
        self.labels
            .push(labels.split('.').map(str::to_owned).collect());
        Ok(())
    }

    /// Whether the name of `host` matches. Addresses match nothing.
    pub(super) fn matches(&self, host: &Host) -> bool {
        let Host::Name(name) = host else {
            return false;
        };
        let name = name.as_str();
        if self.exact.contains(name) {
            return true;
        }
        let mut below = name;
        while let Some((_, parent)) = below.split_once('.') {
            if self.suffixes.contains(parent) {
                return true;
            }
            below = parent;
        }
        self.labels.iter().any(|labels| {
            labels.len() == name.split('.').count()
                && labels
                    .iter()
                    .zip(name.split('.'))
                    .all(|(pattern, label)| pattern == "*" || pattern == label)
        })
    }
}

/// The error about a sample of a pattern, as one about the pattern `text`.
fn error_about(error: PatternError, text: &str) -> PatternError {
    let pattern = text.to_owned();
    match error {
        PatternError::NotAscii { suggestion, .. } => PatternError::NotAscii {
            suggestion: suggestion.and_then(|sample| with_wildcards(text, &sample)),
            pattern,
        },
        PatternError::NotAHost(_) => PatternError::NotAHost(pattern),
        PatternError::Label(_) => PatternError::Label(pattern),
        PatternError::Address(_) => PatternError::Address(pattern),
        PatternError::TooLong(_) => PatternError::TooLong(pattern),
        other => other,
    }
}

/// `sample` with the wildcards of `pattern`; `None` where the labels of both do not correspond.
fn with_wildcards(pattern: &str, sample: &str) -> Option<String> {
    let has_same_count = pattern.split('.').count() == sample.split('.').count();
    let labels = pattern.split('.').zip(sample.split('.'));
    let labels: Vec<&str> = labels
        .map(|(label, sample)| if label == "*" { label } else { sample })
        .collect();
    has_same_count.then(|| labels.join("."))
}

/// A media type, or every subtype of one: `text/csv`, `image/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaPattern {
    main: String,
    /// `None` for every subtype.
    sub: Option<String>,
}

impl MediaPattern {
    /// Reads a pattern; `*/*` is written by leaving the list out.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (main, sub) = text.split_once('/')?;
        let is_token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-' | b'_')
                })
        };
        let sub = (sub != "*").then_some(sub);
        (is_token(main) && sub.is_none_or(is_token)).then(|| Self {
            main: main.to_ascii_lowercase(),
            sub: sub.map(str::to_ascii_lowercase),
        })
    }

    /// Whether a declared media type matches, with or without parameters.
    pub(super) fn matches(&self, declared: &str) -> bool {
        let essence = declared.split(';').next().unwrap_or_default().trim();
        let Some((main, sub)) = essence.split_once('/') else {
            return false;
        };
        main.eq_ignore_ascii_case(&self.main)
            && self
                .sub
                .as_ref()
                .is_none_or(|own_subtype| sub.eq_ignore_ascii_case(own_subtype))
    }
}
