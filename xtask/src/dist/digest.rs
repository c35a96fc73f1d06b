//! Computes SHA-256 digests of files and writes the list in the format of `sha256sum`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Name of the list of digests.
pub(super) const LIST_NAME: &str = "SHA256SUMS";

/// A line of [`LIST_NAME`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileDigest {
    /// File name without a directory.
    pub(super) name: String,
    /// SHA-256 in lower-case hexadecimal.
    pub(super) sha256: String,
}

impl FileDigest {
    /// Reads a file and computes its digest.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let message = || format!("cannot read {}", path.display());
        let mut file = fs::File::open(path).with_context(message)?;
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut hasher).with_context(message)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: name.into_owned(),
            sha256: hexadecimal(&hasher.finalize()),
        })
    }

    /// The same digest under another name.
    pub(super) fn named(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }
}

/// The SHA-256 of bytes in lower-case hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Writes the digests of all files in a directory to [`LIST_NAME`], in the order of their names.
pub(super) fn write_list(directory: &Path) -> anyhow::Result<()> {
    let mut digests = fs::read_dir(directory)?
        .map(|entry| FileDigest::of(&entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    digests.retain(|digest| digest.name != LIST_NAME);
    digests.sort_by(|left, right| left.name.cmp(&right.name));
    let mut list = String::new();
    for FileDigest { name, sha256 } in digests {
        // Two spaces: the format that `sha256sum --check` reads.
        let _ = writeln!(list, "{sha256}  {name}");
    }
    fs::write(directory.join(LIST_NAME), list)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;

    #[test]
    fn sha256sum_accepts_the_list() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("b.txt"), "two").unwrap();
        fs::write(directory.path().join("a.txt"), "abc").unwrap();
        write_list(directory.path()).unwrap();
        // A second list does not contain the first.
        write_list(directory.path()).unwrap();
        let list = fs::read_to_string(directory.path().join(LIST_NAME)).unwrap();
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(list.lines().count(), 2);
        assert!(list.starts_with(&format!("{abc}  a.txt\n")), "{list}");
        let check = || {
            step::program_step("sha256sum")
                .args(["--check", "--strict", "--quiet", LIST_NAME])
                .inside(directory.path())
                .succeeds()
        };
        assert!(check());
        fs::write(directory.path().join("a.txt"), "abd").unwrap();
        assert!(!check());
    }
}
