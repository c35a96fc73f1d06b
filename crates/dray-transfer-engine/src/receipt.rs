//! The record of a transfer for the operator, whether it succeeded or not (sandbox-transfer R-14).

use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{Integrity, Transport};
use dray_types::Sha256Digest;
use serde::{Deserialize, Serialize};

/// How one transfer went. Missing fields read as their defaults, so that receipts of older versions stay readable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receipt {
    /// The transport that moved the bytes; after a failure the last one that was tried. Of a directory that moved file
    /// by file, the last in the order of [`Transport`]. `None` when nothing was moved, and when unpacking failed.
    pub transport: Option<Transport>,
    /// Copies that were begun or continued. 0 when the file was there already or was refused before the first byte.
    pub attempts: u32,
    /// Transports that are no longer used, because of failures in this transfer or an earlier one with the same
    /// incarnation.
    pub skipped: Vec<SkippedTransport>,
    /// Size of the file in bytes; after a failure the bytes that arrived in the last attempt.
    pub bytes: u64,
    /// Digest of the file; `None` unless the transfer succeeded.
    #[serde(with = "hexadecimal")]
    pub sha256: Option<Sha256Digest>,
    /// The evidence that both sides are equal; `None` unless the transfer succeeded, and for a tar without files.
    pub integrity: Option<Integrity>,
    /// Whether readers in the sandbox could never see a partial file. Set only by a put that wrote a file; `None` also
    /// when the response to its rename was lost.
    pub atomic: Option<bool>,
    /// Whether an interrupted copy was continued at its offset.
    pub resumed: bool,
    /// Milliseconds from the first step to the last, waiting for a turn and between attempts included.
    pub milliseconds: u64,
}

/// A transport that is no longer used, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedTransport {
    /// The transport that is no longer tried.
    pub transport: Transport,
    /// The kind of the failure that ended it.
    pub reason: ErrorKind,
}

/// Digests as 64 hexadecimal digits; `null` for none.
mod hexadecimal {
    use dray_types::Sha256Digest;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(
        digest: &Option<Sha256Digest>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        digest.map(Sha256Digest::to_hex).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Sha256Digest>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn one_page_explains_every_word_of_integrity_and_the_pages_of_backends_link_to_it() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backends");
        let page = std::fs::read_to_string(pages.join("transfers.md")).unwrap();
        let (_, table) = page.split_once("\n## Integrity\n").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        for integrity in [
            Integrity::Sizes,
            Integrity::SizeMtime,
            Integrity::Weak,
            Integrity::Sha256Beside,
            Integrity::Sha256After,
            Integrity::Sha256,
        ] {
            let word = integrity.as_str();
            assert!(table.contains(&format!("| `{word}`: ")), "{word}");
        }
        for entry in std::fs::read_dir(pages).unwrap() {
            let path = entry.unwrap().path();
            let links = |page: &str| page.contains("transfers.md#integrity");
            assert!(
                path.ends_with("transfers.md") || links(&std::fs::read_to_string(&path).unwrap()),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn r_14_a_receipt_reads_back_with_the_names_of_the_wire() {
        let receipt = Receipt {
            transport: Some(Transport::ExecRaw),
            attempts: 2,
            skipped: vec![SkippedTransport {
                transport: Transport::Archive,
                reason: ErrorKind::ToolMissing,
            }],
            bytes: 3,
            sha256: Some(Sha256Digest::of(b"abc")),
            integrity: Some(Integrity::Sha256After),
            atomic: Some(true),
            resumed: true,
            milliseconds: 7,
        };
        let text = serde_json::to_string(&receipt).unwrap();
        for part in ["exec_raw", "tool_missing", "sha256_after", "ba7816bf"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
        assert_eq!(
            serde_json::from_str::<Receipt>("{}").unwrap(),
            Receipt::default()
        );
    }

    #[test]
    fn every_kind_is_written_by_the_name_of_the_specification() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
