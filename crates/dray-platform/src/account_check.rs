//! Types of an account check: whether a platform accepts the account, found out without a message to a chat.

use crate::limits::ChatLimits;

/// Result of an account check. The check shows nothing in any chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountCheck {
    /// The name of the account at the platform, as the platform wrote it; empty when it names none.
    pub identity: String,
    /// Whether the platform accepted the credentials.
    pub credentials: CredentialCheck,
    /// Whether the account may send files.
    pub files: FilePermission,
    /// Limits for chats without their own; `None` if they depend on the chat.
    pub limits: Option<ChatLimits>,
}

/// Whether the platform accepted the credentials of an account. A refusal is an error of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialCheck {
    /// A request with them was accepted.
    Accepted,
    /// No request can verify them without a message to a chat; the text says why.
    Unverified(&'static str),
}

/// Whether an account may send files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePermission {
    /// Yes, in every chat to which the account may write.
    Allowed,
    /// No, in no chat; the text names the missing permission.
    Denied(String),
    /// Each chat decides; the text says by what, or in how many.
    PerChat(String),
}

impl AccountCheck {
    /// An account whose credentials the platform accepted under this name.
    pub fn accepted(identity: impl Into<String>, files: FilePermission) -> Self {
        Self {
            identity: identity.into(),
            credentials: CredentialCheck::Accepted,
            files,
            limits: None,
        }
    }

    /// An account that no request can verify without a message to a chat.
    pub fn unverified(reason: &'static str) -> Self {
        Self {
            identity: String::new(),
            credentials: CredentialCheck::Unverified(reason),
            files: FilePermission::PerChat("known when a file is sent".to_owned()),
            limits: None,
        }
    }

    /// Adds the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ChatLimits) -> Self {
        self.limits = Some(limits);
        self
    }
}
