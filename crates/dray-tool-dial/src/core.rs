//! DIAL Core itself behind [`DialPort`].

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_dial::chat::{ChatError, ChatKind};
use dray_dial::{DialClient, Error, ErrorKind, InterpreterAction};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::{ChunkStream, DeploymentFacts, DialError, DialPort};

#[async_trait]
impl DialPort for DialClient {
    async fn facts(&self, caller: &Caller, deployment: &str) -> Result<DeploymentFacts, DialError> {
        let told = self
            .deployment(caller, deployment)
            .await
            .map_err(to_dial_error)?;
        let configuration = if told.features.configuration {
            let schema = self.deployment_configuration(caller, deployment).await;
            Some(schema.map_err(to_dial_error)?)
        } else {
            None
        };
        Ok(DeploymentFacts {
            display_name: Some(told.display_name),
            description: told.description,
            takes_files: !told.input_attachment_types.is_empty(),
            url_attachments: told.features.url_attachments,
            mcp: told.features.mcp,
            configuration,
        })
    }

    fn forget(&self, caller: &Caller, deployment: &str) {
        Self::forget(self, caller, deployment);
    }

    async fn chat(
        &self,
        caller: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, DialError> {
        let chat = Self::chat(self);
        let asked = chat.stream_with(caller, headers, deployment, body.clone());
        let answer = asked.await.map_err(chat_error)?;
        let chunks = stream::try_unfold(answer, |mut answer| async move {
            let chunk = answer.chunk().await.map_err(chat_error)?;
            Ok(chunk.map(|chunk| (chunk, answer)))
        });
        Ok(chunks.boxed())
    }

    async fn code_interpreter(
        &self,
        caller: &Caller,
        operation: &str,
        body: &Value,
    ) -> Result<Value, DialError> {
        let all = [
            InterpreterAction::OpenSession,
            InterpreterAction::GetSession,
            InterpreterAction::CloseSession,
            InterpreterAction::ExecuteCode,
            InterpreterAction::ListFiles,
            InterpreterAction::TransferInputFile,
        ];
        let Some(action) = all.into_iter().find(|action| action.as_str() == operation) else {
            return Err(DialError::status(404));
        };
        self.interpreter(caller, action, body)
            .await
            .map_err(to_dial_error)
    }
}

/// The words of a service are passed on; ours are for the log.
fn to_dial_error(error: Error) -> DialError {
    DialError {
        status: error.status,
        message: error.status.map(|_| error.message.clone()),
        display_message: error.display_message.clone(),
        timed_out: error.kind == ErrorKind::Timeout,
        source: Some(Box::new(error)),
    }
}

fn chat_error(error: ChatError) -> DialError {
    let status = match error.kind {
        ChatKind::Status(status) => Some(status),
        _ => None,
    };
    DialError {
        status,
        message: status.map(|_| error.message.clone()),
        display_message: error.display_message.clone(),
        timed_out: error.kind == ChatKind::Timeout,
        source: Some(Box::new(error)),
    }
}
