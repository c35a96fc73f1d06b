//! Tests of what manifests of callers may name.

use dray_agent::manifest::{ManifestReader, ManifestSettings};
use serde_json::{Value, json};

use super::*;
use crate::config::permissions::ToolKind;

fn manifest(tool_sets: &Value) -> Value {
    json!({"orchestrator": {"deployment": {"deployment_id": "lead"}}, "contexts": [], "tool_sets": tool_sets})
}

fn read(document: Value) -> Manifest {
    let reader = ManifestReader::new(ManifestSettings {
        preview: true,
        ..ManifestSettings::default()
    });
    reader.manifest(document).unwrap().value
}

fn grant(change: impl FnOnce(&mut ManifestPermissions)) -> Arc<ManifestGrant> {
    let mut permissions = ManifestPermissions {
        enabled: true,
        ..ManifestPermissions::default()
    };
    change(&mut permissions);
    let config = Config {
        default_orchestrator_deployment: Some("lead".to_owned()),
        ..Config::default()
    };
    ManifestGrant::new(&permissions, &config).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The paths that are refused.
fn refused_paths(grant: &ManifestGrant, document: Value) -> Vec<String> {
    let Err(failure) = grant.restrict(&mut read(document)) else {
        return Vec::new();
    };
    assert_eq!(failure.status, 403);
    let lines = failure.message.lines().skip(1);
    lines
        .map(|line| line.split(": ").next().unwrap_or_default().to_owned())
        .collect()
}

fn mcp(url: &str) -> Value {
    let protocol = if url.starts_with("stdio:") {
        "stdio"
    } else {
        "streamable_http"
    };
    json!({"type": "mcp", "name": "s", "mcp_server_info": {"url": url, "protocol": protocol}})
}

#[test]
fn a_manifest_may_name_only_allowed_resources() {
    let closed = grant(|_| {});
    let sets = json!([
        mcp("stdio:notes"),
        mcp("https://files.example.org/mcp"),
        {"type": "predefined", "template_name": "weather"},
        {"type": "dial-mcp", "dial_id": "t"},
        {"type": "dial-app", "deployment_id": "a"},
        {"type": "internal", "name": "code", "tools": [{"type": "python-interpreter"}]},
        {"type": "dial-deployment", "name": "d", "tools": [{"type": "dial-deployment-simple", "deployment_id": "x"}]},
    ]);
    let mut document = manifest(&sets);
    document["orchestrator"]["deployment"]["deployment_id"] = json!("other");
    document["orchestrator"]["fallback_deployments"] = json!([{"deployment_id": "another"}]);
    document["features"] = json!({"web_fetch": {}, "dial_files": {}});
    assert_eq!(
        refused_paths(&closed, document),
        [
            "orchestrator.deployment.deployment_id",
            "orchestrator.fallback_deployments.0.deployment_id",
            "features.dial_files",
            "features.web_fetch",
            "tool_sets.0",
            "tool_sets.0.mcp_server_info.url",
            "tool_sets.1",
            "tool_sets.1.mcp_server_info.url",
            "tool_sets.2",
            "tool_sets.3",
            "tool_sets.4",
            "tool_sets.5.tools.0",
            "tool_sets.6.tools.0",
        ]
    );
    assert_eq!(refused_paths(&closed, manifest(&json!([]))), [""; 0]);
    let disabled = json!([{"type": "mcp", "name": "s", "enabled": false,
        "mcp_server_info": {"url": "stdio:notes", "protocol": "stdio"}}]);
    assert_eq!(refused_paths(&closed, manifest(&disabled)), [""; 0]);
}

#[test]
fn a_manifest_may_name_what_is_allowed() {
    let open = grant(|permissions| {
        permissions.models = names(&["other"]);
        permissions.tools = vec![ToolKind::Mcp];
        permissions.mcp_servers = names(&["notes"]);
        permissions.hosts = names(&["*.example.org"]);
        permissions.templates = names(&["*"]);
    });
    let sets = json!([mcp("stdio:notes"), mcp("https://files.example.org/mcp"),
        {"type": "predefined", "template_name": "weather"}]);
    let mut document = manifest(&sets);
    document["orchestrator"]["deployment"]["deployment_id"] = json!("other");
    assert_eq!(refused_paths(&open, document), [""; 0]);
    let mut signed_in = mcp("https://files.example.org/mcp");
    signed_in["mcp_server_info"]["authorization"] = json!({
        "type": "oauth", "authorization_servers": ["https://login.example.org", "http://169.254.169.254"],
    });
    let sets = json!([
        mcp("stdio:mail"),
        mcp("https://files.example.com/mcp"),
        mcp("http://127.0.0.1:9090/metrics"),
        signed_in,
    ]);
    assert_eq!(
        refused_paths(&open, manifest(&sets)),
        [
            "tool_sets.0.mcp_server_info.url",
            "tool_sets.1.mcp_server_info.url",
            "tool_sets.2.mcp_server_info.url",
            "tool_sets.3.mcp_server_info.authorization.authorization_servers.1",
        ]
    );
}

#[test]
fn a_patch_of_a_template_does_not_lead_the_operator_s_credentials_elsewhere() {
    let open = grant(|permissions| {
        permissions.templates = names(&["*"]);
        permissions.hosts = names(&["*"]);
    });
    let patched = |patch: Value| {
        manifest(&json!([{"type": "predefined", "template_name": "shop", "override": patch}]))
    };
    let moved =
        json!({"tools": [{"rest_api_method_info": {"method_url": "https://other.example.org/"}}]});
    for patch in [
        moved,
        json!({"mcp_server_info": {"url": "https://other.example.org/"}}),
        json!({"authorization": {"token_url": "https://other.example.org/"}}),
        json!({"mcp_server_info": {"authorization": {"authorization_servers": ["https://other.example.org"]}}}),
    ] {
        assert_eq!(
            refused_paths(&open, patched(patch)),
            ["tool_sets.0.override"]
        );
    }
    assert_eq!(
        refused_paths(&open, patched(json!({"description": "x"}))),
        [""; 0]
    );
}

#[test]
fn a_patch_of_a_template_names_no_other_tool_and_lifts_no_restriction_of_the_operator() {
    let without_kinds = grant(|permissions| permissions.templates = names(&["shop"]));
    let with_kinds = grant(|permissions| {
        permissions.templates = names(&["shop"]);
        permissions.tools = ToolKind::ALL_NAMES.to_vec();
    });
    let patched = |patch: &Value| {
        manifest(&json!([{"type": "predefined", "template_name": "shop", "override": patch}]))
    };
    for patch in [
        json!({"template_name": "secrets"}),
        json!({"override": {"template_name": "secrets"}}),
        json!({"rest_api_method_info": {"method_type": "delete"}}),
        json!({"allowed_tools": ["delete_everything"]}),
        json!({"allowed_tools": null}),
        json!({"mcp_server_info": {"url": null}}),
        json!({"open_ai_tool": {"function": {"parameters": {"properties": {"shop": {"const": 2}}}}}}),
        json!({"open_ai_tool": {"function": {"parameters": {"properties": {"shop": {"const": null}}}}}}),
        json!({"agents": [{"agent": "other"}]}),
    ] {
        for grant in [&without_kinds, &with_kinds] {
            assert_eq!(
                refused_paths(grant, patched(&patch)),
                ["tool_sets.0.override"],
                "{patch}"
            );
        }
    }
    for patch in [
        json!({"deployment": {"deployment_id": "other"}}),
        json!({"deployment": {"name": "other"}}),
        json!({"deployment_id": "other"}),
        json!({"dial_id": "other"}),
    ] {
        let refusals = refused_paths(&without_kinds, patched(&patch));
        assert_eq!(refusals, ["tool_sets.0.override"], "{patch}");
        // The request has the caller's own key, so DIAL Core decides.
        assert_eq!(
            refused_paths(&with_kinds, patched(&patch)),
            [""; 0],
            "{patch}"
        );
    }
    let harmless = json!({"name": "x", "description": "x", "timeout_seconds": 3});
    assert_eq!(refused_paths(&without_kinds, patched(&harmless)), [""; 0]);
}

#[test]
fn limits_of_a_caller_s_manifest_are_at_most_those_of_the_service() {
    let mut document = manifest(&json!([]));
    document["orchestrator"]["max_iterations"] = json!(1_000_000);
    document["features"] = json!({"file_loading": {"size_limit": 1_u64 << 40}});
    let mut manifest = read(document);
    grant(|_| {}).restrict(&mut manifest).unwrap();
    let defaults = Config::default();
    assert_eq!(
        manifest.orchestrator.max_iterations,
        Some(defaults.max_iterations)
    );
    assert_eq!(
        manifest.features.file_loading.size_limit,
        Some(defaults.files.size_limit.as_u64())
    );
}

#[test]
fn only_callers_with_the_permission_may_send_a_manifest() {
    let mut config = Config::default();
    let mut alice = CallerPermissions::default();
    alice.manifest_header.enabled = true;
    alice.agents = Some(names(&["helper"]));
    config.permissions.clients.insert("alice".to_owned(), alice);
    let grants = CallerGrants::new(&config).unwrap();
    let alice = CallerIdentity::Client("alice".to_owned());
    assert!(grants.of_header(&alice).is_ok());
    for other in [
        CallerIdentity::Local,
        CallerIdentity::Client("bob".to_owned()),
        CallerIdentity::Dial("alice".to_owned()),
    ] {
        assert_eq!(grants.of_header(&other).unwrap_err().status, 403);
        assert_eq!(grants.check_agent(&other, "other"), Ok(()));
    }
    assert_eq!(grants.check_agent(&alice, "helper"), Ok(()));
    assert_eq!(grants.check_agent(&alice, "other").unwrap_err().status, 403);
}
