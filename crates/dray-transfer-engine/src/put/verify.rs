//! The comparison of a file in the sandbox with its source.

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::backend::{Follow, Read};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Fingerprint, Integrity, Metadata};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use tokio::time::Instant;

use super::PutOperation;
use crate::copy::{CopiedBytes, Limits, copy};
use crate::engine::Engine;
use crate::peer::Sink;
use crate::policy::TransferDirection;
use crate::schedule::TransferError;

impl PutOperation<'_> {
    /// Compares the file in the sandbox with the source; a file that differs is removed.
    pub(super) async fn verify(&mut self, path: &SandboxPath) -> Result<Integrity, TransferError> {
        if let Some(true) = self.is_complete(path).await {
            return Ok(Integrity::SizeMtime);
        }
        if self.is_proved().await? {
            return Ok(Integrity::Sha256Beside);
        }
        if let Some(integrity) = self.matches(path, None).await? {
            return Ok(integrity);
        }
        let size = self.source.size();
        // The file is removed first: it is of no use, whether the source or the transport caused it.
        self.try_discard(path).await;
        // The source is read again only to find the cause: a source that changed would fail over every transport.
        let reread = self.reread_source().await?;
        if reread.bytes != size || reread.sha256() != self.source_sha256().await? {
            let error = "the source returned other bytes than its size and digest announce";
            return Err(TransferError::host(Error::new(ErrorKind::Corrupted, error)));
        }
        let error = Error::new(
            ErrorKind::Corrupted,
            "the written bytes differ from those that were sent",
        );
        Err(TransferError::transport(error))
    }

    /// Whether the digest that the sandbox computed beside the write equals that of the source. Any other digest
    /// decides nothing; then a digest of the file itself is computed.
    async fn is_proved(&mut self) -> Result<bool, TransferError> {
        let Some(Fingerprint::Sha256(sha256, size)) = self.digest.take() else {
            return Ok(false);
        };
        Ok(size == self.source.size() && sha256 == self.source_sha256().await?)
    }

    async fn source_sha256(&self) -> Result<Sha256Digest, TransferError> {
        self.source.sha256().await.map_err(TransferError::host)
    }

    /// Whether a file that was written in one attempt over a sound transport is complete, where that is enough
    /// evidence. If the state cannot be used, the digest decides.
    async fn is_complete(&self, path: &SandboxPath) -> Option<bool> {
        let (engine, size) = (self.engine, self.source.size());
        let transport = self.receipt.transport?;
        if self.receipt.resumed || !engine.times_suffice(size, transport) {
            return None;
        }
        engine.is_complete(path, size).await
    }

    /// The evidence that a file has the content of the source; `None` if it has other content.
    pub(super) async fn matches(
        &mut self,
        path: &SandboxPath,
        metadata: Option<&Metadata>,
    ) -> Result<Option<Integrity>, TransferError> {
        let (engine, size) = (self.engine, self.source.size());
        let source_sha256 = self.source_sha256().await?;
        match self.with_retries(|| engine.fingerprint(path, size)).await? {
            Some(Fingerprint::Sha256(sha256, of)) => {
                Ok((sha256 == source_sha256 && of == size).then_some(Integrity::Sha256After))
            }
            // The source knows its SHA-256, but the CRC has to be computed from its bytes.
            Some(weak @ Fingerprint::Cksum(..)) => {
                let reread = self.reread_source().await?;
                Ok(reread.agrees(&weak).then_some(Integrity::Weak))
            }
            None => {
                let metadata = if let Some(metadata) = metadata {
                    metadata.clone()
                } else {
                    let stat =
                        || engine.with_response_timeout(engine.sandbox.stat(path, Follow::No));
                    self.with_retries(stat).await?
                };
                if metadata.kind != FileKind::File || metadata.size != size {
                    return Ok(None);
                }
                let reread = self.read_back(&metadata).await?;
                Ok((reread.sha256() == source_sha256).then_some(Integrity::Sha256After))
            }
        }
    }

    /// Reads the source again, which is needed only in doubt.
    pub(super) async fn reread_source(&self) -> Result<CopiedBytes, TransferError> {
        let mut body = self.source.open(0).await.map_err(TransferError::host)?;
        let mut copied = CopiedBytes::new(self.source.size());
        while let Some(chunk) = body.next().await {
            copied.update(&chunk.map_err(TransferError::host)?);
        }
        Ok(copied)
    }

    /// Reads a file of the sandbox back, where no program there can compute a digest.
    pub(super) async fn read_back(
        &self,
        metadata: &Metadata,
    ) -> Result<CopiedBytes, TransferError> {
        let engine = self.engine;
        let mut file = metadata.clone();
        // The file is ours or was checked with `Follow::No`, so its path holds no link to resolve.
        file.real_path = metadata.path.clone();
        let usable = engine.sandbox.read_transports(&file);
        // Transports that are skipped for reading do not belong in the receipt of a put.
        let chosen = engine.choose(TransferDirection::Outbound, usable, &mut Vec::new());
        let Some(transport) = chosen else {
            let error = Error::new(ErrorKind::ToolMissing, "no transport reads the file back");
            return Err(TransferError::host(error));
        };
        let read = Read {
            transport,
            file: &file,
            offset: 0,
        };
        let body = engine
            .with_response_timeout(engine.sandbox.read(read))
            .await?;
        let mut copied = CopiedBytes::new(file.size);
        let limits = Limits {
            size: Some(file.size),
            idle: engine.options.idle,
            deadline: Instant::now() + Engine::total_timeout(file.size),
            spool: None,
        };
        copy(body, &mut copied, &mut DiscardSink, limits, &()).await?;
        Ok(copied)
    }
}

/// A sink that discards its bytes; the copy counts and hashes them.
struct DiscardSink;

#[async_trait]
impl Sink for DiscardSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        Ok(())
    }

    async fn write(&mut self, _chunk: Bytes) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self, _sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        Ok(())
    }

    async fn abort(&mut self) {}
}
