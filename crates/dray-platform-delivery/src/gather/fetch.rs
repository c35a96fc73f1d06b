//! Copies out of the sandbox, each file for itself, through sandbox-transfer.

use std::time::Duration;

use dray_bus::CallError;
use dray_content::name;
use dray_platform::ErrorKind;
use dray_proto::v1::{self, sandbox_ref};
use dray_types::{Fault, FaultCode};
use futures_util::StreamExt as _;

use super::{CALL_TIMEOUT, GatherRequest, METADATA_TIMEOUT};
use crate::deliver::DeliveryService;
use crate::report::{self, state};

/// Files copied at one time.
const AT_ONCE: usize = 3;

/// Bytes that a slow sandbox gives in a second.
const SLOW_BYTES_PER_SECOND: u64 = 256 * 1024;

/// How the path of a file reads that came from the store.
const STORED_FILE_NAME: &str = "file";

impl DeliveryService {
    /// All files of a request, in its order: those that failed are among them.
    pub(super) async fn fetch_all(&self, order: &GatherRequest<'_>) -> Vec<v1::DeliveredFile> {
        let mut fetches = Vec::new();
        for (index, path) in order.work.paths.iter().enumerate() {
            fetches.push(self.fetch_or_fail(order, index, path));
        }
        let mut files: Vec<_> = futures_util::stream::iter(fetches)
            .buffered(AT_ONCE)
            .collect()
            .await;
        for claim in &order.work.claims {
            files.push(self.brought(order, claim).await);
        }
        files
    }

    /// A file that the request brings a claim for.
    async fn brought(&self, order: &GatherRequest<'_>, claim: &v1::Claim) -> v1::DeliveredFile {
        let file = stored_file(claim.clone());
        match self.kept(order.meta, claim.clone()).await {
            Ok(kept) => v1::DeliveredFile {
                claim: Some(kept),
                ..file
            },
            Err(unkept) => v1::DeliveredFile {
                name: file.name,
                size: file.size,
                ..failed_file(&[], &unkept.into())
            },
        }
    }

    async fn fetch_or_fail(
        &self,
        order: &GatherRequest<'_>,
        index: usize,
        path: &[u8],
    ) -> v1::DeliveredFile {
        match self.fetch(order, index, path).await {
            Ok(file) => file,
            Err(fault) => failed_file(path, &fault),
        }
    }

    async fn fetch(
        &self,
        order: &GatherRequest<'_>,
        index: usize,
        path: &[u8],
    ) -> Result<v1::DeliveredFile, Fault> {
        let sandbox = Some(sandbox_of(order.work));
        let stat = v1::StatSandboxRequest {
            sandbox: sandbox.clone(),
            path: path.to_vec(),
            follow: true,
        };
        let question = self.question(order, &format!("s{index}"), METADATA_TIMEOUT);
        let entry = self
            .bus
            .call_watched(&question, &stat)
            .await
            .map_err(report_error)?;
        self.tell(order, "fetching", &name::shown_name(path)).await;
        let time = match entry.kind.as_str() {
            "file" => copy_time(entry.size),
            _ => CALL_TIMEOUT,
        };
        let question = self.question(order, &format!("f{index}"), time);
        match entry.kind.as_str() {
            "file" => {
                let get = v1::GetSandboxFileRequest {
                    sandbox,
                    path: path.to_vec(),
                    max_bytes: self.config.max_file_size.as_u64(),
                };
                let file = self
                    .bus
                    .call_watched(&question, &get)
                    .await
                    .map_err(report_error)?;
                let claim = file.claim.ok_or_else(Fault::internal)?;
                Ok(with_path(path, stored_file(claim), file.receipt))
            }
            "dir" => {
                let get = v1::GetSandboxTreeRequest {
                    sandbox,
                    path: path.to_vec(),
                    format: "zip".to_owned(),
                    max_bytes: self.config.max_file_size.as_u64(),
                };
                let tree = self
                    .bus
                    .call_watched(&question, &get)
                    .await
                    .map_err(report_error)?;
                let claim = tree.claim.ok_or_else(Fault::internal)?;
                Ok(with_path(path, stored_file(claim), tree.receipt))
            }
            _ => Err(Fault::new(
                FaultCode::Unsupported,
                "This is neither a file nor a directory.",
            )
            .detail("not_a_regular_file")),
        }
    }
}

/// How long a copy of so many bytes may take.
fn copy_time(size: u64) -> Duration {
    (METADATA_TIMEOUT + Duration::from_secs(size / SLOW_BYTES_PER_SECOND)).min(CALL_TIMEOUT)
}

fn report_error(error: CallError) -> Fault {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "a file of a sandbox cannot be had"
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

/// A stored file that waits for its delivery.
pub(crate) fn stored_file(claim: v1::Claim) -> v1::DeliveredFile {
    let artifact = claim.artifact.clone().unwrap_or_default();
    let wanted = match artifact.name.as_str() {
        "" => STORED_FILE_NAME,
        name => name,
    };
    v1::DeliveredFile {
        name: name::clean_name(wanted),
        size: artifact.size,
        media_type: artifact.media_type,
        sha256: artifact.sha256,
        state: state::STATE_QUEUED.to_owned(),
        claim: Some(claim),
        ..v1::DeliveredFile::default()
    }
}

fn with_path(
    path: &[u8],
    file: v1::DeliveredFile,
    transfer: Option<v1::TransferReceipt>,
) -> v1::DeliveredFile {
    v1::DeliveredFile {
        path: path.to_vec(),
        transfer,
        ..file
    }
}

/// A file that could not be had.
fn failed_file(path: &[u8], fault: &Fault) -> v1::DeliveredFile {
    let kind = kind_of(fault);
    v1::DeliveredFile {
        path: path.to_vec(),
        name: name::shown_name(path),
        state: report::given_up(kind).to_owned(),
        error_kind: kind.as_str().to_owned(),
        error_message: fault.message.clone(),
        ..v1::DeliveredFile::default()
    }
}

/// A fault in the words of receipts.
pub(super) const fn kind_of(fault: &Fault) -> ErrorKind {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_file_gets_a_name_that_is_safe_to_show() {
        let claim = |name: &str| v1::Claim {
            artifact: Some(v1::Artifact {
                name: name.to_owned(),
                ..v1::Artifact::default()
            }),
            ..v1::Claim::default()
        };
        assert_eq!(stored_file(claim("")).name, "file");
        assert_eq!(stored_file(claim("../a\u{202e}b.pdf")).name, "ab.pdf");
        assert_eq!(stored_file(claim("x")).state, state::STATE_QUEUED);
    }

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
    fn a_file_that_never_left_is_told_of_by_its_own_name() {
        let fault = Fault::new(FaultCode::Denied, "m");
        assert_eq!(failed_file(b"/w/.env", &fault).name, ".env");
        assert_eq!(failed_file(b"/w/a\x1b[2J.txt", &fault).name, "a?[2J.txt");
    }

    #[test]
    fn every_fault_has_a_kind_and_only_what_passes_is_tried_again() {
        for code in FaultCode::ALL_CODES {
            let kind = kind_of(&Fault::new(code, "m"));
            let passes = matches!(
                code,
                FaultCode::RateLimited | FaultCode::Timeout | FaultCode::Unavailable
            );
            assert_eq!(kind == ErrorKind::Transient, passes, "{code}");
        }
    }
}
