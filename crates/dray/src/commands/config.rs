//! `dray config`: what the configuration is and where it comes from.

use crate::cli::{Config, Global};
use crate::outcome::{Failure, note, print_line};
use crate::world;

/// Checks or shows.
pub(crate) fn run(global: &Global, config: &Config) -> Result<(), Failure> {
    let loaded = world::load(&world::with_home(world::sources(global)?)?)?;
    for warning in loaded.warnings() {
        note(&format!("warning: {warning}"));
    }
    match (config, global.json) {
        (Config::Check, true) => print_line(r#"{"valid":true}"#),
        (Config::Check, false) => print_line("the configuration is valid"),
        (Config::Show, true) => {
            let report = serde_json::to_string(&loaded.report())
                .map_err(|_| dray_types::Fault::internal())?;
            print_line(&report);
        }
        (Config::Show, false) => print_line(loaded.report().to_string().trim_end()),
    }
    Ok(())
}
