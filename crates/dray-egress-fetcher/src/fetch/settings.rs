//! The settings of fetches that can change while the process runs. A fetch keeps those with which it began.

use std::sync::{Arc, PoisonError};

use super::{FetchLimits, Fetcher};
use crate::credential::CredentialStore;

/// Limits and credentials.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// Limits of time and size.
    pub limits: FetchLimits,
    /// Credentials of the operator for single hosts.
    pub credentials: CredentialStore,
}

impl Fetcher {
    /// The settings for fetches that begin now.
    pub(super) fn settings(&self) -> Arc<FetchSettings> {
        // A panic cannot leave an `Arc` half replaced.
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings of fetches that begin later. `user_agent` must stay the same: groups of a stored
    /// robots.txt were chosen by it.
    pub fn set_settings(&self, settings: FetchSettings) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}
