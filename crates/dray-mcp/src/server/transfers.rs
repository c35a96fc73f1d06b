//! Calls that move a file: as a result, or as a task when they take longer than a client should wait.

use dray_bus::KeyError;
use dray_types::{Fault, OperationId};
use rmcp::model::{CallToolResponse, GetTaskResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::access::CallerAccess;
use super::{McpServer, cancelled_fault};
use crate::auth::required_scopes;
use crate::content::ContentAccess;
use crate::failure;
use crate::options::ToolName;
use crate::progress::ProgressReporter;
use crate::tasks::TASK_AFTER;
use crate::tools::{ToolCall, ToolOutcome};
use crate::transfer_tasks::{self, StoredTransfer, TransferWork};

/// One call of a tool that moves a file.
struct TransferCall {
    tool: ToolName,
    arguments: Option<JsonObject>,
    access: ContentAccess,
    operation: OperationId,
    /// Whether another server may have run it before.
    repeats: bool,
}

impl McpServer {
    /// Runs the call to its end, or returns a task when it takes long.
    pub(super) async fn call_transfer(
        &self,
        tool: ToolName,
        arguments: Option<JsonObject>,
        caller: CallerAccess,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Fault> {
        caller.require(required_scopes(tool, arguments.as_ref()))?;
        let client = caller.access.client.clone();
        let operation = transfer_tasks::new_id();
        let progress = ProgressReporter::new(context);
        let link = progress.link();
        let call = TransferCall {
            tool,
            arguments: arguments.clone(),
            access: caller.access,
            operation: operation.clone(),
            repeats: false,
        };
        let mut work = self.transfer_work(call, progress);
        tokio::select! {
            result = &mut work => return result.map(Into::into),
            () = context.ct.cancelled() => return Err(cancelled_fault()),
            () = tokio::time::sleep(TASK_AFTER) => {}
        }
        let transfers = &self.state.transfers;
        if transfers.has_room() {
            let arguments = arguments.unwrap_or_default();
            let creating = StoredTransfer::create(&client, operation, tool, arguments, link.step());
            match creating.await {
                Ok(stored) => {
                    let task = stored.created();
                    // The request is answered, so its progress is the status of the task from now on.
                    link.detach();
                    transfers.spawn(client, stored, work, link);
                    return Ok(CallToolResponse::Task(task));
                }
                // The request then waits for the end of the call, as without tasks.
                Err(error) => tracing::warn!(%error, "a transfer cannot become a task"),
            }
        }
        tokio::select! {
            result = work => result.map(Into::into),
            () = context.ct.cancelled() => Err(cancelled_fault()),
        }
    }

    /// The transfer with this id, if it belongs to the caller.
    pub(super) async fn find_transfer(
        &self,
        access: &ContentAccess,
        task_id: &str,
    ) -> Result<Option<StoredTransfer>, ErrorData> {
        let found = StoredTransfer::find(&access.client, task_id).await;
        found.map_err(|fault| failure::protocol_error(&fault))
    }

    /// The state of a transfer. A transfer whose server died is continued here, if the caller may make its call.
    pub(super) async fn transfer_state(
        &self,
        caller: CallerAccess,
        mut stored: StoredTransfer,
    ) -> Result<GetTaskResult, Fault> {
        let client = caller.access.client.clone();
        if !stored.is_abandoned(client.clock.now_ms()) {
            return Ok(stored.state());
        }
        let record = &stored.record;
        let tool = stored.tool().filter(|tool| {
            let required = required_scopes(*tool, Some(&record.arguments));
            self.state.options.offers(*tool) && caller.require(required).is_ok()
        });
        let (Some(tool), true) = (tool, self.state.transfers.has_room()) else {
            return Ok(stored.state());
        };
        let arguments = record.arguments.clone();
        let continues = stored.take_over(&client);
        match stored.update(&client).await {
            Ok(()) => {}
            // Another server took the transfer over first.
            Err(KeyError::Stale) => return Ok(stored.read_again(&client).await?.state()),
            Err(error) => return Err(error.into()),
        }
        let state = stored.state();
        if continues {
            let progress = ProgressReporter::silent();
            let link = progress.link();
            let call = TransferCall {
                tool,
                arguments: Some(arguments),
                access: caller.access,
                operation: stored.id().clone(),
                repeats: true,
            };
            let work = self.transfer_work(call, progress);
            tracing::info!(task = %stored.id(), "a transfer of a server that died is continued");
            self.state.transfers.spawn(client, stored, work, link);
        }
        Ok(state)
    }

    /// Cancels a transfer, if the caller may make its call.
    pub(super) async fn cancel_transfer(
        &self,
        caller: &CallerAccess,
        stored: StoredTransfer,
    ) -> Result<(), Fault> {
        if let Some(tool) = stored.tool() {
            caller.require(required_scopes(tool, Some(&stored.record.arguments)))?;
        }
        let client = &caller.access.client;
        self.state.transfers.cancel(client, stored).await
    }

    fn transfer_work(&self, transfer: TransferCall, progress: ProgressReporter) -> TransferWork {
        // The whole state would own itself here, because it owns the tasks.
        let options = self.state.options.clone();
        Box::pin(async move {
            let mut call = ToolCall {
                access: &transfer.access,
                options: &options,
                progress,
                is_http: false,
                questions: None,
                accepts_tasks: false,
                operation: transfer.operation,
                repeats: transfer.repeats,
            };
            match call.run(transfer.tool, transfer.arguments).await? {
                ToolOutcome::Done(result) => Ok(*result),
                // Other tools ask or deliver.
                _ => Err(Fault::internal()),
            }
        })
    }
}
