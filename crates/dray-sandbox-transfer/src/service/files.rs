//! Calls that concern files.

use std::borrow::Cow;
use std::sync::Arc;

use dray_bus::Meta;
use dray_presentation::name;
use dray_proto::MAX_MESSAGE_BYTES;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_sandbox::{FileKind, Follow, SandboxPath};
use dray_service::Request;
use dray_transfer_engine::{GetOptions, ListOptions, PermittedListing, PutOptions};
use dray_types::{Claim, Deadline, Fault};
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::{OpenedSandbox, SandboxTransfer, report};
use crate::error::Error;
use crate::sessions::token;
use crate::store::{Owner, StoreSink, StoreSource};
use crate::wire;

/// Entries of a listing, unless the caller asks for another number.
const DEFAULT_LISTED_ENTRIES: u32 = 1000;
/// Limit for the entries of a listing.
const MAX_LISTED_ENTRIES: u32 = 10_000;
/// Limit for the directories of one request.
const MAX_DIRECTORIES: usize = 10_000;
/// Bytes of a listing's entries that fit into a message, with room for the rest of it.
const MAX_LISTING_BYTES: usize = MAX_MESSAGE_BYTES - 16 * 1024;
/// Mode bits of files, unless the caller asks for others.
const DEFAULT_MODE: u32 = 0o644;

/// Lists a directory until `wanted` entries are permitted, or until its end or the limit.
async fn list_permitted(
    opened: &OpenedSandbox,
    path: &SandboxPath,
    depth: u32,
    wanted: usize,
) -> Result<PermittedListing, Error> {
    let max = MAX_LISTED_ENTRIES as usize;
    let mut limit = wanted.clamp(1, max);
    loop {
        let options = ListOptions {
            policy: &opened.policy,
            depth,
            limit,
        };
        let listing = opened.engine.list(path, &options).await?;
        if listing.entries.len() >= wanted || !listing.truncated || limit == max {
            return Ok(listing);
        }
        // The entries that policy refuses count towards the limit of the sandbox.
        limit = limit.saturating_mul(2).min(max);
    }
}

impl SandboxTransfer {
    /// Probes a sandbox: its directories, user, free space, transports and programs.
    pub async fn probe(
        self: Arc<Self>,
        request: Request<v1::ProbeSandboxRequest>,
    ) -> Result<v1::SandboxProbe, Fault> {
        let Request { meta, body } = request;
        let probe = async {
            let opened = self.open(&meta, body.sandbox).await?;
            let probe = opened.engine.probe_again().await?;
            Ok(wire::probe(opened.engine.handle(), &probe))
        };
        probe.await.map_err(|error| report(&meta, error))
    }

    /// Returns the metadata of a path.
    pub async fn stat(
        self: Arc<Self>,
        request: Request<v1::StatSandboxRequest>,
    ) -> Result<v1::SandboxEntry, Fault> {
        let Request { meta, body } = request;
        let stat = async {
            let opened = self.open(&meta, body.sandbox).await?;
            let path = opened.path(&body.path)?;
            let follow = if body.follow { Follow::Yes } else { Follow::No };
            let metadata = opened.engine.stat(&opened.policy, &path, follow).await?;
            let mut entry = wire::metadata(&metadata);
            if body.with_change_marker && metadata.kind == FileKind::File {
                entry.change_marker = opened.engine.change_marker(&metadata).await?;
            }
            Ok(entry)
        };
        stat.await.map_err(|error| report(&meta, error))
    }

