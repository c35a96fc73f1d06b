//! Step 10: gets the conversion from the cache, or runs a worker.

use std::fs::File;
use std::io::{Cursor, Read as _};

use dray_documents::formats::{self, ConversionHint, Converted};
use dray_documents::limits::Failure;
use dray_documents::markdown::Selection;
use tokio_util::sync::CancellationToken;

use super::Reader;
use super::prepare::PreparedFile;
use crate::cache::{CacheKey, is_lasting};
use crate::ocr::Ocr;
use crate::worker::{Job, WorkerOutcome};

/// Longest plain text that is converted without a worker, bytes.
const MAX_IN_PROCESS_BYTES: u64 = 1 << 20;

/// A conversion, and the outcome of the worker.
pub(super) struct ConversionWork {
    pub(super) worked: WorkerOutcome,
    pub(super) worker: &'static str,
}

impl ConversionWork {
    fn of(worked: WorkerOutcome) -> Self {
        let worker = match worked {
            WorkerOutcome::Done(_) => "done",
            WorkerOutcome::Stopped(_) => "stopped",
            WorkerOutcome::Failed => "failed",
            WorkerOutcome::Cancelled => "cancelled",
        };
        Self { worked, worker }
    }

    fn without_worker(converted: Converted, reason: &'static str) -> Self {
        Self {
            worked: WorkerOutcome::Done(Box::new(converted)),
            worker: reason,
        }
    }
}

impl Reader {
    /// Converts the prepared file. `all_rows` writes also the rows and lines that readers are not shown.
    pub(super) async fn convert(
        &self,
        prepared: PreparedFile,
        selection: Selection,
        all_rows: bool,
        cancel: &CancellationToken,
    ) -> ConversionWork {
        if prepared.class.encrypted {
            return ConversionWork::without_worker(encrypted_outcome(), "not started");
        }
        let hint = ConversionHint {
            show_hidden: prepared.show_hidden,
            all_rows,
            member: prepared.member,
            ocr: self.ocr.as_ref().map(Ocr::hint),
            ..prepared.class.hint()
        };
        let job = Job {
            hint,
            limits: self.policy().limits(),
            selection,
        };
        let (Some(cache), Some(digest)) = (&self.cache, prepared.digest) else {
            let work = self.run(prepared.file, prepared.size, &job, cancel).await;
            return self.recognize(work, &job, cancel).await.0;
        };
        // Single-flight comes before the cache: the second of two equal calls waits and then gets the cached conversion
        // of the first.
        let key = CacheKey::of(digest, &job.hint, &job.selection, &job.limits);
        let _turn = tokio::select! {
            turn = self.flights.enter(key) => turn,
            () = cancel.cancelled() => return ConversionWork::of(WorkerOutcome::Cancelled),
        };
        if let Some(converted) = cache.get(&key).await {
            return ConversionWork::without_worker(converted, "cached");
        }
        let work = self.run(prepared.file, prepared.size, &job, cancel).await;
        let (work, is_whole) = self.recognize(work, &job, cancel).await;
        if let WorkerOutcome::Done(converted) = &work.worked
            // A result that was limited by time, memory or a missing program may be better the next time.
            && is_whole
            && is_lasting(converted)
        {
            cache.put(&key, converted).await;
        }
        work
    }

    /// Adds the text of pictures to a conversion. Returns whether the conversion is complete and can be cached.
    async fn recognize(
        &self,
        mut work: ConversionWork,
        job: &Job,
        cancel: &CancellationToken,
    ) -> (ConversionWork, bool) {
        let (Some(ocr), WorkerOutcome::Done(converted)) = (&self.ocr, &mut work.worked) else {
            return (work, true);
        };
        if converted.pictures.is_empty() {
            return (work, true);
        }
        let is_whole = ocr
            .recognize(converted, &self.worker, &job.limits, cancel)
            .await;
        if cancel.is_cancelled() {
            return (ConversionWork::of(WorkerOutcome::Cancelled), false);
        }
        (work, is_whole)
    }

    /// Converts the file in a worker, or a short plain text in this process: starting a worker would take most of the
    /// time.
    async fn run(
        &self,
        file: File,
        size: u64,
        job: &Job,
        cancel: &CancellationToken,
    ) -> ConversionWork {
        if size > MAX_IN_PROCESS_BYTES || !formats::is_plain_text(&job.hint) {
            return ConversionWork::of(self.worker.convert(file, job, cancel).await);
        }
        let own_job = job.clone();
        let work = tokio::task::spawn_blocking(move || in_process(file, own_job));
        let converted = tokio::select! {
            // A blocking task cannot be stopped; when cancelled, its result is dropped. At 1 MiB it ends soon
            // by itself.
            biased;
            () = cancel.cancelled() => return ConversionWork::of(WorkerOutcome::Cancelled),
            converted = work => converted,
        };
        match converted {
            Ok(Ok(converted)) => ConversionWork::without_worker(converted, "not needed"),
            Ok(Err(file)) => ConversionWork::of(self.worker.convert(file, job, cancel).await),
            Err(_) => ConversionWork::of(WorkerOutcome::Failed),
        }
    }
}

/// Converts complete UTF-8 text in this process; returns other files to the caller.
fn in_process(mut file: File, job: Job) -> Result<Converted, File> {
    let mut bytes = Vec::new();
    let read = file
        .by_ref()
        .take(MAX_IN_PROCESS_BYTES + 1)
        .read_to_end(&mut bytes);
    let whole = read.is_ok_and(|read| read as u64 <= MAX_IN_PROCESS_BYTES);
    // Encodings are detected in the worker. The worker seeks to the start, so the offset need not be reset.
    if !whole || std::str::from_utf8(&bytes).is_err() {
        return Err(file);
    }
    let input = &mut Cursor::new(bytes);
    Ok(formats::convert(
        input,
        &job.hint,
        job.limits,
        job.selection,
    ))
}

/// The outcome for a container that declares itself encrypted.
fn encrypted_outcome() -> Converted {
    Converted {
        converter: String::new(),
        markdown: String::new(),
        parts: Vec::new(),
        parts_seen: 0,
        stopped: None,
        failure: Some(Failure::Encrypted),
        warnings: Vec::new(),
        member: None,
        pictures: Vec::new(),
        omitted: 0,
        selected_rows: 0,
        search_lines: Vec::new(),
    }
}
