//! The conclusion from the digests before, during and after a copy (sandbox-transfer 12).

use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{Fingerprint, Integrity, Metadata};

use super::copy::CopiedBytes;

/// Whether both describe the same file in the same state, judged by metadata only.
pub(super) fn same(before: &Metadata, after: &Metadata) -> bool {
    before.real_path == after.real_path
        && before.kind == after.kind
        && before.size == after.size
        && before.mtime_ns == after.mtime_ns
        && before.identity == after.identity
}

/// Whether the digests alone do not decide the result, so that metadata must be read too.
pub(super) fn needs_stat(
    before: Option<&Fingerprint>,
    after: Option<&Fingerprint>,
    copied: &CopiedBytes,
) -> bool {
    match (before, after) {
        (before, Some(after)) => {
            !copied.agrees(after) || before.is_some_and(|before| !copied.agrees(before))
        }
        (_, None) => true,
    }
}

/// The proof that the received bytes are those of the file. `stable` is whether size, time and identity are unchanged.
///
/// # Errors
///
/// [`ErrorKind::Corrupted`] when the source was stable and other bytes arrived, and
/// [`ErrorKind::ChangedDuringTransfer`] when it was not.
pub(super) fn judge(
    before: Option<&Fingerprint>,
    after: Option<&Fingerprint>,
    copied: &CopiedBytes,
    stable: bool,
) -> Result<Integrity, ErrorKind> {
    let differ = |stable: bool| {
        Err(if stable {
            ErrorKind::Corrupted
        } else {
            ErrorKind::ChangedDuringTransfer
        })
    };
    match (before, after) {
        (Some(before), Some(after)) => {
            if copied.agrees(before) && copied.agrees(after) {
                // The weaker digest counts: a CRC does not become stronger beside a SHA-256.
                return Ok(
                    strength(before, Integrity::Sha256).min(strength(after, Integrity::Sha256))
                );
            }
            // Two different digests mean a change, even if size and time stayed the same.
            differ(before == after && stable)
        }
        (None, Some(after)) if copied.agrees(after) => Ok(strength(after, Integrity::Sha256After)),
        (None, Some(_)) => differ(stable),
        // No program can run now: only the digest before and unchanged metadata are left as evidence.
        (Some(before), None) if stable && !copied.agrees(before) => Err(ErrorKind::Corrupted),
        (_, None) if stable => Ok(Integrity::SizeMtime),
        (_, None) => differ(false),
    }
}

/// The proof for a file whose state did not change while it was read. A digest was computed in the sandbox `beside` the
/// copy or `after` it; both are `None` where no program there computes one.
///
/// # Errors
///
/// [`ErrorKind::Corrupted`] when other bytes arrived.
pub(super) fn judge_watched(
    beside: Option<&Fingerprint>,
    after: Option<&Fingerprint>,
    copied: &CopiedBytes,
) -> Result<Integrity, ErrorKind> {
    let (digest, best) = match (beside, after) {
        (Some(digest), _) => (digest, Integrity::Sha256Beside),
        (None, Some(digest)) => (digest, Integrity::Sha256After),
        (None, None) => return Ok(Integrity::SizeMtime),
    };
    if copied.agrees(digest) {
        Ok(strength(digest, best))
    } else {
        Err(ErrorKind::Corrupted)
    }
}

const fn strength(fingerprint: &Fingerprint, best: Integrity) -> Integrity {
    match fingerprint {
        Fingerprint::Sha256(..) => best,
        Fingerprint::Cksum(..) => Integrity::Weak,
    }
}

#[cfg(test)]
mod tests {
    use dray_types::Sha256Digest;

    use super::*;

    fn copied_bytes(content: &[u8]) -> CopiedBytes {
        let mut copied = CopiedBytes::new(content.len() as u64);
        copied.update(content);
        copied
    }

    fn sha(content: &[u8]) -> Fingerprint {
        Fingerprint::Sha256(Sha256Digest::of(content), content.len() as u64)
    }

    #[test]
    fn the_checksum_of_copied_bytes_equals_that_of_posix_cksum() {
        for (content, cksum) in [
            (&b""[..], 4_294_967_295),
            (b"abc", 1_219_131_554),
            (b"123456789", 930_766_865),
        ] {
            assert!(copied_bytes(content).agrees(&Fingerprint::Cksum(cksum, content.len() as u64)));
        }
        assert!(!copied_bytes(b"abc").agrees(&Fingerprint::Cksum(1_219_131_554, 4)));
        assert!(!copied_bytes(b"abd").agrees(&Fingerprint::Cksum(1_219_131_554, 3)));
    }

    #[test]
    fn r_8_the_digest_of_an_unchanged_file_must_be_that_of_the_bytes() {
        let copied = copied_bytes(b"abc");
        let weak = Fingerprint::Cksum(1_219_131_554, 3);
        let (good, bad) = (sha(b"abc"), sha(b"abd"));
        for (beside, after, judged) in [
            (None, None, Ok(Integrity::SizeMtime)),
            (Some(&good), None, Ok(Integrity::Sha256Beside)),
            (None, Some(&good), Ok(Integrity::Sha256After)),
            (Some(&weak), None, Ok(Integrity::Weak)),
            (None, Some(&weak), Ok(Integrity::Weak)),
            (Some(&bad), None, Err(ErrorKind::Corrupted)),
            (None, Some(&bad), Err(ErrorKind::Corrupted)),
        ] {
            assert_eq!(judge_watched(beside, after, &copied), judged);
        }
    }

    #[test]
    fn r_8_integrity_is_that_of_the_weaker_digest() {
        let copied = copied_bytes(b"abc");
        let (good, bad, weak) = (
            sha(b"abc"),
            sha(b"abd"),
            Fingerprint::Cksum(1_219_131_554, 3),
        );
        let judged = |before: Option<&Fingerprint>, after: Option<&Fingerprint>, stable| {
            judge(before, after, &copied, stable)
        };
        assert_eq!(
            judged(Some(&good), Some(&good), true),
            Ok(Integrity::Sha256)
        );
        assert_eq!(judged(Some(&weak), Some(&weak), true), Ok(Integrity::Weak));
        assert_eq!(judged(Some(&good), Some(&weak), true), Ok(Integrity::Weak));
        assert_eq!(judged(None, Some(&good), true), Ok(Integrity::Sha256After));
        assert_eq!(judged(None, Some(&weak), true), Ok(Integrity::Weak));
        assert_eq!(judged(None, None, true), Ok(Integrity::SizeMtime));
        assert_eq!(judged(Some(&good), None, true), Ok(Integrity::SizeMtime));
        let (corrupted, changed) = (ErrorKind::Corrupted, ErrorKind::ChangedDuringTransfer);
        assert_eq!(judged(Some(&bad), Some(&bad), true), Err(corrupted));
        assert_eq!(judged(Some(&good), Some(&bad), true), Err(changed));
        assert_eq!(judged(Some(&bad), Some(&good), true), Err(changed));
        assert_eq!(judged(None, Some(&bad), true), Err(corrupted));
        assert_eq!(judged(None, Some(&bad), false), Err(changed));
        assert_eq!(judged(Some(&bad), Some(&bad), false), Err(changed));
        assert_eq!(judged(None, None, false), Err(changed));
        assert_eq!(judged(Some(&bad), None, true), Err(corrupted));
    }
}
