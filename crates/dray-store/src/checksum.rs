//! Checksums as headers carry them. SHA-256 names an artifact. CRC-64/NVME covers the parts of an upload if the store
//! proves that it verifies this checksum. A second SHA-256 over all bytes would cost as much as the rest of an upload
//! (docs/decisions/store-part-checksums.md).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc64Nvme;
use dray_types::Sha256Digest;

/// CRC-64/NVME of a run of bytes, with its length, so that runs can be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crc64 {
    value: u64,
    length: u64,
}

/// A checksum that the store compares with the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectChecksum {
    /// SHA-256, in `x-amz-checksum-sha256`.
    Sha256(Sha256Digest),
    /// CRC-64/NVME, in `x-amz-checksum-crc64nvme`.
    Crc64(Crc64),
}

impl Crc64 {
    /// The checksum of these chunks in order.
    pub(crate) fn of(chunks: &[Bytes]) -> Self {
        let mut digest = crc_fast::Digest::new(Crc64Nvme);
        for chunk in chunks {
            digest.update(chunk);
        }
        Self {
            value: digest.finalize(),
            length: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        }
    }

    /// Joins two checksums as if `next` had followed directly.
    #[must_use]
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            value: crc_fast::checksum_combine(Crc64Nvme, self.value, next.value, next.length),
            length: self.length + next.length,
        }
    }

    /// Reads the checksum of a run of this length from its form in a header.
    pub(crate) fn from_header(text: &str, length: u64) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        let value = u64::from_be_bytes(bytes.try_into().ok()?);
        Some(Self { value, length })
    }

    /// Writes the form in a header: eight bytes, highest first, in base64.
    pub(crate) fn to_header(self) -> String {
        STANDARD.encode(self.value.to_be_bytes())
    }
}

impl ObjectChecksum {
    /// The value for `x-amz-checksum-sha256`; `None` for a CRC.
    pub(crate) fn sha256(&self) -> Option<String> {
        match self {
            Self::Sha256(digest) => Some(sha256_to_header(digest)),
            Self::Crc64(_) => None,
        }
    }

    /// The value for `x-amz-checksum-crc64nvme`; `None` for a digest.
    pub(crate) fn crc64(&self) -> Option<String> {
        match self {
            Self::Sha256(_) => None,
            Self::Crc64(crc) => Some(crc.to_header()),
        }
    }
}

/// The form of a digest in `x-amz-checksum-sha256`.
pub(crate) fn sha256_to_header(sha256: &Sha256Digest) -> String {
    STANDARD.encode(sha256.as_bytes())
}

/// Reads the digest of a whole object; `None` for a composite checksum of a multipart upload (`…-3`).
pub(crate) fn sha256_from_header(text: &str) -> Option<Sha256Digest> {
    // `-3` is not base64, so a composite checksum ends here.
    let bytes = STANDARD.decode(text).ok()?;
    Sha256Digest::try_from(bytes.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_those_of_the_standard() {
        // The check value of CRC-64/NVME is the CRC of the text "123456789".
        let crc = Crc64::of(&[Bytes::from_static(b"12345"), Bytes::from_static(b"6789")]);
        assert_eq!(crc.value, 0xae8b_1486_0a79_9888);
        assert_eq!(crc.to_header(), "rosUhgp5mIg=");
        assert_eq!(Crc64::from_header("rosUhgp5mIg=", 9), Some(crc));
        assert_eq!(Crc64::from_header("rosUhgp5", 9), None);
        assert_eq!(
            sha256_from_header("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
            Some(Sha256Digest::of(b""))
        );
        assert_eq!(
            sha256_from_header("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-2"),
            None
        );
    }

    proptest! {
        #[test]
        fn joined_checksums_are_the_checksum_of_the_joined_bytes(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (start, end) = bytes.split_at(cut.index(bytes.len() + 1));
            let joined = Crc64::of(&[start.to_vec().into()]).then(Crc64::of(&[end.to_vec().into()]));
            prop_assert_eq!(joined, Crc64::of(&[bytes.clone().into()]));
        }
    }
}
