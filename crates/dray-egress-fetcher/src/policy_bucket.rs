//! Policy files in a key-value bucket of the bus.
//!
//! The key `policy` contains all files of the policy (module `snapshot`), so that a change is one write and a reader
//! sees all of it or nothing (module `put`). Earlier versions wrote one key for each file. Such a bucket is still read,
//! until the next put replaces its keys.
//!
//! Keys are read one after the other in the order of their revisions, so that a read ends with the state of exactly one
//! revision of the bucket, even if keys are written meanwhile. While nothing changes, a read is one request, which asks
//! for a later revision. Every `FULL_READ_INTERVAL` all keys are read, because a bucket that was restored begins with
//! lower revisions.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::topology::EGRESS_POLICY_STREAM;
use dray_bus::{KeyError, KeyValue, Permissions, Topology};
use dray_guard::ruleset::MAX_POLICY_BYTES;
use tokio::time::Instant;

use self::snapshot::PolicySnapshot;
use crate::policy_files::{MAX_FILES, POLICY_EXTENSION, PolicyBytes, PolicyReadError};

mod put;
mod snapshot;

pub use put::{PolicyDraft, PutError, PutOutcome};

/// Name of the bucket.
pub const POLICY_BUCKET: &str = "dray_egress_policy";
/// The key of the whole policy. It is not the name of a policy file.
const POLICY_KEY: &str = "policy";
/// Time after which all keys are read although none seems to have changed.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(30);
/// Most keys that are read, deleted ones included.
const MAX_KEYS: usize = 4096;

/// Adds the right to read the bucket.
///
/// It is not among the permissions of the service itself, because every stream of those must exist at its start, and a
/// service without `policy_bucket` needs no bucket.
#[must_use]
pub fn declare_reading(identity: Permissions) -> Permissions {
    identity.reads_bucket(POLICY_BUCKET)
}

/// The bucket as a part of the topology, to be verified where it is used.
pub fn bucket_topology() -> Topology {
    let mut topology = Topology::default();
    let streams = &mut topology.streams;
    streams.retain(|stream| stream.name == EGRESS_POLICY_STREAM);
    topology.consumers.clear();
    topology
}

/// A key of the bucket and its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BucketKey {
    /// The value; `None` if the key was deleted.
    value: Option<Bytes>,
    revision: u64,
    time_ms: u64,
}

/// A policy file in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFile {
    /// Name of the file, or of a key that is not one.
    pub name: String,
    /// Size of its content.
    pub bytes: usize,
    /// Revision at which it was written.
    pub revision: u64,
    /// Unix milliseconds at which it was written.
    pub time_ms: u64,
}

/// A revision of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRevision {
    /// The number that a change has to name; 0 for a bucket that was never written.
    pub number: u64,
    /// Unix milliseconds at which it was written; `None` for a bucket that was never written.
    pub time_ms: Option<u64>,
    /// The name that its writer stated, which is not verified; `None` if the bucket does not say.
    pub written_by: Option<String>,
}

/// The bucket at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Keys that have or had a value, by name.
    keys: BTreeMap<String, BucketKey>,
    /// Revision of the last change of any key; 0 for a bucket that was never written.
    last_revision: u64,
    /// Whether the contents exceed the size of a policy. They are then left out.
    is_too_large: bool,
    /// A key whose value was replaced by a message that was not written as a key. A put replaces or deletes it.
    foreign_key: Option<String>,
}

