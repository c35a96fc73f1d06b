//! A server during one request: at most one session at a time, begun again when it was lost. The session of a program
//! may be one of an earlier request of the same conversation.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use rmcp::model::{CallToolResult, JsonObject};
use tokio::sync::Mutex;

use crate::dial::{SignIn, ToolsetDialPort};
use crate::programs::ProgramPool;
use crate::session::{McpSession, ServerOffer, SessionError};
use crate::wire::{HttpSettings, ServerAddress};

/// A tool set that DIAL knows.
#[derive(Clone, Debug)]
pub(crate) struct KnownToolset {
    pub(crate) dial: Arc<dyn ToolsetDialPort>,
    pub(crate) id: String,
    /// Whether people can sign in to it.
    pub(crate) has_login: bool,
}

/// Where the session of a program is kept.
#[derive(Clone, Debug)]
pub(crate) struct PooledProgram {
    pub(crate) pool: ProgramPool,
    pub(crate) conversation: String,
    /// Name of the program.
    pub(crate) name: String,
}

/// A server with what it takes to reach it.
#[derive(Debug)]
pub(crate) struct ServerTarget {
    pub(crate) label: String,
    pub(crate) target: ServerAddress,
    pub(crate) manners: HttpSettings,
    pub(crate) setup: Duration,
    pub(crate) known: Option<KnownToolset>,
    pub(crate) pooled: Option<PooledProgram>,
    session: Mutex<Option<Arc<McpSession>>>,
}

impl ServerTarget {
    pub(crate) fn new(
        label: String,
        target: ServerAddress,
        manners: HttpSettings,
        setup: Duration,
        known: Option<KnownToolset>,
        pooled: Option<PooledProgram>,
    ) -> Self {
        Self {
            label,
            target,
            manners,
            setup,
            known,
            pooled,
            session: Mutex::default(),
        }
    }

    async fn start(&self) -> Result<McpSession, SessionError> {
        let starting = Box::pin(McpSession::start(&self.target, &self.manners));
        tokio::time::timeout(self.setup, starting)
            .await
            .map_err(|_| SessionError::Late)?
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
        *current = None;
        let session = Arc::new(self.start().await?);
        *current = Some(Arc::clone(&session));
        Ok((session, true))
    }

    /// Forgets a session that did not work, unless another one is there already.
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

    /// All tools, within the time for set-up. Those of a program that are known are not asked for again, so that it is
    /// started by the first call.
    pub(crate) async fn list(&self) -> Result<ServerOffer, SessionError> {
        let known = self.pooled.as_ref();
        if let Some(listed) = known.and_then(|pooled| pooled.pool.listed(&pooled.name)) {
            return Ok(listed);
        }
        let listing = async {
            let (session, is_new) = self.session().await?;
            let listed = session.list().await?;
            if let Some(pooled) = self.pooled.as_ref().filter(|_| is_new) {
                pooled.pool.keep_list(&pooled.name, &listed);
            }
            Ok(listed)
        };
        tokio::time::timeout(self.setup, Box::pin(listing))
            .await
            .map_err(|_| SessionError::Late)?
    }

    /// Calls a tool; once more when the server surely did nothing: its session was gone, or a person had to sign in.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        caller: &Caller,
    ) -> Result<CallToolResult, SessionError> {
        let error = match self.attempt(tool, arguments.clone()).await {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let again = match error.status() {
            Some(401) => self.signed_in(caller).await,
            _ => error.is_unsent(),
        };
        if !again {
            return Err(error);
        }
        tracing::debug!(toolset = %self.label, tool, %error, "an MCP call is made again");
        self.attempt(tool, arguments).await
    }

    async fn attempt(
        &self,
        tool: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResult, SessionError> {
        let (session, _) = self.session().await?;
        let outcome = session.call(tool, arguments).await;
        if let Some(pooled) = &self.pooled {
            pooled.pool.touch(&pooled.conversation, &pooled.name);
        }
        if let Err(error) = &outcome
            && (error.is_unsent() || error.status() == Some(401))
        {
            self.forget(&session).await;
        }
        outcome
    }

    async fn signed_in(&self, caller: &Caller) -> bool {
        let Some(known) = self.known.as_ref().filter(|known| known.has_login) else {
            return false;
        };
        if caller.channel.is_none() {
            return false;
        }
        let ids = [known.id.clone()];
        tracing::info!(toolset = %self.label, "interactive login requested");
        let outcome = known.dial.sign_in(caller, &ids).await;
        tracing::info!(toolset = %self.label, ?outcome, "interactive login resolved");
        outcome.first() == Some(&SignIn::Succeeded)
    }
}
