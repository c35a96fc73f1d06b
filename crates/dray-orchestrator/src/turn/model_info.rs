//! The metadata of the model's deployment.

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use serde_json::Value;

use super::{SharedParts, failures};

/// The metadata of the model's deployment that a turn needs.
#[derive(Default)]
pub(super) struct ModelInfo {
    /// Media types of files that the model accepts.
    pub(super) accepts: Vec<String>,
    /// Tools that the deployment runs itself.
    pub(super) statics: Vec<Value>,
}

/// The metadata of a deployment; empty for a model that is not one of DIAL.
pub(super) async fn model_info(
    parts: &SharedParts,
    caller: &Caller,
    deployment: &str,
) -> Result<ModelInfo, RequestFailure> {
    let Some(core) = &parts.core else {
        return Ok(ModelInfo::default());
    };
    // A configured endpoint has no metadata in DIAL.
    if parts.config.model_url.is_some() {
        return Ok(ModelInfo::default());
    }
    let deployment_info = core.deployment(caller, deployment).await;
    let deployment_info = deployment_info.map_err(|error| failures::metadata_failure(&error))?;
    let tools = deployment_info
        .defaults
        .get("tools")
        .and_then(Value::as_array);
    let statics = tools.into_iter().flatten().filter(|tool| is_static(tool));
    Ok(ModelInfo {
        statics: statics.cloned().collect(),
        accepts: deployment_info.input_attachment_types,
    })
}

/// Whether a tool is one that the deployment runs itself (quickapps 39).
fn is_static(tool: &Value) -> bool {
    let named = tool
        .pointer("/static_function/name")
        .and_then(Value::as_str);
    let fits = tool
        .get("type")
        .is_some_and(|kind| kind == "static_function")
        && named.is_some();
    if !fits {
        tracing::debug!("a default tool of the deployment is passed over");
    }
    fits
}
