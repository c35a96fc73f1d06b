//! An error with its causes in one line.

use std::error::Error;
use std::fmt;

/// Displays an error and all its causes, each after `: `. A cause whose text already ends the text before it is left
/// out. For the operator's log and the terminal: causes may name hosts and paths that an agent must not see.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let cause_text = error.to_string();
            // Several crates, `async-nats` among them, print the cause in the error and return it as its source too.
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            cause = error.source();
        }
        f.write_str(&text)
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

    #[test]
    fn a_cause_that_its_error_repeats_is_shown_once() {
        let cause = FailureWithCause {
            text: "connection refused",
            cause: None,
        };
        let error = FailureWithCause {
            text: "IO error: connection refused",
            cause: Some(Box::new(cause)),
        };
        assert_eq!(
            ErrorChain(&error).to_string(),
            "IO error: connection refused"
        );
    }
}
