//! Builds tools from a manifest's set of deployments (quickapps 24).

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::manifest::call::{AttachmentRules, Fallback};
use dray_agent::manifest::tool::{DeploymentTool, DescribedDeployment};
use dray_agent::manifest::toolset::DialDeployment;
use dray_dial::{DialPort, Error, ErrorKind};
use dray_tool::{
    CallRules, FileIds, SetupIssue, StageStyle, Tool, ToolDeclaration, ToolsetResult, naming,
    timeout,
};
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use crate::deployment::DialDeploymentTool;
use crate::{DeploymentFacts, attachment, generated};

/// Deployments whose metadata are read concurrently.
const CONCURRENT_DEPLOYMENTS: usize = 8;

/// Builds the tools of a set, in the order of the manifest. Disabled tools are skipped. A tool whose metadata cannot
/// be read becomes an issue, and the others are still built. Predefined tools were resolved before.
pub async fn build_deployments(
    set: &DialDeployment,
    dial: &Arc<dyn DialPort>,
    caller: &Caller,
) -> ToolsetResult {
    if !set.common.enabled {
        return ToolsetResult::default();
    }
    let all: Vec<_> = set
        .tools
        .iter()
        .map(|tool| build_deployment(set, tool, dial, caller))
        .collect();
    // `buffered` keeps the order of the manifest: a list of tools in another order would miss the model's prompt cache
    // (R16).
    let mut outcomes = stream::iter(all).buffered(CONCURRENT_DEPLOYMENTS);
    let mut built = ToolsetResult::default();
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Some(Ok(tool)) => built.tools.push(tool),
            Some(Err(issue)) => built.issues.push(issue),
            None => {}
        }
    }
    built
}

/// The tool that a deployment's metadata describe, as a manifest would (quickapps 38).
///
/// # Errors
///
/// [`Error`] when the metadata are not available.
pub async fn deployment_template(
    dial: &Arc<dyn DialPort>,
    caller: &Caller,
    deployment: &str,
) -> Result<Value, Error> {
    let facts = DeploymentFacts::load(dial.as_ref(), caller, deployment).await?;
    Ok(generated::tool_manifest(deployment, &facts))
}

async fn build_deployment(
    set: &DialDeployment,
    tool: &DeploymentTool,
    dial: &Arc<dyn DialPort>,
    caller: &Caller,
) -> Option<Result<Arc<dyn Tool>, SetupIssue>> {
    let (id, described) = match tool {
        DeploymentTool::DeploymentTool(described) if described.common.enabled => {
            (&described.deployment.deployment_id, Some(described))
        }
        DeploymentTool::DialDeploymentSimple {
            deployment_id,
            enabled: true,
        } => (deployment_id, None),
        // Disabled tools are left out, and predefined tools, which were resolved before.
        _ => return None,
    };
    let description = match described {
        Some(described) => described.open_ai_tool.function.name.clone(),
        None => generated::function_name(id),
    };
    let issue = |message: String| SetupIssue {
        tool: Some(description),
        toolset: Some(set.name.clone()),
        message,
        details: Vec::new(),
        is_for_user: false,
    };
    let facts = match DeploymentFacts::load(dial.as_ref(), caller, id).await {
        Ok(facts) => facts,
        Err(refused) => return Some(Err(issue(metadata_issue(id, &refused)))),
    };
    let tool_description = match described {
        Some(described) => Ok(with_arguments(described)),
        None => from_metadata(id, &facts),
    };
    Some(match tool_description {
        Ok(described) => {
            let prefix = ToolPrefix {
                name: &set.name,
                timeout_seconds: set.common.timeout_seconds,
            };
            Ok(deployment_tool(&prefix, described, facts, dial))
        }
        Err(message) => Err(issue(message)),
    })
}

/// The settings that the tools of a set inherit from it.
pub(crate) struct ToolPrefix<'a> {
    pub(crate) name: &'a str,
    pub(crate) timeout_seconds: Option<f64>,
}

/// The reason why metadata are not available, for the builder.
pub(crate) fn metadata_issue(id: &str, refused: &Error) -> String {
    match refused.status {
        Some(404) => format!("Deployment '{id}' was not found."),
        Some(401 | 403) => format!("Access to deployment '{id}' is forbidden."),
        Some(status) => format!("The metadata of deployment '{id}' cannot be read: HTTP {status}."),
        None if refused.kind == ErrorKind::Timeout => {
            format!("The metadata of deployment '{id}' cannot be read: the request timed out.")
        }
        None => format!("The metadata of deployment '{id}' cannot be read."),
    }
}

