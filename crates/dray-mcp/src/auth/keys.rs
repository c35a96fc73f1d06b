//! The keys of the authorization server: where they are, and how they are loaded.

use std::path::PathBuf;

use dray_jwt::{KeySource, LoadCause};
use futures_util::future::BoxFuture;

use super::source;
use crate::ServiceClient;

/// The location of the key set (RFC 7517) of the authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocation {
    /// A URL, fetched through egress-fetcher under the operator's policy.
    Url(String),
    /// A file of this machine, for authorization servers that egress-fetcher may not reach.
    File(PathBuf),
}

/// Loads the key set from its location.
#[derive(Debug)]
pub(super) struct LocatedKeys {
    pub(super) location: KeyLocation,
    /// Fetches URLs; `None` for a server without services, whose keys have to be in a file.
    pub(super) client: Option<ServiceClient>,
}

impl KeySource for LocatedKeys {
    fn load_keys(&self) -> BoxFuture<'_, Result<String, LoadCause>> {
        Box::pin(async {
            let loaded = source::load(&self.location, self.client.as_ref()).await;
            loaded.map_err(LoadCause::from)
        })
    }
}
