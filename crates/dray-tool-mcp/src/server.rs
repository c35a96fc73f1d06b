//! A server during one request: at most one session at a time, which is begun again if it was lost. The session of a
//! program may come from an earlier request of the same conversation.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::{Caller, TraceSource};
use dray_dial::DialPort;
use dray_dial::signin::SignIn;
use rmcp::model::{ContentBlock, JsonObject, ResourceContents};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::calls::CallEnd;
use crate::error::SessionError;
use crate::handler::CallQuestions;
use crate::legacy_servers::LegacyServers;
use crate::oauth::{Challenge, ConfirmedSignIn, RemoteSignIn, SignInPort, UserPrompt};
use crate::options::McpOptions;
use crate::programs::ProgramPool;
use crate::session::{McpSession, ServerOffer};
use crate::wire::{HttpSettings, ServerAddress};

/// Most sign-ins for one list or call: the first, and one for each time that the server asks for further scopes.
const MAX_SIGN_INS: usize = 3;

/// Interval between two looks at the token while a call runs. A token is renewed half a minute before it expires.
const TOKEN_INTERVAL: Duration = Duration::from_secs(5);

/// A tool set that DIAL knows.
#[derive(Clone, Debug)]
pub(crate) struct KnownToolset {
    pub(crate) dial: Arc<dyn DialPort>,
    pub(crate) id: String,
    /// Whether the server has a sign-in for users.
    pub(crate) has_login: bool,
}

/// The place in the pool for the session of a program.
#[derive(Clone, Debug)]
pub(crate) struct PooledProgram {
    pub(crate) pool: ProgramPool,
    pub(crate) conversation: String,
    /// Name of the program.
    pub(crate) name: String,
}

/// An MCP server and the means to reach it.
#[derive(Debug)]
pub(crate) struct ServerTarget {
    pub(crate) label: String,
    pub(crate) target: ServerAddress,
    pub(crate) settings: HttpSettings,
    pub(crate) setup: Duration,
    login_timeout: Duration,
    legacy_servers: LegacyServers,
    pub(crate) known: Option<KnownToolset>,
    pub(crate) pooled: Option<PooledProgram>,
    /// The sign-in of users or clients, if the manifest requires one.
    sign_in: Option<Arc<RemoteSignIn>>,
    sign_in_port: Option<Arc<dyn SignInPort>>,
    /// The conversation to which sign-in pages belong.
    conversation: String,
    /// Sign-ins that the user confirmed with this request.
    confirmed: Vec<ConfirmedSignIn>,
    /// The trace that calls name.
    trace: Option<TraceSource>,
    session: Mutex<Option<Arc<McpSession>>>,
}

/// The place in the pool for the session of a program; `None` for other servers or an unknown conversation.
fn pooled_program(target: &ServerAddress, options: &McpOptions) -> Option<PooledProgram> {
    let ServerAddress::Stdio { name, .. } = target else {
        return None;
    };
    Some(PooledProgram {
        pool: options.programs.clone(),
        conversation: options.conversation.clone()?,
        name: name.clone(),
    })
}

impl ServerTarget {
    pub(crate) fn new(
        label: String,
        target: ServerAddress,
        settings: HttpSettings,
        options: &McpOptions,
        known: Option<KnownToolset>,
        sign_in: Option<Arc<RemoteSignIn>>,
    ) -> Self {
        let pooled = pooled_program(&target, options);
        Self {
            label,
            target,
            settings,
            setup: options.setup,
            login_timeout: options.login_timeout,
            legacy_servers: options.legacy_servers.clone(),
            known,
            pooled,
            sign_in,
            sign_in_port: options.oauth.port.clone(),
            conversation: options.oauth.conversation.clone(),
            confirmed: options.oauth.confirmed.clone(),
            trace: options.trace,
            session: Mutex::default(),
        }
    }

    async fn start(&self) -> Result<McpSession, SessionError> {
        let starting = McpSession::start(&self.target, &self.settings, &self.legacy_servers);
        tokio::time::timeout(self.setup, Box::pin(starting))
            .await
            .map_err(|_| SessionError::TimedOut)?
    }

