//! The settings of a Matrix account.

use dray_platform::ChatLimits;
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest file in bytes if the homeserver announces no limit: the default of Synapse.
const MAX_FILE_BYTES: u64 = 50 << 20;
/// Longest text in bytes: an event has at most 65,536 bytes, and escapes make the text longer.
const MAX_TEXT_BYTES: usize = 20_000;

/// A user on a homeserver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MatrixOptions {
    /// Address of the homeserver, `https://matrix.example.org`. Required.
    pub homeserver: String,
    /// Access token of the user. Required.
    pub token: Secret,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Most bytes of one file. A smaller limit of the homeserver takes precedence.
    pub upload_limit: Option<ByteSize>,
    /// How long one request waits for new messages. Default `30s`.
    pub poll_wait: Period,
    /// Largest age of a message that arrived while the bot was not connected; older messages are ignored. Default
    /// `10m`.
    pub catch_up: Period,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `2m`.
    pub response_timeout: Period,
}

impl Default for MatrixOptions {
    fn default() -> Self {
        Self {
            homeserver: String::new(),
            token: Secret::default(),
            ca_file: None,
            upload_limit: None,
            poll_wait: Period::secs(30),
            catch_up: Period::secs(600),
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

impl MatrixOptions {
    /// The limits of a chat. `server_limit` is the file limit of the homeserver in bytes; `None` if it announces none.
    pub(crate) fn limits(&self, server_limit: Option<u64>) -> ChatLimits {
        let own = self.upload_limit.map(ByteSize::as_u64);
        let any = match (own, server_limit) {
            (Some(own), Some(server_limit)) => own.min(server_limit),
            (own, server_limit) => own.or(server_limit).unwrap_or(MAX_FILE_BYTES),
        };
        ChatLimits {
            routes: Vec::new(),
            any,
            caption: MAX_TEXT_BYTES,
            text: MAX_TEXT_BYTES,
            per_message: 1,
            request: None,
            download: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_both_limits_applies() {
        let mut options = MatrixOptions::default();
        assert_eq!(options.limits(None).any, 50 << 20);
        assert_eq!(options.limits(Some(1000)).any, 1000);
        assert_eq!(options.limits(Some(100 << 20)).any, 100 << 20);
        options.upload_limit = Some(ByteSize::bytes(500));
        assert_eq!(options.limits(Some(1000)).any, 500);
        assert_eq!(options.limits(Some(100)).any, 100);
        assert_eq!(options.limits(None).any, 500);
    }
}