    /// Returns the entries of a directory, as many as fit into a message.
    pub async fn list(
        self: Arc<Self>,
        request: Request<v1::ListSandboxRequest>,
    ) -> Result<v1::ListSandboxReply, Fault> {
        let Request { meta, body } = request;
        let list = async {
            let opened = self.open(&meta, body.sandbox).await?;
            let path = opened.path(&body.path)?;
            let limit = if body.limit == 0 {
                DEFAULT_LISTED_ENTRIES
            } else {
                body.limit
            };
            let offset = body.offset as usize;
            let end = offset.saturating_add(limit as usize);
            let listing = list_permitted(&opened, &path, body.depth.max(1), end).await?;
            let mut reply = v1::ListSandboxReply {
                truncated: listing.truncated || listing.entries.len() > end,
                denied: u32::try_from(listing.denied).unwrap_or(u32::MAX),
                offset: body.offset,
                ..v1::ListSandboxReply::default()
            };
            let mut size = 0;
            let entries = listing.entries.iter().skip(offset).take(limit as usize);
            for entry in entries.map(wire::entry) {
                // Tag and length of the entry in the message take up to 8 bytes.
                size += entry.encoded_len() + 8;
                if size > MAX_LISTING_BYTES {
                    reply.truncated = true;
                    break;
                }
                reply.entries.push(entry);
            }
            Ok(reply)
        };
        list.await.map_err(|error| report(&meta, error))
    }

