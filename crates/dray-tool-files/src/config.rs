//! The settings for the files of agents.

use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files of agents: field `files` of section `orchestrator`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each one is an independent switch of the configuration"
)]
pub struct Config {
    /// Whether agents use the sandbox and the chat of a session. Default `true`.
    pub sessions: bool,
    /// Whether the tools that read documents are offered even if the conversation has no file. Default `false`.
    pub always_read: bool,
    /// Whether every agent can fetch web pages, and not only agents whose manifest enables it. Default `false`.
    pub always_fetch: bool,
    /// Whether agents with a sandbox can make links for uploads into the sandbox (`request_upload`) and for downloads
    /// out of it (`make_download_link`). Needs a ticket endpoint. Default `false`.
    pub tickets: bool,
    /// Whether references to files are also resolved in nested values of arguments. Default `false`.
    pub nested: bool,
    /// Most bytes of one file when the manifest sets no limit. Default `10MiB`.
    pub size_limit: ByteSize,
    /// Longest text of one tool result for the model, when the manifest sets no limit. Default `50KiB`.
    pub inline_limit: ByteSize,
    /// Most bytes of a user's file that is put into a sandbox. Default `512MiB`.
    pub upload_limit: ByteSize,
    /// Timeout of calls that transfer no files. Default `10s`.
    pub call_timeout: Period,
    /// Timeout of file transfers outside of tool calls, which have separate timeouts. Default `2m`.
    pub transfer_timeout: Period,
    /// How long a turn waits until the user's files are in the sandbox. Default `30s`.
    pub upload_wait: Period,
    /// How long no further session is requested after such a request failed. Default `10s`.
    pub absence: Period,
    /// Lifetime of links to files, `5m` to `7d`. Default `24h`.
    pub link_lifetime: Period,
    /// Whether large tool results are written to files when the manifest does not decide. Default `true`.
    pub offload: bool,
    /// Smallest tool result that is written to a file when the manifest sets no threshold. Default `40000B`.
    pub offload_threshold: ByteSize,
    /// Tools whose results are never written to files. Default none.
    pub offload_excluded: Vec<String>,
    /// Whether messages describe the files of a conversation to the model. Default `true`.
    pub reminder: bool,
    /// Language of the descriptions: `en`, or `zh` for the wording of FastGPT. Default `en`.
    pub reminder_language: ReminderLanguage,
    /// Most files of one message that get an id; further files are listed only by name. Default 20.
    pub message_files: u32,
    /// Key that binds the names of stored files to their conversation, at least 32 characters, the same in all
    /// replicas. Names that were signed with another key are not found. Empty: derived from `store.s3.derivation_key`, else from `store.s3.secret_key`.
    pub name_key: Secret,
}

/// Language of the descriptions of files for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReminderLanguage {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sessions: true,
            always_read: false,
            always_fetch: false,
            tickets: false,
            nested: false,
            size_limit: ByteSize::mib(10),
            inline_limit: ByteSize::kib(50),
            upload_limit: ByteSize::mib(512),
            call_timeout: Period::secs(10),
            transfer_timeout: Period::secs(120),
            upload_wait: Period::secs(30),
            absence: Period::secs(10),
            link_lifetime: Period::secs(24 * 3600),
            offload: true,
            offload_threshold: ByteSize::bytes(40_000),
            offload_excluded: Vec::new(),
            reminder: true,
            reminder_language: ReminderLanguage::En,
            message_files: 20,
            name_key: Secret::default(),
        }
    }
}

impl Config {
    /// The invalid values, as field and reason.
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let zero = Period::millis(0);
        let link = self.link_lifetime.as_duration();
        let rules = [
            (
                self.size_limit.as_u64() > 0,
                "size_limit",
                "must be above 0",
            ),
            (
                self.inline_limit.as_u64() > 0,
                "inline_limit",
                "must be above 0",
            ),
            (
                self.upload_limit.as_u64() > 0,
                "upload_limit",
                "must be above 0",
            ),
            (self.message_files > 0, "message_files", "must be above 0"),
            (self.call_timeout != zero, "call_timeout", "must be above 0"),
            (
                self.transfer_timeout != zero,
                "transfer_timeout",
                "must be above 0",
            ),
            (
                (dray_store::MIN_LIFETIME..=dray_store::MAX_LIFETIME).contains(&link),
                "link_lifetime",
                "must be 5m to 7d",
            ),
            (
                self.offload_threshold.as_u64() > 0,
                "offload_threshold",
                "must be above 0",
            ),
            (
                self.name_key.is_empty() || self.name_key.expose().len() >= 32,
                "name_key",
                "must be empty or at least 32 characters",
            ),
        ];
        rules
            .into_iter()
            .filter(|(is_valid, ..)| !is_valid)
            .map(|(_, field, reason)| (field, reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_invalid_values_are_reported() {
        assert_eq!(Config::default().problems(), []);
        let config = Config {
            call_timeout: Period::millis(0),
            link_lifetime: Period::secs(1),
            name_key: Secret::new("short"),
            ..Config::default()
        };
        let fields: Vec<_> = config.problems().into_iter().map(|found| found.0).collect();
        assert_eq!(fields, ["call_timeout", "link_lifetime", "name_key"]);
    }
}
