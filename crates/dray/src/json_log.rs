//! What `dray up` and `dray topology` say where `telemetry.format` is `json`: their standard error goes to a collector,
//! which takes each line for a record.

use dray_service::config::Environment;
use dray_service::settings::{LogFormat, TelemetrySection};
use dray_service::telemetry::log_json_note;

use crate::cli::{Cli, DrayCommand, GlobalOptions};
use crate::context::{config_section, config_sources, load_config};
use crate::outcome::print_note;

/// The variable of `telemetry.format`, for a configuration that cannot be read.
const FORMAT_VARIABLE: &str = "DRAY_TELEMETRY__FORMAT";

/// Whether this command is part of a deployment that logs JSON.
pub(crate) fn is_wanted(cli: &Cli) -> bool {
    matches!(cli.command, DrayCommand::Up(_) | DrayCommand::Topology(_))
        && has_json_format(&cli.global)
}

/// Whether the configuration asks for JSON.
pub(crate) fn has_json_format(global: &GlobalOptions) -> bool {
    let loaded = config_sources(global).and_then(|sources| load_config(&sources));
    let section = loaded.and_then(|loaded| config_section(&loaded, "telemetry"));
    section.map_or_else(
        |_| Environment::from_process().get(FORMAT_VARIABLE) == Some("json"),
        |section: TelemetrySection| section.format == LogFormat::Json,
    )
}

/// Prints one line for people to standard error, or logs it as a record.
pub(crate) fn note(is_json: bool, line: &str) {
    if is_json {
        log_json_note(line);
    } else {
        print_note(line);
    }
}
