//! Checksums of single bodies in `Upload-Checksum` (tus 1.0, extension `checksum`). They find damage on the way; the
//! digest of the whole content is in other fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

use crate::fields;
use crate::problem::TicketProblem;

/// The supported algorithms, in the form of `Tus-Checksum-Algorithm`. The extension requires SHA-1.
pub(crate) const CHECKSUM_ALGORITHMS: &str = "sha1,sha256";

/// The checksum that a sender announces for the body of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadChecksum {
    Sha1([u8; 20]),
    Sha256([u8; 32]),
}

impl UploadChecksum {
    /// Parses the field; `None` when it is absent.
    ///
    /// # Errors
    ///
    /// [`TicketProblem::Invalid`] for another algorithm, and for a value that is not base64 or has the wrong length.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, TicketProblem> {
        if !headers.contains_key("upload-checksum") {
            return Ok(None);
        }
        let invalid = TicketProblem::Invalid(
            "`Upload-Checksum` is not `sha1` or `sha256` and a checksum in base64",
        );
        let value = fields::field(headers, "upload-checksum");
        let (algorithm, encoded) = value
            .and_then(|value| value.trim().split_once(' '))
            .ok_or(invalid.clone())?;
        let bytes = STANDARD
            .decode(encoded.trim())
            .map_err(|_| invalid.clone())?;
        let checksum = match algorithm {
            "sha1" => bytes.try_into().map(Self::Sha1),
            "sha256" => bytes.try_into().map(Self::Sha256),
            _ => return Err(invalid),
        };
        checksum.map(Some).map_err(|_| invalid)
    }
}

/// Computes the checksum of a body and compares it with the announced one.
#[derive(Clone, Debug)]
pub(crate) enum ChecksumHasher {
    Sha1(Sha1, [u8; 20]),
    Sha256(Sha256, [u8; 32]),
}

impl ChecksumHasher {
    pub(crate) fn new(expected: UploadChecksum) -> Self {
        match expected {
            UploadChecksum::Sha1(expected) => Self::Sha1(Sha1::default(), expected),
            UploadChecksum::Sha256(expected) => Self::Sha256(Sha256::default(), expected),
        }
    }

    /// Adds bytes of the body, in their order.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hasher, _) => hasher.update(bytes),
            Self::Sha256(hasher, _) => hasher.update(bytes),
        }
    }

    /// Whether the body so far has the announced checksum.
    pub(crate) fn is_match(&self) -> bool {
        match self {
            Self::Sha1(hasher, expected) => hasher.clone().finalize().as_slice() == expected,
            Self::Sha256(hasher, expected) => hasher.clone().finalize().as_slice() == expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(value: &str) -> Result<Option<UploadChecksum>, TicketProblem> {
        let value = HeaderValue::from_str(value).unwrap();
        UploadChecksum::read(&HeaderMap::from_iter([(
            http::HeaderName::from_static("upload-checksum"),
            value,
        )]))
    }

    #[test]
    fn the_checksum_of_a_body_in_parts_is_that_of_the_whole() {
        // The digests of `abc` in FIPS 180-4.
        for value in [
            "sha1 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=",
            "sha256 ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
        ] {
            let mut hasher = ChecksumHasher::new(read(value).unwrap().unwrap());
            hasher.update(b"a");
            assert!(!hasher.is_match(), "{value}");
            hasher.update(b"bc");
            assert!(hasher.is_match(), "{value}");
        }
    }

    #[test]
    fn another_algorithm_and_a_value_of_another_length_are_refused() {
        assert_eq!(UploadChecksum::read(&HeaderMap::new()), Ok(None));
        for wrong in [
            "",
            "sha1",
            "sha1 ",
            "sha1 ???",
            "sha1 AAAA",
            "md5 kAFQmDzST7DWlj99KOF/cg==",
            "SHA1 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=",
            "sha256 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
