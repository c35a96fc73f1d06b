//! The value of [`POLICY_KEY`]: all files of a policy, and who wrote them.
//!
//! It is JSON, which `nats kv get` shows. A value that is larger than a message is compressed with gzip.

use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use dray_guard::ruleset::MAX_POLICY_BYTES;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::{POLICY_KEY, check_files};
use crate::policy_files::PolicyBytes;

/// Most bytes of a value: the largest message of the bucket without its headers.
pub(super) const MAX_VALUE_BYTES: usize = 511 * 1024;
/// Most bytes of a snapshot before compression. Every valid policy fits: JSON escapes its line breaks, tabs, quotes and
/// backslashes with one more byte each, and TOML allows no other character that JSON escapes.
const MAX_JSON_BYTES: usize = 3 * MAX_POLICY_BYTES;
/// The first bytes of a gzip member (RFC 1952, section 2.3.1). No JSON begins with them.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The format that this version writes, and the only one that it reads.
const FORMAT_VERSION: u32 = 1;

/// All files of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicySnapshot {
    format: u32,
    /// The name that the writer stated; it is not verified.
    pub(super) written_by: String,
    /// Digest of the rules, for programs that show the policy without reading its files.
    rules_digest: String,
    files: Vec<SnapshotFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotFile {
    name: String,
    content: String,
}

/// The member that every format has.
#[derive(Debug, Deserialize)]
struct SnapshotHeader {
    format: u32,
}

impl PolicySnapshot {
    /// A snapshot of files that were checked as a policy, and so are UTF-8.
    pub(super) fn new(files: &PolicyBytes, rules_digest: &str, written_by: &str) -> Self {
        let files = files.files().map(|(name, bytes)| SnapshotFile {
            name: name.to_owned(),
            content: String::from_utf8_lossy(bytes).into_owned(),
        });
        Self {
            format: FORMAT_VERSION,
            written_by: written_by.to_owned(),
            rules_digest: rules_digest.to_owned(),
            files: files.collect(),
        }
    }

    /// The value of the key; an error with its size in bytes if it is too large even when compressed.
    pub(super) fn encode(&self) -> Result<Bytes, usize> {
        // Texts and numbers always have a form in JSON.
        let json = serde_json::to_vec(self).unwrap_or_default();
        if json.len() <= MAX_VALUE_BYTES {
            return Ok(json.into());
        }
        // Writing to memory does not fail.
        let value = compress(&json).unwrap_or_default();
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || json.len() > MAX_JSON_BYTES {
            return Err(value.len());
        }
        Ok(value.into())
    }

    /// Reads the value of the key. The error completes "the bucket …".
    pub(super) fn decode(value: &[u8]) -> Result<Self, String> {
        let not_a_policy =
            |reason: &str| format!("has a key `{POLICY_KEY}` that is not a policy: {reason}");
        let json = if value.starts_with(&GZIP_MAGIC) {
            let decompressed = decompress(value).map_err(|error| not_a_policy(&error.to_string()));
            Cow::Owned(decompressed?)
        } else {
            Cow::Borrowed(value)
        };
        let header: SnapshotHeader =
            serde_json::from_slice(&json).map_err(|error| not_a_policy(&error.to_string()))?;
        if header.format != FORMAT_VERSION {
            return Err(format!(
                "has a policy of format {}, and this version reads only format {FORMAT_VERSION}: upgrade it",
                header.format
            ));
        }
        let snapshot: Self =
            serde_json::from_slice(&json).map_err(|error| not_a_policy(&error.to_string()))?;
        // The order of the files is that in which their rules are tried, so it must be the one that a directory has.
        if !snapshot
            .files
            .is_sorted_by(|one, next| one.name < next.name)
        {
            return Err(not_a_policy(
                "its files are not in the order of their names",
            ));
        }
        check_files(snapshot.sizes())?;
        Ok(snapshot)
    }

    fn sizes(&self) -> impl Iterator<Item = (&str, usize)> + Clone {
        let files = self.files.iter();
        files.map(|file| (file.name.as_str(), file.content.len()))
    }

    /// Names and contents of the files, in the order of their names.
    pub(super) fn into_files(self) -> Vec<(String, Vec<u8>)> {
        let files = self.files.into_iter();
        files
            .map(|file| (file.name, file.content.into_bytes()))
            .collect()
    }
}

fn compress(json: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(json)?;
    encoder.finish()
}

/// At most [`MAX_JSON_BYTES`], so that a small value cannot use much memory.
fn decompress(value: &[u8]) -> io::Result<Vec<u8>> {
    let mut json = Vec::new();
    let limit = MAX_JSON_BYTES as u64 + 1;
    GzDecoder::new(value).take(limit).read_to_end(&mut json)?;
    if json.len() > MAX_JSON_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(contents: &[(&str, &str)]) -> PolicyBytes {
        let files = contents.iter();
        let files = files.map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        PolicyBytes::from_files(files.collect())
    }

    #[test]
    fn a_large_policy_is_compressed_and_read_back_unchanged() {
        let line = "# \"quoted\" \\ and\ttabbed\r\n";
        let long = line.repeat(MAX_POLICY_BYTES / line.len());
        for text in ["default = \"deny\"\n", &long] {
            let files = files(&[("10-base.toml", text)]);
            let value = PolicySnapshot::new(&files, "d", "ada").encode().unwrap();
            assert_eq!(value.starts_with(&GZIP_MAGIC), text.len() > 1000);
            let snapshot = PolicySnapshot::decode(&value).unwrap();
            assert_eq!(snapshot.written_by, "ada");
            assert_eq!(PolicyBytes::from_files(snapshot.into_files()), files);
        }
    }

    #[test]
    fn values_that_are_not_a_policy_are_refused_with_the_reason() {
        let wrap = |files: &str| {
            format!(r#"{{"format":1,"written_by":"","rules_digest":"","files":[{files}]}}"#)
        };
        let bomb = compress(&vec![b' '; MAX_JSON_BYTES + 1]).unwrap();
        let cut = compress(wrap("").as_bytes()).unwrap();
        let unsorted = r#"{"name":"b.toml","content":""},{"name":"a.toml","content":""}"#;
        for (value, reason) in [
            (b"default = \"deny\"".to_vec(), "not a policy"),
            (br#"{"format":2}"#.to_vec(), "format 2"),
            (br#"{"format":1}"#.to_vec(), "missing field"),
            (wrap("").into_bytes(), "no policy file"),
            (wrap(unsorted).into_bytes(), "order of their names"),
            (
                wrap(r#"{"name":"a/b.toml","content":""}"#).into_bytes(),
                "a/b.toml",
            ),
            (
                wrap(r#"{"name":"a.toml","content":"","x":1}"#).into_bytes(),
                "unknown field",
            ),
            (bomb, "too large"),
            (cut.split_last().unwrap().1.to_vec(), "not a policy"),
        ] {
            let problem = PolicySnapshot::decode(&value).unwrap_err();
            assert!(problem.contains(reason), "{problem}");
        }
    }
}
