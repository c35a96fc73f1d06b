//! Compares what the manifest of a caller names with the permissions of the caller. No connection is made here;
//! addresses are checked again when a connection is made.

use dray_agent::manifest::Manifest;
use dray_agent::manifest::tool::{DeploymentTool, InternalTool, RestTool};
use dray_agent::manifest::toolset::{
    McpAuthorization, Predefined, RestApi, RestAuthorization, ToolSet,
};
use serde_json::{Map, Value};

use super::DestinationPolicy;
use crate::config::permissions::{ANY_NAME, ManifestPermissions, ToolKind};

/// Scheme of addresses of programs.
const PROGRAM_SCHEME: &str = "stdio:";

/// Members of templates that contain an address of a request.
const ADDRESS_FIELDS: [&str; 4] = ["url", "method_url", "token_url", "authorization_servers"];

/// Members of templates that limit or name what a call can do with the credentials of the operator.
const LIMIT_FIELDS: [&str; 5] = [
    "template_name",
    "allowed_tools",
    "agents",
    "method_type",
    "const",
];

/// Everything that a manifest names without permission, each as `path: reason`.
pub(super) fn manifest_problems(
    manifest: &Manifest,
    permissions: &ManifestPermissions,
    destinations: &DestinationPolicy,
    default_model: Option<&str>,
) -> Vec<String> {
    let mut check = ManifestCheck {
        permissions,
        destinations,
        problems: Vec::new(),
    };
    for (index, model) in manifest.orchestrator.models().enumerate() {
        let model = &model.deployment_id;
        if default_model != Some(model) && !allows_name(&permissions.models, model) {
            let path = match index.checked_sub(1) {
                None => "orchestrator.deployment.deployment_id".to_owned(),
                Some(place) => {
                    format!("orchestrator.fallback_deployments.{place}.deployment_id")
                }
            };
            check.refuse(&path, "is not a model that this caller may use");
        }
    }
    if manifest.features.dial_files.is_some() {
        check.check_kind("features.dial_files", ToolKind::DialFiles);
    }
    if manifest.features.web_fetch.is_some() {
        check.check_kind("features.web_fetch", ToolKind::WebFetch);
    }
    if manifest.handoff_agents().next().is_some() {
        check.check_kind("handoffs", ToolKind::Agents);
    }
    for (number, set) in manifest.tool_sets.iter().enumerate() {
        check.check_tool_set(&format!("tool_sets.{number}"), set);
    }
    check.problems
}

fn allows_name(names: &[String], name: &str) -> bool {
    names
        .iter()
        .any(|allowed| allowed == ANY_NAME || allowed == name)
}

struct ManifestCheck<'a> {
    permissions: &'a ManifestPermissions,
    destinations: &'a DestinationPolicy,
    problems: Vec<String>,
}

