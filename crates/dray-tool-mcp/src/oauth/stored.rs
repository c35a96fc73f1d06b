//! Sign-ins that outlive a request: a page that the user opens between two turns, and tokens that every replica reads.
//!
//! A turn cannot wait for a browser: its client sees nothing before its tools are set up. So the turn stores what it
//! needs for the exchange, and ends with the address of the page. When the browser has come back and the user has
//! confirmed it in the conversation, a later turn exchanges the code.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, CredentialRefreshGuard, CredentialStore, StateStore,
    StoredAuthorizationState, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;

use super::renewal::{RenewalGate, RenewalLease};

/// The owner of a sign-in, and its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInOwner {
    /// The caller, by a name that is the same in every request.
    pub principal: String,
    /// The server, by its address.
    pub server: String,
    /// The client id of the manifest, if it has one.
    pub client_id: Option<String>,
}

/// The sign-in could not be stored or read; the cause is logged where it occurs.
#[derive(Clone, Copy, Debug, Error)]
#[error("sign-ins cannot be read or written right now")]
pub struct SignInStoreError;

/// Stores sign-ins between requests. Its data contains secrets: it encrypts them, and returns them only to their owner.
#[async_trait]
pub trait SignInKeeper: fmt::Debug + Send + Sync {
    /// The address to which authorization servers redirect the browser, exactly as they know it.
    fn redirect_uri(&self) -> &str;

    /// Stores a sign-in whose page the user has yet to open. It is found by its state ([`PendingSignIn::state`]).
    ///
    /// # Errors
    ///
    /// The sign-in was not stored.
    async fn keep_pending(
        &self,
        owner: &SignInOwner,
        conversation: &str,
        pending: &PendingSignIn,
    ) -> Result<(), SignInStoreError>;

    /// The tokens of an owner, as [`Self::save_tokens`] got them; `None` without a sign-in.
    ///
    /// # Errors
    ///
    /// The tokens cannot be read.
    async fn load_tokens(&self, owner: &SignInOwner) -> Result<Option<String>, SignInStoreError>;

    /// Replaces the tokens of an owner; `None` removes them.
    ///
    /// # Errors
    ///
    /// The tokens were not stored.
    async fn save_tokens(
        &self,
        owner: &SignInOwner,
        tokens: Option<&str>,
    ) -> Result<(), SignInStoreError>;

    /// Takes the lease for renewing the tokens of an owner, and waits while another process has it. It ends with
    /// [`Self::end_renewal`], or after [`RENEWAL_LEASE_LIFETIME`](super::RENEWAL_LEASE_LIFETIME).
    ///
    /// # Errors
    ///
    /// The tokens cannot be written, or other processes always have the lease.
    async fn begin_renewal(&self, owner: &SignInOwner) -> Result<RenewalLease, SignInStoreError>;

    /// Releases the lease. A failure is not reported, because the lease expires.
    async fn end_renewal(&self, owner: &SignInOwner, lease: RenewalLease);
}

/// A sign-in between the opening of its page and the exchange of its code. It holds the PKCE verifier, a secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct PendingSignIn {
    /// The tool set that needs it.
    pub toolset: String,
    /// The client as the authorization server knows it.
    client_id: String,
    authorization: StoredAuthorizationState,
}

impl fmt::Debug for PendingSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSignIn")
            .field("toolset", &self.toolset)
            .finish_non_exhaustive()
    }
}

/// The reason why a browser that came back does not continue a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallbackRefusal {
    /// The state is another one, or the address has neither a code nor an error.
    #[error("the address does not belong to this sign-in")]
    Foreign,
    /// The response is from another authorization server than that of the page (RFC 9207).
    #[error("another authorization server answered")]
    WrongIssuer,
    /// The authorization server or the user refused (RFC 6749 section 4.1.2.1).
    #[error("the sign-in was refused")]
    Denied,
}

impl PendingSignIn {
    /// The random text that the browser brings back.
    pub fn state(&self) -> &str {
        &self.authorization.csrf_token
    }

