//! The C library in a static program: musl, as the Rust toolchain of the target brings it.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::digest::FileDigest;
use crate::step;

/// Section of musl's `version.c`, whose only content is the version.
const VERSION_SECTION: &str = ".rodata.__libc_version";

/// The archive that the linker takes the C library from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StaticLibrary {
    /// Version of musl.
    version: String,
    /// Digest of the archive.
    sha256: String,
}

impl StaticLibrary {
    /// Reads the archive `libc.a`.
    ///
    /// # Errors
    ///
    /// The archive is missing, or has no version in it.
    pub(super) fn read(archive: &Path) -> anyhow::Result<Self> {
        let dump = step::program_step("readelf")
            .arg(format!("--string-dump={VERSION_SECTION}"))
            .arg(archive)
            .quiet_output()?;
        let version = dumped_version(&dump)
            .with_context(|| format!("{} has no version of musl", archive.display()))?;
        Ok(Self {
            version,
            sha256: FileDigest::of(archive)?.sha256,
        })
    }

    /// The package URL. No registry has musl, so its type is `generic`.
    pub(super) fn package_url(&self) -> String {
        format!("pkg:generic/musl@{}", self.version)
    }

    /// The component of a bill of materials.
    pub(super) fn component(&self) -> Value {
        json!({
            "type": "library",
            "bom-ref": self.package_url(),
            "name": "musl",
            "version": self.version,
            "description": "C library, linked into the program; the digest is that of libc.a of the Rust toolchain",
            "hashes": [{"alg": "SHA-256", "content": self.sha256}],
            "licenses": [{"expression": "MIT"}],
            "purl": self.package_url(),
        })
    }

    /// The material of a provenance.
    pub(super) fn material(&self) -> Value {
        json!({"name": "libc.a", "uri": self.package_url(), "digest": {"sha256": self.sha256}})
    }
}

/// The version in the output of `readelf --string-dump`: `  [     0]  1.2.5`.
fn dumped_version(dump: &str) -> Option<String> {
    let line = dump
        .lines()
        .find_map(|line| line.trim_start().strip_prefix('['))?;
    let (_, version) = line.split_once(']')?;
    let version = version.trim();
    let is_version = version.contains('.')
        && version
            .chars()
            .all(|character| character.is_ascii_digit() || character == '.');
    is_version.then(|| version.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn library() -> StaticLibrary {
        StaticLibrary {
            version: "1.2.5".to_owned(),
            sha256: "5".repeat(64),
        }
    }

    /// Writes an archive whose only object has `text` where musl has its version.
    fn write_archive(directory: &Path, text: &str) -> std::path::PathBuf {
        let (source, object) = (directory.join("version.s"), directory.join("version.lo"));
        let assembly = format!(".section {VERSION_SECTION},\"a\"\n.asciz \"{text}\"\n");
        std::fs::write(&source, assembly).unwrap();
        step::program_step("as")
            .arg("-o")
            .args([&object, &source])
            .output()
            .unwrap();
        let archive = directory.join("libc.a");
        step::program_step("ar")
            .arg("rc")
            .args([&archive, &object])
            .output()
            .unwrap();
        archive
    }

    #[test]
    fn the_version_of_musl_is_read_from_the_archive_that_is_linked() {
        let directory = tempfile::tempdir().unwrap();
        let archive = write_archive(directory.path(), "1.2.5");
        let library = StaticLibrary::read(&archive).unwrap();
        assert_eq!(library.package_url(), "pkg:generic/musl@1.2.5");
        let digest = FileDigest::of(&archive).unwrap().sha256;
        assert_eq!(library.component()["hashes"][0]["content"], digest);
        assert_eq!(library.material()["digest"]["sha256"], digest);
    }

    #[test]
    fn a_library_of_unknown_version_is_not_billed() {
        let directory = tempfile::tempdir().unwrap();
        let archive = write_archive(directory.path(), "another library");
        let error = StaticLibrary::read(&archive).unwrap_err().to_string();
        assert!(error.ends_with("libc.a has no version of musl"), "{error}");
        assert!(StaticLibrary::read(&directory.path().join("missing.a")).is_err());
    }
}
