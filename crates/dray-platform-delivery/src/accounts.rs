//! The configured accounts, and the one that serves a chat.

use std::sync::Arc;

use dray_platform::{InboundSource, Platform, Route};
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_types::{Fault, FaultCode, TenantId};
use tokio::sync::{Mutex, Semaphore};

/// Concurrent uploads of one account (platform-delivery 10.4).
const MAX_CONCURRENT_UPLOADS: usize = 3;

/// Why no account can be chosen for a target. The texts name accounts, so they are for operators and the log; callers get
/// the fault of this error, which names none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountLookupError {
    /// The tenant has no account on this platform.
    #[error("no account serves {0}")]
    NoAccount(String),
    /// The tenant has accounts on the platform, but none with the name in the target.
    #[error("no account `{name}` serves {platform}; there is: {}", .known.join(", "))]
    UnknownAccount {
        /// The platform of the target.
        platform: String,
        /// The name in the target.
        name: String,
        /// Names of the tenant's accounts on the platform.
        known: Vec<String>,
    },
    /// The target names no account, and the tenant has several on the platform.
    #[error("several accounts serve {platform}, and the target names none: {}", .names.join(", "))]
    AmbiguousAccount {
        /// The platform of the target.
        platform: String,
        /// Names of the tenant's accounts on the platform.
        names: Vec<String>,
    },
}

impl AccountLookupError {
    /// The fault for an operator, with the names of the accounts.
    pub(crate) fn operator_fault(&self) -> Fault {
        let (message, advice) = match self {
            Self::NoAccount(platform) => (
                format!("No account is configured for {platform}."),
                "Check the name of the platform, and configure an account in `platform-delivery.accounts`."
                    .to_owned(),
            ),
            Self::UnknownAccount {
                platform,
                name,
                known,
            } => (
                format!(
                    "No account `{name}` is configured for {platform}; there is: {}.",
                    known.join(", ")
                ),
                naming_advice(platform, known),
            ),
            Self::AmbiguousAccount { platform, names } => (
                format!("Several accounts serve {platform}: {}.", names.join(", ")),
                naming_advice(platform, names),
            ),
        };
        no_account_fault(message).advice(advice)
    }
}

fn naming_advice(platform: &str, names: &[String]) -> String {
    let name = names.first().map_or("ACCOUNT", String::as_str);
    format!("Name an account in the target, as in {platform}/{name}:CHAT.")
}

fn no_account_fault(message: impl Into<String>) -> Fault {
    Fault::new(FaultCode::Unsupported, message).detail("no_account")
}

impl From<AccountLookupError> for Fault {
    fn from(error: AccountLookupError) -> Self {
        match error {
            AccountLookupError::NoAccount(_) => {
                no_account_fault("No account is configured for this chat's platform.")
                    .advice("Tell the operator to configure one.")
            }
            AccountLookupError::UnknownAccount { .. } => no_account_fault(
                "The account that the target names is not configured.",
            )
            .advice(
                "Tell the operator to correct the name in the target, or to configure the account.",
            ),
            AccountLookupError::AmbiguousAccount { .. } => no_account_fault(
                "Several accounts serve this chat's platform, and the target names none.",
            )
            .advice("Tell the operator to name the account in the target: PLATFORM/ACCOUNT:CHAT."),
        }
    }
}

/// A configured account with its connection to the platform, and the tenant that may use it.
#[derive(Clone, Debug)]
pub struct PlatformAccount {
    /// Name of the account in the configuration.
    pub name: String,
    /// The only tenant that it serves; `None` for all.
    pub tenant: Option<TenantId>,
    /// Sends to the platform.
    pub platform: Arc<dyn Platform>,
    /// Receives from the platform, where it can.
    pub inbox: Option<Arc<dyn InboundSource>>,
    /// Permits for concurrent uploads.
    pub uploads: Arc<Semaphore>,
    /// Result of the last check of the account; locked during a check.
    pub(crate) last_check: Arc<Mutex<Option<v1::AccountCheck>>>,
}

impl PlatformAccount {
    /// Makes an account for all tenants, without an inbox.
    pub fn new(name: impl Into<String>, platform: Arc<dyn Platform>) -> Self {
        Self {
            name: name.into(),
            tenant: None,
            platform,
            inbox: None,
            uploads: Arc::new(Semaphore::new(MAX_CONCURRENT_UPLOADS)),
            last_check: Arc::default(),
        }
    }

    /// Adds the source of inbound messages.
    #[must_use]
    pub fn with_inbox(mut self, inbox: Arc<dyn InboundSource>) -> Self {
        self.inbox = Some(inbox);
        self
    }

    /// Limits the account to one tenant, if there is one.
    #[must_use]
    pub fn with_tenant(mut self, tenant: Option<TenantId>) -> Self {
        self.tenant = tenant;
        self
    }

    /// Id of the account among all accounts, as in keys of the platform cache: platform and name.
    pub fn id(&self) -> String {
        format!("{}/{}", self.platform.name(), self.name)
    }

    /// The account in keys of file ids. Where ids keep the names of files, each name has its own ids, so that no file is
    /// shown under the name of another one with the same bytes.
    pub(crate) fn file_id_scope(&self, route: Route, file_name: &str) -> String {
        let id = self.id();
        if self.platform.ids_keep_names(route) {
            format!("{id}\0{file_name}")
        } else {
            id
        }
    }

    /// Whether this tenant may use the account.
    pub(crate) fn serves(&self, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }
}

