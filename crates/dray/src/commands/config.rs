//! `dray config`: the effective configuration, and the source of each value.

use crate::cli::{ConfigCommand, GlobalOptions};
use crate::context;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Checks or shows the configuration. One that cannot be loaded fails before anything is printed.
pub(crate) fn run(global: &GlobalOptions, config: &ConfigCommand) -> Result<(), CommandFailure> {
    // The state directory is that of `dray up`, so that both show the same.
    let loaded =
        context::load_service_config(&context::with_home(context::config_sources(global)?)?)?;
    for warning in loaded.warnings() {
        print_note(&format!("warning: {warning}"));
    }
    // A configuration whose accounts cannot be opened is shown nevertheless: the values help to correct it.
    if matches!(config, ConfigCommand::Check) {
        context::check_accounts(&loaded)?;
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
