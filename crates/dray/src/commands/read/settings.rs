//! What the configuration and the flags say about summaries and about the text of pictures.

use std::sync::Arc;

use dray_file_resolver::{Config, FileResolver};
use dray_reading::ocr::OcrSettings;
use dray_reading::reader::Reader;
use dray_reading::summary::Stub;
use dray_service::Service as _;
use dray_types::{Fault, FaultCode};

use crate::cli::{GlobalOptions, ReadArgs};
use crate::outcome::CommandFailure;
use crate::world;

/// The reader with the model for summaries and with OCR.
pub(super) fn configure_reader(
    global: &GlobalOptions,
    read: &ReadArgs,
    reader: Reader,
) -> Result<Reader, CommandFailure> {
    let (reader, config) = if read.stub_summarizer {
        (reader.with_summarizer(Arc::new(Stub)), Config::default())
    } else {
        let loaded = world::load_config(&world::config_sources(global)?)?;
        let config: Config = world::config_section(&loaded, FileResolver::NAME)?;
        (with_model(reader, &config)?, config)
    };
    Ok(match ocr_settings(read, &config)? {
        Some(settings) => reader.with_ocr(settings),
        None => reader,
    })
}

/// The reader with the model that the configuration names for summaries.
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

/// How the text of pictures is recognised; nothing when it is off.
fn ocr_settings(read: &ReadArgs, config: &Config) -> Result<Option<OcrSettings>, CommandFailure> {
    let settings = config.reading.ocr.settings().filter(|_| !read.no_ocr);
    let Some(languages) = &read.ocr_languages else {
        return Ok(settings);
    };
    let settings = OcrSettings {
        languages: languages.clone(),
        ..settings.unwrap_or_default()
    };
    if !settings.has_valid_languages() {
        let message = "--ocr-languages must be names joined by +, such as deu+eng.";
        return Err(Fault::new(FaultCode::InvalidArgument, message).into());
    }
    Ok(Some(settings))
}
