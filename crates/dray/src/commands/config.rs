//! `dray config`: what the configuration is and where it comes from.

use crate::cli::{ConfigCommand, GlobalOptions};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::world;

/// Checks or shows.
pub(crate) fn run(global: &GlobalOptions, config: &ConfigCommand) -> Result<(), CommandFailure> {
    let loaded = world::load_config(&world::with_home(world::config_sources(global)?)?)?;
    for warning in loaded.warnings() {
        print_note(&format!("warning: {warning}"));
    }
    match (config, global.json) {
        (ConfigCommand::Check, true) => print_line(r#"{"valid":true}"#),
        (ConfigCommand::Check, false) => print_line("the configuration is valid"),
        (ConfigCommand::Show, true) => {
            let report = serde_json::to_string(&loaded.report())
                .map_err(|_| dray_types::Fault::internal())?;
            print_line(&report);
        }
        (ConfigCommand::Show, false) => print_line(loaded.report().to_string().trim_end()),
    }
    Ok(())
}
