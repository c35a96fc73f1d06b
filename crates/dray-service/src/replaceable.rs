//! A value that changes while the service runs, such as its settings.

use std::sync::{Arc, PoisonError, RwLock};

/// The value in force. Clones share it.
///
/// A piece of work that needs the value several times takes it once, so that it does not see two values.
#[derive(Debug, Default)]
pub struct ReplaceableValue<T>(Arc<RwLock<Arc<T>>>);

impl<T> ReplaceableValue<T> {
    /// Starts with this value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The value in force now.
    pub fn get(&self) -> Arc<T> {
        // A replacement is atomic, so a poisoned lock still has a whole value.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another value in force. Work that has taken the one before keeps it.
    pub fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl<T> Clone for ReplaceableValue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
