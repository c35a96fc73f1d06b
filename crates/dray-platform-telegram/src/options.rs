//! The settings of a bot.

use std::path::PathBuf;

use dray_platform::ChatLimits;
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Bot API server that Telegram runs.
const HOSTED_API_URL: &str = "https://api.telegram.org";

/// Largest upload to the hosted API, in bytes. Megabytes are decimal here: of the two readings of "50 MB", the smaller
/// one is safe for refusing.
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// Largest upload to a server with `--local`, in bytes.
const MAX_LOCAL_UPLOAD_BYTES: u64 = 2_000_000_000;

/// Largest photo, in bytes, with every server.
const MAX_PHOTO_BYTES: u64 = 10_000_000;

/// Largest file that the hosted API lets a bot fetch, in bytes. Binary: the server refuses above 20 · 2²⁰.
const MAX_DOWNLOAD_BYTES: u64 = 20 << 20;

/// Longest caption, in UTF-16 units after parsing of entities.
const MAX_CAPTION_UNITS: usize = 1024;
/// Longest text, in UTF-16 units after parsing of entities.
pub(crate) const MAX_TEXT_UNITS: usize = 4096;

/// Most items of an album.
const MAX_ALBUM_ITEMS: usize = 10;

/// A Telegram bot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelegramOptions {
    /// The bot's token, as `BotFather` gave it. Required.
    pub token: Secret,
    /// URL of the Bot API. Default `https://api.telegram.org`. A self-hosted server listens on port 8081 by default.
    pub base_url: String,
    /// PEM file with the authorities that sign the certificate of a self-hosted server, besides the public ones.
    pub ca_file: Option<FileSetting>,
    /// Whether the server at `base_url` runs with `--local`. It then takes uploads of up to 2000 MB, and files of users
    /// have no limit and are on the disk of the server. Default false.
    pub local_mode: bool,
    /// With `local_mode`: the server's working directory as this process sees it. Files of users are read beneath it
    /// and nowhere else; without it they cannot be fetched.
    pub local_files: Option<PathBuf>,
    /// Most bytes of one file. Default 50 MB, and 2000 MB with `local_mode`.
    pub upload_limit: Option<ByteSize>,
    /// Most bytes of one photo; larger pictures go as documents. Default 10 MB.
    pub photo_limit: Option<ByteSize>,
    /// Most bytes of a file from a user. Default 20 MiB, the limit of the hosted API; without a limit with
    /// `local_mode`.
    pub download_limit: Option<ByteSize>,
    /// The `secret_token` that was given to `setWebhook`. Without it no webhook request is accepted.
    pub webhook_secret: Secret,
    /// How long one `getUpdates` waits for an update; at most `50s`. Default `30s`.
    pub poll_wait: Period,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent, on top of a second for each megabyte of it.
    /// Default `2m`.
    pub response_timeout: Period,
}

impl Default for TelegramOptions {
    fn default() -> Self {
        Self {
            token: Secret::default(),
            base_url: HOSTED_API_URL.to_owned(),
            ca_file: None,
            local_mode: false,
            local_files: None,
            upload_limit: None,
            photo_limit: None,
            download_limit: None,
            webhook_secret: Secret::default(),
            poll_wait: Period::secs(30),
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

impl TelegramOptions {
    pub(crate) fn limits(&self) -> ChatLimits {
        // The limit is computed on every call, not in `Default`: the default depends on `local_mode`.
        let upload = self.upload_limit.map_or(
            if self.local_mode {
                MAX_LOCAL_UPLOAD_BYTES
            } else {
                MAX_UPLOAD_BYTES
            },
            ByteSize::as_u64,
        );
        let photo = self
            .photo_limit
            .map_or(MAX_PHOTO_BYTES, ByteSize::as_u64)
            // An operator may configure an upload limit below that of photos.
            .min(upload);
        ChatLimits {
            routes: vec![(dray_platform::Route::Photo, photo)],
            any: upload,
            caption: MAX_CAPTION_UNITS,
            text: MAX_TEXT_UNITS,
            per_message: MAX_ALBUM_ITEMS,
            // An album is one request, whose files together must stay within the limit of an upload.
            request: Some(upload),
            download: self.download(),
        }
    }

    /// Largest file that can be fetched, in bytes; `None` for no limit.
    pub(crate) fn download(&self) -> Option<u64> {
        match (self.download_limit, self.local_mode) {
            (Some(limit), _) => Some(limit.as_u64()),
            (None, true) => None,
            (None, false) => Some(MAX_DOWNLOAD_BYTES),
        }
    }
}
