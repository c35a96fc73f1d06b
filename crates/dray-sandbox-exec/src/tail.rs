//! The last bytes of standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of standard error that are kept, the last ones.
const MAX_TAIL_BYTES: usize = 4096;

/// The last 4 KiB of standard error. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    /// Adds the bytes that were received.
    pub fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = bytes.len().saturating_sub(MAX_TAIL_BYTES);
        tail.extend(bytes.iter().skip(surplus));
        let extra = tail.len().saturating_sub(MAX_TAIL_BYTES);
        tail.drain(..extra);
    }

    /// The kept bytes as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_of_stderr_is_kept() {
        let stderr = StderrTail::default();
        stderr.push(&[b'a'; 5000]);
        stderr.push(b"end");
        assert_eq!(stderr.text().len(), MAX_TAIL_BYTES);
        assert!(stderr.text().ends_with("aend"));
    }
}
