//! Absolute paths inside a sandbox, as bytes.
//!
//! A path is normal, so path traversal by `..` ends here. Links are the sandbox's: the policy checks the path that the
//! sandbox reports after it resolved them.

use std::fmt;

use crate::error::{Error, ErrorKind};

/// Longest path in bytes, `PATH_MAX` without its NUL.
pub const MAX_PATH_BYTES: usize = 4095;
/// Longest name in bytes, `NAME_MAX` of Linux.
pub const MAX_NAME_BYTES: usize = 255;

/// Most parts of a path, half of [`MAX_PATH_BYTES`]: each part has a slash and at least one byte.
pub const MAX_PATH_PARTS: u32 = 2047;

/// An absolute path inside a sandbox: bytes without NUL, any newline and any encoding allowed
/// (sandbox-transfer 1.2). It knows nothing of links; only the sandbox can resolve those.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxPath(Vec<u8>);

impl SandboxPath {
    /// Takes an absolute path. Repeated slashes and `.` are folded and `..` is applied lexically, clamped at the
    /// root; a slash at the end is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] when it is empty, relative, holds NUL, or is too long in all or in one part.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self, Error> {
        let invalid = |reason: &str| Err(Error::new(ErrorKind::InvalidName, reason));
        let path = path.as_ref();
        if path.first() != Some(&b'/') {
            return invalid("the path is not absolute");
        }
        if path.contains(&0) {
            return invalid("the path holds NUL");
        }
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                // Lexically, as the policy reads it. Where `..` follows a link, the path that the sandbox reports is
                // checked again.
                b".." => {
                    parts.pop();
                }
                part if part.len() > MAX_NAME_BYTES => return invalid("a name is over 255 bytes"),
                part => parts.push(part),
            }
        }
        let mut folded = Vec::with_capacity(path.len());
        for part in parts {
            folded.push(b'/');
            folded.extend_from_slice(part);
        }
        // The root has no parts, so nothing was written for it.
        if folded.is_empty() {
            folded.push(b'/');
        }
        if folded.len() > MAX_PATH_BYTES {
            return invalid("the path is too long");
        }
        Ok(Self(folded))
    }

    /// The root directory, `/`.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// The bytes as the sandbox has them, in no particular encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as UTF-8, for wires that carry only text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] when it is not UTF-8; it is never re-encoded lossily.
    pub fn to_text(&self) -> Result<&str, Error> {
        str::from_utf8(&self.0)
            .map_err(|_| Error::new(ErrorKind::InvalidName, "the wire carries UTF-8 names only"))
    }

    /// The last part; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
    }

    /// The directory in which the path lies; the root is its own parent.
    #[must_use]
    pub fn parent(&self) -> Self {
        let last_slash = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        match self.0.get(..last_slash) {
            Some(parent) if !parent.is_empty() => Self(parent.to_vec()),
            _ => Self::root(),
        }
    }

    /// Appends a name to this directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for an empty name, `.`, `..`, a slash or NUL, and for a name or path that is too
    /// long.
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Error::new(ErrorKind::InvalidName, "not a file name"));
        }
        let mut path = self.0.clone();
        path.push(b'/');
        path.extend_from_slice(name);
        // Checks NUL and lengths, and folds the second slash that the root leaves.
        Self::new(path)
    }

    /// Whether the path is `ancestor` or lies beneath it.
    pub fn is_beneath(&self, ancestor: &Self) -> bool {
        match self.0.strip_prefix(ancestor.0.as_slice()) {
            // `/work` must not match `/workshop`; the root ends in the slash that others lack.
            Some(rest) => ancestor.0.len() == 1 || rest.is_empty() || rest.first() == Some(&b'/'),
            None => false,
        }
    }
}

/// The parts of a path or of the target of a link, without empty ones and `.`; `..` is among them.
pub fn path_parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

/// Shown with all that is not printable ASCII escaped; for logs.
impl fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_folded_lexically_and_clamped_at_the_root() {
        for (given, expected) in [
            ("/a//b/./c/", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("/", "/"),
            ("/..", "/"),
            ("/a\nb", "/a\\nb"),
        ] {
            assert_eq!(SandboxPath::new(given).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        let long = format!("/{}", "x".repeat(256));
        for given in ["", "a", "~/a", "/a\0b", long.as_str(), &"/x".repeat(2100)] {
            assert_eq!(
                SandboxPath::new(given).unwrap_err().kind(),
                ErrorKind::InvalidName,
                "{given:?}"
            );
        }
        let root = SandboxPath::root();
        for name in ["", ".", "..", "a/b"] {
            assert!(root.join(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn beneath_means_whole_names() {
        let work = SandboxPath::new("/work").unwrap();
        let check = |path: &str, expected: bool| {
            assert_eq!(SandboxPath::new(path).unwrap().is_beneath(&work), expected);
        };
        check("/work", true);
        check("/work/a", true);
        check("/workshop", false);
        assert!(work.is_beneath(&SandboxPath::root()));
        assert_eq!(work.join("a").unwrap().parent(), work);
        assert_eq!(work.parent(), SandboxPath::root());
        assert_eq!(work.name(), b"work");
    }

    #[test]
    fn names_that_are_not_utf8_survive_as_bytes_only() {
        let path = SandboxPath::new(b"/w/\xff.bin").unwrap();
        assert_eq!(path.name(), b"\xff.bin");
        assert_eq!(path.to_text().unwrap_err().kind(), ErrorKind::InvalidName);
    }
}