impl BucketState {
    /// Reads all keys.
    ///
    /// # Errors
    ///
    /// The bus, or a bucket with too many keys.
    pub async fn read(keys: &KeyValue) -> Result<Self, PolicyReadError> {
        let mut state = Self::default();
        for _ in 0..MAX_KEYS {
            let (name, key) = match keys.next("", state.last_revision + 1).await {
                Ok(None) => return Ok(state),
                Ok(Some(change)) => {
                    let key = BucketKey {
                        value: change.value,
                        revision: change.revision,
                        time_ms: change.time_ms,
                    };
                    (change.key, key)
                }
                Err(KeyError::Foreign {
                    key: name,
                    revision,
                    time_ms,
                }) => {
                    state.foreign_key = Some(name.clone());
                    let key = BucketKey {
                        value: Some(Bytes::new()),
                        revision,
                        time_ms,
                    };
                    (name, key)
                }
                Err(error) => return Err(error.into()),
            };
            state.last_revision = key.revision;
            state.keys.insert(name, key);
            state.limit_bytes();
        }
        Err(PolicyReadError::BucketContent(format!(
            "has more than {MAX_KEYS} keys, deleted ones included"
        )))
    }

    /// Frees the contents of keys of single files that are too large together, so that they take no more memory than a
    /// policy. The key of the whole policy is one message.
    fn limit_bytes(&mut self) {
        let bytes: usize = self.file_keys().map(|(_, _, value)| value.len()).sum();
        if bytes <= MAX_POLICY_BYTES {
            return;
        }
        self.is_too_large = true;
        for (name, key) in &mut self.keys {
            if name != POLICY_KEY {
                key.value = key.value.take().map(|_| Bytes::new());
            }
        }
    }

    /// The keys of single files that have a value.
    fn file_keys(&self) -> impl Iterator<Item = (&str, &BucketKey, &Bytes)> + Clone {
        let keys = self.keys.iter().filter(|(name, _)| *name != POLICY_KEY);
        keys.filter_map(|(name, key)| Some((name.as_str(), key, key.value.as_ref()?)))
    }

    /// The key of the whole policy, if it has a value.
    fn snapshot_key(&self) -> Option<(&BucketKey, &Bytes)> {
        let key = self.keys.get(POLICY_KEY)?;
        Some((key, key.value.as_ref()?))
    }

    /// A key that was written after the policy. An earlier version of the program is writing, or another program.
    fn later_key(&self) -> Option<&str> {
        let (snapshot, _) = self.snapshot_key()?;
        let mut keys = self.file_keys();
        let later = keys.find(|(_, key, _)| key.revision > snapshot.revision);
        later.map(|(name, _, _)| name)
    }

    /// The revision of the policy, which a change is based on. Keys that are deleted after a put do not change it.
    pub fn revision(&self) -> PolicyRevision {
        if let Some((key, value)) = self.snapshot_key()
            && self.later_key().is_none()
        {
            let snapshot = PolicySnapshot::decode(value).ok();
            return PolicyRevision {
                number: key.revision,
                time_ms: Some(key.time_ms),
                written_by: snapshot.map(|snapshot| snapshot.written_by),
            };
        }
        let last = self.keys.values().max_by_key(|key| key.revision);
        PolicyRevision {
            number: self.last_revision,
            time_ms: last.map(|key| key.time_ms),
            written_by: None,
        }
    }

    /// The files in the bucket, for people. A bucket that is not a policy has them too.
    pub fn files(&self) -> Vec<BucketFile> {
        if let Some((key, value)) = self.snapshot_key()
            && self.later_key().is_none()
            && let Ok(snapshot) = PolicySnapshot::decode(value)
        {
            let files = snapshot.into_files().into_iter();
            return files
                .map(|(name, content)| BucketFile {
                    name,
                    bytes: content.len(),
                    revision: key.revision,
                    time_ms: key.time_ms,
                })
                .collect();
        }
        let keys = self.keys.iter();
        keys.filter_map(|(name, key)| {
            Some(BucketFile {
                name: name.clone(),
                bytes: key.value.as_ref()?.len(),
                revision: key.revision,
                time_ms: key.time_ms,
            })
        })
        .collect()
    }

