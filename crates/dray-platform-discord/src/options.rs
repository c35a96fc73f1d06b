//! The options of a Discord bot.

use dray_platform::ChatLimits;
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest file without boosts, in bytes. All servers accepted it; documentation of late 2026 says twice as much
/// (platform-delivery 6).
const MAX_FILE_BYTES: u64 = 10 << 20;
/// Largest file in servers of boost level 2, in bytes.
const LEVEL_2_FILE_BYTES: u64 = 50 << 20;
/// Largest file in servers of boost level 3, in bytes.
const LEVEL_3_FILE_BYTES: u64 = 100 << 20;
/// Largest whole request, in bytes: Discord's limit of 25 MiB, minus room for the parts that are not files.
const MAX_REQUEST_BYTES: u64 = (25 << 20) - (64 << 10);
/// Longest text, in characters.
pub(crate) const MAX_TEXT_CHARACTERS: usize = 2000;
/// Most files in one message.
const MAX_FILES: usize = 10;

/// A Discord bot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscordOptions {
    /// The bot's token. Required.
    pub token: Secret,
    /// URL of the API. Default `https://discord.com/api/v10`.
    pub base_url: String,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Most bytes of one file, regardless of boosts. Without it: 10 MiB, 50 MiB from boost level 2, 100 MiB from 3.
    pub upload_limit: Option<ByteSize>,
    /// Takes messages of users over the gateway, for which the bot needs the message content intent. Default true.
    pub receive: bool,
    /// Takes messages of these channels, of threads in them, and of conversations with these ids only. Without any:
    /// of all that the bot sees.
    pub channels: Vec<String>,
    /// Takes messages of these users only, by their ids. Without any: of all.
    pub senders: Vec<String>,
    /// Largest age of a message that arrived while the bot was not connected; older messages are ignored.
    /// Default `10m`.
    pub catch_up: Period,
    /// Most bytes of a file from a user. Default: no separate limit.
    pub download_limit: Option<ByteSize>,
    /// Hosts from which files of users are fetched, besides the one of `base_url`. Default `cdn.discordapp.com` and
    /// `media.discordapp.net`.
    pub file_hosts: Vec<String>,
    /// Hosts, with all hosts below them, to which the token is sent over the gateway, besides the host of `base_url`.
    /// Default `discord.gg`.
    pub gateway_hosts: Vec<String>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `2m`.
    pub response_timeout: Period,
}

impl Default for DiscordOptions {
    fn default() -> Self {
        Self {
            token: Secret::default(),
            base_url: "https://discord.com/api/v10".to_owned(),
            ca_file: None,
            upload_limit: None,
            receive: true,
            channels: Vec::new(),
            senders: Vec::new(),
            catch_up: Period::secs(600),
            download_limit: None,
            file_hosts: vec![
                "cdn.discordapp.com".to_owned(),
                "media.discordapp.net".to_owned(),
            ],
            gateway_hosts: vec!["discord.gg".to_owned()],
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

impl DiscordOptions {
    /// Limits in a server with this boost level; 0 outside servers.
    pub(crate) fn limits(&self, boosts: u64) -> ChatLimits {
        let any = match (self.upload_limit, boosts) {
            (Some(limit), _) => limit.as_u64(),
            (None, 0 | 1) => MAX_FILE_BYTES,
            (None, 2) => LEVEL_2_FILE_BYTES,
            (None, _) => LEVEL_3_FILE_BYTES,
        };
        ChatLimits {
            routes: Vec::new(),
            any,
            caption: MAX_TEXT_CHARACTERS,
            text: MAX_TEXT_CHARACTERS,
            per_message: MAX_FILES,
            // A boosted server takes one file beyond the general limit of a request.
            request: Some(MAX_REQUEST_BYTES.max(any)),
            download: self.download_limit.map(ByteSize::as_u64),
        }
    }
}
