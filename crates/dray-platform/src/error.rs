//! The one closed list of what can go wrong with a send on all platforms (platform-delivery 10.1).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// Text or caption over the platform's limit.
    TooLong,
    /// Formatting or parameters that the platform does not take.
    BadFormat,
    /// The account may not send there.
    Forbidden,
    /// No such chat, channel, room or recipient.
    NotFound,
    /// Rate limited; [`PlatformError::retry_after`] says for how long.
    RateLimited,
    /// A failure that may pass.
    Transient,
    /// Over the size limit of this chat; [`PlatformError::numbers`] has both when they are known.
    TooLarge,
    /// The platform takes no empty files.
    Empty,
    /// The platform refused our credentials.
    Auth,
    /// Outside the window in which the platform lets us write.
    WindowClosed,
    /// The platform does not take this kind of file in this way; another route may do.
    UnsupportedKind,
    /// A file id of the platform expired; upload the bytes.
    StaleFileId,
    /// A thread or a message to answer is gone; once more without it.
    NoThread,
    /// The stored bytes could not be read, or were not the bytes promised.
    Source,
    /// Not known to us; treated as final.
    Unknown,
}

impl ErrorKind {
    /// Every kind.
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

/// Whether a visible message may exist although the request failed (platform-delivery 10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It cannot: nothing was sent, the body was not complete, or the platform answered with a refusal.
    NotSent,
    /// It may: the whole request left, and no answer (or a 5xx) came.
    Ambiguous,
    /// Part of what was asked is visible: the confirmations say which.
    Partial,
}

/// A failure: its kind for programs, agents and users, its cause for the operator's log only.
#[derive(Debug)]
pub struct PlatformError {
    kind: ErrorKind,
    moment: SendOutcome,
    code: String,
    context: String,
    numbers: Option<(u64, u64)>,
    retry_after: Option<Duration>,
    moved_to: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl PlatformError {
    /// A failure before anything could be seen. `context` is for the operator's log.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            moment: SendOutcome::NotSent,
            code: String::new(),
            context: context.into(),
            numbers: None,
            retry_after: None,
            moved_to: None,
            source: None,
        }
    }

    /// Says that the message may exist all the same.
    #[must_use]
    pub const fn ambiguous(mut self) -> Self {
        self.moment = SendOutcome::Ambiguous;
        self
    }

    /// Sets the moment.
    #[must_use]
    pub const fn at(mut self, moment: SendOutcome) -> Self {
        self.moment = moment;
        self
    }

    /// Adds the platform's own code (`40005`, `not_in_channel`, `131047`), for receipts and metrics.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }

    /// Adds bytes found and bytes allowed.
    #[must_use]
    pub const fn with_numbers(mut self, found: u64, allowed: u64) -> Self {
        self.numbers = Some((found, allowed));
        self
    }

    /// Adds when to come back: exactly what the platform said.
    #[must_use]
    pub const fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds the id that the chat has now. Nothing was sent to the old one.
    #[must_use]
    pub fn with_moved_to(mut self, chat: impl Into<String>) -> Self {
        self.moved_to = Some(chat.into());
        self
    }

    /// Keeps the cause. It must not hold a URL with a token: strip it first (`reqwest::Error::without_url`).
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Its kind.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether something may be visible.
    pub const fn moment(&self) -> SendOutcome {
        self.moment
    }

    /// The platform's own code; empty when it gave none.
    pub fn platform_code(&self) -> &str {
        &self.code
    }

    /// What happened, for the operator's log. Never for an agent.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// Bytes found and bytes allowed.
    pub const fn numbers(&self) -> Option<(u64, u64)> {
        self.numbers
    }

    /// Delay that the platform asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Id that the chat has now, when the platform said that it has another one.
    pub fn moved_to(&self) -> Option<&str> {
        self.moved_to.as_deref()
    }
}

/// For the operator's log.
impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
