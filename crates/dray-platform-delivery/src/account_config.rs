//! The kinds of accounts that can be configured, one line each. A macro derives from these lines the configuration, the
//! check that exactly one platform is set, and the code that opens an account.

use std::sync::Arc;

use dray_platform::{AccountOptions, PlatformError};
use dray_types::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::PlatformAccount;

/// Declares [`AccountConfig`] from one line for each kind of account: its key in the configuration and its options.
macro_rules! account_kinds {
    ($($(#[$doc:meta])* $key:ident: $options:ty,)+) => {
        /// One account on one platform: exactly one of the platforms is set.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct AccountConfig {
            /// The only tenant that the account serves. Unset: all tenants. Messages of users belong to this tenant, or
            /// to the one of a one-machine system.
            pub tenant: Option<String>,
            $($(#[$doc])* pub $key: Option<$options>,)+
        }

        impl AccountConfig {
            /// Number of platforms in this account; exactly 1 is valid.
            pub(crate) fn platforms_set(&self) -> usize {
                [$(self.$key.is_some()),+].into_iter().filter(|is_set| *is_set).count()
            }

            /// Whether it is an account of the platform with this key.
            pub(crate) fn is_of(&self, platform: &str) -> bool {
                [$(self.$key.is_some() && stringify!($key) == platform),+].contains(&true)
            }

            /// Opens the account under its name in the configuration; `None` when no platform is set.
            ///
            /// # Errors
            ///
            /// Options that cannot be used.
            pub(crate) fn open(
                &self,
                name: &str,
                clock: &Clock,
            ) -> Result<Option<PlatformAccount>, PlatformError> {
                $(if let Some(options) = &self.$key {
                    return open_account(options, name, clock).map(Some);
                })+
                Ok(None)
            }
        }
    };
}

account_kinds! {
    /// A Telegram bot.
    telegram: dray_platform_telegram::TelegramOptions,
    /// A Discord bot.
    discord: dray_platform_discord::DiscordOptions,
    /// A business number on the `WhatsApp` Cloud API.
    whatsapp: dray_platform_whatsapp::CloudOptions,
    /// A local bridge to a `WhatsApp` account.
    whatsapp_bridge: dray_platform_whatsapp::BridgeOptions,
    /// A Matrix user.
    matrix: dray_platform_matrix::MatrixOptions,
    /// A sender of e-mail, with a mailbox for responses.
    email: dray_platform_email::EmailOptions,
    /// Addresses of your own that take files.
    webhook: dray_platform_webhook::WebhookOptions,
    /// A Slack app in one workspace.
    slack: dray_platform_slack::SlackOptions,
}

/// Opens one account, for both directions.
fn open_account<O: AccountOptions>(
    options: &O,
    name: &str,
    clock: &Clock,
) -> Result<PlatformAccount, PlatformError> {
    let account = Arc::new(options.open_account(name, clock)?);
    Ok(PlatformAccount::new(name, account.clone()).with_inbox(account))
}
