//! Applies changes of the configuration while the service runs: keys of clients and models, credentials of tools,
//! prices, limits and rules. A request ends with the settings with which it began.

use std::sync::Arc;

use dray_service::StartError;
use dray_service::reload::{ApplySection, ReloadMetrics, SectionReload};
use opentelemetry::metrics::Meter;

use super::parts::LastingParts;
use crate::config::Config;
use crate::http::CurrentSurface;
use crate::turn::SharedParts;

/// The instruments of reloads.
pub(super) fn reload_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_orchestrator")
}

/// Puts changed settings in force for later requests.
#[derive(Debug)]
pub(super) struct SurfaceReload {
    lasting: LastingParts,
    surface: CurrentSurface,
    parts: Arc<SharedParts>,
}

impl SurfaceReload {
    /// Follows the section of the service from the configuration of the start.
    pub(super) fn follow(
        lasting: LastingParts,
        surface: CurrentSurface,
        parts: Arc<SharedParts>,
    ) -> SectionReload<Config, Self> {
        let config = parts.config.clone();
        let interval = config.reload_interval;
        SectionReload::new(
            lasting.cx.section.clone(),
            (config, interval),
            reload_metrics(&lasting.cx.meter),
            Self {
                lasting,
                surface,
                parts,
            },
        )
    }
}

impl ApplySection<Config> for SurfaceReload {
    fn apply(&mut self, _: &Config, later: &Config) -> Result<(), StartError> {
        let built = self.lasting.build(later.clone(), Some(&self.parts));
        let (surface, parts) = built?;
        self.surface.change(surface);
        self.parts = parts;
        Ok(())
    }
}