    /// Copies a file into the store.
    pub async fn get(
        self: Arc<Self>,
        request: Request<v1::GetSandboxFileRequest>,
    ) -> Result<v1::SandboxFile, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let result = self.try_get(&meta, work_until, body).await;
        result.map_err(|error| report(&meta, error))
    }

    async fn try_get(
        &self,
        meta: &Meta,
        work_until: Deadline,
        body: v1::GetSandboxFileRequest,
    ) -> Result<v1::SandboxFile, Error> {
        let opened = self.open(meta, body.sandbox).await?;
        let path = opened.path(&body.path)?;
        let max_bytes = opened.settings.max_bytes(body.max_bytes);
        let owner = self.owner(meta, work_until);
        let mut sink = StoreSink::new(&self.store, &owner, None);
        let policy = if body.for_reading {
            Cow::Owned(opened.policy.clone().for_reading())
        } else {
            Cow::Borrowed(&opened.policy)
        };
        let options = GetOptions {
            policy: &policy,
            max_bytes,
        };
        let copied = opened
            .engine
            .get(&path, &options, &mut sink, &(), &CancellationToken::new())
            .await
            .map_err(|failed| opened.transfer_failed(failed))?;
        let claim = sink.into_claim().ok_or_else(|| {
            dray_sandbox::Error::new(dray_sandbox::ErrorKind::Protocol, "nothing was stored")
        })?;
        let mut entry = wire::metadata(&copied.metadata);
        entry.sha256 = wire::digest(copied.sha256);
        let handle = opened.engine.handle();
        let receipt = wire::receipt(&copied.receipt, "get", &meta.operation, handle);
        Ok(v1::SandboxFile {
            entry: Some(entry),
            claim: Some(claim.into()),
            receipt: Some(wire::with_warning(receipt, copied.warning)),
            content_warning: copied
                .warning
                .map_or_else(String::new, |_| "warn".to_owned()),
        })
    }

    /// Copies a stored file into a sandbox.
    pub async fn put(
        self: Arc<Self>,
        request: Request<v1::PutSandboxFileRequest>,
    ) -> Result<v1::PlacedFile, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let put = self.try_put(&meta, work_until, body).await;
        put.map_err(|error| report(&meta, error))
    }

    async fn try_put(
        &self,
        meta: &Meta,
        work_until: Deadline,
        body: v1::PutSandboxFileRequest,
    ) -> Result<v1::PlacedFile, Error> {
        let collision = wire::collision(&body.collision)?;
        let claim: Claim = body
            .claim
            .ok_or(InvalidMessage::Missing("claim"))?
            .try_into()?;
        let file_name = if body.name.is_empty() {
            name::clean_name(&claim.artifact.name)
        } else {
            name::clean_name(&body.name)
        };
        let opened = self.open(meta, body.sandbox).await?;
        let directory = match body.directory.as_slice() {
            [] => opened.uploads.clone(),
            raw => opened.path(raw)?,
        };
        let operation = token(meta.operation.as_str());
        let options = PutOptions {
            policy: &opened.policy,
            collision,
            mode: if body.mode == 0 {
                DEFAULT_MODE
            } else {
                body.mode
            },
            operation: operation.get(..16).unwrap_or_default(),
            // Calls have no ledger that counts workers; the time distinguishes this call from a late earlier one.
            epoch: self.clock.now_ms(),
        };
        let source = StoreSource::new(&self.store, &meta.tenant, claim, work_until);
        let placed = self
            .put_file(&opened, &directory, &file_name, &source, &options)
            .await?;
        Ok(v1::PlacedFile {
            receipt: placed.receipt.map(|receipt| v1::TransferReceipt {
                operation_id: meta.operation.to_string(),
                ..receipt
            }),
            ..placed
        })
    }

    /// Puts a stored file into a sandbox, for calls and for uploads.
    pub(crate) async fn put_file(
        &self,
        opened: &OpenedSandbox,
        directory: &SandboxPath,
        file_name: &str,
        source: &StoreSource,
        options: &PutOptions<'_>,
    ) -> Result<v1::PlacedFile, Error> {
        let size = source.claim().artifact.size;
        let max_bytes = opened.settings.max_bytes(0);
        if size > max_bytes {
            return Err(dray_sandbox::Error::too_large(size, max_bytes).into());
        }
        let cancel = CancellationToken::new();
        let put = opened
            .engine
            .put(
                directory,
                file_name.as_bytes(),
                source,
                options,
                &(),
                &cancel,
            )
            .await
            .map_err(|failed| opened.transfer_failed(failed))?;
        for path in &put.left {
            tracing::warn!(sandbox = %opened.engine.handle(), %path, "a partial file could not be removed");
        }
        // The caller replaces it, because it knows the operation; this function does not.
        let operation = dray_types::OperationId::mint();
        let mut receipt = wire::receipt(&put.receipt, "put", &operation, opened.engine.handle());
        receipt.path = put.path.as_bytes().to_vec();
        Ok(v1::PlacedFile {
            path: put.path.as_bytes().to_vec(),
            size: put.size,
            sha256: wire::digest(put.sha256),
            renamed: put.renamed,
            existed: put.existed,
            receipt: Some(receipt),
        })
    }

    /// Makes a directory with its missing parents, and the further directories of the request.
    pub async fn make_directory(
        self: Arc<Self>,
        request: Request<v1::MakeSandboxDirectoryRequest>,
    ) -> Result<v1::SandboxEntry, Fault> {
        let Request { meta, body } = request;
        let make = async {
            let opened = self.open(&meta, body.sandbox).await?;
            let path = opened.path(&body.path)?;
            let (engine, policy) = (&opened.engine, &opened.policy);
            if body.further_paths.len() >= MAX_DIRECTORIES {
                let reason = format!("a request makes at most {MAX_DIRECTORIES} directories");
                return Err(InvalidMessage::field("further_paths", reason).into());
            }
            let result = engine.make_directory(policy, &path).await?;
            let mut entry = wire::metadata(&engine.stat(policy, &result, Follow::Yes).await?);
            if !body.further_paths.is_empty() {
                let all = [vec![body.path], body.further_paths].concat();
                opened.make_directories(&all).await?;
                // The number shows callers that this service has read the further paths.
                entry.made_directories = u32::try_from(all.len()).unwrap_or(u32::MAX);
            }
            Ok(entry)
        };
        make.await.map_err(|error| report(&meta, error))
    }

    /// Removes a path, never a root.
    pub async fn remove(
        self: Arc<Self>,
        request: Request<v1::RemoveSandboxPathRequest>,
    ) -> Result<v1::RemoveSandboxPathReply, Fault> {
        let Request { meta, body } = request;
        let remove = async {
            let opened = self.open(&meta, body.sandbox).await?;
            let path = opened.path(&body.path)?;
            opened
                .engine
                .remove(&opened.policy, &path, body.recursive)
                .await?;
            Ok(v1::RemoveSandboxPathReply {})
        };
        remove.await.map_err(|error| report(&meta, error))
    }

    pub(super) fn owner(&self, meta: &Meta, work_until: Deadline) -> Owner {
        Owner {
            tenant: meta.tenant.clone(),
            operation: meta.operation.clone(),
            epoch: self.clock.now_ms(),
            deadline: work_until,
        }
    }
}
