//! Applies changes of the configuration while the service runs: credentials of tenants, limits, times, the model of
//! summaries and files of authorities. A call ends with the settings with which it began.
//!
//! What is kept between calls, and the programs of conversions, need a restart.

use dray_service::reload::{ApplySection, ReloadMetrics, RestartSetting, SectionReload};
use dray_service::{ReplaceableValue, ServiceContext, StartError, restart_settings};
use opentelemetry::metrics::Meter;

use crate::config::Config;
use crate::service::ResolverSettings;

const RESTART_SETTINGS: &[RestartSetting<Config>] = restart_settings![
    Config: dial_url, download_lifetime, download_entries, reading.download_lifetime, reading.download_entries,
    reading.workers, reading.worker, reload_interval
];

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
            RESTART_SETTINGS,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_downloads_and_programs_of_conversions_are_all_that_needs_a_restart() {
        let fields = serde_json::to_value(Config::default()).unwrap();
        let names: Vec<_> = RESTART_SETTINGS
            .iter()
            .map(|setting| setting.name)
            .collect();
        for name in &names {
            let pointer = format!("/{}", name.replace('.', "/"));
            assert!(fields.pointer(&pointer).is_some(), "{pointer}");
        }
        let expected = [
            "dial_url",
            "download_lifetime",
            "download_entries",
            "reading.download_lifetime",
            "reading.download_entries",
            "reading.workers",
            "reading.worker",
            "reload_interval",
        ];
        assert_eq!(names, expected);
    }
}
