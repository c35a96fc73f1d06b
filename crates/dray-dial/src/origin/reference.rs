//! Decides where a named file is loaded from: DIAL, outside, or nowhere (quickapps 32, R2, R4).
//!
//! A DIAL file is reduced to one canonical path, so that two spellings refer to one file, and the request is built only
//! from the configured origin and that path. Text of the agent never determines where a key is sent.

use url::Url;

use super::{DialOrigin, FileUrl, MAX_REFERENCE_BYTES, strip_path_prefix};

/// The place from which a file is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoadTarget {
    /// A file of DIAL Core.
    Dial(FileUrl),
    /// A URL for the egress-fetcher, as it was written, less leading blanks.
    External(String),
}

/// A text that names no file that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedReference {
    /// The text is neither a DIAL file nor an http(s) URL.
    #[error("neither a DIAL file nor an http(s) URL")]
    Scheme,
    /// The text is longer than 8192 bytes.
    #[error("longer than 8192 bytes")]
    TooLong,
    /// The URL is on the DIAL origin, but not below `/v1/files/`.
    #[error("on the DIAL origin, but not a file")]
    NotAFile,
    /// The path names a bucket or a folder.
    #[error("a bucket or a folder")]
    Folder,
    /// A segment is empty, `.` or `..`, or contains a slash, a backslash, a control character or invalid UTF-8.
    #[error("a path that is not plain")]
    Path,
}

impl UnsupportedReference {
    /// The correction that is needed, as a sentence for the agent.
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

/// Decides where the named file is loaded from. Without a DIAL origin every http(s) URL is external.
///
/// # Errors
///
/// [`UnsupportedReference`] when it names no file that can be loaded.
pub fn classify_reference(
    named: &str,
    dial: Option<&DialOrigin>,
) -> Result<LoadTarget, UnsupportedReference> {
    if named.len() > MAX_REFERENCE_BYTES {
        return Err(UnsupportedReference::TooLong);
    }
    // This comes before the schemes, because `/files/…` and `Files/…` are DIAL paths as well.
    if let Some(path) = strip_path_prefix(named.trim_start_matches('/'), "files/") {
        return FileUrl::inside(path).map(LoadTarget::Dial);
    }
    let named = named.trim_start_matches(' ');
    let authority = ["http://", "https://"]
        .iter()
        .find_map(|scheme| strip_path_prefix(named, scheme))
        .ok_or(UnsupportedReference::Scheme)?;
    // `http:///host` and the like: parsers repair them in different ways (egress-security U-3).
    if authority.is_empty() || authority.starts_with(['/', '?', '#', '\\', ':', '@']) {
        return Err(UnsupportedReference::Scheme);
    }
    match (Url::parse(named), dial) {
        (Ok(url), Some(origin)) if origin.is_origin_of(&url) => {
            // The path is used as written, because the parser has already removed `..` segments from its own.
            let path = authority
                .find(['/', '\\', '?', '#'])
                .and_then(|start| authority.get(start..))
                .and_then(|path| path.strip_prefix(origin.base.path().trim_end_matches('/')))
                .and_then(|path| strip_path_prefix(path, "/v1/files/"))
                .ok_or(UnsupportedReference::NotAFile)?;
            FileUrl::inside(path).map(LoadTarget::Dial)
        }
        // The fetcher reports URLs that do not parse.
        _ => Ok(LoadTarget::External(named.to_owned())),
    }
}

#[cfg(test)]
mod tests;
