//! The failures of a call (quickapps 19.4, 20, 21).

use thiserror::Error;

/// A call that gave no result.
#[derive(Debug, Error)]
pub enum ToolFailure {
    /// An argument is wrong and the model can correct it; the configured strategies do not apply (quickapps 19.4).
    #[error("Parameter {name} is invalid: {message}")]
    Parameter {
        /// Name of the argument, as the model wrote it.
        name: String,
        /// The reason, for the model.
        message: String,
    },
    /// The time limit passed, of the call itself or of a client below it.
    #[error("timed out")]
    TimedOut,
    /// Any other failure: the strategies of the tool decide.
    #[error(transparent)]
    Failed(HandledFailure),
}

/// A failure that the strategies of the tool decide about.
#[derive(Debug, Error)]
#[error("{text}")]
pub struct HandledFailure {
    /// Compared with triggers and shown to the model: the tool's own message if it has one, otherwise a description.
    /// Contains no secret, no internal address and no URL query.
    pub text: String,
    /// Markdown for the body of the stage (quickapps 22.3), for kinds of tools that have their own format.
    pub shown: Option<String>,
    /// HTTP status, if the tool got one.
    pub status: Option<u16>,
    /// The cause, for the log only.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl HandledFailure {
    /// A failure with a sentence and without status, cause or Markdown.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            shown: None,
            status: None,
            source: None,
        }
    }

    /// Adds the cause, for the log.
    #[must_use]
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Adds Markdown for the stage.
    #[must_use]
    pub fn shown(mut self, markdown: impl Into<String>) -> Self {
        self.shown = Some(markdown.into());
        self
    }

    /// Adds the HTTP status of a response.
    #[must_use]
    pub const fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

impl From<HandledFailure> for ToolFailure {
    fn from(failed: HandledFailure) -> Self {
        Self::Failed(failed)
    }
}

impl ToolFailure {
    /// A problem with an argument that the model can correct.
    pub fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Parameter {
            name: name.into(),
            message: message.into(),
        }
    }
}
