//! What an operator can set about deliveries.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dray_platform::Target;
use dray_service::StartError;
use dray_service::config::{Problem, Section};
use dray_types::{ByteSize, Clock, Period, Secret, TenantId};

use crate::accounts::{Account, Accounts};
use crate::cli::Cli;
use crate::inbound::origin::is_origin;
use crate::link::Links;

/// Section `platform-delivery`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Accounts on platforms, by name.
    pub accounts: BTreeMap<String, AccountConfig>,
    /// Copies files into a folder of this machine for the target `cli:FOLDER`. Only for a system that serves the person
    /// who runs it. Default false.
    pub cli: bool,
    /// Folders that `cli` takes when the wished one cannot be written, in this order.
    pub cli_fallbacks: Vec<PathBuf>,
    /// Chats that any session may send to beside its own, each written as `telegram:12345` or, for all chats of an
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
    pub links: Links,
    /// Lifetime of such links: `5m` to `7d`. Default `24h`.
    pub link_lifetime: Period,
    /// How long a delivery may take, waits included: up to `5d`. Default `24h`.
    pub patience: Period,
    /// How long a file waits for a user to write again where a platform wants that: up to `7d`. Default `72h`.
    pub window_patience: Period,
    /// How long a delivery holds up later ones of its chat while its files are copied out of the sandbox: `1s` to `1h`.
    /// Afterwards they are shown first. Default `5m`.
    pub order_timeout: Period,
    /// How long a limit that a refusal taught is believed. Default `24h`.
    pub learned_lifetime: Period,
    /// Address for webhooks of platforms and uploads of browsers; none is opened without it.
    pub listen: Option<SocketAddr>,
    /// Host names under which the listener is reached, as in the `Host` header without its port. Empty means this machine
    /// only: `localhost` and loopback addresses.
    pub hosts: Vec<String>,
    /// Bearer tokens for uploads over HTTP, by tenant.
    pub upload_tokens: BTreeMap<String, Secret>,
    /// Origins whose pages may upload from a browser, exactly as browsers send them: `https://app.example`. The object
    /// store needs the same origins for `PUT` in its own CORS rules.
    pub upload_origins: Vec<String>,
    /// Asks platforms for messages where they are asked rather than call us. Default true.
    pub poll: bool,
    /// Most bytes of one attachment of a user. Default `128MiB`.
    pub max_attachment: ByteSize,
    /// Most bytes of all attachments of one message. Default `128MiB`.
    pub max_message: ByteSize,
    /// Longest silence while an attachment is fetched. Default `30s`.
    pub fetch_idle: Period,
}

/// One account on one platform: exactly one of the platforms is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AccountConfig {
    /// The only tenant that the account serves; all of them without it. Messages of users belong to this tenant, or to
    /// the one of a one-machine system.
    pub tenant: Option<String>,
    /// A Telegram bot.
    pub telegram: Option<dray_platform_telegram::Options>,
    /// A Discord bot.
    pub discord: Option<dray_platform_discord::Options>,
    /// A business number on the `WhatsApp` Cloud API.
    pub whatsapp: Option<dray_platform_whatsapp::CloudOptions>,
    /// A local bridge to a `WhatsApp` account.
    pub whatsapp_bridge: Option<dray_platform_whatsapp::BridgeOptions>,
    /// A Matrix user.
    pub matrix: Option<dray_platform_matrix::Options>,
    /// A sender of e-mail, with a mailbox for answers.
    pub email: Option<dray_platform_email::Options>,
    /// Addresses of your own that take files.
    pub webhook: Option<dray_platform_webhook::Options>,
    /// A Slack app in one workspace.
    pub slack: Option<dray_platform_slack::Options>,
}

impl Default for Config {
    fn default() -> Self {
        const HOUR: u64 = 3600;
        Self {
            accounts: BTreeMap::new(),
            cli: false,
            cli_fallbacks: Vec::new(),
            allowed_targets: Vec::new(),
            allow_targets: false,
            max_files: 50,
            max_file_size: ByteSize::mib(2048),
            links: Links::Auto,
            link_lifetime: Period::secs(24 * HOUR),
            patience: Period::secs(24 * HOUR),
            window_patience: Period::secs(72 * HOUR),
            order_timeout: Period::secs(300),
            learned_lifetime: Period::secs(24 * HOUR),
            listen: None,
            hosts: Vec::new(),
            upload_tokens: BTreeMap::new(),
            upload_origins: Vec::new(),
            poll: true,
            max_attachment: ByteSize::mib(128),
            max_message: ByteSize::mib(128),
            fetch_idle: Period::secs(30),
        }
    }
}

