//! A server during one request: at most one session at a time, begun again when it was lost.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use rmcp::model::{CallToolResult, JsonObject};
use tokio::sync::Mutex;

use crate::dial::{Dial, SignIn};
use crate::session::{Listed, Session, SessionError};
use crate::wire::{Manners, Target};

/// A tool set that DIAL knows.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) id: String,
    /// Whether people can sign in to it.
    pub(crate) has_login: bool,
}

/// A server with what it takes to reach it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) label: String,
    pub(crate) target: Target,
    pub(crate) manners: Manners,
    pub(crate) setup: Duration,
    pub(crate) known: Option<Known>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Server {
    pub(crate) fn new(
        label: String,
        target: Target,
        manners: Manners,
        setup: Duration,
        known: Option<Known>,
    ) -> Self {
        Self {
            label,
            target,
            manners,
            setup,
            known,
            session: Mutex::default(),
        }
    }

    /// The session, begun if there is none.
    async fn session(&self) -> Result<Arc<Session>, SessionError> {
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        *current = None;
        let starting = Box::pin(Session::start(&self.target, &self.manners));
        let session = tokio::time::timeout(self.setup, starting)
            .await
            .map_err(|_| SessionError::Late)??;
        let session = Arc::new(session);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Forgets a session that did not work, unless another one is there already.
    async fn forget(&self, broken: &Arc<Session>) {
        let mut current = self.session.lock().await;
        if current
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, broken))
        {
            *current = None;
        }
    }

    /// All tools, within the time for set-up.
    pub(crate) async fn list(&self) -> Result<Listed, SessionError> {
        let listing = async {
            let session = self.session().await?;
            session.list().await
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
        let session = self.session().await?;
        let outcome = session.call(tool, arguments).await;
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
