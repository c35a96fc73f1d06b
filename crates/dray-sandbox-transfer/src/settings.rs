//! The settings in force, with the backends that they configure. A request takes them once and ends with them.

use std::sync::Arc;

use dray_proto::convert::InvalidMessage;
use dray_sandbox::{Address, Backend, Handle};
use dray_transfer_engine::EngineOptions;
use dray_types::{BackendKind, Clock, TenantId};

use crate::backends::Backends;
use crate::config::{Config, UnusableBackend};
use crate::error::Error;

/// The settings of the service and its backends.
#[derive(Debug)]
pub(crate) struct TransferSettings {
    pub(crate) config: Config,
    pub(crate) backends: Backends,
}

impl TransferSettings {
    /// Takes these backends instead of the configured ones.
    pub(crate) fn new(config: Config, backends: Vec<Arc<dyn Backend>>) -> Self {
        let options = config.engine();
        Self::with_engine(config, backends, options)
    }

    /// Like [`Self::new`], for a caller without a deadline, who waits as long as a provider asks for.
    pub(crate) fn without_deadline(config: Config, backends: Vec<Arc<dyn Backend>>) -> Self {
        let options = EngineOptions {
            max_provider_delay: EngineOptions::default().max_provider_delay,
            ..config.engine()
        };
        Self::with_engine(config, backends, options)
    }

    fn with_engine(
        config: Config,
        backends: Vec<Arc<dyn Backend>>,
        options: EngineOptions,
    ) -> Self {
        let backends = Backends::new(backends, options);
        Self { config, backends }
    }

    /// The settings after a change. A backend whose settings are the same stays, with its open sandboxes.
    ///
    /// # Errors
    ///
    /// [`UnusableBackend`] for settings that a backend cannot work with.
    pub(crate) fn changed_to(&self, later: Config, clock: &Clock) -> Result<Self, UnusableBackend> {
        let is_same = |kind: BackendKind| {
            self.config.kinds.iter().any(|name| name == kind.as_str())
                && self.config.has_equal_backend(&later, kind)
        };
        let (mut kept, mut opened) = (Vec::new(), Vec::new());
        for name in &later.kinds {
            match BackendKind::from_name(name) {
                Some(kind) if is_same(kind) => kept.push(kind.as_str()),
                _ => opened.push(later.backend_named(name, clock)?),
            }
        }
        let options = EngineOptions {
            // The limit holds for the transfers under way, too, which end with the earlier settings.
            spool_usage: self.backends.spool_usage(),
            ..later.engine()
        };
        let mut backends = Backends::new(opened, options);
        backends.keep_from(&self.backends, &kept);
        tracing::info!(?kept, all = ?backends.names(), "sandboxes of these kinds can be reached");
        Ok(Self {
            config: later,
            backends,
        })
    }

    /// Finds the incarnation that an address means now, for a tenant that may use addresses.
    pub(crate) async fn resolve(&self, tenant: &TenantId, address: &str) -> Result<Handle, Error> {
        let address = self.parse_address(tenant, address)?;
        self.backends.resolve(&address).await
    }

    /// Finds and opens the incarnation in one step.
    pub(crate) async fn open_address(
        &self,
        tenant: &TenantId,
        address: &str,
    ) -> Result<Handle, Error> {
        let address = self.parse_address(tenant, address)?;
        self.backends.open_address(&address).await
    }

    /// Whether a tenant may name sandboxes by address.
    pub(crate) fn may_name_sandboxes(&self, tenant: &TenantId) -> bool {
        let mut allowed = self.config.address_tenants.iter();
        allowed.any(|name| name == "*" || name == tenant.as_str())
    }

    /// The limit for a file: the smaller of the request's, which is 0 for none, and the operator's.
    pub(crate) fn max_bytes(&self, requested: u64) -> u64 {
        let configured = self.config.max_file.as_u64();
        if requested == 0 {
            configured
        } else {
            requested.min(configured)
        }
    }

    /// Parses an address, if the tenant may use addresses.
    fn parse_address(&self, tenant: &TenantId, address: &str) -> Result<Address, Error> {
        if !self.may_name_sandboxes(tenant) {
            // The tenant is checked before the address is parsed, so that such a tenant learns nothing about backends.
            return Err(Error::AddressDenied);
        }
        let invalid =
            |error: dray_sandbox::Error| InvalidMessage::field("sandbox", error.context());
        Ok(address.parse().map_err(invalid)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(root: &str, key: &str) -> Config {
        let mut config = Config {
            kinds: ["e2b", "local"].map(str::to_owned).into(),
            ..Config::default()
        };
        config.local.roots = vec![root.into()];
        config.e2b.api_key = dray_types::Secret::new(key);
        config
    }

    #[test]
    fn a_changed_backend_is_made_again_and_the_others_stay() {
        let clock = Clock::system();
        let first = config("/a", "one");
        let backends = first.backends(&clock).unwrap();
        let first = TransferSettings::new(first, backends);
        let second = first.changed_to(config("/a", "two"), &clock).unwrap();
        let is_same = |left: &TransferSettings, right: &TransferSettings, name: &str| {
            let backend = |settings: &TransferSettings| {
                let (backend, _) = settings.backends.checked(name)?;
                Some(Arc::clone(backend))
            };
            Arc::ptr_eq(&backend(left).unwrap(), &backend(right).unwrap())
        };
        assert!(is_same(&first, &second, "local"));
        assert!(!is_same(&first, &second, "e2b"));

        assert_eq!(
            first.backends.spool_usage(),
            second.backends.spool_usage(),
            "a change must not permit the bytes of the spool directory once more"
        );

        let mut one_kind = config("/a", "two");
        one_kind.kinds.retain(|kind| kind == "e2b");
        let third = second.changed_to(one_kind, &clock).unwrap();
        assert_eq!(third.backends.names(), ["e2b"]);
        let fourth = third.changed_to(config("/a", "two"), &clock).unwrap();
        assert_eq!(fourth.backends.names(), ["e2b", "local"]);
        assert!(is_same(&third, &fourth, "e2b"));
        assert!(!is_same(&second, &fourth, "local"));
    }

    #[test]
    fn a_backend_is_made_again_when_its_file_of_authorities_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let authorities = directory.path().join("ca.pem");
        let config = || {
            let mut config = config("/a", "one");
            config.e2b.ca_file = Some(authorities.clone().into());
            config
        };
        std::fs::write(&authorities, "one").unwrap();
        let first = config();
        assert!(first.has_equal_backend(&config(), BackendKind::E2b));
        std::fs::write(&authorities, "two").unwrap();
        let later = config();
        assert!(!first.has_equal_backend(&later, BackendKind::E2b));
        assert!(first.has_equal_backend(&later, BackendKind::Local));
    }
}
