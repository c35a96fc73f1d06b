//! Strict parsers for the operator's switches and numbers: a typo is an error at start, never a default.

use std::fmt;
use std::str::FromStr;

/// The text of a switch is neither `true` nor `false`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a switch; write true or false")]
pub struct SwitchError(String);

/// Reads `true` or `false` in any case and nothing else (3.2).
///
/// # Errors
///
/// [`SwitchError`] for any other text, so that a typo is not a default.
pub fn parse_switch(text: &str) -> Result<bool, SwitchError> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(SwitchError(text.to_owned()))
    }
}

/// The maximum number of redirects that are followed: 0 to 10, by default 5. Five means six requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRedirects(u8);

/// The text of the redirect limit is not a number from 0 to 10.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a redirect limit; write a number from 0 to 10")]
pub struct MaxRedirectsError(String);

impl MaxRedirects {
    /// The hard ceiling of X-1, in redirects.
    pub const HARD_LIMIT: u8 = 10;

    /// Takes a limit of at most ten.
    ///
    /// # Errors
    ///
    /// [`MaxRedirectsError`] above [`Self::HARD_LIMIT`].
    pub fn new(limit: u32) -> Result<Self, MaxRedirectsError> {
        match u8::try_from(limit) {
            Ok(limit) if limit <= Self::HARD_LIMIT => Ok(Self(limit)),
            _ => Err(MaxRedirectsError(limit.to_string())),
        }
    }

    /// The limit in redirects, not in requests.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for MaxRedirects {
    fn default() -> Self {
        Self(5)
    }
}

impl FromStr for MaxRedirects {
    type Err = MaxRedirectsError;

    fn from_str(text: &str) -> Result<Self, MaxRedirectsError> {
        // `parse` alone accepts `+5`.
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(limit) if is_plain => Self::new(limit),
            _ => Err(MaxRedirectsError(text.to_owned())),
        }
    }
}

impl fmt::Display for MaxRedirects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
