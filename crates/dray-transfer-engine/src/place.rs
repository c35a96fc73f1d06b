//! The place of a file in a sandbox: its directory and its name (sandbox-transfer 1.5).

use dray_presentation::name;
use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::{MAX_NAME_BYTES, SandboxPath};

use super::engine::Engine;
use crate::policy::{Policy, TransferDirection};

/// From this value on, an epoch is a time in milliseconds and not the number of a worker, so no earlier worker needs a
/// cleanup.
pub(super) const FIRST_TIME_EPOCH: u64 = 1 << 32;
/// The epoch of temporary files that are kept for a later put of the same content.
pub(super) const KEPT_EPOCH: u64 = FIRST_TIME_EPOCH;
/// Longest operation in a temporary name, in letters and digits.
const MAX_OPERATION_CHARACTERS: usize = 40;

impl Engine {
    /// Makes a directory and its missing parents, and returns it with its links resolved. An existing directory is
    /// returned unchanged.
    ///
    /// # Errors
    ///
    /// Refusals of policy, [`ErrorKind::NotDirectory`], and failures of the sandbox.
    pub async fn make_directory(
        &self,
        policy: &Policy,
        path: &SandboxPath,
    ) -> Result<SandboxPath, Error> {
        policy.check(path, TransferDirection::Inbound)?;
        self.directory(policy, path).await
    }

    /// The directory with its links resolved; it is created if it is missing. Before that, policy is checked for the
    /// path that would result.
    pub(super) async fn directory(
        &self,
        policy: &Policy,
        path: &SandboxPath,
    ) -> Result<SandboxPath, Error> {
        let mut missing: Vec<Vec<u8>> = Vec::new();
        let mut existing = path.clone();
        let found = loop {
            match self
                .with_response_timeout(self.sandbox.stat(&existing, Follow::Yes))
                .await
            {
                Ok(found) => break found,
                Err(error)
                    if error.kind() == ErrorKind::NotFound && existing != SandboxPath::root() =>
                {
                    missing.push(existing.name().to_vec());
                    existing = existing.parent();
                }
                Err(error) => return Err(error),
            }
        };
        if found.kind != FileKind::Directory {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "files go into directories",
            ));
        }
        let mut real = found.real_path;
        if missing.is_empty() {
            policy.check(&real, TransferDirection::Inbound)?;
            return Ok(real);
        }
        // The missing parts hold no links, so the resolved parent and their names are the whole path.
        while let Some(name) = missing.pop() {
            real = real.join(name)?;
        }
        policy.check(&real, TransferDirection::Inbound)?;
        self.with_response_timeout(self.sandbox.make_directory(&real))
            .await?;
        // Another process may have created a link in place of a missing part.
        let metadata = self
            .with_response_timeout(self.sandbox.stat(&real, Follow::Yes))
            .await?;
        policy.check(&metadata.real_path, TransferDirection::Inbound)?;
        Ok(metadata.real_path)
    }
}

/// Numbers a name before its extension, as `report_2.csv`; names that are not UTF-8 keep their bytes.
pub(super) fn numbered(raw: &[u8], number: u32) -> Vec<u8> {
    if number < 2 {
        return raw.to_vec();
    }
    if let Ok(text) = str::from_utf8(raw) {
        return name::numbered_name(text, number).into_bytes();
    }
    let suffix = format!("_{number}").into_bytes();
    let dot = raw
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|position| *position > 0);
    let (stem, extension) = raw
        .split_at_checked(dot.unwrap_or(raw.len()))
        .unwrap_or((raw, b""));
    let room = MAX_NAME_BYTES.saturating_sub(suffix.len() + extension.len());
    let stem = stem.get(..room.min(stem.len())).unwrap_or_default();
    let mut whole = [stem, &suffix, extension].concat();
    whole.truncate(MAX_NAME_BYTES);
    whole
}

/// Makes the temporary name `.<name>.<operation>.<epoch>[.<attempt>].part`. Every attempt has its own name, so that an
/// abandoned write that still runs cannot damage the next one.
pub(super) fn temp_path(
    directory: &SandboxPath,
    raw: &[u8],
    operation: &str,
    epoch: u64,
    attempt: u32,
) -> Result<SandboxPath, Error> {
    let operation = operation_word(operation);
    let nonce = if attempt < 2 {
        format!("{operation}.{epoch}")
    } else {
        format!("{operation}.{epoch}.{attempt}")
    };
    directory.join(name::part_file_name(raw, &nonce))
}

/// The operation in a temporary name. Dots separate the parts of the name, so it contains none.
fn operation_word(operation: &str) -> String {
    operation
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(MAX_OPERATION_CHARACTERS)
        .collect()
}

