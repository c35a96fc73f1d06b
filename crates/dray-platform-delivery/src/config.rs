//! The settings of deliveries.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dray_platform::DeliveryTarget;
use dray_service::config::{ConfigProblem, FormerName, RestartSetting, Section};
use dray_service::reload::{DEFAULT_RELOAD_INTERVAL, interval_problem};
use dray_service::{StartError, restart_settings};
use dray_types::{ByteSize, Clock, ErrorChain, Period, PlatformKind, Secret, TenantId};

pub use crate::account_config::AccountConfig;
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::cli::CliAccount;
use crate::inbound::origin::is_origin;
use crate::link::LinkPolicy;
pub use crate::questions::QuestionChat;
use crate::questions::question_problems;
pub use crate::web_files::{WebFileOutcome, WebFileRule};
use crate::web_files::{covers, rule_problems};

/// Platform-delivery, which sends files to people on chat platforms and receives their messages and files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Accounts on platforms, by name. Default none.
    pub accounts: BTreeMap<String, AccountConfig>,
    /// Copies files into a directory of this machine for the target `cli:DIRECTORY`. Only for a system that serves the
    /// person who runs it. Default false.
    pub cli: bool,
    /// Directories that `cli` uses, in this order, if the requested one cannot be written. Empty: none.
    pub cli_fallbacks: Vec<PathBuf>,
    /// Chats that any session may send to besides its own, each written as `telegram:12345` or, for all chats of an
    /// account, `telegram:*`.
    pub allowed_targets: Vec<String>,
    /// Lets requests name any chat and any sandbox. For a system whose callers are operators. Default false.
    pub allow_targets: bool,
    /// Most files of one delivery: 1 to 100. Default 50.
    pub max_files: usize,
    /// Most bytes of one file that leaves a sandbox. Default `2GiB`.
    pub max_file_size: ByteSize,
    /// Whether files that are too large for a chat go as links: `auto` (when the store's public address is not this
    /// machine's own), `always` or `never`. Default `auto`.
    pub links: LinkPolicy,
    /// Lifetime of links to files: `5m` to `7d`. Default `24h`.
    pub link_lifetime: Period,
    /// Whether files of a session's sandbox may be sent as links to previews, if a request asks for it (`as_preview`):
    /// `never`, `auto` (when previews are served at another address than this machine's own) or `always`. Anyone in the
    /// chat can then look at the file without a login. Default `never`.
    pub preview_links: LinkPolicy,
    /// Lifetime of links to previews: `5m` to `7d`; `sandbox-transfer.preview.max_lifetime` limits it too. Default
    /// `12h`.
    pub preview_lifetime: Period,
    /// How long a delivery may take, waits included: up to `5d`. Default `24h`.
    pub delivery_timeout: Period,
    /// How long a file waits until the user writes again, on platforms that require it: up to `7d`. Default `72h`.
    pub window_timeout: Period,
    /// How long later deliveries to a chat wait while the files of an earlier one are copied out of the sandbox: `1s`
    /// to `1h`. Afterwards they are sent first. Default `5m`.
    pub order_timeout: Period,
    /// How long a size limit that was learned from a refusal of a platform applies: up to `30d`. Default `24h`.
    pub learned_lifetime: Period,
    /// Address for webhooks of platforms and uploads of browsers. Unset: no such listener.
    pub listen: Option<SocketAddr>,
    /// Host names under which the listener is reached, as in the `Host` header without its port. Empty means this
    /// machine only: `localhost` and loopback addresses.
    pub hosts: Vec<String>,
    /// Bearer tokens for uploads over HTTP, by tenant, of at least 16 characters. Default none.
    pub upload_tokens: BTreeMap<String, Secret>,
    /// Origins whose pages may upload from a browser, exactly as browsers send them: `https://app.example`. The object
    /// store needs the same origins for `PUT` in its own CORS rules. Default none.
    pub upload_origins: Vec<String>,
    /// Chats in which people answer questions, by name. The questions are about calls that wait for approval, with
    /// `host_questions` also about hosts, and with `tool_questions` also those that tools ask. The orchestrator names
    /// the chats in `approval_chats`. Default none.
    pub question_chats: BTreeMap<String, QuestionChat>,
    /// Rules on which files from the web may go to which chats. Empty: all may go to all.
    pub web_files: Vec<WebFileRule>,
    /// Polls platforms for messages, if their messages do not arrive by webhook. Default true.
    pub poll: bool,
    /// Most bytes of one attachment of a user. Default `128MiB`.
    pub max_attachment: ByteSize,
    /// Most bytes of all attachments of one message. Default `128MiB`.
    pub max_message: ByteSize,
    /// Longest time without a byte while an attachment is fetched: up to `1d`. Default `30s`.
    pub fetch_idle: Period,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. The log names changed
    /// settings that need a restart. Default `2s`.
    pub reload_interval: Period,
}

