//! Documents for an agent to read, and the files of a conversation for a model.
//!
//! - `document`: opens a document from any source, as an unnamed file.
//! - `keys`: the file behind a stable reference, and fresh links to it.
//! - `cache`: earlier conversions, by digest.
//! - `attachment`: the call that reads one document.
//! - `calls`: the calls around the files of a conversation.
//!
//! `dray-reading` does the reading, `dray-file-context` the file context; this module connects them with the bus.

mod attachment;
mod cache;
mod calls;
mod config;
mod document;
mod keys;
mod ocr;
mod workers;

pub(crate) use cache::CONVERSION_BUCKET;
pub use config::{ReadingConfig, SummaryConfig};
pub use ocr::{OcrConfig, OcrMode};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dray_bus::Bus;
use dray_dial::DialClient;
use dray_reading::reader::Reader;
use dray_reading::worker::Worker;
use dray_reading::workspace::Roots;
use dray_service::{ServiceContext, StartError};
use dray_store::Store;
use dray_types::{Clock, TenantId};

use self::workers::default_workers;
use crate::downloads::{DownloadIndex, DownloadLimits, SharedDownloads};

/// Everything that the calls of reading need.
#[derive(Debug)]
pub(crate) struct ReadingContext {
    bus: Bus,
    store: Store,
    clock: Clock,
    dial: Option<DialClient>,
    worker: Worker,
    reader: Reader,
    /// Outside documents that were read recently, by conversation.
    downloads: DownloadIndex,
    config: ReadingConfig,
}

impl ReadingContext {
    /// Sets up the reader, its worker and the index of downloads.
    pub(crate) fn start(
        config: &ReadingConfig,
        cx: &ServiceContext,
        dial: Option<DialClient>,
    ) -> Result<Self, StartError> {
        let worker = match &config.worker {
            Some(path) => Worker::at(path.clone()),
            None => Worker::this_executable().map_err(|error| {
                let text = "could not find the path of this executable; set reading.worker";
                StartError::with_source(text, error)
            })?,
        };
        let workers = match config.workers {
            0 => {
                let processors = std::thread::available_parallelism().map_or(2, usize::from);
                let container = dray_service::container_memory_limit();
                default_workers(container, config.max_memory, processors)
            }
            workers => workers,
        };
        let worker = worker.with_concurrency(workers);
        Ok(Self {
            bus: cx.bus.clone(),
            store: cx.store.clone(),
            clock: cx.clock.clone(),
            dial,
            reader: create_reader(config, worker.clone())?,
            worker,
            downloads: DownloadIndex::shared_with(
                cx.clock.clone(),
                DownloadLimits {
                    lifetime: config.download_lifetime,
                    max_entries: config.download_entries,
                },
                SharedDownloads::between_processes(&cx.bus, &cx.store),
            ),
            config: config.clone(),
        })
    }

    /// The same with other settings. Its conversions count towards the same limit, and it finds the same downloads.
    pub(crate) fn with_settings(
        &self,
        config: &ReadingConfig,
        dial: Option<DialClient>,
    ) -> Result<Self, StartError> {
        Ok(Self {
            bus: self.bus.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            dial,
            reader: create_reader(config, self.worker.clone())?,
            worker: self.worker.clone(),
            downloads: self.downloads.clone(),
            config: config.clone(),
        })
    }

    /// The reader, with the cache of a tenant.
    fn reader(&self, tenant: &TenantId) -> Reader {
        let cache = cache::ConversionCache::new(&self.bus, &self.store, &self.clock, tenant);
        self.reader.clone().with_cache(Arc::new(cache))
    }
}

/// The reader of these settings.
fn create_reader(config: &ReadingConfig, worker: Worker) -> Result<Reader, StartError> {
    // Without a root, `check_workspace` refuses every path, so this value is never used.
    let primary = config
        .roots
        .first()
        .map_or(Path::new("/"), PathBuf::as_path);
    let mut roots = Roots::new(primary).strict(config.workspace_strict);
    for root in config.roots.iter().skip(1) {
        roots
            .add(root)
            .map_err(|error| StartError::with_source("reading.roots cannot be used", error))?;
    }
    let mut reader = Reader::new(config.policy(), roots, worker);
    if let Some(model) = config.summary.model()? {
        reader = reader
            .with_summarizer(model)
            .with_summary_limits(config.summary.limits());
    }
    if let Some(ocr) = config.ocr.settings() {
        reader = reader.with_ocr(ocr);
    }
    Ok(reader)
}
