//! Copies a file or a directory out of a sandbox: stat, then get or get-tree, then the proof.
//!
//! Every service that exports follows these steps, each with its own implementation of the calls and their timeouts
//! ([`ExportCalls`]). This module does no I/O itself.

use std::future::Future;
use std::time::Duration;

use dray_types::{Claim, Fault, FaultCode};

use crate::contract::Call;
use crate::convert::InvalidMessage;
use crate::v1::{self, SandboxEntryKind};

/// Delay before a retry after a copy without proof.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Format of the archive that a directory becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeFormat {
    /// A ZIP, which every desktop opens.
    Zip,
    /// A tar, which stores names as bytes.
    Tar,
}

impl TreeFormat {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::Tar => "tar",
        }
    }
}

/// A file or directory to copy out of a sandbox into the artifact store.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// Sandbox from which the file or directory is copied.
    pub sandbox: v1::SandboxRef,
    /// Absolute, `~/…`, or relative to the session's working directory. Links are followed.
    pub path: Vec<u8>,
    /// Format of a directory.
    pub format: TreeFormat,
    /// Most bytes; 0 means the operator's limit.
    pub max_bytes: u64,
}

/// The calls that an export makes. The implementation chooses the envelope, timeout and retries of each call.
pub trait ExportCalls: Sync {
    /// The reason why an export failed.
    type Error: From<ExportError>;

    /// Requests the kind and attributes of the path.
    fn stat(
        &self,
        request: &v1::StatSandboxRequest,
    ) -> impl Future<Output = Result<v1::SandboxEntry, Self::Error>> + Send;

    /// Requests the copy of a file or directory; `entry` is the result of the stat.
    fn copy<C: Call>(
        &self,
        entry: &v1::SandboxEntry,
        request: &C,
    ) -> impl Future<Output = Result<C::Reply, Self::Error>> + Send;
}

/// A file, or an archive of a directory, that is in the store with proof.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Where it is stored. The name of the artifact is the visible one.
    pub claim: Claim,
    /// Proof of the transfer.
    pub receipt: v1::TransferReceipt,
    /// The entries that an archive omits, each as `reason: name`.
    pub skipped: Vec<String>,
}

/// The reason why a copy cannot be used, although each call got its reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The path is a FIFO, a socket, a device or similar, which is never opened (sandbox-transfer R-2).
    #[error("the path is neither a file nor a directory")]
    NotExportable,
    /// The reply breaks its contract.
    #[error("the reply is not valid")]
    Reply(#[from] InvalidMessage),
    /// The receipt is missing, names an error, or disagrees with the stored file (sandbox-transfer R-8).
    #[error("the receipt does not prove the stored copy")]
    Unproven,
}

impl From<ExportError> for Fault {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::NotExportable => Self::new(
                FaultCode::Unsupported,
                "This is neither a file nor a directory.",
            )
            .detail("not_a_regular_file"),
            // The peer is at fault, not the caller, so this must not read as an invalid request.
            ExportError::Reply(_) => Self::internal(),
            ExportError::Unproven => Self::new(
                FaultCode::Unavailable,
                "Nothing proves that the copy out of the sandbox is complete.",
            )
            .detail("unproven_copy")
            .advice("Try again.")
            .retry_after(RETRY_DELAY),
        }
    }
}

impl Export {
    /// Copies the file or directory into the store and checks the proof. Also returns its entry in the sandbox.
    ///
    /// # Errors
    /// The errors of the calls; [`ExportError::NotExportable`] before a copy, for a path of another kind;
    /// [`ExportError::Unproven`] for a copy that does not match its receipt.
    pub async fn run<C: ExportCalls>(
        self,
        calls: &C,
    ) -> Result<(v1::SandboxEntry, Exported), C::Error> {
        let stat = v1::StatSandboxRequest {
            sandbox: Some(self.sandbox.clone()),
            path: self.path.clone(),
            follow: true,
            ..v1::StatSandboxRequest::default()
        };
        let entry = calls.stat(&stat).await?;
        let exported = match entry.entry_kind() {
            SandboxEntryKind::File => {
                let request = v1::GetSandboxFileRequest {
                    sandbox: Some(self.sandbox),
                    path: self.path,
                    max_bytes: self.max_bytes,
                    ..v1::GetSandboxFileRequest::default()
                };
                Exported::from_file(calls.copy(&entry, &request).await?)?
            }
            SandboxEntryKind::Directory => {
                let request = v1::GetSandboxTreeRequest {
                    sandbox: Some(self.sandbox),
                    path: self.path,
                    format: self.format.as_str().to_owned(),
                    max_bytes: self.max_bytes,
                };
                Exported::from_tree(calls.copy(&entry, &request).await?)?
            }
            _ => return Err(ExportError::NotExportable.into()),
        };
        Ok((entry, exported))
    }
}

impl Exported {
    /// The copy of a file, once its receipt agrees with it.
    ///
    /// # Errors
    /// The reply is not valid, or has no proof.
    pub fn from_file(reply: v1::SandboxFile) -> Result<Self, ExportError> {
        let claim = claim_of(reply.claim)?;
        let receipt = reply.receipt.ok_or(ExportError::Unproven)?;
        if !proves(&receipt, &claim) {
            return Err(ExportError::Unproven);
        }
        Ok(Self {
            claim,
            receipt,
            skipped: Vec::new(),
        })
    }

    /// The archive of a directory. Its receipt counts the bytes of the files in it, so only the error in the receipt is
    /// checked here; the store checks the archive itself.
    ///
    /// # Errors
    /// The reply is not valid, or its receipt names an error.
    pub fn from_tree(reply: v1::SandboxTree) -> Result<Self, ExportError> {
        let claim = claim_of(reply.claim)?;
        match reply.receipt {
            Some(receipt) if receipt.error.is_empty() => Ok(Self {
                claim,
                receipt,
                skipped: reply.skipped,
            }),
            _ => Err(ExportError::Unproven),
        }
    }
}

/// Whether a transfer ended well and moved exactly the bytes of this file.
pub fn proves(receipt: &v1::TransferReceipt, claim: &Claim) -> bool {
    receipt.error.is_empty()
        && receipt.bytes == claim.artifact.size
        && receipt.sha256 == claim.artifact.sha256.as_bytes()
}

fn claim_of(claim: Option<v1::Claim>) -> Result<Claim, InvalidMessage> {
    claim.ok_or(InvalidMessage::Missing("claim"))?.try_into()
}

#[cfg(test)]
mod tests;
