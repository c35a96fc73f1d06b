//! Replaces the policy in the bucket: one write, which compares the revision that was read.
//!
//! A put that is killed before its write has changed nothing, and after it everything. What is left then are keys of an
//! earlier layout, which readers ignore and the next put deletes.

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};

use super::snapshot::{MAX_VALUE_BYTES, PolicySnapshot};
use super::{BucketState, NAME_RULE, POLICY_KEY, PolicyRevision, is_policy_name};
use crate::policy_files::{PolicyBytes, PolicyReadError};

/// Most attempts while others change keys of the bucket without changing the policy: they delete replaced keys.
const MAX_ATTEMPTS: usize = 8;
/// Longest name of a writer in bytes.
const MAX_WRITER_BYTES: usize = 128;

/// The reason why a policy was not put.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The files are not a policy, or the bucket cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyReadError),
    /// The name of a file is not possible in the bucket.
    #[error("{0} {NAME_RULE}")]
    FileName(String),
    /// The name of the writer is not valid.
    #[error("the name of the writer is not 1 to {MAX_WRITER_BYTES} printable ASCII characters")]
    WriterName,
    /// The files are too large for one message.
    #[error(
        "the policy has {} KiB when compressed, and one message of the bucket has room for {} KiB",
        .0.div_ceil(1024), MAX_VALUE_BYTES / 1024
    )]
    TooLarge(usize),
    /// The bucket has another revision than the one on which the files are based. Nothing was written.
    #[error("the policy has revision {}, and the files are based on {based_on}", present.number)]
    Outdated {
        /// The revision on which the files are based.
        based_on: u64,
        /// The revision in the bucket.
        present: PolicyRevision,
    },
    /// Others kept changing the bucket without changing the policy. Nothing was written.
    #[error("the bucket keeps changing")]
    Contended,
    /// The write was refused, or it was not confirmed and a later read did not find it.
    #[error("the policy could not be written")]
    Write(#[source] KeyError),
}

/// The result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// The revision of the policy.
    pub revision: u64,
    /// Number of files that are new or have another content.
    pub written: usize,
    /// Number of files that the policy no longer has.
    pub deleted: usize,
    /// Number of replaced keys of an earlier layout that could not be deleted. Readers ignore them, and the next put
    /// tries again.
    pub leftover_keys: usize,
}

/// A policy that was checked as the service checks it, and can be put.
#[derive(Clone, Debug)]
pub struct PolicyDraft {
    files: PolicyBytes,
    value: Bytes,
    rules_digest: String,
    rule_count: usize,
}

impl PolicyDraft {
    /// Checks the files, without the bucket. `written_by` names the writer for others; it is not verified.
    ///
    /// # Errors
    ///
    /// Every problem of the rules with file, line and remedy; a name of a file or a size that the bucket cannot have; a
    /// name of the writer that is not 1 to 128 printable ASCII characters.
    pub fn new(files: PolicyBytes, written_by: &str) -> Result<Self, PutError> {
        let rules = files.rules()?;
        if let Some((name, _)) = files.files().find(|(name, _)| !is_policy_name(name)) {
            return Err(PutError::FileName(name.to_owned()));
        }
        let is_printable = written_by.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_printable || !(1..=MAX_WRITER_BYTES).contains(&written_by.len()) {
            return Err(PutError::WriterName);
        }
        let snapshot = PolicySnapshot::new(&files, rules.digest(), written_by);
        Ok(Self {
            value: snapshot.encode().map_err(PutError::TooLarge)?,
            rules_digest: rules.digest().to_owned(),
            rule_count: rules.rule_count(),
            files,
        })
    }

    /// Digest of the rules.
    pub fn rules_digest(&self) -> &str {
        &self.rules_digest
    }

    /// Number of rules of all files.
    pub const fn rule_count(&self) -> usize {
        self.rule_count
    }

    /// Replaces the policy in the bucket if it has the revision `based_on`. A policy that the bucket has already is not
    /// written again.
    ///
    /// It may be dropped at any time: the policy is then the old or the new one, never a part of it.
    ///
    /// # Errors
    ///
    /// [`PutError::Outdated`] for another revision, also one that another put writes meanwhile; the bus.
    pub async fn put(&self, keys: &KeyValue, based_on: u64) -> Result<PutOutcome, PutError> {
        for _ in 0..MAX_ATTEMPTS {
            let state = BucketState::read(keys).await?;
            let present = state.revision();
            if present.number != based_on {
                return Err(PutError::Outdated { based_on, present });
            }
            let revision = if state.has_snapshot_of(&self.files) {
                Some(based_on)
            } else {
                self.write(keys, &state).await?
            };
            if let Some(revision) = revision {
                let (written, deleted) = state.differences(&self.files);
                return Ok(PutOutcome {
                    revision,
                    written,
                    deleted,
                    leftover_keys: delete_replaced(keys, &state).await,
                });
            }
        }
        Err(PutError::Contended)
    }

    /// Writes the policy if no key was changed since `state` was read. Returns `None` if one was.
    async fn write(&self, keys: &KeyValue, state: &BucketState) -> Result<Option<u64>, PutError> {
        let key = state.keys.get(POLICY_KEY);
        let last = key.map_or(0, |key| key.revision);
        let value = Some(self.value.clone());
        let written = keys.write_in_order(POLICY_KEY, value, last, state.last_revision);
        let error = match written.await {
            Ok(revision) => return Ok(Some(revision)),
            Err(KeyError::Stale) => return Ok(None),
            Err(error) => error,
        };
        // A write whose confirmation was lost may have happened.
        match keys.get(POLICY_KEY).await {
            Ok(Some(entry))
                if entry.value == self.value && entry.revision > state.last_revision =>
            {
                Ok(Some(entry.revision))
            }
            _ => Err(PutError::Write(error)),
        }
    }
}

impl BucketState {
    /// Whether a put of these files would change nothing.
    fn has_snapshot_of(&self, files: &PolicyBytes) -> bool {
        self.snapshot_key().is_some() && self.policy().is_ok_and(|present| present == *files)
    }

    /// How many of these files are new or different, and how many files of the bucket are not among them.
    fn differences(&self, files: &PolicyBytes) -> (usize, usize) {
        let present = self.policy().ok();
        let content_of = |name: &str| {
            let mut present = present.as_ref()?.files();
            present.find(|(known, _)| *known == name)
        };
        let changed = files
            .files()
            .filter(|&(name, bytes)| content_of(name) != Some((name, bytes)));
        let is_gone = |name: &str| files.files().all(|(kept, _)| kept != name);
        let gone = self.files().into_iter().filter(|file| is_gone(&file.name));
        (changed.count(), gone.count())
    }
}

/// Deletes the keys of single files that the policy has replaced. Returns the number of those that are left.
async fn delete_replaced(keys: &KeyValue, state: &BucketState) -> usize {
    let mut left = 0;
    for (name, key, _) in state.file_keys() {
        match keys.delete(name, key.revision).await {
            // A key that was changed meanwhile belongs to another writer.
            Ok(()) | Err(KeyError::Stale) => {}
            Err(error) => {
                left += 1;
                tracing::warn!(
                    key = name,
                    error = &error as &dyn std::error::Error,
                    "a key that the policy replaced could not be deleted"
                );
            }
        }
    }
    left
}

#[cfg(test)]
mod tests;
