//! The codes with which the gateway closes a connection, and what to do after each.

use dray_platform::{ErrorKind, PlatformError};

/// The action after a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseAction {
    /// Connect again and resume the session.
    Resume,
    /// Connect again and identify: the session cannot be resumed.
    Identify,
    /// Only an operator can correct the cause; the text says how.
    GiveUp(&'static str),
}

pub(super) const fn close_action(code: u16) -> CloseAction {
    match code {
        4003 | 4007 | 4009 => CloseAction::Identify,
        4004 => CloseAction::GiveUp("Discord does not accept the token: set the bot's current one"),
        4010 | 4011 => CloseAction::GiveUp("the bot is in too many servers for one connection"),
        4012 => CloseAction::GiveUp("Discord no longer supports this version of the gateway"),
        4013 => CloseAction::GiveUp("Discord does not know a requested intent"),
        4014 => CloseAction::GiveUp(
            "the bot may not read messages: allow the message content intent in the developer portal, \
             or set receive = false",
        ),
        // Codes that are not listed, and 4000 to 4002, 4005 and 4008, leave the session valid.
        _ => CloseAction::Resume,
    }
}

/// The error for a refusal whose cause only an operator can correct. Its kind, [`ErrorKind::Auth`], ends receiving.
pub(super) fn refused_close_error(code: u16, reason: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Auth, reason).code(code.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_codes_have_their_actions() {
        for code in [1000, 1001, 1006, 4000, 4001, 4002, 4005, 4008, 4999] {
            assert_eq!(close_action(code), CloseAction::Resume, "{code}");
        }
        for code in [4003, 4007, 4009] {
            assert_eq!(close_action(code), CloseAction::Identify, "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert!(
                matches!(close_action(code), CloseAction::GiveUp(reason) if !reason.is_empty()),
                "{code}"
            );
        }
        let error = refused_close_error(4014, "disallowed intents");
        assert_eq!(
            (error.kind(), error.platform_code()),
            (ErrorKind::Auth, "4014")
        );
    }
}
