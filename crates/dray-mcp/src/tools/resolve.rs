//! `resolve_file_arguments`: the arguments of another tool, with content in place of references.

use bytes::Bytes;
use dray_proto::MAX_INLINE_BYTES;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::{Claim, Fault, OperationId};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use super::files::digest_text;
use super::{ToolCall, extended, linked_result, next_call};
use crate::arguments::ResolveArguments;
use crate::client::TRANSFER_TIMEOUT;
use crate::content::StoredFile;
use crate::options::ToolName;

/// Media type of arguments.
const JSON_TYPE: &str = "application/json";

impl ToolCall<'_> {
    pub(super) async fn resolve(
        &mut self,
        resolve: ResolveArguments,
    ) -> Result<CallToolResult, Fault> {
        let arguments = Bytes::from(Value::Object(resolve.arguments).to_string());
        let content = if arguments.len() <= MAX_INLINE_BYTES {
            ContentSource::Inline(arguments)
        } else {
            ContentSource::Claim(self.store_json(arguments).await?)
        };
        let request = v1::ResolveRequest {
            arguments: Some(content.into()),
            options: Some(v1::ResolveOptions {
                nested: resolve.nested,
                ..v1::ResolveOptions::default()
            }),
            // No credentials, because this server has none for DIAL.
            ..v1::ResolveRequest::default()
        };
        self.progress.step("resolving").await;
        let reply = self.access.client.call(TRANSFER_TIMEOUT, &request).await?;
        match reply.outcome.ok_or_else(Fault::internal)? {
            v1::resolve_reply::Outcome::Resolved(resolved) => self.resolved_result(resolved).await,
            v1::resolve_reply::Outcome::Invalid(invalid) => {
                let fault = invalid.fault.map_or_else(Fault::internal, Fault::from);
                Err(Fault {
                    message: invalid.tool_message,
                    ..fault
                })
            }
        }
    }

    async fn resolved_result(
        &self,
        resolved: v1::ResolvedArguments,
    ) -> Result<CallToolResult, Fault> {
        let content = resolved.arguments.ok_or_else(Fault::internal)?;
        let claim = match ContentSource::try_from(content).map_err(|_| Fault::internal())? {
            ContentSource::Inline(bytes) => self.store_json(bytes).await?,
            ContentSource::Claim(claim) => claim,
        };
        let replaced: Vec<Value> = resolved
            .files
            .iter()
            .map(|file| {
                json!({
                    "pointer": file.pointer,
                    "form": file.form,
                    "reference": file.reference,
                    "size": file.size,
                    "media_type": file.media_type,
                    "sha256": digest_text(&file.sha256),
                })
            })
            .collect();
        let stored = StoredFile::new(claim, JSON_TYPE.to_owned());
        let read = next_call(ToolName::Read, &json!({"path": stored.handle()}));
        let value = extended(
            stored.describe(),
            json!({"replaced": replaced, "next": read}),
        );
        Ok(linked_result(&stored, value))
    }

    async fn store_json(&self, bytes: Bytes) -> Result<Claim, Fault> {
        let client = &self.access.client;
        let label = ArtifactLabel::new(JSON_TYPE, "arguments.json");
        let operation = OperationId::mint();
        Ok(client
            .store
            .put(&client.tenant, &operation, bytes, label)
            .await?)
    }
}
