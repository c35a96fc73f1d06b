//! Calls that concern whole directories.

use std::sync::Arc;

use dray_bus::Meta;
use dray_presentation::name;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_sandbox::{Error as SandboxError, ErrorKind, SandboxPath};
use dray_sandbox_tree::Report;
use dray_service::Request;
use dray_transfer_engine::{GetTreeOptions, PutTreeOptions, TreeFormat};
use dray_types::{Claim, Deadline, Fault};
use tokio_util::sync::CancellationToken;

use super::{SandboxTransfer, report};
use crate::error::Error;
use crate::sessions::token;
use crate::store::{StoreSink, StoreSource};
use crate::wire;

/// Most lines about entries that were left out; the archive itself lists all of them.
const MAX_REPORTED_LINES: usize = 100;

impl SandboxTransfer {
    /// Copies a directory into the store as one archive.
    pub async fn get_tree(
        self: Arc<Self>,
        request: Request<v1::GetSandboxTreeRequest>,
    ) -> Result<v1::SandboxTree, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let result = self.try_get_tree(&meta, work_until, body).await;
        result.map_err(|error| report(&meta, error))
    }

    async fn try_get_tree(
        &self,
        meta: &Meta,
        work_until: Deadline,
        body: v1::GetSandboxTreeRequest,
    ) -> Result<v1::SandboxTree, Error> {
        let format = tree_format(&body.format)?;
        let opened = self.open(meta, body.sandbox).await?;
        let path = opened.path(&body.path)?;
        let archive = archive_name(&path, format);
        let owner = self.owner(meta, work_until);
        let mut sink = StoreSink::new(&self.store, &owner, Some(archive));
        let options = GetTreeOptions {
            policy: &opened.policy,
            limits: opened.settings.config.tree(body.max_bytes),
            format,
        };
        let copied = opened
            .engine
            .get_tree(&path, &options, &mut sink, &(), &CancellationToken::new())
            .await
            .map_err(|failed| opened.transfer_failed(failed))?;
        let claim = sink
            .into_claim()
            .ok_or_else(|| SandboxError::new(ErrorKind::Protocol, "nothing was stored"))?;
        let handle = opened.engine.handle();
        let receipt = wire::receipt(&copied.receipt, "get_tree", &meta.operation, handle);
        Ok(v1::SandboxTree {
            claim: Some(claim.into()),
            files: u32::try_from(copied.files).unwrap_or(u32::MAX),
            skipped: lines(&copied.skipped),
            receipt: Some(wire::with_warning(receipt, copied.warning)),
        })
    }

    /// Unpacks a stored tar into a directory.
    pub async fn put_tree(
        self: Arc<Self>,
        request: Request<v1::PutSandboxTreeRequest>,
    ) -> Result<v1::PutSandboxTreeReply, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let put = self.try_put_tree(&meta, work_until, body).await;
        put.map_err(|error| report(&meta, error))
    }

    async fn try_put_tree(
        &self,
        meta: &Meta,
        work_until: Deadline,
        body: v1::PutSandboxTreeRequest,
    ) -> Result<v1::PutSandboxTreeReply, Error> {
        let claim: Claim = body
            .claim
            .ok_or(InvalidMessage::Missing("claim"))?
            .try_into()?;
        let opened = self.open(meta, body.sandbox).await?;
        let directory = opened.path(&body.directory)?;
        let operation = token(meta.operation.as_str());
        let options = PutTreeOptions {
            policy: &opened.policy,
            limits: opened.settings.config.tree(0),
            operation: operation.get(..16).unwrap_or_default(),
            // Calls have no ledger that counts workers; the time distinguishes this call from a late earlier one.
            epoch: self.clock.now_ms(),
        };
        let source = StoreSource::new(&self.store, &meta.tenant, claim, work_until);
        let cancel = CancellationToken::new();
        let put = opened
            .engine
            .put_tree(&directory, &source, &options, &(), &cancel)
            .await
            .map_err(|failed| opened.transfer_failed(failed))?;
        let mut receipt = wire::receipt(
            &put.receipt,
            "put_tree",
            &meta.operation,
            opened.engine.handle(),
        );
        receipt.path = put.path.as_bytes().to_vec();
        Ok(v1::PutSandboxTreeReply {
            files: u32::try_from(put.files).unwrap_or(u32::MAX),
            skipped: lines(&put.skipped),
            receipt: Some(receipt),
        })
    }
}

/// Parses the format of an archive by its name on the wire; empty means ZIP.
pub(crate) fn tree_format(format: &str) -> Result<TreeFormat, Error> {
    match format {
        "" | "zip" => Ok(TreeFormat::Zip),
        "tar" => Ok(TreeFormat::Tar),
        _ => Err(InvalidMessage::field("format", "must be `zip` or `tar`").into()),
    }
}

/// File name of the archive of a directory.
pub(crate) fn archive_name(directory: &SandboxPath, format: TreeFormat) -> String {
    let extension = match format {
        TreeFormat::Zip => "zip",
        TreeFormat::Tar => "tar",
    };
    format!("{}.{extension}", name::clean_name(directory.name()))
}

/// Entries that were left out, a line each.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let skipped = report.skipped().into_iter().take(MAX_REPORTED_LINES);
    skipped
        .map(|skipped| format!("{}: {}", skipped.reason.sentence(), skipped.name))
        .collect()
}
