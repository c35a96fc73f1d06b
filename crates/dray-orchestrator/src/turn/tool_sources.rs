//! Sources of the tools of a turn, by the names that rules on approval use.
//!
//! A manifest chooses the names of its tool sets, and a caller could choose another name to avoid a rule. So the
//! sources of a tool include values that a manifest cannot choose freely: addresses, hosts, programs, ids, templates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dray_agent::manifest::tool::{DeploymentTool, RestTool};
use dray_agent::manifest::toolset::ToolSet;
use dray_tool::{Tool, ToolsetResult};
use url::Url;

use super::setup_plan::PlannedSet;

/// Source of the tools that hand the turn over.
const HANDOFF_SOURCE: &str = "handoffs";

/// Sources by the names of tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSources {
    by_tool: HashMap<String, Arc<[String]>>,
    agents: HashSet<String>,
    handoffs: HashSet<String>,
    /// Names of the sets of tools of MCP servers.
    mcp_servers: HashMap<String, Arc<str>>,
    /// MCP servers without tools, each with the reason.
    failed_servers: Vec<(String, String)>,
}

impl ToolSources {
    /// Records the tools of a set. The applications of DIAL are set up together, so they share their sources.
    pub(super) fn add(
        &mut self,
        sets: &[Arc<PlannedSet>],
        planned: &PlannedSet,
        tools: &[Arc<dyn Tool>],
    ) {
        if tools.is_empty() {
            return;
        }
        let names: Arc<[String]> = match &planned.set {
            ToolSet::DialApp(_) => {
                let apps = sets
                    .iter()
                    .filter(|planned| matches!(planned.set, ToolSet::DialApp(_)));
                apps.flat_map(|app| app.sources().iter().cloned()).collect()
            }
            _ => Arc::clone(planned.sources()),
        };
        for tool in tools {
            // Of equal names the first tool stays.
            let name = &tool.declaration().name;
            if self.by_tool.contains_key(name) {
                continue;
            }
            self.by_tool.insert(name.clone(), Arc::clone(&names));
            if matches!(planned.set, ToolSet::Agents(_)) {
                self.agents.insert(name.clone());
            }
            if let Some(server) = mcp_server(&planned.set) {
                self.mcp_servers.insert(name.clone(), server.into());
            }
        }
    }

    /// Records a tool that hands the turn over to an agent.
    pub(super) fn add_handoff(&mut self, tool: &str, agent: &str) {
        let names = [HANDOFF_SOURCE.to_owned(), agent.to_owned()];
        self.by_tool.insert(tool.to_owned(), names.into());
        self.handoffs.insert(tool.to_owned());
    }

    /// Whether a tool hands the turn over.
    pub(super) fn is_handoff(&self, tool: &str) -> bool {
        self.handoffs.contains(tool)
    }

    /// Records why an MCP server has no tools.
    pub(super) fn add_failed(&mut self, planned: &PlannedSet, built: &ToolsetResult) {
        if let (Some(server), [], [issue, ..]) = (
            mcp_server(&planned.set),
            &built.tools[..],
            &built.issues[..],
        ) {
            let failed = (server.to_owned(), issue.message.clone());
            self.failed_servers.push(failed);
        }
    }

    /// MCP servers without tools, each with the reason.
    pub(super) fn failed_servers(&self) -> &[(String, String)] {
        &self.failed_servers
    }

    /// Name of the set of a tool of an MCP server.
    pub(super) fn mcp_server(&self, tool: &str) -> Option<&str> {
        self.mcp_servers.get(tool).map(|server| &**server)
    }

    /// The sources of a tool; none for the service's own.
    pub(super) fn of(&self, tool: &str) -> &[String] {
        self.by_tool.get(tool).map_or(&[], |names| names)
    }

    /// Whether a tool is another agent.
    pub(super) fn is_agent(&self, tool: &str) -> bool {
        self.agents.contains(tool)
    }
}

/// Name of a set that is an MCP server.
pub(super) fn mcp_server(set: &ToolSet) -> Option<&str> {
    match set {
        ToolSet::Mcp(set) => Some(&set.name),
        ToolSet::DialMcp(set) => Some(&set.name),
        _ => None,
    }
}

/// The sources of the tools of a set.
pub(super) fn set_sources(planned: &PlannedSet) -> Vec<String> {
    let mut names: Vec<String> = planned.template.iter().cloned().collect();
    match &planned.set {
        ToolSet::RestApi(set) => {
            names.push(set.name.clone());
            for tool in &set.tools {
                if let RestTool::Endpoint(endpoint) = tool {
                    push_address(&mut names, &endpoint.rest_api_method_info.method_url);
                }
            }
        }
        ToolSet::DialDeployment(set) => {
            names.push(set.name.clone());
            for tool in &set.tools {
                match tool {
                    DeploymentTool::DeploymentTool(tool) => {
                        names.push(tool.deployment.deployment_id.clone());
                    }
                    DeploymentTool::DialDeploymentSimple { deployment_id, .. } => {
                        names.push(deployment_id.clone());
                    }
                    DeploymentTool::PredefinedTool(_) => {}
                }
            }
        }
        ToolSet::Internal(set) => names.push(set.name.clone()),
        ToolSet::Mcp(set) => {
            names.push(set.name.clone());
            push_address(&mut names, &set.mcp_server_info.url);
        }
        ToolSet::DialMcp(set) => names.extend([set.name.clone(), set.dial_id.clone()]),
        ToolSet::DialApp(app) => {
            names.extend(app.name.clone());
            names.push(app.deployment_id.clone());
        }
        ToolSet::Agents(set) => {
            names.push(set.name.clone());
            names.extend(set.agents.iter().map(|agent| agent.agent.clone()));
        }
        ToolSet::Predefined(template) => names.push(template.template_name.clone()),
    }
    names
}

/// Adds an address and its host.
fn push_address(names: &mut Vec<String>, address: &str) {
    names.push(address.to_owned());
    // The address is parsed as the client parses it, so that another spelling of a host gives the same name.
    let host = Url::parse(address).ok();
    names.extend(host.and_then(|url| url.host_str().map(str::to_owned)));
}