/// Reads the epoch, a number of workers, from a name that [`temp_path`] made for any attempt of this operation.
pub(super) fn worker_epoch(name: &[u8], operation: &str) -> Option<u64> {
    let stem = name.strip_prefix(b".")?.strip_suffix(b".part")?;
    let mut words = stem.rsplit(|byte| *byte == b'.');
    let operation = operation_word(operation);
    let is_operation = |word: Option<&[u8]>| word == Some(operation.as_bytes());
    let (last, second) = (words.next()?, words.next()?);
    let epoch = if is_operation(Some(second)) {
        last
    } else {
        is_operation(words.next()).then_some(second)?
    };
    let epoch = str::from_utf8(epoch).ok()?.parse::<u64>().ok()?;
    (epoch < FIRST_TIME_EPOCH).then_some(epoch)
}

/// Reads the epoch, in milliseconds, from a name that [`temp_path`] made: `….<operation>.<epoch>[.<attempt>].part`.
pub(super) fn temp_epoch(name: &[u8]) -> Option<u64> {
    let stem = name.strip_prefix(b".")?.strip_suffix(b".part")?;
    let mut words = stem.rsplit(|byte| *byte == b'.');
    let number = |word: &[u8]| str::from_utf8(word).ok()?.parse::<u64>().ok();
    let last = words.next().unwrap_or_default();
    let epoch = match number(last) {
        // A number this large is an epoch itself: attempts never come near it.
        Some(attempt) if attempt < FIRST_TIME_EPOCH => words.next().unwrap_or_default(),
        _ => last,
    };
    let operation = words.next().unwrap_or_default();
    let is_word = !operation.is_empty() && operation.iter().all(u8::is_ascii_alphanumeric);
    number(epoch).filter(|epoch| is_word && *epoch >= FIRST_TIME_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temp_names_of_calls_are_recognized_and_other_names_are_not() {
        let directory = SandboxPath::new("/w").unwrap();
        for (name, attempt) in [(&b"a.csv"[..], 1), (b"a.csv", 2), (&[b'x'; 255], 16)] {
            let temp = temp_path(&directory, name, "01JD4NQ2", 1_763_000_000_000, attempt).unwrap();
            assert_eq!(temp_epoch(temp.name()), Some(1_763_000_000_000), "{temp}");
        }
        for name in [
            ".a.csv.op1.1.part",
            "a.csv.op.1763000000000.part",
            ".a.csv.1763000000000.part.txt",
            ".1763000000000.part",
            ".video.part",
            ".part",
        ] {
            assert_eq!(temp_epoch(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn temp_names_of_workers_are_recognized_by_their_operation() {
        let directory = SandboxPath::new("/w").unwrap();
        for (name, attempt) in [(&b"a.csv"[..], 1), (b"a.csv", 7), (&[b'x'; 255], 16)] {
            let temp = temp_path(&directory, name, "01JD-4NQ2", 3, attempt).unwrap();
            assert_eq!(worker_epoch(temp.name(), "01JD-4NQ2"), Some(3), "{temp}");
            assert_eq!(worker_epoch(temp.name(), "01JD4NQ3"), None, "{temp}");
        }
        for name in [".a.op1.part", ".a.op1.x.part", ".a.op1.1763000000000.part"] {
            assert_eq!(worker_epoch(name.as_bytes(), "op1"), None, "{name}");
        }
    }

    #[test]
    fn names_are_numbered_before_their_extension_within_255_bytes() {
        assert_eq!(numbered(b"report.csv", 1), b"report.csv");
        assert_eq!(numbered(b"report.csv", 2), b"report_2.csv");
        assert_eq!(numbered(b"\xff.bin", 3), b"\xff_3.bin");
        assert_eq!(numbered(b"\xff", 3), b"\xff_3");
        let long = [vec![0xff; 251], b".csv".to_vec()].concat();
        let long = numbered(&long, 10);
        assert_eq!(long.len(), 255);
        assert!(long.ends_with(b"_10.csv"));
    }

    #[test]
    fn r_13_temp_names_differ_by_operation_epoch_and_attempt() {
        let directory = SandboxPath::new("/w").unwrap();
        let name = |operation, epoch, attempt| {
            let path = temp_path(&directory, b"a.csv", operation, epoch, attempt).unwrap();
            path.to_text().unwrap().to_owned()
        };
        assert_eq!(name("op-1", 1, 1), "/w/.a.csv.op1.1.part");
        assert_eq!(name("op-1", 1, 2), "/w/.a.csv.op1.1.2.part");
        assert_eq!(name("op-1", 2, 1), "/w/.a.csv.op1.2.part");
        let long = temp_path(
            &directory,
            &[b'x'; 255],
            &"o".repeat(99),
            u64::MAX,
            u32::MAX,
        )
        .unwrap();
        assert!(long.name().len() <= 255);
        assert!(long.name().ends_with(b".part"));
    }
}