/// The tool that the metadata describe.
pub(crate) fn from_metadata(
    id: &str,
    facts: &DeploymentFacts,
) -> Result<DescribedDeployment, String> {
    // The tool is converted through JSON, so that it is parsed like a tool in a manifest.
    serde_json::from_value(generated::tool_manifest(id, facts))
        .map_err(|_| format!("The metadata of deployment '{id}' describe no tool."))
}

/// A described tool with the two arguments that every deployment accepts.
fn with_arguments(described: &DescribedDeployment) -> DescribedDeployment {
    let mut described = described.clone();
    let added = [
        ("query", json!({ "type": "string" })),
        (attachment::ATTACHMENT_PARAMETER, generated::files_schema()),
    ];
    let function = &mut described.open_ai_tool.function;
    if function.parameters.is_none() {
        function.parameters = serde_json::from_value(json!({ "type": "object" })).ok();
    }
    if let Some(arguments) = &mut function.parameters {
        for (name, schema) in added {
            // A builder may have described these arguments for the purpose of this tool; that description stays.
            if arguments.properties.iter().all(|(known, _)| known != name) {
                let parameter = serde_json::from_value(schema).ok();
                arguments
                    .properties
                    .extend(parameter.map(|parameter| (name.to_owned(), parameter)));
            }
        }
    }
    described
}

/// The tool of a described deployment, named by its set.
pub(crate) fn deployment_tool(
    prefix: &ToolPrefix<'_>,
    described: DescribedDeployment,
    facts: DeploymentFacts,
    dial: &Arc<dyn DialPort>,
) -> Arc<dyn Tool> {
    let function = described.open_ai_tool.function;
    let common = described.common;
    let (parameters, shown) = argument_schema(function.parameters);
    Arc::new(DialDeploymentTool {
        dial: Arc::clone(dial),
        declaration: ToolDeclaration {
            name: naming::qualified_name(prefix.name, &function.name),
            description: function.description,
            parameters,
        },
        rules: CallRules {
            label: format!("Calling {} application", function.name),
            style: StageStyle::Deployment,
            attachments: common.attachment.unwrap_or_default(),
            fallback: common.fallback_configuration.unwrap_or_default(),
            display: common.display.unwrap_or_default(),
            parameters: shown,
            timeout: common
                .timeout_seconds
                .or(prefix.timeout_seconds)
                .and_then(timeout::from_seconds),
            by_reference: vec![attachment::ATTACHMENT_PARAMETER.to_owned()],
            file_ids: FileIds::Addresses,
            hidden: common.hidden_from_model,
            ..CallRules::default()
        },
        target: described.deployment,
        system_prompt: described.system_prompt,
        propagate_history: described.content_propagation.propagate_history,
        propagate_headers: described.content_propagation.propagate_headers,
        facts,
    })
}

type ParameterDisplays = BTreeMap<String, dray_agent::manifest::call::ParameterDisplay>;

/// Splits the arguments of a manifest into the JSON schema for the model and the rules by which a stage shows them.
fn argument_schema(
    given: Option<dray_agent::manifest::tool::Arguments<dray_agent::manifest::tool::Parameter>>,
) -> (Value, ParameterDisplays) {
    let mut shown = BTreeMap::new();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    let mut properties = Map::new();
    if let Some(given) = given {
        for (name, parameter) in given.properties {
            properties.insert(name.clone(), parameter.schema.into());
            shown.extend(parameter.display.map(|display| (name, display)));
        }
        schema.extend(given.rest);
        if !given.required.is_empty() {
            schema.insert("required".to_owned(), given.required.into());
        }
    }
    schema.insert("properties".to_owned(), properties.into());
    (Value::Object(schema), shown)
}

/// Replaces the attachment rules and the fallback of a described tool by those of its entry, if the entry has some.
pub(crate) fn apply_overrides(
    mut described: DescribedDeployment,
    files: Option<&AttachmentRules>,
    fallback: Option<&Fallback>,
) -> DescribedDeployment {
    described.common.attachment = files.cloned().or(described.common.attachment);
    described.common.fallback_configuration = fallback
        .cloned()
        .or(described.common.fallback_configuration);
    described
}
