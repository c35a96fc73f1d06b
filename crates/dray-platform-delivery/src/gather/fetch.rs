//! Copies files out of the sandbox through sandbox-transfer, each with its own result.

use std::time::Duration;

use dray_bus::CallError;
use dray_platform::ErrorKind;
use dray_presentation::name;
use dray_proto::Call;
use dray_proto::export::{Export, ExportCalls, ExportError, TreeFormat};
use dray_proto::v1::{self, DeliveryStage, SandboxEntryKind, sandbox_ref};
use dray_types::{Fault, FaultCode};
use futures_util::StreamExt as _;

use super::{CALL_TIMEOUT, GatherRequest, Gatherer, METADATA_TIMEOUT};
use crate::record::{FileRecord, FileState};

/// Files that are copied concurrently.
const MAX_CONCURRENT_COPIES: usize = 3;

/// Bytes per second of a slow sandbox, from which the time limit of a copy follows.
const SLOW_BYTES_PER_SECOND: u64 = 256 * 1024;

impl Gatherer {
    /// All files of a request, in its order, including those that failed.
    pub(super) async fn fetch_all(&self, gather_request: &GatherRequest<'_>) -> Vec<FetchedFile> {
        let mut fetches = Vec::new();
        for (index, path) in gather_request.work.paths.iter().enumerate() {
            fetches.push(self.fetch_or_fail(gather_request, index, path));
        }
        let mut files: Vec<_> = futures_util::stream::iter(fetches)
            .buffered(MAX_CONCURRENT_COPIES)
            .collect()
            .await;
        for claim in &gather_request.work.claims {
            files.push(self.claimed_file(gather_request, claim).await);
        }
        files
    }

    /// A file for which the request has a claim.
    async fn claimed_file(
        &self,
        gather_request: &GatherRequest<'_>,
        claim: &v1::Claim,
    ) -> FetchedFile {
        let file = FileRecord::stored(claim.clone());
        match self
            .claims
            .keep_claim(gather_request.meta, claim.clone())
            .await
        {
            Ok(kept) => FetchedFile::stored(FileRecord {
                claim: Some(kept),
                ..file
            }),
            Err(failure) => {
                let failed = FetchedFile::failed(&[], failure.into());
                FetchedFile {
                    file: FileRecord {
                        name: file.name,
                        size: file.size,
                        ..failed.file
                    },
                    ..failed
                }
            }
        }
    }

    async fn fetch_or_fail(
        &self,
        gather_request: &GatherRequest<'_>,
        index: usize,
        path: &[u8],
    ) -> FetchedFile {
        let fetched = if super::wants_previews(gather_request.work) {
            self.describe(gather_request, index, path).await
        } else {
            self.fetch(gather_request, index, path).await
        };
        match fetched {
            Ok(file) => FetchedFile::stored(file),
            Err(fault) => FetchedFile::failed(path, fault),
        }
    }

    /// A file or directory that is sent as a preview. It stays in the sandbox, so only its name and size are known.
    async fn describe(
        &self,
        gather_request: &GatherRequest<'_>,
        index: usize,
        path: &[u8],
    ) -> Result<FileRecord, Fault> {
        let calls = DeliveryExport {
            gatherer: self,
            gather_request,
            index,
        };
        let request = v1::StatSandboxRequest {
            sandbox: Some(sandbox_of(gather_request.work)),
            path: path.to_vec(),
            follow: true,
            ..v1::StatSandboxRequest::default()
        };
        let entry = calls.stat(&request).await?;
        let size = match entry.entry_kind() {
            SandboxEntryKind::File => entry.size,
            // The reported size of a directory does not include its files.
            SandboxEntryKind::Directory => 0,
            _ => return Err(ExportError::NotExportable.into()),
        };
        Ok(FileRecord {
            path: path.to_vec(),
            name: name::shown_name(path),
            size,
            // Its presence makes the file a preview; the id follows with the link.
            preview: Some(v1::PreviewReceipt::default()),
            ..FileRecord::in_state(FileState::Queued)
        })
    }

    async fn fetch(
        &self,
        gather_request: &GatherRequest<'_>,
        index: usize,
        path: &[u8],
    ) -> Result<FileRecord, Fault> {
        let export = Export {
            sandbox: sandbox_of(gather_request.work),
            path: path.to_vec(),
            format: TreeFormat::Zip,
            max_bytes: self.context.config.get().max_file_size.as_u64(),
        };
        let calls = DeliveryExport {
            gatherer: self,
            gather_request,
            index,
        };
        let (_, exported) = export.run(&calls).await?;
        Ok(FileRecord {
            path: path.to_vec(),
            transfer: Some(exported.receipt),
            ..FileRecord::stored(exported.claim.into())
        })
    }
}

/// A file of a request, stored or failed.
pub(super) struct FetchedFile {
    pub(super) file: FileRecord,
    /// The fault of a file that failed only because a part of the system is away.
    pub(super) parking_fault: Option<Fault>,
}

impl FetchedFile {
    const fn stored(file: FileRecord) -> Self {
        Self {
            file,
            parking_fault: None,
        }
    }