impl ManifestCheck<'_> {
    fn refuse(&mut self, path: &str, reason: &str) {
        self.problems.push(format!("{path}: {reason}"));
    }

    fn check_kind(&mut self, path: &str, kind: ToolKind) {
        if !self.permissions.tools.contains(&kind) {
            let reason = format!(
                "tools of the kind {} are not for this caller",
                kind.as_str()
            );
            self.refuse(path, &reason);
        }
    }

    fn check_address(&mut self, path: &str, address: &str) {
        if let Err(reason) = self.destinations.check(address) {
            self.refuse(path, &reason);
        }
    }

    fn check_tool_set(&mut self, path: &str, set: &ToolSet) {
        match set {
            ToolSet::RestApi(set) if set.common.enabled => self.check_rest_api(path, set),
            ToolSet::Mcp(set) if set.common.enabled => {
                self.check_kind(path, ToolKind::Mcp);
                let info = &set.mcp_server_info;
                self.check_mcp_address(&format!("{path}.mcp_server_info.url"), &info.url);
                if let Some(McpAuthorization::ClientIdSecret(client)) = &info.authorization {
                    let path = format!("{path}.mcp_server_info.authorization.token_url");
                    self.check_address(&path, &client.token_url);
                }
                if let Some(McpAuthorization::Oauth(client)) = &info.authorization {
                    for (number, server) in client.authorization_servers.iter().enumerate() {
                        let path = format!(
                            "{path}.mcp_server_info.authorization.authorization_servers.{number}"
                        );
                        self.check_address(&path, server);
                    }
                }
            }
            ToolSet::DialDeployment(set) if set.common.enabled => {
                for (number, tool) in set.tools.iter().enumerate() {
                    let path = format!("{path}.tools.{number}");
                    match tool {
                        DeploymentTool::PredefinedTool(template) => {
                            self.check_template(&path, template);
                        }
                        _ => self.check_kind(&path, ToolKind::DialDeployment),
                    }
                }
            }
            ToolSet::Internal(set) if set.common.enabled => {
                for (number, tool) in set.tools.iter().enumerate() {
                    let path = format!("{path}.tools.{number}");
                    match tool {
                        InternalTool::PredefinedTool(template) => {
                            self.check_template(&path, template);
                        }
                        InternalTool::PythonInterpreter(_) => {
                            self.check_kind(&path, ToolKind::PythonInterpreter);
                        }
                    }
                }
            }
            ToolSet::DialMcp(set) if set.common.enabled => self.check_kind(path, ToolKind::DialMcp),
            ToolSet::DialApp(set) if set.common.enabled => self.check_kind(path, ToolKind::DialApp),
            ToolSet::Agents(set) if set.common.enabled => self.check_kind(path, ToolKind::Agents),
            ToolSet::Predefined(template) => self.check_template(path, template),
            // A disabled set is never resolved or started, so it may name anything.
            ToolSet::RestApi(_)
            | ToolSet::Mcp(_)
            | ToolSet::DialDeployment(_)
            | ToolSet::Internal(_)
            | ToolSet::DialMcp(_)
            | ToolSet::Agents(_)
            | ToolSet::DialApp(_) => {}
        }
    }

    fn check_rest_api(&mut self, path: &str, set: &RestApi) {
        self.check_kind(path, ToolKind::RestApi);
        if let Some(RestAuthorization::ClientIdSecret(client)) = &set.authorization {
            self.check_address(
                &format!("{path}.authorization.token_url"),
                &client.token_url,
            );
        }
        for (number, tool) in set.tools.iter().enumerate() {
            let path = format!("{path}.tools.{number}");
            match tool {
                RestTool::Predefined(template) => self.check_template(&path, template),
                RestTool::Endpoint(endpoint) if endpoint.common.enabled => {
                    let path = format!("{path}.rest_api_method_info.method_url");
                    self.check_address(&path, &endpoint.rest_api_method_info.method_url);
                }
                RestTool::Endpoint(_) => {}
            }
        }
    }

    fn check_mcp_address(&mut self, path: &str, address: &str) {
        match address.strip_prefix(PROGRAM_SCHEME) {
            Some(program) if allows_name(&self.permissions.mcp_servers, program) => {}
            Some(_) => self.refuse(path, "is not a program that this caller may use"),
            None => self.check_address(path, address),
        }
    }

    fn check_template(&mut self, path: &str, template: &Predefined) {
        if !template.enabled {
            return;
        }
        if !allows_name(&self.permissions.templates, &template.template_name) {
            self.refuse(path, "is not a template that this caller may use");
        }
        let Some(patch) = &template.patch else {
            return;
        };
        let path = format!("{path}.override");
        // Templates may contain credentials of the operator, which a patch of the address would send to another host.
        if names_member(patch, &ADDRESS_FIELDS) {
            self.refuse(&path, "may not change an address of the template");
        } else if names_member(patch, &LIMIT_FIELDS) {
            self.refuse(&path, "may not change what the template is limited to");
        } else if names_deployment(patch) && !self.allows_every_deployment() {
            self.refuse(&path, "may not change the deployment of the template");
        }
    }

    /// Whether the caller may call deployments of DIAL in every way in which a template can.
    fn allows_every_deployment(&self) -> bool {
        [
            ToolKind::DialDeployment,
            ToolKind::DialMcp,
            ToolKind::DialApp,
        ]
        .iter()
        .all(|kind| self.permissions.tools.contains(kind))
    }
}

/// Whether a patch changes or removes a member with one of these names, at any depth.
fn names_member(patch: &Map<String, Value>, names: &[&str]) -> bool {
    patch
        .iter()
        .any(|(key, value)| names.contains(&key.as_str()) || names_member_within(value, names))
}

fn names_member_within(value: &Value, names: &[&str]) -> bool {
    match value {
        Value::Object(members) => names_member(members, names),
        Value::Array(items) => items.iter().any(|item| names_member_within(item, names)),
        _ => false,
    }
}

/// Whether a patch changes the deployment that a template calls.
fn names_deployment(patch: &Map<String, Value>) -> bool {
    // Early manifests call the id of a deployment `name`; other members with this name are labels.
    let has_early_id = patch
        .get("deployment")
        .is_some_and(|deployment| deployment.get("name").is_some());
    has_early_id || names_member(patch, &["deployment_id", "dial_id"])
}
