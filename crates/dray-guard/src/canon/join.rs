//! Resolves the reference of a redirect against the current URL (section 12).

use url::Url;

use crate::reason::Code;

use super::{CanonicalUrl, check_text};

impl CanonicalUrl {
    /// The URL that `reference` names in a response to `self`.
    ///
    /// A reference with a scheme or an authority is judged literally, as if an agent had written it. A reference
    /// without both is joined as WHATWG defines it, and so cannot leave the origin.
    ///
    /// # Errors
    /// The errors of [`CanonicalUrl::parse`].
    pub fn join(&self, reference: &str) -> Result<Self, Code> {
        check_text(reference)?;
        // Such a reference is not joined: WHATWG resolves `https:path` against an https base as if it were relative.
        if split_reference(reference).is_some() {
            return Self::parse(reference);
        }
        // The reference is judged as written: after a join, only the WHATWG reading of the authority would be left.
        if reference.starts_with("//") {
            return Self::parse(&format!("{}:{reference}", self.scheme()));
        }
        let joined = Url::parse(&self.to_string())
            .and_then(|base| base.join(reference))
            .map_err(|_| Code::InvalidUrl)?;
        // This removes the fragment too.
        let next = Self::parse(joined.as_str())?;
        // A reference without scheme and authority that still leaves the origin has two readings.
        if next.is_same_origin(self) {
            Ok(next)
        } else {
            Err(Code::InvalidUrl)
        }
    }

    /// Whether scheme, host, root dot and port are the same.
    pub fn is_same_origin(&self, other: &Self) -> bool {
        self.https == other.https
            && self.host == other.host
            && self.root_dot == other.root_dot
            && self.port == other.port
    }
}

/// Splits a text that begins with a scheme (RFC 3986 3.1) at the colon after it.
pub(super) fn split_reference(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}
