//! Classes of URLs, and the one spelling of a DIAL file (quickapps 5.1, 32; R2, R4). No I/O.
//!
//! Every crate that sends a DIAL key uses these rules: text of a user never determines where a key is sent.

mod reference;

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

pub use reference::{LoadTarget, UnsupportedReference, classify_reference};

/// Longest reference that is parsed, in bytes; the fetcher's limit for URLs (egress-security U-1).
const MAX_REFERENCE_BYTES: usize = 8192;

/// Everything but the unreserved characters (RFC 3986 section 2.3) is encoded.
const PERCENT_ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Who serves a URL, which decides whether DIAL's key may go with a request for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UrlClass {
    /// A file of DIAL.
    Dial(FileUrl),
    /// `http` or `https` elsewhere.
    External,
    /// A `data:` URL: the content itself.
    Data,
    /// Any other URL, including folders and paths that are not plain.
    Unsupported,
}

/// `files/{bucket}/{path}` in its one spelling: every segment percent-encoded once from its decoded form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileUrl(String);

impl FileUrl {
    /// Reads a relative URL of a file; leading slashes, the query and the fragment are ignored. `None` if it does not
    /// identify a file: folders, empty segments, `.` and `..`, escaped slashes and control characters.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_REFERENCE_BYTES {
            return None;
        }
        let path = strip_path_prefix(text.trim_start_matches('/'), "files/")?;
        Self::inside(path).ok()
    }

    /// Reads everything after `files/`; query and fragment do not belong to the file.
    fn inside(path: &str) -> Result<Self, UnsupportedReference> {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let path = path.get(..end).unwrap_or_default();
        let (bucket, inside) = path.split_once('/').ok_or(UnsupportedReference::Folder)?;
        if bucket.is_empty() {
            return Err(UnsupportedReference::Path);
        }
        if inside.is_empty() || inside.ends_with('/') {
            return Err(UnsupportedReference::Folder);
        }
        canonical_path("files", path)
            .map(Self)
            .ok_or(UnsupportedReference::Path)
    }

    /// The canonical URL, which is also the path below `/v1/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment, decoded.
    pub fn title(&self) -> String {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        percent_decode_str(last).decode_utf8_lossy().into_owned()
    }

    /// The folder that contains it.
    pub fn folder(&self) -> DialFolder {
        let end = self.0.rfind('/').unwrap_or_default();
        DialFolder(self.0.get(..end).unwrap_or_default().to_owned())
    }
}

impl fmt::Display for FileUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A bucket or a folder in it, without the slash at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DialFolder(String);

impl DialFolder {
    /// Reads `bucket/path`, with or without `files/` before it. `None` if it is not a plain path.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('/').trim_end_matches('/');
        let inside = strip_path_prefix(text, "files/").unwrap_or(text);
        canonical_path("files", inside).map(Self)
    }

    /// The canonical URL with the slash at the end.
    pub fn url(&self) -> String {
        format!("{}/", self.0)
    }

    /// A file in it. Invalid characters are replaced by `_`, and dots at the end are removed (quickapps 5.1).
    pub fn file(&self, name: &str) -> FileUrl {
        let clean: String = name
            .trim()
            .trim_end_matches('.')
            .chars()
            .map(|letter| match letter {
                '/' | '\\' => '_',
                letter if letter.is_control() => '_',
                letter => letter,
            })
            .collect();
        let clean = if clean.is_empty() { "file" } else { &clean };
        FileUrl(format!(
            "{}/{}",
            self.0,
            utf8_percent_encode(clean, PERCENT_ENCODED)
        ))
    }
}

/// The exact origin that may receive DIAL keys, and the base path of its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOrigin {
    base: Url,
}

/// `DIAL_URL` is not the base of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the DIAL URL must be http(s)://host[:port][/path] without credentials, query and fragment"
)]
pub struct InvalidOrigin;

impl DialOrigin {
    /// Reads `DIAL_URL`: `http(s)://host[:port][/path]`.
    ///
    /// # Errors
    ///
    /// [`InvalidOrigin`] for another scheme, and with credentials, query or fragment.
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
        // One form for both spellings, since paths are appended with their own slash.
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Ok(Self { base })
    }

    /// The URL of an encoded path below the base, for instance `v1/bucket`.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// Address of the MCP server of a toolset or an application (quickapps 5.3). `None` for an id that is not a plain
    /// path.
    pub fn mcp_url(&self, id: &str) -> Option<String> {
        let id = canonical_path("", id)?;
        Some(self.url(&format!("v1/toolset/{id}/mcp")))
    }

    /// Whether the URL has exactly this scheme, host and port.
    pub fn owns(&self, url: &str) -> bool {
        Url::parse(url.trim_start_matches(' ')).is_ok_and(|url| self.is_origin_of(&url))
    }

    /// The class of a URL at this origin.
    pub fn classify(&self, text: &str) -> UrlClass {
        classify_url(text, Some(self))
    }

    /// The file that a URL names in any of its spellings.
    pub fn file(&self, text: &str) -> Option<FileUrl> {
        match self.classify(text) {
            UrlClass::Dial(file) => Some(file),
            _ => None,
        }
    }

    fn is_origin_of(&self, url: &Url) -> bool {
        url.scheme() == self.base.scheme()
            && url.host() == self.base.host()
            // `https://h` and `https://h:443` are the same origin.
            && url.port_or_known_default() == self.base.port_or_known_default()
    }
}

/// The class of a URL. Without an origin every http(s) URL is external.
pub fn classify_url(text: &str, origin: Option<&DialOrigin>) -> UrlClass {
    // This check is first: only a URL that contains its content may exceed the limit.
    if strip_path_prefix(text.trim_start_matches(' '), "data:").is_some() {
        return UrlClass::Data;
    }
    match classify_reference(text, origin) {
        Ok(LoadTarget::Dial(file)) => UrlClass::Dial(file),
        Ok(LoadTarget::External(_)) => UrlClass::External,
        Err(_) => UrlClass::Unsupported,
    }
}

/// A relative path with every segment percent-encoded once. `path` is decoded, and is not checked.
pub fn encode_path(path: &str) -> String {
    let segments: Vec<_> = path
        .split('/')
        .map(|segment| utf8_percent_encode(segment, PERCENT_ENCODED).to_string())
        .collect();
    segments.join("/")
}

/// An id or path in its canonical spelling: segments decoded once and encoded once. `None` if it is not a plain path.
pub(crate) fn canonical_path(prefix: &str, path: &str) -> Option<String> {
    let mut canonical = prefix.to_owned();
    for segment in path.split('/') {
        // The segment is decoded before the check: `%2e%2e` and `%2F` climb as well (path traversal).
        let decoded = percent_decode_str(segment).decode_utf8().ok()?;
        let is_plain = !matches!(decoded.as_ref(), "" | "." | "..")
            && !decoded
                .contains(|letter: char| matches!(letter, '/' | '\\') || letter.is_control());
        if !is_plain {
            return None;
        }
        if !canonical.is_empty() {
            canonical.push('/');
        }
        canonical.extend(utf8_percent_encode(&decoded, PERCENT_ENCODED));
    }
    Some(canonical)
}

fn strip_path_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| text.get(prefix.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests;