/// All accounts that are configured. Clones share them, and see accounts that are added, changed or removed later.
#[derive(Clone, Debug, Default)]
pub struct AccountRegistry {
    all: ReplaceableValue<Vec<Arc<PlatformAccount>>>,
}

impl AccountRegistry {
    /// Takes the accounts of the configuration.
    pub fn new(all: impl IntoIterator<Item = PlatformAccount>) -> Self {
        Self {
            all: ReplaceableValue::new(all.into_iter().map(Arc::new).collect()),
        }
    }

    /// Puts these accounts in the place of the present ones. Work that has found its account keeps it to the end.
    pub(crate) fn replace(&self, all: Vec<Arc<PlatformAccount>>) {
        self.all.replace(all);
    }

    /// Finds the account of a tenant on a platform; without a name, the only one.
    ///
    /// # Errors
    /// No such account serves the tenant, or several do and a name is needed.
    pub fn find(
        &self,
        tenant: &TenantId,
        platform: &str,
        name: &str,
    ) -> Result<Arc<PlatformAccount>, AccountLookupError> {
        let all = self.all.get();
        let served = all
            .iter()
            .filter(|account| account.platform.name() == platform && account.serves(tenant));
        let served: Vec<_> = served.collect();
        let mut matching = served
            .iter()
            .filter(|account| name.is_empty() || account.name == name);
        let names =
            || -> Vec<String> { served.iter().map(|account| account.name.clone()).collect() };
        let platform = platform.to_owned();
        match (matching.next(), matching.next()) {
            (Some(account), None) => Ok(Arc::clone(account)),
            // A second match makes the choice ambiguous; a guess could send to a stranger's chat.
            (Some(_), Some(_)) => Err(AccountLookupError::AmbiguousAccount {
                platform,
                names: names(),
            }),
            (None, _) if served.is_empty() => Err(AccountLookupError::NoAccount(platform)),
            (None, _) => Err(AccountLookupError::UnknownAccount {
                platform,
                name: name.to_owned(),
                known: names(),
            }),
        }
    }

    /// Finds the account with this name, on any platform.
    pub fn named(&self, name: &str) -> Option<Arc<PlatformAccount>> {
        self.iter().find(|account| account.name == name)
    }

    /// Whether no other account of the same tenant is on the same platform.
    pub fn is_only(&self, account: &PlatformAccount, tenant: &TenantId) -> bool {
        self.find(tenant, account.platform.name(), "")
            .is_ok_and(|found| found.name == account.name)
    }

    /// The present accounts, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = Arc<PlatformAccount>> {
        let all = self.all.get();
        Vec::clone(&all).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::FakePlatform;
    use crate::tests::fixture::tenant;

    fn account(name: &str, own: Option<&str>) -> PlatformAccount {
        let own = own.map(|own| TenantId::new(own).unwrap());
        PlatformAccount::new(name, FakePlatform::new()).with_tenant(own)
    }

    #[test]
    fn an_account_is_found_by_name_or_as_the_only_one_of_the_tenant() {
        let accounts = AccountRegistry::new([
            account("one", Some("acme")),
            account("two", Some("other")),
            account("three", Some("other")),
        ]);
        let found = |tenant: &str, platform: &str, name: &str| {
            let tenant = TenantId::new(tenant).unwrap();
            let found = accounts.find(&tenant, platform, name);
            found.ok().map(|account| account.name.clone())
        };
        assert_eq!(found("acme", "fake", "").as_deref(), Some("one"));
        assert_eq!(
            found("acme", "fake", "two"),
            None,
            "the account of another tenant"
        );
        assert_eq!(found("other", "fake", ""), None, "the choice is ambiguous");
        assert_eq!(found("other", "fake", "two").as_deref(), Some("two"));
        assert_eq!(found("acme", "slack", ""), None);
        let one = accounts.named("one").unwrap();
        assert!(accounts.is_only(&one, &tenant()));
        assert_eq!(one.id(), "fake/one");
    }

    #[test]
    fn a_lookup_that_fails_names_the_accounts_of_the_tenant_to_operators_alone() {
        let accounts = AccountRegistry::new([
            account("sales", Some("acme")),
            account("support", Some("acme")),
            account("stranger", Some("other")),
        ]);
        let failed = |platform: &str, name: &str| {
            let tenant = TenantId::new("acme").unwrap();
            accounts.find(&tenant, platform, name).unwrap_err()
        };
        let shown = [
            (
                failed("fake", ""),
                "Several accounts serve fake: sales, support.",
                "Name an account in the target, as in fake/sales:CHAT.",
            ),
            (
                failed("fake", "stranger"),
                "No account `stranger` is configured for fake; there is: sales, support.",
                "Name an account in the target, as in fake/sales:CHAT.",
            ),
            (
                failed("slack", ""),
                "No account is configured for slack.",
                "Check the name of the platform, and configure an account in `platform-delivery.accounts`.",
            ),
        ];
        for (error, message, advice) in shown {
            let for_operator = error.operator_fault();
            assert_eq!(
                (for_operator.message.as_str(), for_operator.advice.as_str()),
                (message, advice)
            );
            let for_caller = Fault::from(error);
            assert_eq!(for_caller.detail, "no_account");
            let text = format!("{} {}", for_caller.message, for_caller.advice);
            assert!(
                !text.contains("sales") && !text.contains("stranger"),
                "{text}"
            );
        }
    }
}
