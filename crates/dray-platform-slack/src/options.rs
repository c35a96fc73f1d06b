//! The settings of a Slack app.

use dray_platform::ChatLimits;
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest file, in bytes, in all plans (platform-delivery 6).
const MAX_FILE_BYTES: u64 = 1_000_000_000;
/// Longest text that Slack recommends, in characters; the hard limit is 40,000.
pub(crate) const MAX_TEXT_CHARACTERS: usize = 4000;
/// Most files of one completion: above about 14, Slack answers `internal_error`.
const MAX_FILES: usize = 10;

/// A Slack app in one workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlackOptions {
    /// The bot's token (`xoxb-…`). Required. Scopes: `files:write`, `chat:write`; `files:read` for what users send,
    /// `im:write` for targets that are users.
    pub token: Secret,
    /// The app's signing secret. Without a signing secret, no event is accepted.
    pub signing_secret: Secret,
    /// Base URL of the Web API. Default `https://slack.com/api`.
    pub base_url: String,
    /// Hosts from which Slack serves files and at which it accepts uploads, besides that of `base_url`. The token goes
    /// to the host of `base_url` and to these with downloads; never with uploads. Default `files.slack.com`.
    pub file_hosts: Vec<String>,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Most bytes of one file. Default 1 GB.
    pub upload_limit: Option<ByteSize>,
    /// How long the service looks for a share that Slack accepted, before the outcome counts as unknown. Default `30s`.
    pub share_wait: Period,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `2m`.
    pub response_timeout: Period,
}

impl Default for SlackOptions {
    fn default() -> Self {
        Self {
            token: Secret::default(),
            signing_secret: Secret::default(),
            base_url: "https://slack.com/api".to_owned(),
            file_hosts: vec!["files.slack.com".to_owned()],
            ca_file: None,
            upload_limit: None,
            share_wait: Period::secs(30),
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

impl SlackOptions {
    pub(crate) fn limits(&self) -> ChatLimits {
        ChatLimits {
            routes: Vec::new(),
            any: self.upload_limit.map_or(MAX_FILE_BYTES, ByteSize::as_u64),
            caption: MAX_TEXT_CHARACTERS,
            text: MAX_TEXT_CHARACTERS,
            per_message: MAX_FILES,
            request: None,
            download: None,
        }
    }
}
