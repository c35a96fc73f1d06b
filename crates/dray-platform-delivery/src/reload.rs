//! Applies changes of the configuration while the service runs, so that accounts come, change and go without a restart.
//!
//! Deliveries that run keep the account with which they began; what begins later finds the new one. An account that
//! cannot be opened changes nothing.

use std::sync::Arc;

use dray_service::reload::{ApplySection, ReloadMetrics, SectionReload};
use dray_service::{ServiceContext, StartError};
use dray_types::Clock;
use opentelemetry::metrics::Meter;

use crate::config::Config;
use crate::delivery_service::DeliveryService;
use crate::inbound::InboundService;
use crate::inbound::pollers::PollTasks;

/// The instruments of reloads.
pub(crate) fn reload_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_delivery")
}

/// Puts changed accounts and settings in force.
#[derive(Debug)]
pub(crate) struct AccountReload {
    inbound: Arc<InboundService>,
    pollers: PollTasks,
    clock: Clock,
}

impl AccountReload {
    /// Follows the section of `cx` from the configuration of the start.
    pub(crate) fn follow(
        in_force: Config,
        deliveries: &DeliveryService,
        pollers: PollTasks,
        cx: &ServiceContext,
    ) -> SectionReload<Config, Self> {
        let target = Self {
            inbound: Arc::clone(&deliveries.inbound),
            pollers,
            clock: cx.clock.clone(),
        };
        let (interval, metrics) = (in_force.reload_interval, reload_metrics(&cx.meter));
        SectionReload::new(cx.section.clone(), (in_force, interval), metrics, target)
    }
}

impl ApplySection<Config> for AccountReload {
    /// Opens the accounts that are new or changed, and puts all of them in force.
    fn apply(&mut self, in_force: &Config, later: &Config) -> Result<(), StartError> {
        let registry = &self.inbound.accounts;
        registry.replace(later.accounts_after(in_force, registry, &self.clock)?);
        self.inbound.receiver.metrics.start_at_zero(registry);
        self.inbound.config.replace(later.clone());
        self.pollers.follow_accounts();
        let changes = AccountChanges::between(in_force, later);
        tracing::info!(
            added = ?changes.added, changed = ?changes.changed, removed = ?changes.removed,
            "the accounts of the configuration are open"
        );
        Ok(())
    }
}

/// Names of accounts, for the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct AccountChanges {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
}

impl AccountChanges {
    fn between(earlier: &Config, later: &Config) -> Self {
        let mut changes = Self::default();
        for (name, account) in &later.accounts {
            match earlier.accounts.get(name) {
                None => changes.added.push(name.clone()),
                Some(before) if before != account => changes.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        let is_gone = |name: &&String| !later.accounts.contains_key(*name);
        changes.removed = earlier.accounts.keys().filter(is_gone).cloned().collect();
        changes
    }
}
