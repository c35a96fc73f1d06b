//! Applications of DIAL, by the protocol that they speak (quickapps 26).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{AppTransport, DialApp};
use dray_dial::DialPort;
use dray_tool::{SetupIssue, ToolsetResult};
use futures_util::future::join_all;

use crate::DeploymentFacts;
use crate::build::{self, ToolPrefix};

/// Builds the tools of all entries, in their order. Entries of one deployment are built one after another from one
/// reading of its metadata; different deployments are built concurrently. `mcp` builds the entries that speak MCP.
pub async fn app_toolsets<F, Fut>(
    entries: &[DialApp],
    dial: &Arc<dyn DialPort>,
    caller: &Caller,
    mcp: F,
) -> ToolsetResult
where
    F: Fn(DialApp, DeploymentFacts) -> Fut,
    Fut: Future<Output = ToolsetResult>,
{
    let mut groups: BTreeMap<&str, Vec<(usize, &DialApp)>> = BTreeMap::new();
    for (position, entry) in entries.iter().enumerate() {
        if entry.common.enabled {
            groups
                .entry(&entry.deployment_id)
                .or_default()
                .push((position, entry));
        }
    }
    let mcp = &mcp;
    let groups = groups.into_iter().map(|(id, group)| async move {
        // The metadata are read once for all entries of the deployment (quickapps 26).
        let facts = DeploymentFacts::load(dial.as_ref(), caller, id).await;
        let mut done = Vec::new();
        for (position, entry) in group {
            let built = match &facts {
                Ok(facts) => app_toolset(entry, facts, dial, mcp).await,
                Err(refused) => issue_result(entry, build::metadata_issue(id, refused)),
            };
            done.push((position, built));
        }
        done
    });
    let mut done: Vec<_> = join_all(groups).await.into_iter().flatten().collect();
    // The groups are ordered by id, but the tools by their order in the manifest.
    done.sort_by_key(|(position, _)| *position);
    let mut all = ToolsetResult::default();
    for (_, built) in done {
        all.tools.extend(built.tools);
        all.issues.extend(built.issues);
    }
    all
}

async fn app_toolset<F, Fut>(
    entry: &DialApp,
    facts: &DeploymentFacts,
    dial: &Arc<dyn DialPort>,
    mcp: &F,
) -> ToolsetResult
where
    F: Fn(DialApp, DeploymentFacts) -> Fut,
    Fut: Future<Output = ToolsetResult>,
{
    match (entry.transport, facts.mcp) {
        (AppTransport::Auto | AppTransport::Mcp, true) => mcp(entry.clone(), facts.clone()).await,
        (AppTransport::Mcp, false) => issue_result(
            entry,
            format!(
                "transport=mcp requested but features.mcp is not advertised on {}",
                entry.deployment_id
            ),
        ),
        (AppTransport::ChatCompletion, _) | (AppTransport::Auto, false) => {
            chat_toolset(entry, facts, dial)
        }
    }
}

fn chat_toolset(
    entry: &DialApp,
    facts: &DeploymentFacts,
    dial: &Arc<dyn DialPort>,
) -> ToolsetResult {
    let id = &entry.deployment_id;
    if entry.allowed_tools.is_some() {
        tracing::warn!(deployment = %id, "allowed_tools is ignored: the application is one tool");
    }
    let described = match build::from_metadata(id, facts) {
        Ok(described) => described,
        Err(message) => return issue_result(entry, message),
    };
    let mut described = build::apply_overrides(
        described,
        entry.attachment.as_ref(),
        entry.fallback_configuration.as_ref(),
    );
    let hidden = entry.hidden_from_model.iter().flatten();
    described.common.hidden_from_model = hidden
        .into_iter()
        .any(|name| *name == described.open_ai_tool.function.name);
    let prefix = ToolPrefix {
        name: entry_name(entry, facts),
        timeout_seconds: entry.common.timeout_seconds,
    };
    ToolsetResult {
        tools: vec![build::deployment_tool(
            &prefix,
            described,
            facts.clone(),
            dial,
        )],
        issues: Vec::new(),
    }
}

/// The prefix of the tool's name: the name of the entry, otherwise the display name, otherwise the deployment's id.
fn entry_name<'a>(entry: &'a DialApp, facts: &'a DeploymentFacts) -> &'a str {
    let name = entry.name.as_deref().or(facts.display_name.as_deref());
    name.unwrap_or(&entry.deployment_id)
}

fn issue_result(entry: &DialApp, message: String) -> ToolsetResult {
    let label = entry.name.as_deref().unwrap_or(&entry.deployment_id);
    ToolsetResult {
        tools: Vec::new(),
        issues: vec![SetupIssue::of_set(label, message)],
    }
}
