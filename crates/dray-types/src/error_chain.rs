//! An error with its causes in one line.

use std::error::Error;
use std::fmt;

/// Displays an error and, after `: ` each, all its causes. For the operator's log and the terminal: causes may name
/// hosts and paths that an agent must not see.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct FailureWithCause {
        text: &'static str,
        #[source]
        cause: Option<Box<Self>>,
    }

    #[test]
    fn every_cause_follows_its_error() {
        let failure = |text, cause: Option<FailureWithCause>| FailureWithCause {
            text,
            cause: cause.map(Box::new),
        };
        let first = failure("connection reset", None);
        assert_eq!(ErrorChain(&first).to_string(), "connection reset");
        let whole = failure("no reply", Some(failure("no connection", Some(first))));
        assert_eq!(
            ErrorChain(&whole).to_string(),
            "no reply: no connection: connection reset"
        );
    }
}