impl Default for Config {
    fn default() -> Self {
        const HOUR_SECONDS: u64 = 3600;
        Self {
            accounts: BTreeMap::new(),
            cli: false,
            cli_fallbacks: Vec::new(),
            allowed_targets: Vec::new(),
            allow_targets: false,
            max_files: 50,
            max_file_size: ByteSize::mib(2048),
            links: LinkPolicy::Auto,
            link_lifetime: Period::secs(24 * HOUR_SECONDS),
            preview_links: LinkPolicy::Never,
            preview_lifetime: Period::secs(12 * HOUR_SECONDS),
            delivery_timeout: Period::secs(24 * HOUR_SECONDS),
            window_timeout: Period::secs(72 * HOUR_SECONDS),
            order_timeout: Period::secs(300),
            learned_lifetime: Period::secs(24 * HOUR_SECONDS),
            listen: None,
            hosts: Vec::new(),
            upload_tokens: BTreeMap::new(),
            upload_origins: Vec::new(),
            question_chats: BTreeMap::new(),
            web_files: Vec::new(),
            poll: true,
            max_attachment: ByteSize::mib(128),
            max_message: ByteSize::mib(128),
            fetch_idle: Period::secs(30),
            reload_interval: DEFAULT_RELOAD_INTERVAL,
        }
    }
}

impl Section for Config {
    /// The listener, and what all deliveries share.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<Config>] =
            restart_settings![Config: listen, order_timeout, reload_interval];
        Some(RESTART_SETTINGS)
    }

    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 5] = [
            FormerName::new("patience", "delivery_timeout"),
            FormerName::new("window_patience", "window_timeout"),
            FormerName::below("accounts.*.whatsapp_bridge", "folder", "directory"),
            FormerName::below(
                "accounts.*.whatsapp_bridge",
                "bridge_folder",
                "bridge_directory",
            ),
            // In the options of every platform.
            FormerName::below("accounts.*.*", "answer_timeout", "response_timeout"),
        ];
        &FORMER_NAMES
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = self.account_problems();
        let mut unless = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        unless(
            (1..=100).contains(&self.max_files),
            "max_files",
            "must be 1 to 100",
        );
        for (field, size) in [
            ("max_file_size", self.max_file_size),
            ("max_attachment", self.max_attachment),
            ("max_message", self.max_message),
        ] {
            unless(size > ByteSize::default(), field, "must be above 0");
        }
        for (field, period, days) in [
            ("delivery_timeout", self.delivery_timeout, 5),
            ("window_timeout", self.window_timeout, 7),
            ("learned_lifetime", self.learned_lifetime, 30),
            ("fetch_idle", self.fetch_idle, 1),
        ] {
            let is_valid = period > Period::default() && period <= Period::secs(days * 86_400);
            unless(
                is_valid,
                field,
                &format!("must be above 0 and at most {days}d"),
            );
        }
        for (field, lifetime) in [
            ("link_lifetime", self.link_lifetime),
            ("preview_lifetime", self.preview_lifetime),
        ] {
            unless(
                (Period::secs(300)..=Period::secs(7 * 86_400)).contains(&lifetime),
                field,
                "must be 5m to 7d",
            );
        }
        unless(
            (Period::secs(1)..=Period::secs(3600)).contains(&self.order_timeout),
            "order_timeout",
            "must be 1s to 1h",
        );
        problems.extend(interval_problem(self.reload_interval));
        problems.extend(self.target_problems());
        problems.extend(self.upload_problems());
        problems.extend(question_problems(&self.question_chats, &self.accounts));
        problems.extend(rule_problems(&self.web_files));
        problems
    }
}

impl Config {
    /// Problems of `allowed_targets`; empty when all can be read.
    fn target_problems(&self) -> Vec<ConfigProblem> {
        let targets = self.allowed_targets.iter().enumerate();
        let unreadable = targets.filter(|(_, target)| target.parse::<DeliveryTarget>().is_err());
        let problems = unreadable.map(|(index, _)| {
            let message = "must be written like telegram:12345 or telegram:*";
            ConfigProblem::new(format!("allowed_targets.{index}"), message)
        });
        problems.collect()
    }