impl Section for Config {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = self.account_problems();
        let mut unless = |right: bool, field: &str, message: &str| {
            if !right {
                problems.push(Problem::new(field, message));
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
            ("patience", self.patience, 5),
            ("window_patience", self.window_patience, 7),
            ("learned_lifetime", self.learned_lifetime, 30),
            ("fetch_idle", self.fetch_idle, 1),
        ] {
            let right = period > Period::default() && period <= Period::secs(days * 86_400);
            unless(
                right,
                field,
                &format!("must be above 0 and at most {days}d"),
            );
        }
        unless(
            (Period::secs(300)..=Period::secs(7 * 86_400)).contains(&self.link_lifetime),
            "link_lifetime",
            "must be 5m to 7d",
        );
        unless(
            (Period::secs(1)..=Period::secs(3600)).contains(&self.order_timeout),
            "order_timeout",
            "must be 1s to 1h",
        );
        for (index, target) in self.allowed_targets.iter().enumerate() {
            unless(
                target.parse::<Target>().is_ok(),
                &format!("allowed_targets.{index}"),
                "must be written like telegram:12345 or telegram:*",
            );
        }
        problems.extend(self.upload_problems());
        problems
    }
}

impl Config {
    /// What is wrong with the way in over HTTP.
    fn upload_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut unless = |right: bool, field: &str, message: &str| {
            if !right {
                problems.push(Problem::new(field, message));
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

fn is_name(name: &str) -> bool {
    dray_types::id::is_subject_token(name)
}

impl AccountConfig {
    /// How many platforms are set.
    fn count(&self) -> usize {
        let Self {
            tenant: _,
            telegram,
            discord,
            whatsapp,
            whatsapp_bridge,
            matrix,
            email,
            webhook,
            slack,
        } = self;
        [
            telegram.is_some(),
            discord.is_some(),
            whatsapp.is_some(),
            whatsapp_bridge.is_some(),
            matrix.is_some(),
            email.is_some(),
            webhook.is_some(),
            slack.is_some(),
        ]
        .into_iter()
        .filter(|is_set| *is_set)
        .count()
    }

    /// The account that this describes.
    fn open(&self, name: &str, clock: &Clock) -> Result<Option<Account>, dray_platform::Error> {
        if let Some(options) = &self.telegram {
            let bot = Arc::new(dray_platform_telegram::Telegram::new(
                name,
                options.clone(),
            )?);
            return Ok(Some(Account::new(name, bot.clone()).with_inbox(bot)));
        }
        if let Some(options) = &self.discord {
            let bot = dray_platform_discord::Discord::new(options.clone(), clock.clone())?;
            let bot = Arc::new(bot);
            return Ok(Some(Account::new(name, bot.clone()).with_inbox(bot)));
        }
        if let Some(options) = &self.whatsapp {
            let number = Arc::new(dray_platform_whatsapp::Cloud::new(name, options.clone())?);
            return Ok(Some(Account::new(name, number.clone()).with_inbox(number)));
        }
        if let Some(options) = &self.whatsapp_bridge {
            let bridge = Arc::new(dray_platform_whatsapp::Bridge::new(name, options.clone())?);
            return Ok(Some(Account::new(name, bridge.clone()).with_inbox(bridge)));
        }
        if let Some(options) = &self.matrix {
            let clock = clock.clone();
            let user = dray_platform_matrix::Matrix::new(name, options.clone(), clock)?;
            let user = Arc::new(user);
            return Ok(Some(Account::new(name, user.clone()).with_inbox(user)));
        }
        if let Some(options) = &self.email {
            let sender = dray_platform_email::Email::new(options.clone(), clock.clone())?;
            let sender = Arc::new(sender);
            return Ok(Some(Account::new(name, sender.clone()).with_inbox(sender)));
        }
        if let Some(options) = &self.webhook {
            let clock = clock.clone();
            let hooks = dray_platform_webhook::Webhook::new(name, options.clone(), clock)?;
            let hooks = Arc::new(hooks);
            return Ok(Some(Account::new(name, hooks.clone()).with_inbox(hooks)));
        }
        if let Some(options) = &self.slack {
            let app = dray_platform_slack::Slack::new(name, options.clone(), clock.clone())?;
            let app = Arc::new(app);
            return Ok(Some(Account::new(name, app.clone()).with_inbox(app)));
        }
        Ok(None)
    }
}

impl Config {
    fn account_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut unless = |right: bool, field: &str, message: &str| {
            if !right {
                problems.push(Problem::new(field, message));
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
                account.count() == 1,
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

    /// Opens the configured accounts.
    ///
    /// # Errors
    /// Options that cannot be used.
    pub fn accounts(&self, clock: &Clock) -> Result<Accounts, StartError> {
        let mut all = Vec::new();
        for (name, described) in &self.accounts {
            let opened = described.open(name, clock).map_err(|error| {
                StartError::with_source(format!("the account `{name}` cannot be used"), error)
            })?;
            let tenant = described
                .tenant
                .as_deref()
                .and_then(|tenant| TenantId::new(tenant).ok());
            all.extend(opened.map(|account| account.with_tenant(tenant)));
        }
        if self.cli {
            let cli = Arc::new(Cli::new(self.cli_fallbacks.clone()));
            all.push(Account::new(crate::cli::NAME, cli));
        }
        Ok(Accounts::new(all))
    }

    /// Whether policy lists this chat for every session.
    pub fn lists(&self, target: &Target) -> bool {
        self.allowed_targets.iter().any(|allowed| {
            let Ok(allowed) = allowed.parse::<Target>() else {
                return false;
            };
            allowed.platform == target.platform
                && (allowed.account.is_empty() || allowed.account == target.account)
                && (allowed.chat == "*" || allowed.chat == target.chat)
                && (allowed.thread.is_empty() || allowed.thread == target.thread)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config), field: &str) {
        let mut config = Config::default();
        change(&mut config);
        let fields: Vec<_> = config
            .validate()
            .into_iter()
            .map(|problem| problem.field)
            .collect();
        assert_eq!(fields, [field]);
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Config::default().validate(), []);
    }

    #[test]
    fn every_field_has_its_bounds() {
        check(|config| config.max_files = 0, "max_files");
        check(|config| config.max_files = 101, "max_files");
        check(
            |config| config.max_file_size = ByteSize::default(),
            "max_file_size",
        );
        check(
            |config| config.max_message = ByteSize::default(),
            "max_message",
        );
        check(|config| config.patience = Period::default(), "patience");
        check(
            |config| config.patience = Period::secs(6 * 86_400),
            "patience",
        );
        check(
            |config| config.link_lifetime = Period::secs(1),
            "link_lifetime",
        );
        let account =
            |name: &str, account: AccountConfig| BTreeMap::from([(name.to_owned(), account)]);
        check(
            |config| config.accounts = account("bot", AccountConfig::default()),
            "accounts.bot",
        );
        let telegram = AccountConfig {
            telegram: Some(dray_platform_telegram::Options::default()),
            ..AccountConfig::default()
        };
        check(
            |config| config.accounts = account("A bot", telegram.clone()),
            "accounts.A bot",
        );
        let both = AccountConfig {
            slack: Some(dray_platform_slack::Options::default()),
            ..telegram
        };
        check(
            |config| config.accounts = account("bot", both.clone()),
            "accounts.bot",
        );
        check(
            |config| config.allowed_targets = vec!["nonsense".to_owned()],
            "allowed_targets.0",
        );
        let token = |token: &str| BTreeMap::from([("acme".to_owned(), Secret::new(token))]);
        check(
            |config| config.upload_tokens = token("short"),
            "upload_tokens.acme",
        );
    }

    #[test]
    fn bots_and_mailboxes_have_a_way_in() {
        let accounts = BTreeMap::from([
            (
                "bot".to_owned(),
                AccountConfig {
                    discord: Some(dray_platform_discord::Options {
                        token: Secret::new("t"),
                        ..dray_platform_discord::Options::default()
                    }),
                    ..AccountConfig::default()
                },
            ),
            (
                "mail".to_owned(),
                AccountConfig {
                    email: Some(dray_platform_email::Options {
                        host: "mail.example.org".to_owned(),
                        from: "bot@example.org".to_owned(),
                        ..dray_platform_email::Options::default()
                    }),
                    ..AccountConfig::default()
                },
            ),
        ]);
        let config = Config {
            accounts,
            ..Config::default()
        };
        let opened = config.accounts(&Clock::default()).unwrap();
        for name in ["bot", "mail"] {
            assert!(opened.named(name).unwrap().inbox.is_some(), "{name}");
        }
    }

    #[test]
    fn policy_lists_a_chat_or_all_chats_of_a_platform() {
        let config = Config {
            allowed_targets: vec!["telegram:42".to_owned(), "slack/work:*".to_owned()],
            ..Config::default()
        };
        for (target, expected) in [
            ("telegram:42", true),
            ("telegram/bot:42#7", true),
            ("telegram:43", false),
            ("slack/work:C1", true),
            ("slack/home:C1", false),
            ("discord:42", false),
        ] {
            assert_eq!(config.lists(&target.parse().unwrap()), expected, "{target}");
        }
    }
}
