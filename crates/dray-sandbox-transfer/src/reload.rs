//! Applies changes of the configuration while the service runs: credentials and definitions of sandboxes, rules and
//! limits. A request ends with the settings with which it began.

use dray_service::reload::{ApplySection, ReloadMetrics, SectionReload};
use dray_service::{ReplaceableValue, ServiceContext, StartError};
use dray_types::Clock;
use opentelemetry::metrics::Meter;

use crate::config::Config;
use crate::settings::TransferSettings;

/// The instruments of reloads.
pub(crate) fn reload_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_transfer")
}

/// Puts changed settings in force.
#[derive(Debug)]
pub(crate) struct SettingsReload {
    settings: ReplaceableValue<TransferSettings>,
    clock: Clock,
}

impl SettingsReload {
    /// Follows the section of `cx` from the settings of the start.
    pub(crate) fn follow(
        settings: ReplaceableValue<TransferSettings>,
        cx: &ServiceContext,
    ) -> SectionReload<Config, Self> {
        let config = settings.get().config.clone();
        let interval = config.reload_interval;
        let clock = cx.clock.clone();
        SectionReload::new(
            cx.section.clone(),
            (config, interval),
            reload_metrics(&cx.meter),
            Self { settings, clock },
        )
    }
}

impl ApplySection<Config> for SettingsReload {
    fn apply(&mut self, _: &Config, later: &Config) -> Result<(), StartError> {
        let changed = self.settings.get().changed_to(later.clone(), &self.clock);
        let changed = changed
            .map_err(|error| StartError::with_source("a sandbox backend cannot be used", error))?;
        self.settings.replace(changed);
        Ok(())
    }
}
