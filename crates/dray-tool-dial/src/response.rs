//! Reads the streamed response of a deployment (quickapps 24.2).

use std::collections::BTreeMap;

use dray_agent::event::{FinishReason, ModelUsage, TokenUsage};
use dray_agent::message::Attachment;
use dray_dial::{ChunkStream, Error, ErrorKind};
use dray_tool::{HandledFailure, StageWriter, ToolFailure, ToolOutput};
use futures_util::StreamExt as _;
use serde_json::{Map, Value};

use crate::failure::{DEFAULT_STAGE_MESSAGE, deployment_failure};

/// Longest response, files in it included, in bytes.
pub(crate) const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// Reads a complete response and writes its text to the stage as it arrives. Stages of the deployment itself are not
/// shown.
pub(crate) async fn read_answer(
    mut chunks: ChunkStream,
    deployment: &str,
    stage: &StageWriter,
) -> Result<ToolOutput, ToolFailure> {
    let mut response = DeploymentResponse::default();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(deployment_failure)?;
        if let Some(text) = response.add_chunk(&chunk)? {
            let shown = stage.content(text).await;
            shown.map_err(|gone| HandledFailure::new("The client is gone.").because(gone))?;
        }
    }
    // Without a finish reason the response was cut; it must not look complete.
    if !response.is_finished {
        let truncated = Error::new(
            ErrorKind::Broken,
            "the stream ended without a finish reason",
        );
        return Err(deployment_failure(truncated));
    }
    Ok(response.into_output(deployment))
}

#[derive(Default)]
struct DeploymentResponse {
    content: String,
    attachments: BTreeMap<u64, Map<String, Value>>,
    state: Option<Value>,
    usage: Vec<ModelUsage>,
    total: Option<TokenUsage>,
    size: usize,
    is_finished: bool,
    /// A remark for the model on an answer that is not complete.
    remark: Option<&'static str>,
}

impl DeploymentResponse {
    /// Adds a chunk and returns its text.
    fn add_chunk(&mut self, chunk: &Value) -> Result<Option<String>, ToolFailure> {
        self.record_usage(chunk);
        let choice = chunk.pointer("/choices/0");
        let Some(choice) = choice else {
            return Ok(None);
        };
        let reason = choice
            .get("finish_reason")
            .filter(|reason| !reason.is_null());
        if let Some(reason) = reason {
            self.is_finished = true;
            self.remark = match reason.as_str() {
                Some("length") => FinishReason::Length.incomplete_remark(),
                Some("content_filter") => FinishReason::ContentFilter.incomplete_remark(),
                _ => None,
            };
        }
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        let files = delta.pointer("/custom_content/attachments");
        for file in files.and_then(Value::as_array).into_iter().flatten() {
            self.add_file(file)?;
        }
        if let Some(state) = delta.pointer("/custom_content/state") {
            self.add_size(state.to_string().len())?;
            merge_state(self.state.get_or_insert(Value::Null), state);
        }
        let text = delta.get("content").and_then(Value::as_str);
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        self.add_size(text.len())?;
        self.content.push_str(text);
        Ok(Some(text.to_owned()))
    }

    fn add_size(&mut self, more: usize) -> Result<(), ToolFailure> {
        self.size = self.size.saturating_add(more);
        if self.size <= MAX_RESPONSE_BYTES {
            return Ok(());
        }
        let text =
            format!("The answer of the deployment is longer than {MAX_RESPONSE_BYTES} bytes.");
        Err(HandledFailure::new(text)
            .shown(DEFAULT_STAGE_MESSAGE)
            .into())
    }

    /// Adds a file, or a part of one: parts with the same index belong together.
    fn add_file(&mut self, file: &Value) -> Result<(), ToolFailure> {
        let Some(members) = file.as_object() else {
            return Ok(());
        };
        // The size is counted part by part: many small parts of one file must not pass the limit.
        self.add_size(file.to_string().len())?;
        // A file without an index is a separate file.
        let next = self
            .attachments
            .last_key_value()
            .map_or(0, |(last, _)| last.saturating_add(1));
        let index = members.get("index").and_then(Value::as_u64).unwrap_or(next);
        let known = self.attachments.entry(index).or_default();
        for (name, value) in members.iter().filter(|(name, _)| *name != "index") {
            match (known.get_mut(name), value) {
                (Some(Value::String(known)), Value::String(more)) => known.push_str(more),
                _ => {
                    known.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(())
    }

    /// Records the tokens; later numbers replace earlier ones, because the last chunk has the final ones.
    fn record_usage(&mut self, chunk: &Value) {
        let models = chunk.pointer("/statistics/usage_per_model");
        if let Some(models) = models.and_then(Value::as_array) {
            let used = models.iter().filter_map(|usage| {
                let model = usage.get("model")?.as_str()?.to_owned();
                token_usage(usage).map(|tokens| ModelUsage { model, tokens })
            });
            self.usage = used.collect();
        }
        if let Some(total) = chunk.get("usage").and_then(token_usage) {
            self.total = Some(total);
        }
    }

    fn into_output(self, deployment: &str) -> ToolOutput {
        let (mut content, mut usage) = (self.content, self.usage);
        content.push_str(self.remark.unwrap_or_default());
        if usage.is_empty() {
            usage.extend(self.total.map(|tokens| ModelUsage {
                model: deployment.to_owned(),
                tokens,
            }));
        }
        let files = self.attachments.into_values();
        // A file of an unknown form must not make the response fail.
        let files = files.filter_map(|file| serde_json::from_value(Value::Object(file)).ok());
        ToolOutput {
            content,
            content_type: "text/markdown".to_owned(),
            attachments: files.map(with_address).collect(),
            state: self.state,
            usage,
            streamed: true,
            question: None,
        }
    }
}

/// A file with neither data nor URL gets the reference URL, or else empty data (quickapps 18.4).
fn with_address(mut file: Attachment) -> Attachment {
    if file.url.is_none() && file.data.is_none() {
        match &file.reference_url {
            Some(url) => file.url = Some(url.clone()),
            None => file.data = Some(String::new()),
        }
    }
    file
}

fn token_usage(value: &Value) -> Option<TokenUsage> {
    let count = |name| {
        let count = value.get(name).and_then(Value::as_u64);
        count.filter(|count| *count <= TokenUsage::MAX_COUNT)
    };
    let (prompt, completion) = (count("prompt_tokens"), count("completion_tokens"));
    (prompt.is_some() || completion.is_some()).then(|| TokenUsage {
        prompt: prompt.unwrap_or_default(),
        completion: completion.unwrap_or_default(),
        ..TokenUsage::default()
    })
}

/// Merges objects member by member; other values are replaced.
fn merge_state(known: &mut Value, more: &Value) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                match known.get_mut(name) {
                    Some(old) if old.is_object() => merge_state(old, value),
                    _ => {
                        known.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (known, more) => *known = more.clone(),
    }
}
