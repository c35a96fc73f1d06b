//! What a URL is, and the one spelling of a DIAL file (quickapps 5.1, 32; R2, R4). No I/O.
//!
//! The rules are those of the file-resolver: nothing in a user's text decides where a key is sent.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

/// Longest reference that is looked at, in bytes.
const MAX_REFERENCE_BYTES: usize = 8192;

/// Everything but the unreserved characters (RFC 3986 section 2.3) is encoded.
const PERCENT_ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What a URL is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UrlClass {
    /// A file of DIAL.
    Dial(FileUrl),
    /// `http` or `https` elsewhere.
    External,
    /// `data:`.
    Data,
    /// Anything else, folders and what is not plain included.
    Unsupported,
}

/// `files/{bucket}/{path}` in its one spelling: every segment percent-encoded once from its decoded form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileUrl(String);

impl FileUrl {
    /// Reads a relative URL of a file; leading slashes, the query and the fragment do not belong to it. `None` when it
    /// names no file: folders, empty segments, `.` and `..`, slashes and control characters behind an escape.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_REFERENCE_BYTES {
            return None;
        }
        let path = strip_path_prefix(text.trim_start_matches('/'), "files/")?;
        Self::inside(path)
    }

    fn inside(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next()?;
        path.contains('/')
            .then(|| canonical_path("files", path))
            .flatten()
            .map(Self)
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

    /// The folder that it lies in.
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
    /// Reads `bucket/path`, with or without `files/` before it. `None` when it is not plain.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('/').trim_end_matches('/');
        let inside = strip_path_prefix(text, "files/").unwrap_or(text);
        canonical_path("files", inside).map(Self)
    }

    /// The canonical URL with the slash at the end.
    pub fn url(&self) -> String {
        format!("{}/", self.0)
    }

    /// A file in it. What no name can hold is replaced by `_`, dots at the end are left out (quickapps 5.1).
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

/// The exact origin that may receive DIAL keys, and the path under which its API lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOrigin {
    base: Url,
}

impl DialOrigin {
    /// Reads `DIAL_URL`: `http(s)://host[:port][/path]`. `None` with credentials, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let mut base = Url::parse(text.trim()).ok()?;
        let is_usable = matches!(base.scheme(), "http" | "https")
            && base.has_host()
            && base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none()
            && base.fragment().is_none();
        if !is_usable {
            return None;
        }
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Some(Self { base })
    }

    /// The URL of an encoded path below the base, for instance `v1/bucket`.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// Whether the URL has exactly this scheme, host and port.
    pub fn owns(&self, url: &str) -> bool {
        Url::parse(url.trim_start_matches(' ')).is_ok_and(|url| self.is_origin_of(&url))
    }

    /// What a URL is.
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
            && url.port_or_known_default() == self.base.port_or_known_default()
    }

    fn file_at(&self, authority: &str) -> Option<FileUrl> {
        // The path as written: a parsed one has lost its `..` segments.
        let start = authority.find(['/', '\\', '?', '#'])?;
        let path = authority.get(start..)?;
        let path = path.strip_prefix(self.base.path().trim_end_matches('/'))?;
        FileUrl::inside(strip_path_prefix(path, "/v1/files/")?)
    }
}

/// What a URL is. Without an origin every http(s) URL is external.
pub fn classify_url(text: &str, origin: Option<&DialOrigin>) -> UrlClass {
    if text.len() > MAX_REFERENCE_BYTES {
        let is_data = strip_path_prefix(text, "data:").is_some();
        return if is_data {
            UrlClass::Data
        } else {
            UrlClass::Unsupported
        };
    }
    if strip_path_prefix(text.trim_start_matches('/'), "files/").is_some() {
        return FileUrl::parse(text).map_or(UrlClass::Unsupported, UrlClass::Dial);
    }
    let text = text.trim_start_matches(' ');
    if strip_path_prefix(text, "data:").is_some() {
        return UrlClass::Data;
    }
    let authority = ["http://", "https://"]
        .iter()
        .find_map(|scheme| strip_path_prefix(text, scheme))
        .filter(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#', '\\', ':', '@']));
    let Some(authority) = authority else {
        return UrlClass::Unsupported;
    };
    match (Url::parse(text), origin) {
        (Ok(url), Some(origin)) if origin.is_origin_of(&url) => origin
            .file_at(authority)
            .map_or(UrlClass::Unsupported, UrlClass::Dial),
        // What does not parse is the fetcher's to judge and to name.
        _ => UrlClass::External,
    }
}

/// An id or path in its canonical spelling: segments decoded once and encoded once. `None` when it is not plain.
pub(crate) fn canonical_path(prefix: &str, path: &str) -> Option<String> {
    let mut canonical = prefix.to_owned();
    for segment in path.split('/') {
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