    /// The policy that consists of the files.
    ///
    /// # Errors
    ///
    /// A bucket without files, with too many or too large ones, or with a key that is not the name of a policy file: a
    /// rule that is left out because of the name of its file must not go unnoticed. So does a rule in a file that was
    /// written beside the policy.
    pub fn policy(&self) -> Result<PolicyBytes, PolicyReadError> {
        if let Some(name) = &self.foreign_key {
            return Err(PolicyReadError::BucketContent(format!(
                "has the key `{}`, which was overwritten with something that is not a write of a key; put the policy again",
                shown_name(name)
            )));
        }
        let files = match self.snapshot_key() {
            Some((_, value)) => self
                .refuse_later_key()
                .and_then(|()| PolicySnapshot::decode(value))
                .map(PolicySnapshot::into_files),
            None => self.single_files(),
        };
        files
            .map(PolicyBytes::from_files)
            .map_err(PolicyReadError::BucketContent)
    }

    fn refuse_later_key(&self) -> Result<(), String> {
        self.later_key().map_or(Ok(()), |name| {
            Err(format!(
                "has the key `{}`, which was written after the policy, by an earlier version or another program",
                shown_name(name)
            ))
        })
    }

    /// The files of a bucket with one key for each, as earlier versions wrote it.
    fn single_files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let files = self.file_keys();
        check_files(files.map(|(name, _, value)| (name, value.len())))?;
        if self.is_too_large {
            return Err(TOO_LARGE.to_owned());
        }
        let files = self.file_keys();
        Ok(files
            .map(|(name, _, value)| (name.to_owned(), value.to_vec()))
            .collect())
    }
}

/// The problem of a policy that is too large; completes "the bucket …".
const TOO_LARGE: &str = "makes the policy larger than 1024 KiB";

/// Checks names, number and sizes of the files of a policy. The error completes "the bucket …".
fn check_files<'a>(files: impl Iterator<Item = (&'a str, usize)> + Clone) -> Result<(), String> {
    if let Some((name, _)) = files.clone().find(|(name, _)| !is_policy_name(name)) {
        return Err(format!(
            "has the key `{}`, which {NAME_RULE}",
            shown_name(name)
        ));
    }
    let count = files.clone().count();
    if count == 0 {
        return Err("has no policy file".to_owned());
    }
    if count > MAX_FILES {
        return Err(format!("has more than {MAX_FILES} policy files"));
    }
    let bytes: usize = files.map(|(_, bytes)| bytes).sum();
    if bytes > MAX_POLICY_BYTES {
        return Err(TOO_LARGE.to_owned());
    }
    Ok(())
}

/// A name of a key for a message.
fn shown_name(name: &str) -> String {
    name.escape_debug().take(80).collect()
}

/// What a name of a policy file in the bucket must be.
pub const NAME_RULE: &str = "is not a name of letters, digits, `-`, `_` and `.` that ends in .toml";

/// Whether a key of the bucket can be the name of a policy file.
pub fn is_policy_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty()
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 255
        && name.split('.').all(is_plain)
        && name
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extension == POLICY_EXTENSION)
}

/// Reads the bucket again and again.
#[derive(Debug)]
pub struct PolicyBucket {
    keys: KeyValue,
    last: Option<(BucketState, Instant)>,
}

impl PolicyBucket {
    /// The policy bucket behind `keys`.
    pub const fn new(keys: KeyValue) -> Self {
        Self { keys, last: None }
    }

    /// The revision that was read last; `None` before the first read.
    pub(crate) fn revision(&self) -> Option<PolicyRevision> {
        self.last.as_ref().map(|(state, _)| state.revision())
    }

    /// The present policy.
    pub(crate) async fn read(&mut self) -> Result<PolicyBytes, PolicyReadError> {
        if let Some((state, read_at)) = &self.last
            && read_at.elapsed() < FULL_READ_INTERVAL
            && self.keys.next("", state.last_revision + 1).await?.is_none()
        {
            return state.policy();
        }
        let state = BucketState::read(&self.keys).await?;
        let policy = state.policy();
        self.last = Some((state, Instant::now()));
        policy
    }
}

impl From<KeyError> for PolicyReadError {
    fn from(error: KeyError) -> Self {
        Self::Bus(error)
    }
}

#[cfg(test)]
mod tests;
