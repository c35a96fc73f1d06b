//! What MCP needs of DIAL (quickapps 5, 27, 28).

use std::time::Duration;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_dial::DialClient;
use thiserror::Error;

/// A tool set that DIAL knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialToolset {
    /// Its name for people.
    pub display_name: Option<String>,
    /// Whether it speaks server-sent events and posts rather than one endpoint for all.
    pub is_sse: bool,
}

/// How a sign-in ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignIn {
    /// The person signed in.
    Succeeded,
    /// The person did not want to.
    Denied,
    /// No answer came in time.
    TimedOut,
    /// Anything else.
    Failed,
}

/// DIAL did not do what it was asked for.
#[derive(Debug, Error)]
#[error("DIAL refused or could not be asked")]
pub struct DialError {
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// What is behind it, for the log.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// DIAL, as far as MCP goes. Everything happens with the rights of the caller.
#[async_trait]
pub trait ToolsetDialPort: std::fmt::Debug + Send + Sync {
    /// Whether an address is of the exact origin of DIAL: scheme, host and port (R2).
    fn is_origin(&self, url: &str) -> bool;

    /// The MCP endpoint of a tool set or an application; `None` for an id that is none.
    fn mcp_url(&self, id: &str) -> Option<String>;

    /// The one spelling of a file of DIAL, `files/…`; `None` for what is none.
    fn file(&self, url: &str) -> Option<String>;

    /// A tool set.
    ///
    /// # Errors
    ///
    /// [`DialError`], with 401, 403 and 404 as DIAL answers them.
    async fn toolset(&self, caller: &Caller, id: &str) -> Result<DialToolset, DialError>;

    /// Lets `receiver` read files for as long as the request lives.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    async fn grant(
        &self,
        caller: &Caller,
        urls: &[String],
        receiver: &str,
    ) -> Result<(), DialError>;

    /// Asks the person at the caller's channel to sign in to tool sets, concurrently; an outcome for each, in order.
    async fn sign_in(&self, caller: &Caller, ids: &[String]) -> Vec<SignIn>;
}

/// DIAL Core.
#[derive(Clone, Debug)]
pub struct DialCore {
    /// Its client.
    pub core: DialClient,
    /// Longest wait for a person who signs in (`DIAL_INTERACTIVE_LOGIN_TIMEOUT_SECONDS`).
    pub login: Duration,
}

impl From<dray_dial::Error> for DialError {
    fn from(error: dray_dial::Error) -> Self {
        Self {
            status: error.status,
            source: Some(error.into()),
        }
    }
}

#[async_trait]
impl ToolsetDialPort for DialCore {
    fn is_origin(&self, url: &str) -> bool {
        self.core.origin().owns(url)
    }

    fn mcp_url(&self, id: &str) -> Option<String> {
        self.core.mcp_url(id)
    }

    fn file(&self, url: &str) -> Option<String> {
        let file = self.core.origin().file(url)?;
        Some(file.as_str().to_owned())
    }

    async fn toolset(&self, caller: &Caller, id: &str) -> Result<DialToolset, DialError> {
        let found = self.core.toolset(caller, id).await?;
        let transport = found.transport.unwrap_or_default();
        Ok(DialToolset {
            display_name: Some(found.display_name),
            is_sse: transport.eq_ignore_ascii_case("sse"),
        })
    }

    async fn grant(
        &self,
        caller: &Caller,
        urls: &[String],
        receiver: &str,
    ) -> Result<(), DialError> {
        let files: Vec<_> = urls
            .iter()
            .filter_map(|url| self.core.origin().file(url))
            .collect();
        Ok(self.core.grant(caller, &files, receiver).await?)
    }

    async fn sign_in(&self, caller: &Caller, ids: &[String]) -> Vec<SignIn> {
        let all = self.core.sign_in(caller, ids, self.login).await;
        all.into_iter()
            .map(|outcome| match outcome {
                dray_dial::signin::SignIn::Done => SignIn::Succeeded,
                dray_dial::signin::SignIn::Denied => SignIn::Denied,
                dray_dial::signin::SignIn::TimedOut => SignIn::TimedOut,
                _ => SignIn::Failed,
            })
            .collect()
    }
}
