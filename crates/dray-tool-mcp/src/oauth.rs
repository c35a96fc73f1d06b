//! Sign-in to remote servers with OAuth (MCP, authorization). It discovers the authorization server from the challenge
//! of a 401 or 403 (RFC 9728, RFC 8414), uses the authorization code with PKCE for users and client credentials for
//! programs, and asks for further scopes on demand. `rmcp` implements the protocol; this module decides about
//! connections, the trust in authorization servers and the lifetime of tokens.

mod assertion;
mod backend;
mod error;
mod renewal;
mod sign_ins;
mod stored;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{OauthClient, OauthGrant};
use dray_dial::signin::SignIn;
use dray_types::Secret;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession,
    ClientCredentialsConfig, OAuthClientConfig, WWWAuthenticateParams,
};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use url::Url;

use self::backend::OAuthBackend;
pub(crate) use self::error::SignInError;
use self::renewal::RenewalGate;
pub use self::renewal::{RENEWAL_LEASE_LIFETIME, RenewalLease};
pub use self::sign_ins::SignIns;
pub use self::stored::{
    CallbackRefusal, ConfirmedSignIn, PendingSignIn, SignInKeeper, SignInOwner, SignInStoreError,
};
use self::stored::{CapturedStates, StoredTokens};
use self::workload::WorkloadError;
pub use self::workload::WorkloadToken;

/// Name of this client where a server registers it by request (RFC 7591).
const CLIENT_NAME: &str = "Drayage";

/// Shows sign-in pages to users.
#[async_trait]
pub trait SignInPort: fmt::Debug + Send + Sync {
    /// The redirect URI, exactly as authorization servers know it.
    fn redirect_uri(&self) -> &str;

    /// Shows the page to the user on whose behalf this caller acts, and returns the address to which the browser was
    /// redirected, with its query. It must be the browser of this caller: an answer from another browser signs in
    /// another user.
    ///
    /// # Errors
    ///
    /// How the sign-in ended instead.
    async fn authorize(&self, caller: &Caller, page: &SignInPage) -> Result<String, SignIn>;
}

/// A page at which a user signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInPage {
    /// The tool set that needs it.
    pub toolset: String,
    /// Address of the page, `https`, or `http` where the server itself has no TLS.
    pub url: String,
}

/// Decides which authorization servers may be connected to, because remote servers name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IssuerTrust {
    /// Trusts issuers at the origin of the server, and issuers that the manifest names.
    #[default]
    Named,
    /// Trusts all addresses that the HTTP client may connect to.
    Any,
}

/// The operator's settings of OAuth.
#[derive(Clone, Debug, Default)]
pub struct OAuthOptions {
    /// Shows sign-in pages while a request waits.
    pub port: Option<Arc<dyn SignInPort>>,
    /// Keeps sign-ins between requests, where no page can be shown while a request waits and the principal is known.
    /// Without both this setting and [`Self::port`], only clients with their own credentials can sign in.
    pub keeper: Option<Arc<dyn SignInKeeper>>,
    /// The conversation to which pages of this request belong; empty if it belongs to none.
    pub conversation: String,
    /// Sign-ins that the user confirmed with this request.
    pub confirmed: Vec<ConfirmedSignIn>,
    /// `https` URL of this client's metadata document, which is its id where the manifest has none (SEP-991).
    pub client_metadata_url: Option<String>,
    /// Which authorization servers may be connected to.
    pub issuer_trust: IssuerTrust,
    /// Tokens of workloads that manifests may name. None for manifests that are not the operator's.
    pub workload_tokens: BTreeMap<String, WorkloadToken>,
    /// Sign-ins that are kept from one request to the next.
    pub sign_ins: SignIns,
}

/// The challenge of a server that refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// 401 or 403.
    pub(crate) status: u16,
    /// The header `WWW-Authenticate`.
    pub(crate) header: String,
}

/// The sign-in to one server. It outlives a request where the caller is known.
pub(crate) struct RemoteSignIn {
    server: String,
    client: OauthClient,
    client_metadata_url: Option<String>,
    backend: Arc<OAuthBackend>,
    /// The token that the client presents, with the grant `jwt_bearer`.
    workload: Result<Option<WorkloadToken>, WorkloadError>,
    /// Stores the sign-in of this owner, if the caller is known.
    store: Option<(Arc<dyn SignInKeeper>, SignInOwner)>,
    /// States of pages that this process made and did not show or store yet.
    states: CapturedStates,
    /// If sign-ins are stored, one process at a time renews tokens.
    renewals: Arc<RenewalGate>,
    /// Locked during a sign-in, so that concurrent calls ask the user once.
    manager: Mutex<Option<AuthorizationManager>>,
    /// Exchanges of secrets that can be used once. They continue when the request that needs them is cancelled.
    exchanges: TaskTracker,
}

