//! One attempt to read a file: choosing the transport, copying, and computing the digest in the sandbox meanwhile.

use dray_sandbox::backend::{Read, ReadDigest};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Metadata, Transport};
use futures_util::future::join;
use tokio::time::{Instant, timeout};

use super::{GetOperation, UnprovenCopy, is_interruption, is_pseudo_file};
use crate::copy::{Limits, copy};
use crate::engine::Engine;
use crate::prove;
use crate::queue::Spool;
use crate::schedule::{Stage, TransferError};

impl GetOperation<'_> {
    /// Chooses the transport of the next attempt. If a transport can begin at an offset, it continues an interrupted
    /// copy; else the best transport starts from the beginning.
    pub(super) fn transport(&mut self, file: &Metadata) -> Result<Transport, TransferError> {
        let interrupted = self.partial.as_ref().is_some_and(|partial| {
            partial.copied.settled && partial.copied.bytes > 0 && prove::same(&partial.file, file)
        });
        if interrupted && let Some(transport) = self.engine.resuming(file) {
            return Ok(transport);
        }
        let usable = self.engine.sandbox.read_transports(file);
        self.schedule.choose(usable, self.receipt)
    }

    /// The part of the same file that an earlier transfer left in the sink, and a transport that can continue it.
    pub(super) async fn resume_kept(
        &mut self,
        file: &Metadata,
    ) -> Result<Option<(Transport, Body)>, TransferError> {
        // A partial file is continued only before the first attempt: afterwards the sink contains bytes of this
        // transfer.
        if self.partial.is_some() || !std::mem::take(&mut self.may_continue) {
            return Ok(None);
        }
        let Some(transport) = self.engine.resuming(file) else {
            return Ok(None);
        };
        let body = self.sink.resume(file).await.map_err(TransferError::host)?;
        Ok(body.map(|body| (transport, body)))
    }

    /// Reads the missing bytes of the file into the sink.
    pub(super) async fn fetch(
        &mut self,
        mut partial: UnprovenCopy,
        transport: Transport,
    ) -> Result<UnprovenCopy, TransferError> {
        let (file, before) = (&partial.file, &mut partial.before);
        let copied = &mut partial.copied;
        let offset = copied.bytes;
        self.receipt.attempts += 1;
        self.progress
            .began(self.receipt.attempts, transport, offset);
        let engine = self.engine;
        // If the interruption came after the last byte, no byte is left to read, and some transports cannot begin at
        // the end.
        if offset > 0 && offset == file.size {
            if before.wants_digest() {
                let fingerprint = engine.fingerprint(&file.real_path, file.size).await;
                before.set_digest(fingerprint.unwrap_or_default());
            }
            return Ok(partial);
        }
        let read = Read {
            transport,
            file,
            offset,
        };
        let with_digest = before.wants_digest() && engine.sandbox.reads_with_digest(&read);
        let mut digest = None;
        let outcome = async {
            let (body, receiver) = engine.open(read, with_digest).await?;
            digest = receiver;
            copy(body, copied, self.sink, engine.limits(&read), self.progress).await
        };
        let outcome = if before.wants_digest() && !with_digest {
            let (fingerprint, outcome) =
                join(engine.fingerprint(&file.real_path, file.size), outcome).await;
            // If this digest fails, the copy continues: the digest that is computed afterwards decides.
            before.set_digest(fingerprint.unwrap_or_default());
            outcome
        } else {
            outcome.await
        };
        if let Some(digest) = digest
            && outcome.is_ok()
        {
            let computed = timeout(Engine::total_timeout(file.size), digest).await;
            before.set_digest(computed.ok().and_then(Result::ok));
        }
        // A failed sink is not flushed, so that its first error is reported.
        if !matches!(&outcome, Err(failure) if failure.stage == Stage::Host) {
            self.sink.flush().await.map_err(TransferError::host)?;
        }
        // The digest of the sink includes all bytes only after the flush.
        copied.take_digest_of(&*self.sink);
        self.receipt.bytes = copied.bytes;
        match outcome {
            Ok(()) => Ok(partial),
            Err(failure) if is_pseudo_file(&partial.file, &failure) => {
                Err(Error::new(ErrorKind::NotRegular, "a file of size 0 returned bytes").into())
            }
            Err(failure) => {
                // Bytes before an interruption are kept; after other errors the file is read again.
                self.partial = Some(partial).filter(|_| is_interruption(failure.error.kind()));
                Err(failure)
            }
        }
    }
}

impl Engine {
    /// Opens a file. With `with_digest` the sandbox also computes the digest of the bytes that it sends.
    async fn open(
        &self,
        read: Read<'_>,
        with_digest: bool,
    ) -> Result<(Body, Option<ReadDigest>), TransferError> {
        let opened = if with_digest {
            let opened = self
                .with_response_timeout(self.sandbox.read_with_digest(read))
                .await;
            opened.map(|(body, digest)| (body, Some(digest)))
        } else {
            let opened = self.with_response_timeout(self.sandbox.read(read)).await;
            opened.map(|body| (body, None))
        };
        opened.map_err(TransferError::transport)
    }

    fn limits(&self, read: &Read<'_>) -> Limits {
        let drains = self.sandbox.must_drain(read.transport);
        Limits {
            size: Some(read.file.size),
            idle: self.options.idle,
            deadline: Instant::now() + Self::total_timeout(read.file.size),
            spool: drains.then(|| Spool::from(&self.options)),
        }
    }
}
