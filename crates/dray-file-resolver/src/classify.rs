//! Decides where a named file lives: in DIAL, outside, or nowhere we can load from (quickapps 32, R2, R4).
//!
//! A DIAL file is reduced to one canonical path, so that two spellings of it are one file and the request is built
//! from the configured origin and that path alone. Nothing of what the agent wrote decides where a key is sent.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

/// Longest reference that is looked at, in bytes; the fetcher's limit for URLs (egress-security U-1).
const MAX_REFERENCE_BYTES: usize = 8192;

/// Everything but the unreserved characters (RFC 3986 section 2.3) is encoded.
const ENCODED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Where a file is loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoadTarget {
    /// A file of DIAL Core.
    Dial(DialPath),
    /// A URL for the egress-fetcher, as it was written, less leading blanks.
    External(String),
}

/// `files/{bucket}/{path}` in its one canonical spelling: every segment percent-encoded from its decoded form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DialPath(String);

/// A text that names no file that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedReference {
    /// Neither a DIAL file nor an http(s) URL.
    #[error("neither a DIAL file nor an http(s) URL")]
    Scheme,
    /// It is longer than 8192 bytes.
    #[error("longer than {MAX_REFERENCE_BYTES} bytes")]
    TooLong,
    /// It is on the DIAL origin, but not below `/v1/files/`.
    #[error("on the DIAL origin, but not a file")]
    NotAFile,
    /// It names a bucket or a folder.
    #[error("a bucket or a folder")]
    Folder,
    /// A segment is empty, `.` or `..`, or holds a slash, a backslash, a control character or no UTF-8.
    #[error("a path that is not plain")]
    Path,
}

impl UnsupportedReference {
    /// What is wrong, as a sentence for the agent.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Scheme => "Pass `files/{bucket}/{path}` or an http(s) URL.",
            Self::TooLong => "It is longer than 8192 bytes.",
            Self::NotAFile => "It is not a DIAL file; pass `files/{bucket}/{path}`.",
            Self::Folder => "It names a folder; pass the path of a file.",
            Self::Path => "Its path must not contain empty, `.` or `..` segments.",
        }
    }
}

impl DialPath {
    /// The path below `/v1/`, which is also how it is shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file that `bucket/path` names, which is everything after `files/`.
    ///
    /// # Errors
    ///
    /// [`UnsupportedReference`] when it names no file.
    pub fn of(path: &str) -> Result<Self, UnsupportedReference> {
        Self::parse(path)
    }

    /// Reads everything after `files/`; the query and the fragment do not belong to the file.
    fn parse(path: &str) -> Result<Self, UnsupportedReference> {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let path = path.get(..end).unwrap_or_default();
        let (bucket, inside) = path.split_once('/').ok_or(UnsupportedReference::Folder)?;
        if bucket.is_empty() {
            return Err(UnsupportedReference::Path);
        }
        if inside.is_empty() || inside.ends_with('/') {
            return Err(UnsupportedReference::Folder);
        }
        let mut canonical = "files".to_owned();
        for segment in path.split('/') {
            let decoded = percent_decode_str(segment)
                .decode_utf8()
                .map_err(|_| UnsupportedReference::Path)?;
            let is_plain = !matches!(decoded.as_ref(), "" | "." | "..")
                && !decoded.contains(|character: char| {
                    matches!(character, '/' | '\\') || character.is_control()
                });
            if !is_plain {
                return Err(UnsupportedReference::Path);
            }
            canonical.push('/');
            canonical.extend(utf8_percent_encode(&decoded, ENCODED_BYTES));
        }
        Ok(Self(canonical))
    }
}

impl fmt::Display for DialPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The exact origin that may receive DIAL keys, and the path under which its API lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOrigin {
    base: Url,
}

/// `DIAL_URL` is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the DIAL URL must be http(s)://host[:port][/path] without credentials, query and fragment"
)]
pub struct InvalidOrigin;

impl DialOrigin {
    /// Reads `DIAL_URL`.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        let mut base = Url::parse(text.trim()).map_err(|_| InvalidOrigin)?;
        let is_usable = matches!(base.scheme(), "http" | "https")
            && base.has_host()
            && base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none()
            && base.fragment().is_none();
        if !is_usable {
            return Err(InvalidOrigin);
        }
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Ok(Self { base })
    }

    /// The URL of `path` below `/v1/`, for instance `metadata/files/b/a.pdf`. `path` is already encoded.
    pub(crate) fn api(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// Whether the URL has this scheme, host and port.
    fn is_origin_of(&self, url: &Url) -> bool {
        url.scheme() == self.base.scheme()
            && url.host() == self.base.host()
            && url.port_or_known_default() == self.base.port_or_known_default()
    }
}

/// Classifies where the named file lives. Without a DIAL origin every http(s) URL is external.
pub fn classify_reference(
    named: &str,
    dial: Option<&DialOrigin>,
) -> Result<LoadTarget, UnsupportedReference> {
    if named.len() > MAX_REFERENCE_BYTES {
        return Err(UnsupportedReference::TooLong);
    }
    if let Some(path) = strip_ignoring_case(named.trim_start_matches('/'), "files/") {
        return DialPath::parse(path).map(LoadTarget::Dial);
    }
    let named = named.trim_start_matches(' ');
    let authority = ["http://", "https://"]
        .iter()
        .find_map(|scheme| strip_ignoring_case(named, scheme))
        .ok_or(UnsupportedReference::Scheme)?;
    if authority.is_empty() || authority.starts_with(['/', '?', '#', '\\', ':', '@']) {
        return Err(UnsupportedReference::Scheme);
    }
    match (Url::parse(named), dial) {
        (Ok(url), Some(origin)) if origin.is_origin_of(&url) => {
            // The path as written: a parsed one has lost its `..` segments.
            let path = authority
                .find(['/', '\\', '?', '#'])
                .and_then(|start| authority.get(start..))
                .and_then(|path| path.strip_prefix(origin.base.path().trim_end_matches('/')))
                .and_then(|path| strip_ignoring_case(path, "/v1/files/"))
                .ok_or(UnsupportedReference::NotAFile)?;
            DialPath::parse(path).map(LoadTarget::Dial)
        }
        // What does not parse is the fetcher's to judge and to name.
        _ => Ok(LoadTarget::External(named.to_owned())),
    }
}

fn strip_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| text.get(prefix.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests;
