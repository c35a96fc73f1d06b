//! Step 10: the conversion, from the cache or in a worker.

use std::fs::File;

use dray_documents::formats::Converted;
use dray_documents::limits::Failure;
use dray_documents::markdown::Selection;
use tokio_util::sync::CancellationToken;

use super::Reader;
use super::prepare::Prepared;
use crate::cache::{CacheKey, is_lasting};
use crate::worker::{Job, Worked};

/// A conversion, and what became of the worker.
pub(super) struct Work {
    pub(super) worked: Worked,
    pub(super) worker: &'static str,
}

impl Work {
    fn of(worked: Worked) -> Self {
        let worker = match worked {
            Worked::Done(_) => "done",
            Worked::Stopped(_) => "stopped",
            Worked::Failed => "failed",
            Worked::Cancelled => "cancelled",
        };
        Self { worked, worker }
    }

    fn without_worker(converted: Converted, why: &'static str) -> Self {
        Self {
            worked: Worked::Done(converted),
            worker: why,
        }
    }
}

impl Reader {
    /// Converts what was prepared.
    pub(super) async fn convert(
        &self,
        prepared: Prepared,
        selection: Selection,
        cancel: &CancellationToken,
    ) -> Work {
        if prepared.class.encrypted {
            return Work::without_worker(encrypted(), "not started");
        }
        let job = Job {
            hint: prepared.class.hint(),
            limits: self.policy().limits(),
            selection,
        };
        let (Some(cache), Some(digest)) = (&self.cache, prepared.digest) else {
            return self.run(prepared.file, &job, cancel).await;
        };
        let key = CacheKey::of(digest, &job.hint, &job.selection, &job.limits);
        let _turn = tokio::select! {
            turn = self.flights.enter(key) => turn,
            () = cancel.cancelled() => return Work::of(Worked::Cancelled),
        };
        if let Some(converted) = cache.get(&key).await {
            return Work::without_worker(converted, "cached");
        }
        let work = self.run(prepared.file, &job, cancel).await;
        if let Worked::Done(converted) = &work.worked
            && is_lasting(converted)
        {
            cache.put(&key, converted).await;
        }
        work
    }

    async fn run(&self, file: File, job: &Job, cancel: &CancellationToken) -> Work {
        Work::of(self.worker.convert(file, job, cancel).await)
    }
}

/// What a container that says itself that it is encrypted comes to.
fn encrypted() -> Converted {
    Converted {
        converter: String::new(),
        markdown: String::new(),
        parts: Vec::new(),
        parts_seen: 0,
        stopped: None,
        failure: Some(Failure::Encrypted),
        warnings: Vec::new(),
    }
}