    /// The session, begun if needed. Returns whether it is new.
    async fn session(&self) -> Result<(Arc<McpSession>, bool), SessionError> {
        if let Some(pooled) = &self.pooled {
            let acquired = pooled
                .pool
                .acquire(&pooled.conversation, &pooled.name, self.start());
            return Box::pin(acquired).await;
        }
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_closed()) {
            return Ok((Arc::clone(session), false));
        }
        // The old session ends before another one begins.
        *current = None;
        let session = Arc::new(self.start().await?);
        *current = Some(Arc::clone(&session));
        Ok((session, true))
    }

    /// Drops a session that did not work, unless another one has replaced it.
    async fn forget(&self, broken: &Arc<McpSession>) {
        if let Some(pooled) = &self.pooled {
            let pool = &pooled.pool;
            return pool
                .forget(&pooled.conversation, &pooled.name, broken)
                .await;
        }
        let mut current = self.session.lock().await;
        if current
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, broken))
        {
            *current = None;
        }
    }

    /// Lists all tools, each attempt within the time for set-up; the sign-in of a user in between has its own. A known
    /// list of a program is used again, so that the program starts with its first call, unless the program of this
    /// conversation has changed its tools.
    pub(crate) async fn list(&self, caller: &Caller) -> Result<ServerOffer, SessionError> {
        let known = self.pooled.as_ref().filter(|pooled| {
            let has_changed = pooled
                .pool
                .has_changed_tools(&pooled.conversation, &pooled.name);
            !has_changed
        });
        if let Some(offer) = known.and_then(|pooled| pooled.pool.cached_offer(&pooled.name)) {
            return Ok(offer);
        }
        self.use_token().await;
        for _ in 0..MAX_SIGN_INS {
            let offer = tokio::time::timeout(self.setup, Box::pin(self.list_once())).await;
            let offer = offer.map_err(|_| SessionError::TimedOut)?;
            match &offer {
                Err(error) if self.can_sign_in_after(error) => {
                    self.answer_challenge(error.challenge(), caller).await?;
                }
                _ => return offer,
            }
        }
        tokio::time::timeout(self.setup, Box::pin(self.list_once()))
            .await
            .map_err(|_| SessionError::TimedOut)?
    }

    async fn list_once(&self) -> Result<ServerOffer, SessionError> {
        let (session, is_new) = self.session().await?;
        let offer = match session.list(self.settings.limit).await {
            Ok(offer) => offer,
            Err(error) => {
                if self.can_sign_in_after(&error) {
                    self.forget(&session).await;
                }
                return Err(error);
            }
        };
        // The list is taken only from a fresh program: a later list may depend on what a caller did with it.
        if let Some(pooled) = self.pooled.as_ref().filter(|_| is_new) {
            pooled.pool.cache_offer(&pooled.name, &offer);
        }
        Ok(offer)
    }

    /// Calls a tool. The call is repeated once if the server cannot have run it: its session was gone, or a user had to
    /// sign in.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        questions: &CallQuestions,
    ) -> Result<CallEnd, SessionError> {
        self.use_token().await;
        let mut error = match self.attempt(tool, arguments.clone(), questions).await {
            Ok(end) => return Ok(end),
            Err(error) => error,
        };
        for _ in 0..MAX_SIGN_INS {
            if !self.can_sign_in_after(&error) {
                break;
            }
            self.answer_challenge(error.challenge(), &questions.caller)
                .await?;
            error = match self.attempt(tool, arguments.clone(), questions).await {
                Ok(end) => return Ok(end),
                Err(error) => error,
            };
        }
        let may_repeat = match error.status() {
            Some(401) => self.sign_in_with_dial(&questions.caller).await,
            _ => error.is_unsent(),
        };
        if !may_repeat {
            return Err(error);
        }
        tracing::debug!(toolset = %self.label, tool, %error, "an MCP call is made again");
        self.attempt(tool, arguments, questions).await
    }

    /// Whether a sign-in may change the outcome.
    fn can_sign_in_after(&self, error: &SessionError) -> bool {
        self.sign_in.is_some() && error.challenge().is_some()
    }

    /// Adds the token of an earlier sign-in to the following requests.
    async fn use_token(&self) {
        if let Some(sign_in) = &self.sign_in {
            self.settings.token.set(sign_in.token().await);
        }
    }

    /// Renews the token while a call runs: a task is polled, and a broken stream resumed, after the first one expired.
    async fn keep_token(&self) -> Infallible {
        loop {
            tokio::time::sleep(TOKEN_INTERVAL).await;
            let sign_in = self.sign_in.as_ref();
            if let Some(sign_in) = sign_in.filter(|_| self.settings.token.get().is_some())
                // After a failed renewal, the earlier token may still be valid.
                && let Some(token) = sign_in.token().await
            {
                self.settings.token.set(Some(token));
            }
        }
    }

    /// Signs in as the server requires.
    async fn answer_challenge(
        &self,
        challenge: Option<&Challenge>,
        caller: &Caller,
    ) -> Result<(), SessionError> {
        let (Some(sign_in), Some(challenge)) = (&self.sign_in, challenge) else {
            return Ok(());
        };
        let prompt = UserPrompt {
            port: self.sign_in_port.as_ref(),
            toolset: &self.label,
            caller,
            wait: self.login_timeout,
            conversation: &self.conversation,
            confirmed: &self.confirmed,
        };
        tracing::info!(toolset = %self.label, status = challenge.status, "an MCP server asks for a sign-in");
        let refused = self.settings.token.get();
        let token = Box::pin(sign_in.sign_in(challenge, refused, &prompt)).await?;
        self.settings.token.set(Some(token));
        Ok(())
    }

    /// Reads a resource. Without a caller it is a link of a result: it is read once and without a sign-in, because the
    /// link itself remains.
    pub(crate) async fn read(
        &self,
        uri: &str,
        caller: Option<&Caller>,
    ) -> Result<Vec<ResourceContents>, SessionError> {
        let request = |session: Arc<McpSession>| async move { session.read(uri).await };
        self.request(request, caller).await
    }

    /// One page of the server's resources.
    pub(crate) async fn resources(
        &self,
        cursor: Option<String>,
        caller: &Caller,
    ) -> Result<Value, SessionError> {
        let request = |session: Arc<McpSession>| {
            let cursor = cursor.clone();
            async move { session.resources(cursor).await }
        };
        self.request(request, Some(caller)).await
    }

    /// One page of the server's prompts.
    pub(crate) async fn prompts(
        &self,
        cursor: Option<String>,
        caller: &Caller,
    ) -> Result<Value, SessionError> {
        let request = |session: Arc<McpSession>| {
            let cursor = cursor.clone();
            async move { session.prompts(cursor).await }
        };
        self.request(request, Some(caller)).await
    }

    /// The messages of a prompt.
    pub(crate) async fn prompt(
        &self,
        name: &str,
        arguments: JsonObject,
        caller: &Caller,
    ) -> Result<Vec<ContentBlock>, SessionError> {
        let request = |session: Arc<McpSession>| {
            let arguments = arguments.clone();
            async move { session.prompt(name, arguments).await }
        };
        self.request(request, Some(caller)).await
    }

    /// Sends a request about resources or prompts. Like a call, it is sent again in another session if the server cannot
    /// have got it, and after a sign-in.
    async fn request<T, F>(
        &self,
        send: impl Fn(Arc<McpSession>) -> F,
        caller: Option<&Caller>,
    ) -> Result<T, SessionError>
    where
        F: Future<Output = Result<T, SessionError>>,
    {
        self.use_token().await;
        let (mut sign_ins, mut is_repeated) = (0, caller.is_none());
        loop {
            let (session, _) = self.session().await?;
            let error = match send(Arc::clone(&session)).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let signing_in = caller
                .filter(|_| sign_ins < MAX_SIGN_INS)
                .filter(|_| self.can_sign_in_after(&error));
            if let Some(caller) = signing_in {
                sign_ins += 1;
                self.answer_challenge(error.challenge(), caller).await?;
            } else if error.is_unsent() && !is_repeated {
                is_repeated = true;
            } else {
                return Err(error);
            }
            self.forget(&session).await;
            tracing::debug!(toolset = %self.label, %error, "a request to an MCP server is sent again");
        }
    }

    async fn attempt(
        &self,
        tool: &str,
        arguments: JsonObject,
        questions: &CallQuestions,
    ) -> Result<CallEnd, SessionError> {
        let (session, _) = self.session().await?;
        let trace = self.trace.and_then(|current| current());
        let outcome = tokio::select! {
            outcome = session.call(tool, arguments, questions, trace) => outcome,
            never = self.keep_token() => match never {},
        };
        if let Some(pooled) = &self.pooled {
            // The time of the call does not count as idle.
            pooled.pool.touch(&pooled.conversation, &pooled.name);
        }
        if let Err(error) = &outcome
            && (error.is_unsent() || error.status() == Some(401))
        {
            self.forget(&session).await;
        }
        outcome
    }

    async fn sign_in_with_dial(&self, caller: &Caller) -> bool {
        let Some(known) = self.known.as_ref().filter(|known| known.has_login) else {
            return false;
        };
        if caller.channel.is_none() {
            return false;
        }
        let ids = [known.id.clone()];
        tracing::info!(toolset = %self.label, "interactive login requested");
        let outcome = known.dial.sign_in(caller, &ids, self.login_timeout).await;
        tracing::info!(toolset = %self.label, ?outcome, "interactive login resolved");
        outcome.first() == Some(&SignIn::Done)
    }
}
