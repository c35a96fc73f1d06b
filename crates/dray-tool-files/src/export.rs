//! Copies files out of the session's sandbox.

use std::time::Duration;

use dray_proto::Call;
use dray_proto::export::{Export, ExportCalls, TreeFormat};
use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::Claim;

use super::ask::{CallFailure, PeerService};
use super::scope::TurnScope;
use super::session::SessionBinding;

/// A file that was copied out of the sandbox.
#[derive(Clone, Debug)]
pub(super) struct CopiedFile {
    /// The stored content in the artifact store.
    pub(super) claim: Claim,
    /// File name as people see it.
    pub(super) name: String,
    /// The file's path after links were followed.
    pub(super) real_path: Vec<u8>,
    /// What the scan found in its text, as `TransferReceipt.content_warning`; empty for none.
    pub(super) content_warning: String,
}

/// The calls of an export, each within this time.
struct TurnExport<'a> {
    scope: &'a TurnScope,
    time: Duration,
}

impl ExportCalls for TurnExport<'_> {
    type Error = CallFailure;

    async fn stat(
        &self,
        request: &v1::StatSandboxRequest,
    ) -> Result<v1::SandboxEntry, CallFailure> {
        let services = &self.scope.services;
        let time = services.config.call_timeout.as_duration().min(self.time);
        let meta = self.scope.meta(time);
        services.ask(PeerService::Sandbox, &meta, request).await
    }

    async fn copy<C: Call>(
        &self,
        _entry: &v1::SandboxEntry,
        request: &C,
    ) -> Result<C::Reply, CallFailure> {
        let meta = self.scope.meta(self.time);
        let services = &self.scope.services;
        services
            .call_with_heartbeat(PeerService::Sandbox, &meta, request)
            .await
    }
}

/// Copies a file, or a directory as a ZIP, out of the sandbox; the copy is compared with the receipt.
pub(super) async fn copy_out(
    scope: &TurnScope,
    session: &SessionBinding,
    path: &[u8],
    time: Duration,
) -> Result<CopiedFile, ToolFailure> {
    let export = Export {
        sandbox: session.sandbox().await?,
        path: path.to_vec(),
        format: TreeFormat::Zip,
        max_bytes: scope.services.config.upload_limit.as_u64(),
    };
    let (entry, exported) = export.run(&TurnExport { scope, time }).await?;
    Ok(CopiedFile {
        name: exported.claim.artifact.name.clone(),
        claim: exported.claim,
        content_warning: exported.receipt.content_warning,
        real_path: if entry.real_path.is_empty() {
            path.to_vec()
        } else {
            entry.real_path
        },
    })
}
