//! Reads a directory of a sandbox that cannot make a tar: it is listed once and then read file by file.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::backend::{Follow, Read, Sandbox};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Entry, FileKind, Transport};
use dray_sandbox::path::SandboxPath;
use tokio::time::timeout;

use super::listing::list_tree;
use super::names::{self, UniqueNames};
use super::parents::{ListedParents, skip_reason};
use super::{Filter, Kind, Limits, Member, Members, Report, SkipReason};

/// The transport of a walk: of those that carried files, the last in the order of [`Transport`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WalkTransport(Arc<Mutex<Option<Transport>>>);

impl WalkTransport {
    /// The transport until now; `None` before the first file.
    pub fn get(&self) -> Option<Transport> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, transport: Transport) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(transport));
    }
}

/// Members of a directory that is walked.
pub struct Walk {
    sandbox: Arc<dyn Sandbox>,
    root: SandboxPath,
    limits: Limits,
    response_timeout: Duration,
    filter: Filter,
    unique: UniqueNames,
    report: Report,
    transport: WalkTransport,
    parents: ListedParents,
    waiting: VecDeque<Entry>,
    body: Option<Body>,
    total: u64,
    names: usize,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk")
            .field("root", &self.root)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Walk {
    /// Lists a real directory. Links in it are skipped, like everything that is not a file or directory.
    ///
    /// # Errors
    ///
    /// Failures of listing, and [`ErrorKind::TooLarge`] for too many entries.
    pub async fn open(
        sandbox: Arc<dyn Sandbox>,
        root: SandboxPath,
        limits: Limits,
    ) -> Result<Self, Error> {
        // One level more, so that deeper entries are reported.
        let depth = u32::try_from(limits.depth)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let entries = list_tree(&*sandbox, &root, depth, limits.entries).await?;
        Ok(Self {
            sandbox,
            root,
            limits,
            response_timeout: Duration::MAX,
            filter: Box::new(|_| true),
            unique: UniqueNames::default(),
            report: Report::default(),
            transport: WalkTransport::default(),
            parents: ListedParents::new(&entries),
            waiting: entries.into(),
            body: None,
            total: 0,
            names: 0,
        })
    }

    /// Waits at most this long for each response that is not a stream. Without it, the time is that of the backend.
    #[must_use]
    pub fn with_response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Takes only members whose name the filter allows; the others are [`SkipReason::Denied`].
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// The transport that carries the files, known when they have been read.
    pub fn transport(&self) -> WalkTransport {
        self.transport.clone()
    }

    async fn member(&mut self, entry: Entry) -> Result<Option<Member>, Error> {
        let path = entry.path.as_bytes();
        let base = self.root.as_bytes();
        let below = path
            .strip_prefix(base)
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "an entry of another directory"))?;
        let name = below.strip_prefix(b"/").unwrap_or(below);
        let kind = match entry.kind {
            FileKind::File => Kind::File,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => return Ok(self.skip(name, SkipReason::Link)),
            _ => return Ok(self.skip(name, SkipReason::Special)),
        };
        let parts = match names::parts(name) {
            Ok(parts) if parts.is_empty() => return Ok(None),
            Ok(parts) if parts.len() > self.limits.depth => {
                return Ok(self.skip(name, SkipReason::TooDeep));
            }
            Ok(parts) => parts,
            Err(reason) => return Ok(self.skip(name, reason)),
        };
        if !(self.filter)(name) {
            return Ok(self.skip(name, SkipReason::Denied));
        }
        let size = match self.begin(&entry.path, kind).await? {
            Ok(size) => size,
            Err(reason) => return Ok(self.skip(name, reason)),
        };
        let unique_name = match kind {
            Kind::File => self.unique.file(&parts),
            Kind::Directory => match self.unique.directory(&parts) {
                Some(unique_name) => unique_name,
                None => return Ok(None),
            },
        };
        self.names += unique_name.len();
        if self.names > self.limits.names {
            return Err(Error::too_large(
                self.names as u64,
                self.limits.names as u64,
            ));
        }
        Ok(Some(Member {
            name: unique_name,
            kind,
            size,
            mode: entry.mode & 0o777,
            mtime: entry
                .mtime_ns
                .and_then(|time| u64::try_from(time / 1_000_000_000).ok()),
        }))
    }

    /// Starts to read a file, or checks that a directory can be read. Returns the size, or the reason for which the
    /// entry is skipped.
    async fn begin(
        &mut self,
        path: &SandboxPath,
        kind: Kind,
    ) -> Result<Result<u64, SkipReason>, Error> {
        if kind == Kind::Directory {
            let unreadable = self.parents.is_unreadable(&*self.sandbox, path);
            let unreadable = within(self.response_timeout, unreadable).await?;
            return Ok(if unreadable {
                Err(SkipReason::Unreadable)
            } else {
                Ok(0)
            });
        }
        // `stat` again, although the listing has the file: it may be a link by now.
        let file = match within(self.response_timeout, self.sandbox.stat(path, Follow::No)).await {
            Ok(file) if file.kind == FileKind::File => file,
            Ok(_) => return Ok(Err(SkipReason::Unreadable)),
            Err(error) => return skip_reason(error).map(Err),
        };
        if file.size > self.limits.file {
            return Ok(Err(SkipReason::TooLarge));
        }
        self.total = self.total.saturating_add(file.size);
        if self.total > self.limits.total {
            return Err(Error::too_large(self.total, self.limits.total));
        }
        let transports = self.sandbox.transports(&file.real_path);
        let Some(transport) = transports.first().copied() else {
            return Ok(Err(SkipReason::Unreadable));
        };
        let read = Read {
            transport,
            file: &file,
            offset: 0,
        };
        match within(self.response_timeout, self.sandbox.read(read)).await {
            Ok(body) => {
                self.transport.record(transport);
                self.body = Some(body.exactly(file.size));
            }
            Err(error) => return skip_reason(error).map(Err),
        }
        Ok(Ok(file.size))
    }

    fn skip(&self, name: &[u8], reason: SkipReason) -> Option<Member> {
        self.report.skip(name, reason);
        None
    }
}

/// Awaits a response of the sandbox about one entry for a limited time.
async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let error = "the sandbox did not respond about an entry in time";
    let timed_out = |_| Err(Error::new(ErrorKind::Timeout, error));
    timeout(time, call).await.unwrap_or_else(timed_out)
}

#[async_trait]
impl Members for Walk {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        self.body = None;
        while let Some(entry) = self.waiting.pop_front() {
            if let Some(member) = self.member(entry).await? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        let chunk = body.next().await.transpose();
        if !matches!(chunk, Ok(Some(_))) {
            self.body = None;
        }
        chunk
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}
