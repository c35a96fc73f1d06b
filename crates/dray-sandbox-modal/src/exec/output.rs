//! An output of a command, read by offset: after a broken connection it continues at its offset (sandbox-transfer
//!

use std::sync::Arc;

use bytes::Bytes;
use dray_sandbox::{Error, ErrorKind};
use tonic::{Code, Status, Streaming};

use crate::fault;
use crate::retry::RequestRetries;
use crate::router::{Router, RouterAccess};
use crate::wire::{StdioChunk, StdioRead};

const OUTPUT_CONTEXT: &str = "reading the output of a command";

/// One of the two outputs of a command.
pub(super) struct CommandOutput {
    router: Arc<Router>,
    exec_id: String,
    descriptor: i32,
    /// Bytes that were passed on.
    offset: u64,
    open: Option<(Streaming<StdioChunk>, Arc<RouterAccess>)>,
    retry: RequestRetries,
    renewed: bool,
}

impl CommandOutput {
    pub(super) fn new(router: Arc<Router>, exec_id: String, descriptor: i32) -> Self {
        Self {
            router,
            exec_id,
            descriptor,
            offset: 0,
            open: None,
            retry: RequestRetries::default(),
            renewed: false,
        }
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let access = match &self.open {
                Some((_, access)) => Arc::clone(access),
                None => self.router.access(),
            };
            match self.next_chunk(&access).await {
                Ok(Some(data)) if data.is_empty() => {}
                Ok(Some(data)) => {
                    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    let Some(offset) = self.offset.checked_add(length) else {
                        return Err(Error::new(ErrorKind::Protocol, "an endless output"));
                    };
                    self.offset = offset;
                    self.retry.progress();
                    self.renewed = false;
                    return Ok(Some(data));
                }
                Ok(None) => return Ok(None),
                Err(status) => self.recover(&access, status).await?,
            }
        }
    }

    async fn next_chunk(&mut self, access: &Arc<RouterAccess>) -> Result<Option<Bytes>, Status> {
        if self.open.is_none() {
            let read = StdioRead {
                task_id: self.router.task_id().to_owned(),
                exec_id: self.exec_id.clone(),
                offset: self.offset,
                file_descriptor: self.descriptor,
            };
            let throttles = self.retry.throttles();
            let stream = self.router.output(access, read, throttles).await?;
            self.open = Some((stream, Arc::clone(access)));
        }
        match &mut self.open {
            Some((stream, _)) => Ok(stream.message().await?.map(|chunk| chunk.data)),
            None => Ok(None),
        }
    }

    /// Prepares another attempt, or fails.
    async fn recover(&mut self, access: &RouterAccess, status: Status) -> Result<(), Error> {
        self.open = None;
        if status.code() == Code::Unauthenticated && !self.renewed {
            self.renewed = true;
            let renewed = self.router.renew(access).await;
            return renewed.map_err(|status| fault::failed(OUTPUT_CONTEXT, &status));
        }
        if self.retry.wait_for_retry(&status).await {
            tracing::debug!(offset = self.offset, code = ?status.code(), "an output is resumed");
            return Ok(());
        }
        Err(fault::failed(OUTPUT_CONTEXT, &status))
    }
}
