//! The space in the spool directory, which all transfers of a service share. Files there have no name, so the kernel
//! frees those of a process that is killed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_sandbox::error::{Error, ErrorKind};

/// Delay after which other transfers may have given back enough space.
const FULL_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Bytes that transfers have in the spool directory together. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct SpoolUsage(Arc<Mutex<u64>>);

impl SpoolUsage {
    fn lock_bytes(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Equal values share one count.
impl PartialEq for SpoolUsage {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SpoolUsage {}

/// The space of one file in the spool directory. It is given back on drop.
#[derive(Debug, Default)]
pub(super) struct SpoolSpace {
    usage: SpoolUsage,
    limit: u64,
    bytes: u64,
}

impl SpoolSpace {
    /// No space yet; all files of `usage` may have `limit` bytes together.
    pub(super) fn new(usage: SpoolUsage, limit: u64) -> Self {
        Self {
            usage,
            limit,
            bytes: 0,
        }
    }

    /// Makes sure that the file may have this many bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoSpace`], with a delay where the limit is reached because of other files.
    pub(super) fn reserve_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let missing = bytes.saturating_sub(self.bytes);
        let mut used = self.usage.lock_bytes();
        let grown = used.saturating_add(missing);
        if missing == 0 || grown <= self.limit {
            *used = grown;
            self.bytes = self.bytes.max(bytes);
            return Ok(());
        }
        let full = Error::new(ErrorKind::NoSpace, "the spool limit is reached").of_this_host();
        Err(if bytes > self.limit {
            full
        } else {
            full.with_retry_after(FULL_RETRY_DELAY)
        })
    }

    /// Gives back the space of this many bytes.
    pub(super) fn release_bytes(&mut self, bytes: u64) {
        let released = bytes.min(self.bytes);
        self.bytes -= released;
        *self.usage.lock_bytes() -= released;
    }
}

impl Drop for SpoolSpace {
    fn drop(&mut self) {
        self.release_bytes(self.bytes);
    }
}
