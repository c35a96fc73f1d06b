//! The credentials with which requests and links are signed. They can be replaced while the store is used; a request
//! keeps those with which it was signed.

use std::sync::{Arc, PoisonError, RwLock};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{self, ProvideCredentials, future};
use dray_types::Secret;

use crate::options::StoreOptions;

/// The fields of [`StoreOptions`] that identify this process to the store.
#[derive(Clone, Debug)]
pub struct StoreCredentials {
    access_key: Secret,
    secret_key: Secret,
    session_token: Secret,
    expire_at_ms: u64,
}

impl From<&StoreOptions> for StoreCredentials {
    fn from(options: &StoreOptions) -> Self {
        Self {
            access_key: options.access_key.clone(),
            secret_key: options.secret_key.clone(),
            session_token: options.session_token.clone(),
            expire_at_ms: options.credentials_expire_at_ms,
        }
    }
}

/// The credentials in force. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SharedCredentials(Arc<RwLock<StoreCredentials>>);

impl SharedCredentials {
    pub(crate) fn new(credentials: StoreCredentials) -> Self {
        Self(Arc::new(RwLock::new(credentials)))
    }

    pub(crate) fn replace(&self, credentials: StoreCredentials) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    /// Unix milliseconds at which they end; 0 for permanent ones.
    pub(crate) fn expire_at_ms(&self) -> u64 {
        let credentials = self.0.read().unwrap_or_else(PoisonError::into_inner);
        credentials.expire_at_ms
    }

    fn for_signing(&self) -> Credentials {
        let credentials = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let session = credentials.session_token.expose();
        Credentials::new(
            credentials.access_key.expose(),
            credentials.secret_key.expose(),
            (!session.is_empty()).then(|| session.to_owned()),
            None,
            "dray-store",
        )
    }
}

impl ProvideCredentials for SharedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let credentials: provider::Result = Ok(self.for_signing());
        future::ProvideCredentials::ready(credentials)
    }
}