    /// Checks the address to which the browser was redirected, before any code is sent to a token endpoint. A refusal
    /// leaves the sign-in as it was, except [`CallbackRefusal::Denied`].
    ///
    /// # Errors
    ///
    /// [`CallbackRefusal`].
    pub fn check_callback(&self, returned: &str) -> Result<(), CallbackRefusal> {
        let url = Url::parse(returned).map_err(|_| CallbackRefusal::Foreign)?;
        let value = |name: &str| {
            let mut pairs = url.query_pairs();
            pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
        };
        if value("state").as_deref() != Some(self.state()) {
            return Err(CallbackRefusal::Foreign);
        }
        let issuer = value("iss");
        let expected = &self.authorization.expected_issuer;
        let is_expected_issuer = match &issuer {
            Some(_) => issuer == *expected,
            None => !self.authorization.require_issuer,
        };
        if !is_expected_issuer {
            return Err(CallbackRefusal::WrongIssuer);
        }
        if value("error").is_some() {
            return Err(CallbackRefusal::Denied);
        }
        let callback = AuthorizationCallback::from_redirect_url(returned);
        callback.map(drop).map_err(|_| CallbackRefusal::Foreign)
    }

    pub(super) fn new(
        toolset: &str,
        page: &str,
        states: &CapturedStates,
    ) -> Result<Self, AuthError> {
        let missing = || AuthError::InternalError("the page has no state".to_owned());
        let url = Url::parse(page)?;
        let mut pairs = url.query_pairs();
        let client_id = pairs.find_map(|(key, value)| (key == "client_id").then_some(value));
        Ok(Self {
            toolset: toolset.to_owned(),
            client_id: client_id.ok_or_else(missing)?.into_owned(),
            authorization: states.take_newest().ok_or_else(missing)?,
        })
    }

    pub(super) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.authorization.expected_issuer.as_deref()
    }

    pub(super) fn authorization(&self) -> StoredAuthorizationState {
        self.authorization.clone()
    }
}

/// A pending sign-in whose browser came back, and whose user confirmed it in the conversation.
#[derive(Clone, Serialize, Deserialize)]
pub struct ConfirmedSignIn {
    /// The owner of the sign-in, and its server.
    pub owner: SignInOwner,
    /// The sign-in.
    pub pending: PendingSignIn,
    /// The address to which the browser was redirected, with its query.
    pub returned: String,
}

impl fmt::Debug for ConfirmedSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address contains the code.
        f.debug_struct("ConfirmedSignIn")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// The states that one manager made or may exchange. Clones share them.
#[derive(Clone, Default)]
pub(super) struct CapturedStates(Arc<Mutex<Vec<StoredAuthorizationState>>>);

impl CapturedStates {
    pub(super) fn with(state: StoredAuthorizationState) -> Self {
        Self(Arc::new(Mutex::new(vec![state])))
    }

    /// Takes the state that was made last; older ones are forgotten.
    fn take_newest(&self) -> Option<StoredAuthorizationState> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = states.pop();
        states.clear();
        newest
    }
}

#[async_trait]
impl StateStore for CapturedStates {
    async fn save(&self, _: &str, state: StoredAuthorizationState) -> Result<(), AuthError> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.push(state);
        Ok(())
    }

    async fn load(&self, token: &str) -> Result<Option<StoredAuthorizationState>, AuthError> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = states.iter().find(|state| state.csrf_token == token);
        Ok(found.cloned())
    }

    async fn delete(&self, token: &str) -> Result<(), AuthError> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|state| state.csrf_token != token);
        Ok(())
    }
}

/// The tokens of one owner, as `rmcp` reads and writes them.
pub(super) struct StoredTokens {
    pub(super) keeper: Arc<dyn SignInKeeper>,
    pub(super) owner: SignInOwner,
    pub(super) renewals: Arc<RenewalGate>,
}

pub(super) fn store_failure(error: impl fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for StoredTokens {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let text = self.keeper.load_tokens(&self.owner).await;
        // Tokens of a later version that this one cannot read count as missing: the user signs in again.
        Ok(text
            .map_err(store_failure)?
            .and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text = serde_json::to_string(&credentials).map_err(store_failure)?;
        let saved = self.keeper.save_tokens(&self.owner, Some(&text)).await;
        saved.map_err(store_failure)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let cleared = self.keeper.save_tokens(&self.owner, None).await;
        cleared.map_err(store_failure)
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        self.renewals.pass().map(|()| None)
    }
}
