//! The configured accounts, and the one that serves a chat.

use std::sync::Arc;

use dray_platform::{InboundSource, Platform};
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_types::TenantId;
use tokio::sync::{Mutex, Semaphore};

use crate::error::DeliveryError;

/// Concurrent uploads of one account (platform-delivery 10.4).
const MAX_CONCURRENT_UPLOADS: usize = 3;

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
    ) -> Result<Arc<PlatformAccount>, DeliveryError> {
        let all = self.all.get();
        let mut matching = all.iter().filter(|account| {
            account.platform.name() == platform
                && account.serves(tenant)
                && (name.is_empty() || account.name == name)
        });
        // A second match makes the choice ambiguous; a guess could send to a stranger's chat.
        match (matching.next(), matching.next()) {
            (Some(account), None) => Ok(Arc::clone(account)),
            _ => Err(DeliveryError::NoAccount(format!("{platform}/{name}"))),
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
}
