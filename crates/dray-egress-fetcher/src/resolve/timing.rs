//! Measures how long each server takes, for the metrics of the service.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The end of a question to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionEnd {
    /// The server answered.
    Answer,
    /// The server failed, or its response was not valid.
    Failure,
    /// Another server answered first, or the time was over.
    NoAnswer,
}

impl QuestionEnd {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Failure => "failure",
            Self::NoAnswer => "no_answer",
        }
    }
}

/// Gets the time of each question to a server.
pub trait QuestionObserver: Debug + Send + Sync {
    /// A question to the server at this address took `time`.
    fn question_ended(&self, server: &str, end: QuestionEnd, time: Duration);
}

/// Reports its question when it is dropped: also one that another server answered first, so that a slow server is seen.
#[derive(Debug)]
pub(super) struct QuestionTimer<'a> {
    observer: &'a dyn QuestionObserver,
    server: &'a str,
    started: Instant,
    end: QuestionEnd,
}

impl<'a> QuestionTimer<'a> {
    /// Measures from now on; `None` without an observer.
    pub(super) fn begin(
        observer: Option<&'a Arc<dyn QuestionObserver>>,
        server: &'a str,
    ) -> Option<Self> {
        Some(Self {
            observer: observer?.as_ref(),
            server,
            started: Instant::now(),
            end: QuestionEnd::NoAnswer,
        })
    }

    /// Notes whether the server answered.
    pub(super) const fn note(&mut self, has_answered: bool) {
        self.end = if has_answered {
            QuestionEnd::Answer
        } else {
            QuestionEnd::Failure
        };
    }
}

impl Drop for QuestionTimer<'_> {
    fn drop(&mut self) {
        let time = self.started.elapsed();
        self.observer.question_ended(self.server, self.end, time);
    }
}
