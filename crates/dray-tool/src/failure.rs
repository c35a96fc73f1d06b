//! How a call fails (quickapps 19.4, 20, 21).

use thiserror::Error;

/// A call that gave no result.
#[derive(Debug, Error)]
pub enum ToolFailure {
    /// An argument is wrong and the model can correct it: bypasses the configured strategies (quickapps 19.4).
    #[error("Parameter {name} is invalid: {message}")]
    Parameter {
        /// The argument.
        name: String,
        /// What is wrong, for the model.
        message: String,
    },
    /// It took too long, by its own clock or by that of a client below it.
    #[error("timed out")]
    TimedOut,
    /// Anything else: the strategies of the tool decide.
    #[error(transparent)]
    Failed(HandledFailure),
}

/// A failure that the strategies of the tool decide about.
#[derive(Debug, Error)]
#[error("{text}")]
pub struct HandledFailure {
    /// What triggers are compared with and what the model may see: the tool's own message if it has one, else what
    /// happened. Holds no secret, no inner address and no query of a URL.
    pub text: String,
    /// Markdown for the body of the stage (quickapps 22.3), when the kind of tool has a form of its own.
    pub shown: Option<String>,
    /// HTTP status, when there was one.
    pub status: Option<u16>,
    /// What is behind it, for the log.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl HandledFailure {
    /// A failure that is said in one sentence.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            shown: None,
            status: None,
            source: None,
        }
    }

    /// With its cause, for the log.
    #[must_use]
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// With what the stage shows.
    #[must_use]
    pub fn shown(mut self, markdown: impl Into<String>) -> Self {
        self.shown = Some(markdown.into());
        self
    }

    /// With the status of an answer.
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
    /// An argument that the model can correct.
    pub fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Parameter {
            name: name.into(),
            message: message.into(),
        }
    }
}
