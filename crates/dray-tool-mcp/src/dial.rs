//! What MCP needs of DIAL (quickapps 5, 27, 28).

use async_trait::async_trait;
use dray_agent::caller::Caller;
use thiserror::Error;

/// A tool set that DIAL knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolset {
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
    /// Nobody answered.
    TimedOut,
    /// Anything else.
    Failed,
}

/// DIAL did not do what it was asked for.
#[derive(Debug, Error)]
#[error("DIAL refused or could not be asked")]
pub struct Refused {
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// What is behind it, for the log.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// DIAL, as far as MCP goes. Everything happens with the rights of the caller.
#[async_trait]
pub trait Dial: std::fmt::Debug + Send + Sync {
    /// Whether an address is of the exact origin of DIAL: scheme, host and port (R2).
    fn is_origin(&self, url: &str) -> bool;

    /// The MCP endpoint of a tool set or an application.
    fn mcp_url(&self, id: &str) -> String;

    /// A tool set.
    ///
    /// # Errors
    ///
    /// [`Refused`], with 401, 403 and 404 as DIAL answers them.
    async fn toolset(&self, caller: &Caller, id: &str) -> Result<Toolset, Refused>;

    /// Lets `receiver` read files for as long as the request lives.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    async fn grant(&self, caller: &Caller, urls: &[String], receiver: &str) -> Result<(), Refused>;

    /// Asks the person at the caller's channel to sign in to tool sets, all at once; an outcome for each, in order.
    async fn sign_in(&self, caller: &Caller, ids: &[String]) -> Vec<SignIn>;
}
