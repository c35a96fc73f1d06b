//! Applies changes of the configuration while the service runs, so that accounts come, change and go without a restart.
//!
//! Deliveries that run keep the account with which they began; what begins later finds the new one. Sources that are
//! invalid, or an account that cannot be opened, change nothing: everything before stays in force, the log has the
//! reason, and the metric `dray_delivery_config_stale` is 1.

use std::sync::Arc;

use dray_service::config::{SectionChange, SectionWatcher};
use dray_service::{ServiceContext, StartError};
use dray_types::{Clock, ErrorChain};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::delivery_service::DeliveryService;
use crate::inbound::InboundService;
use crate::inbound::pollers::PollTasks;
use crate::metrics::DeliveryMetrics;

/// Settings that apply at the next start alone.
type RestartSetting = (&'static str, fn(&Config, &Config) -> bool);

const RESTART_SETTINGS: [RestartSetting; 3] = [
    ("listen", |earlier, later| earlier.listen != later.listen),
    ("order_timeout", |earlier, later| {
        earlier.order_timeout != later.order_timeout
    }),
    ("reload_interval", |earlier, later| {
        earlier.reload_interval != later.reload_interval
    }),
];

/// Follows the section of the service.
#[derive(Debug)]
pub(crate) struct ConfigReload {
    watcher: SectionWatcher<Config>,
    inbound: Arc<InboundService>,
    pollers: PollTasks,
    clock: Clock,
    metrics: DeliveryMetrics,
}

impl ConfigReload {
    /// Follows the section of `cx` from the configuration of the start.
    pub(crate) fn new(
        in_force: Config,
        deliveries: &DeliveryService,
        pollers: PollTasks,
        cx: &ServiceContext,
    ) -> Self {
        let interval = in_force.reload_interval.as_duration();
        Self {
            watcher: SectionWatcher::new(cx.section.clone(), interval, in_force),
            inbound: Arc::clone(&deliveries.inbound),
            pollers,
            clock: cx.clock.clone(),
            metrics: deliveries.sender.context.metrics.clone(),
        }
    }

    /// Applies each change until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.metrics.config_stale(false);
        while let Some(change) = stop.run_until_cancelled(self.watcher.changed()).await {
            match change {
                SectionChange::Changed(config) => self.apply(config),
                SectionChange::Invalid(problem) => self.report_refusal(&problem),
                SectionChange::Restored => {
                    self.metrics.config_stale(false);
                    tracing::info!("the configuration equals the one in force again");
                }
            }
        }
    }

    fn apply(&mut self, config: Config) {
        match self.open_accounts(&config) {
            Ok(changes) => {
                let earlier = self.watcher.in_force();
                for (setting, is_changed) in RESTART_SETTINGS {
                    if is_changed(earlier, &config) {
                        tracing::warn!(setting, "a changed setting applies after a restart");
                    }
                }
                self.inbound.config.replace(config.clone());
                self.pollers.follow_accounts();
                self.watcher.applied(config);
                self.metrics.config_stale(false);
                self.metrics.config_reloaded(true);
                tracing::info!(
                    added = ?changes.added, changed = ?changes.changed, removed = ?changes.removed,
                    "a changed configuration is in force"
                );
            }
            Err(error) => {
                self.watcher.rejected();
                self.report_refusal(&ErrorChain(&error).to_string());
            }
        }
    }

    /// Opens the accounts that are new or changed, and puts all of them in force.
    fn open_accounts(&self, config: &Config) -> Result<AccountChanges, StartError> {
        let earlier = self.watcher.in_force();
        let registry = &self.inbound.accounts;
        registry.replace(config.accounts_after(earlier, registry, &self.clock)?);
        Ok(AccountChanges::between(earlier, config))
    }

    fn report_refusal(&self, problem: &str) {
        self.metrics.config_stale(true);
        self.metrics.config_reloaded(false);
        tracing::error!(
            problem,
            "a changed configuration cannot be used; the settings before stay in force"
        );
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
