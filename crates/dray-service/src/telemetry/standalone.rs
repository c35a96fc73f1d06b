//! Records in JSON of a program that has no subscriber: before its services start, and after they have ended. A collector
//! parses each line of standard error.

use dray_types::Fault;

use super::Telemetry;
use crate::settings::{LogFormat, TelemetrySection};

/// Logs a failure that ends the program, as one record of level error with code, detail and advice.
pub fn log_json_failure(fault: &Fault) {
    with_json_lines(|| {
        tracing::error!(
            code = fault.code.as_str(),
            detail = fault.detail,
            advice = fault.advice,
            "{}",
            fault.message
        );
    });
}

/// Logs what a program says to people, as one record of level info.
pub fn log_json_note(text: &str) {
    with_json_lines(|| tracing::info!("{text}"));
}

fn with_json_lines(log: impl FnOnce()) {
    let section = TelemetrySection {
        format: LogFormat::Json,
        ..TelemetrySection::default()
    };
    // Without an endpoint there is nothing that could fail.
    if let Ok(telemetry) = Telemetry::start(&section, "dray", "") {
        tracing::subscriber::with_default(telemetry.subscriber(), log);
    }
}
