//! Whether the credentials have the rights that sandboxes need.

use dray_sandbox::{BackendCheck, Error};
use serde_json::json;

use crate::cluster::Cluster;

/// Verb and resource of what every sandbox needs (docs/backends/kubernetes.md).
const NEEDED_RIGHTS: [(&str, &str); 3] = [
    ("get", "pods"),
    ("get", "pods/exec"),
    ("create", "pods/exec"),
];
/// Most namespaces that are checked; further ones need the same rights.
const MAX_NAMESPACES: usize = 8;

/// Asks for each right in the configured namespaces, or in all where none is configured.
pub(crate) async fn check_access(cluster: &Cluster) -> Result<BackendCheck, Error> {
    let configured = &cluster.config().namespaces;
    // Without configured namespaces, a pod of any namespace may be named; the empty name means all of them.
    let everywhere = [String::new()];
    let namespaces = if configured.is_empty() {
        everywhere.as_slice()
    } else {
        configured.as_slice()
    };
    for namespace in namespaces.iter().take(MAX_NAMESPACES) {
        for (verb, resource) in NEEDED_RIGHTS {
            let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
            let right = json!({
                "namespace": namespace, "verb": verb, "resource": kind, "subresource": part,
            });
            if !cluster.is_allowed(&right).await? {
                let scope = scope_name(namespace);
                let missing = format!("the right to `{verb}` {resource} in {scope} is missing");
                return Ok(BackendCheck::Refused(missing));
            }
        }
    }
    let scopes: Vec<String> = namespaces
        .iter()
        .take(MAX_NAMESPACES)
        .map(|namespace| scope_name(namespace))
        .collect();
    let ready = format!("the rights on pods are granted in {}", scopes.join(", "));
    Ok(BackendCheck::Ready(ready))
}

fn scope_name(namespace: &str) -> String {
    if namespace.is_empty() {
        "every namespace".to_owned()
    } else {
        format!("namespace {namespace}")
    }
}
