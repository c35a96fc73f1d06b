//! What these tools need of DIAL Core (quickapps 5.3), with the rights of one caller at a time.

use std::fmt;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_tool::{HandledFailure, ToolFailure};
use futures_util::stream::BoxStream;
use serde_json::Value;
use thiserror::Error;

use crate::DeploymentFacts;

/// The chunks of a chat completion, parsed, without the last `[DONE]`. Dropping it closes the connection.
pub type ChunkStream = BoxStream<'static, Result<Value, DialError>>;

/// A call of DIAL Core that gave nothing.
#[derive(Debug, Default, Error)]
#[error("DIAL refused a call")]
pub struct DialError {
    /// Status of the answer, or of the error in a stream.
    pub status: Option<u16>,
    /// The service's own words, if it has some.
    pub message: Option<String>,
    /// Its words for the user, if it has some.
    pub display_message: Option<String>,
    /// Whether it took too long.
    pub timed_out: bool,
    /// What is behind it, for the log.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DialError {
    /// An answer with a status and nothing to say.
    pub fn status(status: u16) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// Longest text of a service that is passed on, in characters.
    const MAX_MESSAGE_CHARACTERS: usize = 500;

    /// What the service said, shortened: its words for users come first.
    pub(crate) fn said(&self) -> Option<String> {
        let said = [&self.display_message, &self.message]
            .into_iter()
            .flatten()
            .map(|said| said.trim())
            .find(|said| !said.is_empty())?;
        let mut short: String = said.chars().take(Self::MAX_MESSAGE_CHARACTERS).collect();
        if said.chars().nth(Self::MAX_MESSAGE_CHARACTERS).is_some() {
            short.push('…');
        }
        Some(short)
    }

    /// The failure of a call of another deployment (quickapps 22.3).
    pub(crate) fn failure(self) -> ToolFailure {
        if self.timed_out {
            return ToolFailure::TimedOut;
        }
        let said = self.said();
        let failed = match self.status {
            Some(status) => {
                let text =
                    said.unwrap_or_else(|| format!("The deployment answered HTTP {status}."));
                let shown = format!("> #### Error:\n{text}\n> #### Status Code:\n{status}\n");
                HandledFailure::new(text).status(status).shown(shown)
            }
            None => HandledFailure::new(said.unwrap_or_else(|| {
                "The connection to the deployment failed before its answer was complete.".to_owned()
            }))
            .shown(GENERAL_MESSAGE),
        };
        failed.because(self).into()
    }
}

/// Shown when there is nothing better to show.
pub(crate) const GENERAL_MESSAGE: &str =
    "> #### Exception:\nGeneral exception occurred while calling other DIAL deployment\n";

/// DIAL Core, as these tools see it. Keys go to its exact origin only.
#[async_trait]
pub trait DialPort: fmt::Debug + Send + Sync {
    /// Metadata of a deployment, and of its settings when it has some. May be cached for a while, per caller.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    async fn facts(&self, caller: &Caller, deployment: &str) -> Result<DeploymentFacts, DialError>;

    /// Forgets what is cached of a deployment: an answer contradicted it.
    fn forget(&self, caller: &Caller, deployment: &str);

    /// A chat completion, streamed. `headers` names the caller's headers that go along; all of them if absent.
    ///
    /// # Errors
    ///
    /// [`DialError`], here and in the stream.
    async fn chat(
        &self,
        caller: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, DialError>;

    /// `POST /v1/ops/code_interpreter/{operation}`. The answer is bounded by the implementation.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    async fn code_interpreter(
        &self,
        caller: &Caller,
        operation: &str,
        body: &Value,
    ) -> Result<Value, DialError>;
}
