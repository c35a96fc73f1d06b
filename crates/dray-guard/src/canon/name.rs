//! Domain names: mapping to A-labels (U-7) and the check against disguises (U-8).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use dray_types::invisible::is_zero_width;
use icu_normalizer::ComposingNormalizerBorrowed;
use idna::AsciiDenyList;
use idna::uts46::{Hyphens, Uts46};

use crate::pattern::is_label;
use crate::reason::Code;

/// Longest name in characters, without the root dot.
pub(crate) const MAX_NAME_CHARACTERS: usize = 253;

/// A domain name in lower-case A-labels without root dot.
///
/// May have a single label: such names are never fetched (section 6), but that is not checked here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CanonicalName(String);

impl CanonicalName {
    /// The name in lower-case A-labels, without root dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with the root dot, for queries to DNS: without the dot a search list could apply (D-1).
    pub fn fqdn(&self) -> String {
        format!("{}.", self.0)
    }

    /// Checks a name that was mapped already, and returns whether it had a root dot.
    pub(super) fn from_mapped(mapped: &str) -> Result<(Self, bool), Code> {
        // Only one dot is removed: after a second one an empty label is left, which `is_label` refuses.
        let (name, root_dot) = match mapped.strip_suffix('.') {
            Some(name) => (name, true),
            None => (mapped, false),
        };
        if name.len() > MAX_NAME_CHARACTERS || !name.split('.').all(is_label) {
            return Err(Code::InvalidUrl);
        }
        Ok((Self(name.to_owned()), root_dot))
    }
}

/// Reads a name as the host of a URL is read; a root dot is dropped. Addresses are not names.
impl FromStr for CanonicalName {
    type Err = Code;

    fn from_str(text: &str) -> Result<Self, Code> {
        // Uses the whole URL reader, so that a name means the same here and in a URL.
        match super::CanonicalUrl::parse(&format!("http://{text}/"))?.host {
            // Everything that would end the host early and leave a different name.
            super::Host::Name(name) if !text.contains(['/', '?', '#', ':']) => Ok(name),
            _ => Err(Code::InvalidUrl),
        }
    }
}

impl fmt::Display for CanonicalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Maps with UTS 46, non-transitional, and refuses a host that looks like another one (U-8).
pub(super) fn map_uts46(raw: &str) -> Result<Cow<'_, str>, Code> {
    // Joiners are refused too, because a reader cannot see them. Names that need joiners can be written in punycode.
    if raw.chars().any(is_zero_width) {
        return Err(Code::AmbiguousHost);
    }
    // `URL` refuses only the WHATWG's forbidden characters; `is_label` is stricter and comes later.
    let mapped = idna::domain_to_ascii_cow(raw.as_bytes(), AsciiDenyList::URL)
        .map_err(|_| Code::InvalidUrl)?;
    // The ideographic full stop becomes a dot and so adds labels.
    let same_count = raw.split('.').count() == mapped.split('.').count();
    let is_honest = same_count
        && raw
            .split('.')
            .zip(mapped.split('.'))
            .all(|(raw, mapped)| is_same_label(raw, mapped));
    if is_honest {
        Ok(mapped)
    } else {
        Err(Code::AmbiguousHost)
    }
}

/// Whether the label looks like what it becomes. An ASCII label is itself. Any other label becomes an A-label. Decoded,
/// the A-label must equal the raw label in lower case: so the mapping replaced and dropped nothing.
fn is_same_label(raw: &str, mapped: &str) -> bool {
    if raw.is_ascii() {
        return raw.eq_ignore_ascii_case(mapped);
    }
    if raw.contains(KELVIN_SIGN) {
        return false;
    }
    let (unicode, result) =
        Uts46::new().to_unicode(mapped.as_bytes(), AsciiDenyList::URL, Hyphens::Allow);
    // NFC, because composed and decomposed spellings of an honest name are equal.
    let lower: String = raw.chars().flat_map(char::to_lowercase).collect();
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(&lower);
    // Without the prefix a ligature or full-width letters would become a plain ASCII name.
    mapped.starts_with("xn--") && result.is_ok() && composed == unicode
}

/// The only non-ASCII character whose lower case is an ASCII letter. A label that contains it would compare equal to
/// one with `k`.
const KELVIN_SIGN: char = '\u{212a}';
