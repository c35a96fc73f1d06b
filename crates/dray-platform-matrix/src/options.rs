//! What an operator can set about a Matrix user.

use std::path::PathBuf;

use dray_platform::ChatLimits;
use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest file, in bytes, where the homeserver announces no limit: the default of Synapse.
const MAX_FILE_BYTES: u64 = 50 << 20;
/// Longest text, in bytes: a whole event has at most 65,536, and the text may need escapes in it.
const MAX_TEXT_BYTES: usize = 20_000;

/// A user on a homeserver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MatrixOptions {
    /// Address of the homeserver, `https://matrix.example.org`. Required.
    pub homeserver: String,
    /// Access token of the user. Required.
    pub token: Secret,
    /// PEM file with further authorities.
    pub ca_file: Option<PathBuf>,
    /// Most bytes of one file. A smaller limit of the homeserver's holds.
    pub upload_limit: Option<ByteSize>,
    /// How long one request for messages waits for them. Default `30s`.
    pub poll_wait: Period,
    /// How old a message may be that came while the bot was not connected. Default `10m`.
    pub catch_up: Period,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest silence in the middle of an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request left. Default `2m`.
    pub answer_timeout: Period,
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
            answer_timeout: Period::secs(120),
        }
    }
}

impl MatrixOptions {
    /// Limits with a homeserver that takes files of so many bytes; `None` when it announces no limit.
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
    fn the_smaller_limit_holds() {
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
