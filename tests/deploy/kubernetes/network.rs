//! Which pods reach which: evaluates the network policies as a cluster does. A connection is allowed when a policy of
//! the sender allows it to leave and a policy of the receiver allows it to arrive. Pods without policies allow all
//! connections.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{SERVICE_NAMES, objects};

const DRAY_NAMESPACE: &str = "dray";

/// All policies of the base.
static BASE_POLICIES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut objects = objects();
    objects.retain(|object| object["kind"] == "NetworkPolicy");
    objects
});

/// The properties of a pod by which policies select it.
#[derive(Clone, Debug)]
struct Pod {
    namespace: &'static str,
    labels: Value,
}

/// A pod of a service of Drayage.
fn product_pod(name: &str) -> Pod {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "dray"});
    Pod {
        namespace: DRAY_NAMESPACE,
        labels,
    }
}

/// A pod that is not part of Drayage.
fn other(namespace: &'static str, label: &str, value: &str) -> Pod {
    Pod {
        namespace,
        labels: json!({label: value}),
    }
}

fn nats() -> Pod {
    other(DRAY_NAMESPACE, "app.kubernetes.io/name", "nats")
}

fn minio() -> Pod {
    other(DRAY_NAMESPACE, "app.kubernetes.io/name", "minio")
}

/// Whether a label selector selects these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let has_labels = selector["matchLabels"]
        .as_object()
        .is_none_or(|required| required.iter().all(|(key, value)| labels[key] == *value));
    let has_values = selector["matchExpressions"]
        .as_array()
        .is_none_or(|expressions| {
            expressions.iter().all(|expression| {
                assert_eq!(expression["operator"], "In", "{expression}");
                let key = expression["key"].as_str().unwrap();
                let values = expression["values"].as_array().unwrap();
                values.contains(&labels[key])
            })
        });
    has_labels && has_values
}

/// Whether a peer of a rule is this pod. All policies of Drayage are in one namespace.
fn is_peer(peer: &Value, pod: &Pod) -> bool {
    if peer["ipBlock"].is_object() {
        return false;
    }
    let is_in_namespace = match &peer["namespaceSelector"] {
        Value::Null => pod.namespace == DRAY_NAMESPACE,
        selector => selects(
            selector,
            &json!({"kubernetes.io/metadata.name": pod.namespace}),
        ),
    };
    is_in_namespace && (peer["podSelector"].is_null() || selects(&peer["podSelector"], &pod.labels))
}

/// Whether the policies of `pod` allow `direction` with `peer` on a port.
fn allows(pod: &Pod, direction: &str, peer: &Pod, port: u64) -> bool {
    let (kind, peers) = match direction {
        "egress" => ("Egress", "to"),
        _ => ("Ingress", "from"),
    };
    let policies: Vec<&Value> = BASE_POLICIES
        .iter()
        .filter(|_| pod.namespace == DRAY_NAMESPACE)
        .filter(|policy| selects(&policy["spec"]["podSelector"], &pod.labels))
        .filter(|policy| super::strings(&policy["spec"]["policyTypes"]).contains(&kind))
        .collect();
    policies.is_empty()
        || policies.iter().any(|policy| {
            let rules = policy["spec"][direction].as_array();
            rules.into_iter().flatten().any(|rule| {
                let rule_peers = rule[peers].as_array().into_iter().flatten();
                let ports = rule["ports"].as_array().into_iter().flatten();
                rule_peers
                    .into_iter()
                    .any(|candidate| is_peer(candidate, peer))
                    && ports.into_iter().any(|rule_port| rule_port["port"] == port)
            })
        })
}

fn reaches(from: &Pod, to: &Pod, port: u64) -> bool {
    allows(from, "egress", to, port) && allows(to, "ingress", from, port)
}

#[test]
fn every_service_reaches_the_bus_the_store_and_the_collector() {
    let collector = other(
        "monitoring",
        "app.kubernetes.io/name",
        "opentelemetry-collector",
    );
    let dns = other("kube-system", "k8s-app", "kube-dns");
    for name in SERVICE_NAMES {
        assert!(reaches(&product_pod(name), &nats(), 4222), "{name}");
        assert!(reaches(&product_pod(name), &minio(), 9000), "{name}");
        assert!(reaches(&product_pod(name), &collector, 4317), "{name}");
        assert!(reaches(&product_pod(name), &dns, 53), "{name}");
    }
    assert!(reaches(&product_pod("topology"), &nats(), 4222));
    assert!(!reaches(&product_pod("topology"), &minio(), 9000));
}

#[test]
fn servers_of_the_bus_and_of_the_store_reach_their_own_kind() {
    let dns = other("kube-system", "k8s-app", "kube-dns");
    assert!(reaches(&nats(), &nats(), 6222));
    assert!(reaches(&minio(), &minio(), 9000));
    for (from, to, port) in [
        (nats(), minio(), 9000),
        (minio(), nats(), 4222),
        (minio(), nats(), 6222),
        (product_pod("file-resolver"), nats(), 6222),
        (product_pod("file-resolver"), nats(), 8222),
        (product_pod("file-resolver"), minio(), 9001),
    ] {
        assert!(!reaches(&from, &to, port), "{from:?} {to:?} {port}");
    }
    assert!(reaches(&nats(), &dns, 53) && reaches(&minio(), &dns, 53));
}

#[test]
fn other_pods_reach_only_the_services_of_their_label() {
    let publisher = other("shop", "dray-publisher", "true");
    let client = other("shop", "dray-client", "true");
    let stranger = other("shop", "app", "stranger");
    assert!(reaches(&publisher, &nats(), 4222));
    assert!(!reaches(&publisher, &minio(), 9000));
    assert!(reaches(&client, &minio(), 9000));
    assert!(reaches(&client, &product_pod("orchestrator"), 5000));
    assert!(!reaches(&client, &nats(), 4222));
    for (to, port) in [
        (nats(), 4222),
        (nats(), 6222),
        (minio(), 9000),
        (product_pod("orchestrator"), 5000),
        (product_pod("file-resolver"), 50051),
    ] {
        assert!(!reaches(&stranger, &to, port), "{to:?} {port}");
    }
}

#[test]
fn services_reach_each_other_through_the_bus_only() {
    for from in SERVICE_NAMES {
        for to in SERVICE_NAMES {
            for port in [5000, 9464, 50051] {
                assert!(
                    !reaches(&product_pod(from), &product_pod(to), port),
                    "{from} {to} {port}"
                );
            }
        }
    }
}