    /// Problems of the settings for uploads over HTTP; empty when they are valid.
    fn upload_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut unless = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        for (index, origin) in self.upload_origins.iter().enumerate() {
            unless(
                is_origin(origin),
                &format!("upload_origins.{index}"),
                "must be written like https://app.example, with a port where it is not the usual one",
            );
        }
        for (tenant, token) in &self.upload_tokens {
            let field = format!("upload_tokens.{tenant}");
            unless(
                TenantId::new(tenant.as_str()).is_ok(),
                &field,
                "is not a tenant's name",
            );
            unless(
                token.expose().len() >= 16,
                &field,
                "must have at least 16 characters",
            );
        }
        problems
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    dray_types::id::is_subject_token(name)
}

impl Config {
    fn account_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut unless = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        for (name, account) in &self.accounts {
            let field = format!("accounts.{name}");
            unless(
                is_name(name),
                &field,
                "must be 1 to 64 of a-z, 0-9, _ and -",
            );
            unless(
                account.platforms_set() == 1,
                &field,
                "must set exactly one platform",
            );
            unless(
                account
                    .tenant
                    .as_deref()
                    .is_none_or(|tenant| TenantId::new(tenant).is_ok()),
                &format!("{field}.tenant"),
                "is not a tenant's name",
            );
        }
        problems
    }

    /// Problems of accounts that cannot be opened with their options. Makes no request. [`Section::validate`] does not
    /// look for them: other services load the same file without the secrets of the accounts.
    pub fn unusable_accounts(&self, clock: &Clock) -> Vec<ConfigProblem> {
        let problems = self.accounts.iter().filter_map(|(name, account)| {
            let error = account.open(name, clock).err()?;
            let message = format!("cannot be used: {}", ErrorChain(&error));
            Some(ConfigProblem::new(format!("accounts.{name}"), message))
        });
        problems.collect()
    }

    /// Opens the configured accounts.
    ///
    /// # Errors
    /// Options that cannot be used.
    pub fn accounts(&self, clock: &Clock) -> Result<AccountRegistry, StartError> {
        let accounts = AccountRegistry::default();
        accounts.replace(self.accounts_after(&Self::default(), &accounts, clock)?);
        Ok(accounts)
    }

    /// The configured accounts. `opened` are the accounts of the earlier configuration: an account whose settings are
    /// the same stays open with its connections, permits and last check. The other accounts are opened.
    ///
    /// # Errors
    /// Options that cannot be used.
    pub(crate) fn accounts_after(
        &self,
        earlier: &Self,
        opened: &AccountRegistry,
        clock: &Clock,
    ) -> Result<Vec<Arc<PlatformAccount>>, StartError> {
        let cli_name = PlatformKind::Cli.as_str();
        let is_cli = |account: &PlatformAccount| account.platform.name() == cli_name;
        let mut accounts = Vec::new();
        for (name, account_config) in &self.accounts {
            if earlier.accounts.get(name) == Some(account_config) {
                let is_same =
                    |account: &Arc<PlatformAccount>| account.name == *name && !is_cli(account);
                accounts.extend(opened.iter().filter(is_same));
                continue;
            }
            let opened = account_config.open(name, clock).map_err(|error| {
                StartError::with_source(format!("the account `{name}` cannot be used"), error)
            })?;
            let tenant = account_config
                .tenant
                .as_deref()
                .and_then(|tenant| TenantId::new(tenant).ok());
            accounts.extend(opened.map(|account| Arc::new(account.with_tenant(tenant))));
        }
        if self.cli {
            let same = opened.iter().find(|account| is_cli(account));
            let same = same.filter(|_| self.cli_fallbacks == earlier.cli_fallbacks);
            accounts.push(same.unwrap_or_else(|| {
                let cli = Arc::new(CliAccount::new(self.cli_fallbacks.clone()));
                Arc::new(PlatformAccount::new(cli_name, cli))
            }));
        }
        Ok(accounts)
    }

    /// Whether policy lists this chat for every session.
    pub fn lists(&self, target: &DeliveryTarget) -> bool {
        self.allowed_targets
            .iter()
            .any(|allowed| covers(allowed, target))
    }
}

#[cfg(test)]
mod tests;
