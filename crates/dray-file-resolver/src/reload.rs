//! Applies changes of the configuration while the service runs: credentials of tenants, limits, times, the model of
//! summaries and files of authorities. A call ends with the settings with which it began.
//!
//! What is kept between calls, and the programs of conversions, need a restart.

use dray_service::reload::{ApplySection, ReloadMetrics, SectionReload};
use dray_service::{ReplaceableValue, ServiceContext, StartError};
use opentelemetry::metrics::Meter;

use crate::config::Config;
use crate::service::ResolverSettings;

/// The instruments of reloads.
pub(crate) fn reload_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_resolver")
}

/// Puts changed settings in force.
#[derive(Debug)]
pub(crate) struct SettingsReload(ReplaceableValue<ResolverSettings>);

impl SettingsReload {
    /// Follows the section of `cx` from the settings of the start.
    pub(crate) fn follow(
        settings: ReplaceableValue<ResolverSettings>,
        cx: &ServiceContext,
    ) -> SectionReload<Config, Self> {
        let config = settings.get().config().clone();
        let interval = config.reload_interval;
        SectionReload::new(
            cx.section.clone(),
            (config, interval),
            reload_metrics(&cx.meter),
            Self(settings),
        )
    }
}

impl ApplySection<Config> for SettingsReload {
    fn apply(&mut self, _: &Config, later: &Config) -> Result<(), StartError> {
        let changed = self.0.get().with_config(later.clone())?;
        self.0.replace(changed);
        Ok(())
    }
}
