//! The closed list of errors of a send, for all platforms (platform-delivery 10.1).

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use dray_types::UnreachableCause;

/// The kind of an error. It determines whether the delivery service retries, uses another route or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// Text or caption over the platform's limit.
    TooLong,
    /// Formatting or parameters that the platform does not take.
    BadFormat,
    /// The account may not send to this chat; other chats may work.
    Forbidden,
    /// No such chat, channel, room or recipient.
    NotFound,
    /// Rate limited; [`PlatformError::retry_after`] has the delay.
    RateLimited,
    /// A temporary failure: connection lost, server overloaded.
    Transient,
    /// The file is over the size limit of this chat. [`PlatformError::numbers`] has the size and the limit if known.
    TooLarge,
    /// The platform does not accept empty files.
    Empty,
    /// The platform refused our credentials. No chat of the account works.
    Auth,
    /// Outside the time window in which the platform allows a bot to write; a message of the user reopens it.
    WindowClosed,
    /// The platform does not take this kind of file on this route; another route may work.
    UnsupportedKind,
    /// A file id of the platform expired; the bytes must be uploaded again.
    StaleFileId,
    /// A thread, or the message to reply to, no longer exists; the same step may succeed without it.
    NoThread,
    /// The stored bytes could not be read, or their digest or size was not the expected one.
    Source,
    /// An unknown refusal; treated as final.
    Unknown,
}

impl ErrorKind {
    /// Every kind, in the order of the enumeration, for tests and metrics.
    pub const ALL_KINDS: [Self; 15] = [
        Self::TooLong,
        Self::BadFormat,
        Self::Forbidden,
        Self::NotFound,
        Self::RateLimited,
        Self::Transient,
        Self::TooLarge,
        Self::Empty,
        Self::Auth,
        Self::WindowClosed,
        Self::UnsupportedKind,
        Self::StaleFileId,
        Self::NoThread,
        Self::Source,
        Self::Unknown,
    ];

    /// The name used on the wire, in receipts, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::BadFormat => "bad_format",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::RateLimited => "rate_limited",
            Self::Transient => "transient",
            Self::TooLarge => "too_large",
            Self::Empty => "empty",
            Self::Auth => "auth",
            Self::WindowClosed => "window_closed",
            Self::UnsupportedKind => "unsupported_kind",
            Self::StaleFileId => "stale_file_id",
            Self::NoThread => "no_thread",
            Self::Source => "source",
            Self::Unknown => "unknown",
        }
    }

    /// One sentence for an agent or a user, without names, addresses or tokens.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TooLong => "The text is too long for this chat.",
            Self::BadFormat => "The platform did not accept the message.",
            Self::Forbidden => "Sending files to this chat is not allowed.",
            Self::NotFound => "This chat does not exist or cannot be reached.",
            Self::RateLimited => "The platform asks to wait.",
            Self::Transient => "The platform cannot be reached right now.",
            Self::TooLarge => "The file is too large for this chat.",
            Self::Empty => "The file is empty.",
            Self::Auth => "The platform refused the account's credentials.",
            Self::WindowClosed => "The platform allows no message until the user writes again.",
            Self::UnsupportedKind => "The platform does not take this kind of file.",
            Self::StaleFileId => "The platform no longer knows the file.",
            Self::NoThread => "The thread or message to answer is gone.",
            Self::Source => "The stored file could not be read.",
            Self::Unknown => "The platform refused the message.",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a failed request may have ended on the platform: whether a visible message may exist (platform-delivery 10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// No message can exist: the request was not sent, its body was not complete, or the platform refused it.
    NotSent,
    /// A message may exist: the complete request was sent, and the response was lost or a 5xx.
    Ambiguous,
    /// A part of the step is visible; the confirmations list that part.
    Partial,
}

/// A failed send. The kind is for programs, agents and users; context and cause are for the operator's log only.
#[derive(Debug)]
pub struct PlatformError {
    kind: ErrorKind,
    outcome: SendOutcome,
    // Boxed texts keep the error small: nearly every function returns it, and a `Result` is as large as its larger
    // variant.
    code: Box<str>,
    context: Box<str>,
    numbers: Option<(u64, u64)>,
    retry_after: Option<Duration>,
    is_account_wide: bool,
    moved_to: Option<Box<str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl PlatformError {
    /// Creates a failure after which no message can be visible in the chat. `context` is for the operator's log and
    /// must not contain a token.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            outcome: SendOutcome::NotSent,
            code: Box::default(),
            context: context.into().into_boxed_str(),
            numbers: None,
            retry_after: None,
            is_account_wide: false,
            moved_to: None,
            source: None,
        }
    }

    /// Marks the error as ambiguous: the message may exist although the request failed.
    #[must_use]
    pub const fn ambiguous(mut self) -> Self {
        self.outcome = SendOutcome::Ambiguous;
        self
    }

    /// Sets whether a message may be visible although the request failed.
    #[must_use]
    pub const fn with_outcome(mut self, outcome: SendOutcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// Adds the platform's own code (`40005`, `not_in_channel`, `131047`) for receipts and metrics.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into().into_boxed_str();
        self
    }

    /// Adds the number of bytes found and the number allowed.
    #[must_use]
    pub const fn with_numbers(mut self, actual: u64, allowed: u64) -> Self {
        self.numbers = Some((actual, allowed));
        self
    }

    /// Adds the delay until the next attempt, exactly as the platform gave it.
    #[must_use]
    pub const fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Marks a rate limit that applies to all chats of the account, not only to the one that was written to.
    #[must_use]
    pub const fn account_wide(mut self) -> Self {
        self.is_account_wide = true;
        self
    }

    /// Adds the new id of the chat. No message was sent to the old id, so the step may be repeated with the new one.
    #[must_use]
    pub fn with_moved_to(mut self, chat: impl Into<String>) -> Self {
        self.moved_to = Some(chat.into().into_boxed_str());
        self
    }

    /// Adds the cause. It must not contain a URL with a token: remove the URL first (`reqwest::Error::without_url`).
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind, by which callers decide.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// One sentence for an agent or a user: that of the kind, or why the platform cannot be reached.
    pub fn sentence(&self) -> Cow<'static, str> {
        let cause = match self.kind {
            ErrorKind::Transient => UnreachableCause::of_connection(self),
            _ => None,
        };
        match cause {
            Some(cause) => format!("The platform cannot be reached: {}.", cause.reason()).into(),
            None => self.kind.sentence().into(),
        }
    }

    /// Whether a message may be visible in the chat.
    pub const fn send_outcome(&self) -> SendOutcome {
        self.outcome
    }

    /// The platform's own code; empty without one.
    pub fn platform_code(&self) -> &str {
        &self.code
    }

    /// Description for the operator's log. It may name hosts and chats: never show it to an agent.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The number of bytes found and the number allowed, if both are known.
    pub const fn numbers(&self) -> Option<(u64, u64)> {
        self.numbers
    }

    /// The delay that the platform requested; `None` without one.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether a rate limit applies to all chats of the account.
    pub const fn is_account_wide(&self) -> bool {
        self.is_account_wide
    }

    /// The id that the chat has now, when the platform reported another one.
    pub fn moved_to(&self) -> Option<&str> {
        self.moved_to.as_deref()
    }
}

/// Formats the error for the operator's log, like the context.
impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The cause is left out: loggers print the chain of causes after it.
        write!(f, "{}: {}", self.kind, self.context)
    }
}

impl StdError for PlatformError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
