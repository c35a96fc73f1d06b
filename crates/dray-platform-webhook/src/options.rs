//! The settings of webhooks.

use dray_platform::{ChatLimits, ErrorKind, PlatformError};
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest file, in bytes, where the options set no other limit.
const MAX_FILE_BYTES: u64 = 100 << 20;
/// Longest text of one event, in characters; longer texts become several events.
const MAX_TEXT_CHARACTERS: usize = 40_000;
/// Most files of one event.
const MAX_FILES: usize = 10;

/// The addresses that receive files, and the secret of the messages that they send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookOptions {
    /// The addresses by their names; a target is written `webhook:NAME`.
    pub hooks: BTreeMap<String, WebhookAddress>,
    /// Secret that inbound messages are signed with. Without a secret, no message is accepted.
    pub inbound_secret: Secret,
    /// Hosts from which attachments of such messages are fetched, with the port if it is not the default. None by
    /// default.
    pub file_hosts: Vec<String>,
    /// Whether attachments may be fetched over plain HTTP. Default false.
    pub allow_http: bool,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `2m`.
    pub response_timeout: Period,
}

/// A receiver, to which deliveries refer by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookAddress {
    /// URL that events are posted to. Required; it may hold a token and is never shown.
    pub url: Secret,
    /// Secret that events are signed with. Required.
    pub secret: Secret,
    /// Whether the address may be plain HTTP. Default false.
    pub allow_http: bool,
    /// Most bytes of one file. Default 100 MiB.
    pub upload_limit: Option<ByteSize>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            hooks: BTreeMap::new(),
            inbound_secret: Secret::default(),
            file_hosts: Vec::new(),
            allow_http: false,
            ca_file: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

impl WebhookOptions {
    /// The address with this name, or [`ErrorKind::NotFound`].
    pub(crate) fn hook(&self, name: &str) -> Result<&WebhookAddress, PlatformError> {
        self.hooks.get(name).ok_or_else(|| {
            PlatformError::new(ErrorKind::NotFound, "no webhook of this name is configured")
        })
    }
}

impl WebhookAddress {
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
