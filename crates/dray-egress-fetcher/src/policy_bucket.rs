//! Policy files in a key-value bucket of the bus: each key is the name of a file, and its value the content.
//!
//! Keys are read one after the other in the order of their revisions, so that a read ends with the state of exactly one
//! revision of the bucket, even if keys are written meanwhile. While nothing changes, a read is one request, which asks
//! for a later revision. Every `FULL_READ_INTERVAL` all keys are read, because a bucket that was restored begins with
//! lower revisions.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_guard::ruleset::MAX_POLICY_BYTES;
use tokio::time::Instant;

use crate::policy_files::{MAX_FILES, POLICY_EXTENSION, PolicyBytes, PolicyReadError};

/// Name of the bucket.
pub const POLICY_BUCKET: &str = "dray_egress_policy";
/// Most bytes of one file: the largest message of the bucket without its headers.
pub const MAX_FILE_BYTES: usize = 511 * 1024;
/// Time after which all keys are read although none seems to have changed.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(30);
/// Most keys that are read, deleted ones included.
const MAX_KEYS: usize = 4096;

/// A key of the bucket and its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFile {
    /// The content; `None` if the key was deleted.
    pub content: Option<Bytes>,
    /// Revision of its last change.
    pub revision: u64,
    /// Unix milliseconds of its last change.
    pub time_ms: u64,
}

/// The bucket at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Keys that have or had a value, by name.
    pub files: BTreeMap<String, BucketFile>,
    /// Revision of the last change of any key; 0 for a bucket that was never written.
    pub revision: u64,
    /// Whether the contents exceed the size of a policy. They are then left out.
    pub is_too_large: bool,
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
            let Some(change) = keys.next("", state.revision + 1).await? else {
                return Ok(state);
            };
            state.revision = change.revision;
            let file = BucketFile {
                content: change.value,
                revision: change.revision,
                time_ms: change.time_ms,
            };
            state.files.insert(change.key, file);
            state.limit_bytes();
        }
        Err(PolicyReadError::BucketContent(format!(
            "has more than {MAX_KEYS} keys, deleted ones included"
        )))
    }

    /// Frees the contents of a bucket that is too large, so that it takes no more memory than a policy.
    fn limit_bytes(&mut self) {
        let contents = self
            .files
            .values_mut()
            .filter_map(|file| file.content.as_mut());
        let bytes: usize = contents.map(|content| content.len()).sum();
        if bytes <= MAX_POLICY_BYTES {
            return;
        }
        self.is_too_large = true;
        for content in self.files.values_mut() {
            content.content = content.content.take().map(|_| Bytes::new());
        }
    }

    /// Names and contents of the files.
    pub fn contents(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.files.iter().filter_map(|(name, file)| {
            let content = file.content.as_ref()?;
            Some((name.as_str(), content))
        })
    }

    /// The policy that consists of the files.
    ///
    /// # Errors
    ///
    /// A bucket without files, with too many or too large ones, or with a key that is not the name of a policy file: a
    /// rule that is left out because of the name of its file must not go unnoticed.
    pub fn policy(&self) -> Result<PolicyBytes, PolicyReadError> {
        let refused = |problem: String| Err(PolicyReadError::BucketContent(problem));
        let files: Vec<(String, Vec<u8>)> = self
            .contents()
            .map(|(name, content)| (name.to_owned(), content.to_vec()))
            .collect();
        if let Some((name, _)) = files.iter().find(|(name, _)| !is_policy_name(name)) {
            let name: String = name.escape_debug().take(80).collect();
            return refused(format!("has the key `{name}`, which {NAME_RULE}"));
        }
        if files.is_empty() {
            return refused("has no policy file".to_owned());
        }
        if files.len() > MAX_FILES {
            return refused(format!("has more than {MAX_FILES} policy files"));
        }
        if self.is_too_large {
            return refused("makes the policy larger than 1024 KiB".to_owned());
        }
        Ok(PolicyBytes::from_files(files))
    }
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

    /// The present policy.
    pub(crate) async fn read(&mut self) -> Result<PolicyBytes, PolicyReadError> {
        if let Some((state, read_at)) = &self.last
            && read_at.elapsed() < FULL_READ_INTERVAL
            && self.keys.next("", state.revision + 1).await?.is_none()
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
