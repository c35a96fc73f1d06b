//! Paths of requests, as names below the directory of a preview.

use dray_presentation::name::shown_text;
use dray_sandbox::SandboxPath;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Bytes of a name that are escaped in a path of a URL: all but the unreserved ones (RFC 3986, section 2.3).
const ESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Most characters of a shown name, which is longer than file systems allow; a longer one is cut.
pub(crate) const MAX_SHOWN_CHARACTERS: usize = 256;
/// Deepest path of a request.
const MAX_DEPTH: usize = 64;

/// The path from the directory of a preview to an entry in it: plain names, decoded once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    names: Vec<Vec<u8>>,
    /// Whether the URL ended in a slash, as URLs of directories do.
    pub(crate) is_directory: bool,
}

impl Location {
    /// Parses the part of a URL after the token. `None` for a path that names nothing below the directory: `..`, empty
    /// names, an encoded slash, NUL. Such a path is not normalised, because the result would name another file than the
    /// one requested.
    pub(crate) fn parse(rest: &str) -> Option<Self> {
        let is_directory = rest.is_empty() || rest.ends_with('/');
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let mut names = Vec::new();
        if !rest.is_empty() {
            for part in rest.split('/') {
                // The name is decoded only once: `%252e` is the name `%2e`, which is a file like any other.
                let name: Vec<u8> = percent_decode_str(part).collect();
                let is_plain = !matches!(name.as_slice(), b"" | b"." | b"..")
                    && !name.contains(&b'/')
                    && !name.contains(&0);
                if !is_plain || names.len() == MAX_DEPTH {
                    return None;
                }
                names.push(name);
            }
        }
        Some(Self {
            names,
            is_directory,
        })
    }

    /// The location of a name in the directory; the directory itself for an empty one.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        if name.is_empty() {
            return Self {
                is_directory: true,
                ..Self::default()
            };
        }
        Self::default().join(name, false)
    }

    /// The path in the sandbox.
    pub(crate) fn beneath(
        &self,
        directory: &SandboxPath,
    ) -> Result<SandboxPath, dray_sandbox::Error> {
        let mut path = directory.clone();
        for name in &self.names {
            path = path.join(name)?;
        }
        Ok(path)
    }

    /// The location of a name in this directory.
    pub(crate) fn join(&self, name: &[u8], is_directory: bool) -> Self {
        let mut names = self.names.clone();
        names.push(name.to_vec());
        Self {
            names,
            is_directory,
        }
    }

    /// The parent directory; `None` at the top.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, above) = self.names.split_last()?;
        Some(Self {
            names: above.to_vec(),
            is_directory: true,
        })
    }

    /// The last name; `None` at the top.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        self.names.last().map(Vec::as_slice)
    }

    /// The part of a URL after the slash of the token.
    pub(crate) fn url_part(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| encode_name(name)).collect();
        let slash = if self.is_directory && !names.is_empty() {
            "/"
        } else {
            ""
        };
        format!("{}{slash}", names.join("/"))
    }

    /// The path in the form that is shown to people, with control and bidi characters replaced.
    pub(crate) fn display_path(&self) -> String {
        let names: Vec<_> = self
            .names
            .iter()
            .map(|name| shown_text(name, MAX_SHOWN_CHARACTERS))
            .collect();
        names.join("/")
    }
}

fn encode_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => utf8_percent_encode(text, ESCAPED_BYTES).to_string(),
        Err(_) => percent_encoding::percent_encode(name, ESCAPED_BYTES).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_once_and_encoded_to_the_same_url() {
        for (rest, names) in [
            ("", vec![]),
            ("a/b%20c.txt", vec![b"a".to_vec(), b"b c.txt".to_vec()]),
            ("%252e%252e/x", vec![b"%2e%2e".to_vec(), b"x".to_vec()]),
            ("a%5Cb", vec![b"a\\b".to_vec()]),
            ("%FF", vec![vec![0xff]]),
            ("...", vec![b"...".to_vec()]),
        ] {
            let location = Location::parse(rest).unwrap();
            assert_eq!(location.names, names, "{rest}");
            assert_eq!(
                Location::parse(&location.url_part()),
                Some(location),
                "{rest}"
            );
        }
        assert!(Location::parse("a/").unwrap().is_directory);
        assert!(!Location::parse("a").unwrap().is_directory);
    }

    #[test]
    fn paths_outside_the_directory_and_empty_names_are_refused() {
        let deep = "a/".repeat(MAX_DEPTH + 1);
        for rest in [
            "..",
            "a/..",
            "a/../b",
            "%2e%2e",
            ".%2E/b",
            "%2e",
            ".",
            "a//b",
            "//",
            "a%2fb",
            "a%2Fb",
            "a%00b",
            deep.as_str(),
        ] {
            assert_eq!(Location::parse(rest), None, "{rest}");
        }
    }
}