    fn failed(path: &[u8], fault: Fault) -> Self {
        Self {
            file: failed_file(path, &fault),
            parking_fault: Some(fault)
                .filter(|fault| fault.is_retryable() && dray_bus::parks_work(fault)),
        }
    }
}

/// The calls that export one file. Each has a fixed operation id, so that a repeated call gets the result of the first.
struct DeliveryExport<'a> {
    gatherer: &'a Gatherer,
    gather_request: &'a GatherRequest<'a>,
    index: usize,
}

impl ExportCalls for DeliveryExport<'_> {
    type Error = Fault;

    async fn stat(&self, request: &v1::StatSandboxRequest) -> Result<v1::SandboxEntry, Fault> {
        let Self {
            gatherer,
            gather_request,
            index,
        } = self;
        let meta =
            gatherer
                .context
                .call_meta(gather_request, &format!("s{index}"), METADATA_TIMEOUT);
        let entry = gatherer.context.bus.call_watched(&meta, request).await;
        let entry = entry.map_err(report_error)?;
        let display_name = name::shown_name(&request.path);
        gatherer
            .context
            .publish_progress(gather_request, DeliveryStage::Fetching, &display_name)
            .await;
        Ok(entry)
    }

    async fn copy<C: Call>(
        &self,
        entry: &v1::SandboxEntry,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        let Self {
            gatherer,
            gather_request,
            index,
        } = self;
        // The size of a directory is not that of its files.
        let time = match entry.entry_kind() {
            SandboxEntryKind::File => copy_time(entry.size),
            _ => CALL_TIMEOUT,
        };
        let meta = gatherer
            .context
            .call_meta(gather_request, &format!("f{index}"), time);
        let reply = gatherer.context.bus.call_watched(&meta, request).await;
        reply.map_err(report_error)
    }
}

/// Longest time for a copy of this many bytes.
fn copy_time(size: u64) -> Duration {
    (METADATA_TIMEOUT + Duration::from_secs(size / SLOW_BYTES_PER_SECOND)).min(CALL_TIMEOUT)
}

fn report_error(error: CallError) -> Fault {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "could not fetch a file of a sandbox"
    );
    error.into()
}

fn sandbox_of(work: &v1::SendFileRequested) -> v1::SandboxRef {
    let sandbox = match work.sandbox.as_str() {
        "" => sandbox_ref::Sandbox::Session(work.session.clone()),
        address => sandbox_ref::Sandbox::Address(address.to_owned()),
    };
    v1::SandboxRef {
        sandbox: Some(sandbox),
    }
}

/// A file that could not be copied.
fn failed_file(path: &[u8], fault: &Fault) -> FileRecord {
    let kind = kind_of(fault);
    FileRecord {
        path: path.to_vec(),
        name: name::shown_name(path),
        error_kind: Some(kind.into()),
        error_message: fault.message.clone(),
        ..FileRecord::in_state(FileState::given_up(kind))
    }
}

/// The error kind in receipts for a fault.
pub(crate) const fn kind_of(fault: &Fault) -> ErrorKind {
    match fault.code {
        FaultCode::NotFound => ErrorKind::NotFound,
        FaultCode::Denied => ErrorKind::Forbidden,
        FaultCode::TooLarge => ErrorKind::TooLarge,
        FaultCode::InvalidArgument => ErrorKind::BadFormat,
        FaultCode::Unsupported => ErrorKind::UnsupportedKind,
        FaultCode::RateLimited | FaultCode::Timeout | FaultCode::Unavailable => {
            ErrorKind::Transient
        }
        FaultCode::Internal => ErrorKind::Unknown,
    }
}

/// The code of a fault whose error kind in receipts is this.
pub(super) const fn code_of(kind: ErrorKind) -> FaultCode {
    match kind {
        ErrorKind::NotFound => FaultCode::NotFound,
        ErrorKind::Forbidden => FaultCode::Denied,
        ErrorKind::TooLarge => FaultCode::TooLarge,
        ErrorKind::BadFormat => FaultCode::InvalidArgument,
        ErrorKind::UnsupportedKind => FaultCode::Unsupported,
        ErrorKind::Transient => FaultCode::Unavailable,
        _ => FaultCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_gets_time_by_its_size_and_never_more_than_a_call() {
        assert_eq!(copy_time(0), METADATA_TIMEOUT);
        assert_eq!(
            copy_time(25 << 20),
            METADATA_TIMEOUT + Duration::from_secs(100)
        );
        assert_eq!(copy_time(u64::MAX), CALL_TIMEOUT);
    }

    #[test]
    fn a_file_that_could_not_be_copied_is_reported_by_its_name() {
        let fault = Fault::new(FaultCode::Denied, "m");
        assert_eq!(failed_file(b"/w/.env", &fault).name, ".env");
        assert_eq!(failed_file(b"/w/a\x1b[2J.txt", &fault).name, "a?[2J.txt");
    }

    #[test]
    fn every_fault_has_a_kind_and_only_temporary_ones_are_transient() {
        for code in FaultCode::ALL_CODES {
            let kind = kind_of(&Fault::new(code, "m"));
            let is_temporary = matches!(
                code,
                FaultCode::RateLimited | FaultCode::Timeout | FaultCode::Unavailable
            );
            assert_eq!(kind == ErrorKind::Transient, is_temporary, "{code}");
        }
    }
}
