//! Settings of `dray read` for summaries and for text in pictures, from the configuration and the options.

use std::sync::Arc;

use dray_file_resolver::{Config, FileResolver};
use dray_reading::ocr::OcrSettings;
use dray_reading::reader::Reader;
use dray_reading::summary::Stub;
use dray_service::Service as _;
use dray_types::{Fault, FaultCode};

use crate::cli::{GlobalOptions, ReadArgs};
use crate::context;
use crate::outcome::CommandFailure;

/// Adds the model for summaries and the settings of OCR to the reader.
pub(super) fn configure_reader(
    global: &GlobalOptions,
    read: &ReadArgs,
    reader: Reader,
) -> Result<Reader, CommandFailure> {
    // The stub needs no configuration, so a broken one does not matter.
    let (reader, config) = if read.summary.stub_summarizer {
        (reader.with_summarizer(Arc::new(Stub)), Config::default())
    } else {
        let loaded = context::load_config(&context::config_sources(global)?)?;
        let config: Config = context::config_section(&loaded, FileResolver::NAME)?;
        (with_model(reader, &config)?, config)
    };
    Ok(match ocr_settings(read, &config)? {
        Some(settings) => reader.with_ocr(settings),
        None => reader,
    })
}

/// Adds the model that the configuration names for summaries; without one, long documents are not summarised.
fn with_model(reader: Reader, config: &Config) -> Result<Reader, CommandFailure> {
    let summary = &config.reading.summary;
    let model = summary
        .model()
        .map_err(|error| CommandFailure::Configuration(error.to_string()))?;
    Ok(match model {
        Some(model) => reader
            .with_summarizer(model)
            .with_summary_limits(summary.limits()),
        None => reader,
    })
}

/// Settings of OCR; `None` when it is off.
fn ocr_settings(read: &ReadArgs, config: &Config) -> Result<Option<OcrSettings>, CommandFailure> {
    let settings = config.reading.ocr.settings().filter(|_| !read.ocr.no_ocr);
    let Some(languages) = &read.ocr.ocr_languages else {
        return Ok(settings);
    };
    // Naming languages switches OCR on.
    let settings = OcrSettings {
        languages: languages.clone(),
        ..settings.unwrap_or_default()
    };
    // The languages become arguments of the program that recognises text.
    if !settings.has_valid_languages() {
        let message = "--ocr-languages must be names joined by +, such as deu+eng.";
        return Err(Fault::new(FaultCode::InvalidArgument, message).into());
    }
    Ok(Some(settings))
}