impl fmt::Debug for RemoteSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The manager holds tokens.
        f.debug_struct("RemoteSignIn")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl RemoteSignIn {
    /// The access token, renewed if needed; `None` before the first sign-in and when another one is needed.
    ///
    /// A renewal that has begun is completed even if this future is dropped: the server may have replaced the refresh
    /// token already (RFC 6749 section 6).
    pub(crate) async fn token(self: &Arc<Self>) -> Option<Secret> {
        let sign_in = Arc::clone(self);
        let current = self.exchanges.spawn(async move {
            let mut manager = sign_in.manager.lock().await;
            if manager.is_none() {
                *manager = sign_in.restore().await;
            }
            sign_in.current_token(manager.as_ref()?).await.ok()
        });
        current.await.ok().flatten()
    }

    /// The sign-in that an earlier process or another replica made; `None` without one.
    async fn restore(&self) -> Option<AuthorizationManager> {
        let (keeper, owner) = self.store.as_ref()?;
        // The tokens are looked up first: without tokens no server is contacted.
        let tokens = keeper.load_tokens(owner).await.ok()??;
        let restoring = async {
            let mut manager = self.new_manager(self.states.clone()).await?;
            if !manager.initialize_from_store().await? {
                return Err(AuthError::AuthorizationRequired);
            }
            let stored: rmcp::transport::auth::StoredCredentials = serde_json::from_str(&tokens)
                .map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
            // The secret comes from the manifest, because the store does not have it.
            manager
                .configure_client(self.client_config(&stored.client_id, keeper.redirect_uri()))?;
            Ok(manager)
        };
        match restoring.await {
            Ok(manager) => Some(manager),
            Err(error) => {
                tracing::info!(%error, "a kept sign-in cannot be used");
                None
            }
        }
    }

    /// A manager that stores its tokens together with this sign-in.
    async fn new_manager(&self, states: CapturedStates) -> Result<AuthorizationManager, AuthError> {
        let backend: Arc<OAuthBackend> = Arc::clone(&self.backend);
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(self.server.as_str(), backend).await?;
        manager.set_state_store(states);
        if let Some((keeper, owner)) = &self.store {
            manager.set_credential_store(StoredTokens {
                keeper: Arc::clone(keeper),
                owner: owner.clone(),
                renewals: Arc::clone(&self.renewals),
            });
        }
        Ok(manager)
    }

    fn client_config(&self, client_id: &str, redirect_uri: &str) -> OAuthClientConfig {
        let config = OAuthClientConfig::new(client_id, redirect_uri);
        match self.secret().filter(|_| self.client.client_id.is_some()) {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }

    /// Exchanges the code of a sign-in that the user confirmed. The exchange is completed even if this future is
    /// dropped, because a code can be used once (RFC 6749, section 4.1.2).
    async fn exchange_confirmed(
        self: &Arc<Self>,
        confirmed: &ConfirmedSignIn,
        challenge: &Challenge,
    ) -> Result<AuthorizationManager, SignInError> {
        let (sign_in, confirmed) = (Arc::clone(self), confirmed.clone());
        let challenge = challenge.clone();
        let exchange = self
            .exchanges
            .spawn(async move { sign_in.exchange_code(&confirmed, &challenge).await });
        exchange.await.unwrap_or_else(|_| {
            let text = "the exchange of the code was stopped".to_owned();
            Err(AuthError::InternalError(text).into())
        })
    }

    /// Exchanges a code. The authorization server must still be the one for which the page was made. With another
    /// issuer, the code would be sent to an untrusted server.
    async fn exchange_code(
        &self,
        confirmed: &ConfirmedSignIn,
        challenge: &Challenge,
    ) -> Result<AuthorizationManager, SignInError> {
        let Some((keeper, _)) = &self.store else {
            return Err(SignInError::NoPort);
        };
        let pending = &confirmed.pending;
        let states = CapturedStates::with(pending.authorization());
        let mut manager = self.discover(challenge, states, pending.issuer()).await?;
        manager.configure_client(self.client_config(pending.client_id(), keeper.redirect_uri()))?;
        let session =
            AuthorizationSession::for_scope_upgrade(manager, String::new(), keeper.redirect_uri());
        self.with_untrusted_host(session.handle_callback_url(&confirmed.returned).await)?;
        Ok(session.auth_manager)
    }

    /// A manager that knows the authorization server, which is trusted. `issuer` is the required issuer, if it is
    /// known.
    async fn discover(
        &self,
        challenge: &Challenge,
        states: CapturedStates,
        issuer: Option<&str>,
    ) -> Result<AuthorizationManager, SignInError> {
        let mut manager = self.new_manager(states).await?;
        let resolution = manager.resolve_metadata_from_challenge(Some(&challenge.header));
        let metadata = self.with_untrusted_host(resolution.await)?.metadata;
        // The endpoint is checked before any credential is sent to it.
        self.backend.check(&metadata.token_endpoint)?;
        if issuer.is_some_and(|issuer| metadata.issuer.as_deref() != Some(issuer)) {
            let text = "the server names another authorization server than before".to_owned();
            return Err(AuthError::AuthorizationFailed(text).into());
        }
        self.backend.set_issuer(metadata.issuer.as_deref());
        self.backend.set_presented(None);
        if let Some(workload) = self.workload.as_ref().map_err(|error| *error)? {
            let client_id = self.client.client_id.as_deref();
            let presented = workload.present(&metadata.token_endpoint, client_id);
            self.backend.set_presented(Some(presented.await?));
        }
        manager.set_metadata(metadata);
        Ok(manager)
    }

    /// Gets a token with the credentials of the client itself.
    async fn exchange_credentials(
        &self,
        manager: &mut AuthorizationManager,
        scopes: Vec<String>,
    ) -> Result<(), SignInError> {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: self.client.client_id.clone().unwrap_or_default(),
            client_secret: self.secret().unwrap_or_default(),
            scopes,
            resource: Some(self.server.clone()),
        };
        // The backend replaces the secret by an assertion.
        if !self.backend.signs()? && self.client.grant == OauthGrant::ClientCredentials {
            manager.validate_client_credentials_metadata(&config)?;
        }
        manager.configure_client_credentials(&config)?;
        let exchanged = manager.exchange_client_credentials(&config).await;
        self.with_untrusted_host(exchanged)?;
        Ok(())
    }

    /// Signs in as the server requires. `refused` is the token that it did not accept.
    pub(crate) async fn sign_in(
        self: &Arc<Self>,
        challenge: &Challenge,
        refused: Option<Secret>,
        prompt: &UserPrompt<'_>,
    ) -> Result<Secret, SignInError> {
        // Renews expiring tokens in a separate task; the check below then finds valid tokens.
        self.token().await;
        let mut manager_slot = self.manager.lock().await;
        let known = manager_slot.take();
        if let Some(manager) = &known
            && let Ok(token) = self.current_token(manager).await
            && refused
                .as_ref()
                .is_none_or(|refused| refused.expose() != token.expose())
        {
            // Another call has signed in meanwhile.
            *manager_slot = known;
            return Ok(token);
        }
        if let Some(confirmed) = prompt
            .confirmed
            .iter()
            .find(|confirmed| self.belongs_to_owner(confirmed))
        {
            match self.exchange_confirmed(confirmed, challenge).await {
                Ok(manager) => {
                    let token = self.current_token(&manager).await?;
                    let is_new = refused.as_ref().map(Secret::expose) != Some(token.expose());
                    if is_new {
                        *manager_slot = Some(manager);
                        return Ok(token);
                    }
                }
                // A code can be used once: if the same confirmation is used again, a new page is opened.
                Err(error) => tracing::info!(%error, "a confirmed sign-in was not exchanged"),
            }
        }
        let further_scope = self.further_scope(challenge)?;
        // A page for further scopes is for users; other clients request another token.
        let has_user = self.client.grant == OauthGrant::AuthorizationCode;
        let manager = match known.filter(|_| has_user).zip(further_scope) {
            Some((manager, scope)) => {
                let page = self.with_untrusted_host(manager.request_scope_upgrade(&scope).await)?;
                let session = AuthorizationSession::for_scope_upgrade(
                    manager,
                    page,
                    self.redirect_uri(prompt),
                );
                self.finish(session, prompt).await?
            }
            None => self.begin(challenge, prompt).await?,
        };
        let token = self.current_token(&manager).await?;
        *manager_slot = Some(manager);
        Ok(token)
    }

    /// The scopes that a token lacks, after a challenge that says so.
    fn further_scope(&self, challenge: &Challenge) -> Result<Option<String>, SignInError> {
        let base = Url::parse(&self.server).map_err(AuthError::from)?;
        let params = WWWAuthenticateParams::parse(&challenge.header, &base);
        let is_insufficient = params.is_insufficient_scope();
        Ok(is_insufficient.then(|| params.scope.unwrap_or_default()))
    }

    async fn begin(
        &self,
        challenge: &Challenge,
        prompt: &UserPrompt<'_>,
    ) -> Result<AuthorizationManager, SignInError> {
        let mut manager = self.discover(challenge, self.states.clone(), None).await?;
        let scopes = self.client.scope.iter();
        let scopes = scopes.flat_map(|scope| scope.split_whitespace());
        if self.client.grant != OauthGrant::AuthorizationCode {
            let mut scopes: Vec<String> = scopes.map(str::to_owned).collect();
            let further_scope = self.further_scope(challenge)?.unwrap_or_default();
            for scope in further_scope.split_whitespace() {
                if scopes.iter().all(|known| known != scope) {
                    scopes.push(scope.to_owned());
                }
            }
            self.exchange_credentials(&mut manager, scopes).await?;
            return Ok(manager);
        }
        if prompt.port.is_none() && self.store.is_none() {
            return Err(SignInError::NoPort);
        }
        let mut request = AuthorizationRequest::new(self.redirect_uri(prompt))
            .with_initial_scope_selection()
            .with_scopes(scopes)
            .with_client_name(CLIENT_NAME);
        request.client_id.clone_from(&self.client.client_id);
        request.client_secret = self.secret();
        request
            .client_metadata_url
            .clone_from(&self.client_metadata_url);
        let session = AuthorizationSession::new(manager, request).await;
        let session = self.with_untrusted_host(session.map_err(|(_, error)| error))?;
        self.finish(session, prompt).await
    }

    /// Shows the page and exchanges the code.
    async fn finish(
        &self,
        session: AuthorizationSession,
        prompt: &UserPrompt<'_>,
    ) -> Result<AuthorizationManager, SignInError> {
        let page = SignInPage {
            toolset: prompt.toolset.to_owned(),
            url: session.get_authorization_url().to_owned(),
        };
        if !self.backend.is_web(&page.url) {
            return Err(SignInError::NoPage);
        }
        let Some(port) = prompt.port else {
            return self.keep_page(&page, prompt).await;
        };
        let showing = port.authorize(prompt.caller, &page);
        let returned = tokio::time::timeout(prompt.wait, showing)
            .await
            .unwrap_or(Err(SignIn::TimedOut))
            .map_err(SignInError::Refused)?;
        self.with_untrusted_host(session.handle_callback_url(&returned).await)?;
        Ok(session.auth_manager)
    }

    /// Stores what the exchange needs, and ends with the address of the page.
    async fn keep_page(
        &self,
        page: &SignInPage,
        prompt: &UserPrompt<'_>,
    ) -> Result<AuthorizationManager, SignInError> {
        let (keeper, owner) = self.store.as_ref().ok_or(SignInError::NoPort)?;
        let pending = PendingSignIn::new(&page.toolset, &page.url, &self.states)?;
        keeper
            .keep_pending(owner, prompt.conversation, &pending)
            .await?;
        Err(SignInError::Waiting(page.url.clone()))
    }

    /// Whether a confirmed sign-in is one of this owner at this server.
    fn belongs_to_owner(&self, confirmed: &ConfirmedSignIn) -> bool {
        let owner = self.store.as_ref().map(|(_, owner)| owner);
        owner == Some(&confirmed.owner)
    }

    fn secret(&self) -> Option<String> {
        let secret = self.client.client_secret.as_ref();
        secret.map(|secret| secret.expose().to_owned())
    }

    /// The address to which authorization servers redirect the browser; empty if no page is shown.
    fn redirect_uri<'a>(&'a self, prompt: &UserPrompt<'a>) -> &'a str {
        match (prompt.port, &self.store) {
            (Some(port), _) => port.redirect_uri(),
            (None, Some((keeper, _))) => keeper.redirect_uri(),
            (None, None) => "",
        }
    }

    /// Names the server that was not trusted, which `rmcp` reports as a separate failure.
    fn with_untrusted_host<T>(&self, outcome: Result<T, AuthError>) -> Result<T, SignInError> {
        outcome.map_err(|error| match self.backend.take_untrusted() {
            Some(host) => SignInError::Untrusted(host),
            None => error.into(),
        })
    }
}

/// The user of a call, and how the user can be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserPrompt<'a> {
    pub(crate) port: Option<&'a Arc<dyn SignInPort>>,
    pub(crate) toolset: &'a str,
    pub(crate) caller: &'a Caller,
    /// Longest wait for the user.
    pub(crate) wait: Duration,
    /// The conversation to which a page belongs that the user opens later.
    pub(crate) conversation: &'a str,
    /// Sign-ins that the user confirmed with this request.
    pub(crate) confirmed: &'a [ConfirmedSignIn],
}
