//! Tests of `deploy/helm/drayage`, rendered by Helm's own engine: the objects equal those that kubectl renders from
//! `deploy/kubernetes`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::distributed::command;
use super::yaml;
use crate::support;

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn chart_output(command: &str, values: &Value) -> Output {
    Command::new(support::python())
        .arg(support::root().join("tests/python/helm_chart.py"))
        .arg(command)
        .arg(support::root().join("deploy/helm/drayage"))
        .arg(values.to_string())
        .output()
        .unwrap()
}

/// The objects that the chart renders with these values.
pub(super) fn rendered_chart(values: &Value) -> Objects {
    let objects = chart_objects(values);
    by_name(objects.into_iter().map(without_helm).collect())
}

/// Like [`rendered_chart`], unchanged and in the order of the chart.
pub(super) fn chart_objects(values: &Value) -> Vec<Value> {
    let output = chart_output("render", values);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The objects that kubectl renders from the base with these components.
fn rendered_base(components: &[&str]) -> Objects {
    let base = support::root().join("deploy/kubernetes");
    let directory = tempfile::tempdir().unwrap();
    let relative = |path: &Path| {
        // kubectl takes no absolute paths.
        let up = "../".repeat(
            directory
                .path()
                .canonicalize()
                .unwrap()
                .components()
                .count()
                - 1,
        );
        format!("{up}{}", path.strip_prefix("/").unwrap().display())
    };
    let components: Vec<_> = components
        .iter()
        .map(|name| relative(&base.join("components").join(name)))
        .collect();
    let overlay = json!({ "resources": [relative(&base)], "components": components });
    std::fs::write(
        directory.path().join("kustomization.yaml"),
        overlay.to_string(),
    )
    .unwrap();
    let text = support::stdout(
        Command::new(dray_testkit::kubectl::program())
            .arg("kustomize")
            .arg(directory.path()),
    );
    let objects = yaml(&without_suffixes(&text));
    by_name(
        objects
            .into_iter()
            .filter(|object| object["kind"] != "Namespace")
            .map(|mut object| {
                object["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("namespace");
                object
            })
            .collect(),
    )
}

fn by_name(objects: Vec<Value>) -> Objects {
    let count = objects.len();
    let named: Objects = objects
        .into_iter()
        .map(|object| {
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            (name, object)
        })
        .collect();
    assert_eq!(named.len(), count, "an object is there twice");
    named
}

/// Removes the hashes that kustomize appends to the names of each `ConfigMap`.
fn without_suffixes(text: &str) -> String {
    let hashed: Vec<String> = yaml(text)
        .iter()
        .filter(|object| object["kind"] == "ConfigMap")
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(!hashed.is_empty());
    hashed.iter().fold(text.to_owned(), |text, name| {
        let (plain, _hash) = name.rsplit_once('-').unwrap();
        text.replace(&format!("name: {name}\n"), &format!("name: {plain}\n"))
    })
}

/// Removes what only Helm needs: the digest that restarts pods, and that in the name of a job.
fn without_helm(mut object: Value) -> Value {
    if object["kind"] == "Job" {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (plain, digest) = name.rsplit_once('-').expect("a job has a digest");
        assert_eq!(digest.len(), 10, "{name}");
        object["metadata"]["name"] = plain.into();
    }
    for path in ["/metadata", "/spec/template/metadata"] {
        let Some(Value::Object(metadata)) = object.pointer_mut(path) else {
            continue;
        };
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.retain(|name, _| name != "checksum/config");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

#[track_caller]
fn check_same_objects(chart: &Objects, base: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(chart), names(base));
    for (name, object) in base {
        assert_eq!(&chart[name], object, "{name}");
    }
}

#[test]
fn the_chart_renders_what_kubectl_applies() {
    let base = rendered_base(&[]);
    assert!(base.len() >= 40, "only {} objects", base.len());
    check_same_objects(&rendered_chart(&json!({})), &base);
}

#[test]
fn a_packaged_chart_is_rendered_and_linted_by_the_helm_program() {
    let directory = tempfile::tempdir().unwrap();
    let helm = |arguments: &[&str]| {
        let program = support::python().parent().unwrap().join("helm");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory.path());
        // The caches of `helm` belong to the test.
        command.env("HOME", directory.path());
        support::stdout(&mut command)
    };
    let chart = support::root().join("deploy/helm/drayage");
    helm(&["package", chart.to_str().unwrap()]);
    let packages = std::fs::read_dir(directory.path()).unwrap();
    let mut packages = packages.map(|entry| entry.unwrap().path());
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "tgz");
    let package = packages.find(is_package).unwrap();
    let package = package.to_str().unwrap();
    helm(&["lint", "--strict", package]);
    let text = helm(&["template", "dray", package, "--namespace", "dray"]);
    let objects = yaml(&text).into_iter().map(without_helm).collect();
    check_same_objects(&by_name(objects), &rendered_base(&[]));
}

#[test]
fn the_chart_with_keda_and_the_prometheus_operator_is_the_base_with_both_components() {
    let values = json!({ "keda": { "enabled": true }, "monitoring": { "enabled": true } });
    let chart = rendered_chart(&values);
    check_same_objects(&chart, &rendered_base(&["keda", "monitoring"]));
    for name in [
        "file-resolver",
        "egress-fetcher",
        "sandbox-transfer",
        "platform-delivery",
    ] {
        let target = &chart[&format!("\"ScaledObject\" \"{name}\"")]["spec"]["scaleTargetRef"];
        assert_eq!(target["name"], name);
        let deployment = &chart[&format!("\"Deployment\" \"{name}\"")];
        assert!(deployment["spec"]["replicas"].is_null(), "{name}");
    }
    assert!(
        !chart
            .keys()
            .any(|name| name.contains("HorizontalPodAutoscaler"))
    );
}

#[test]
fn the_chart_with_previews_is_the_base_with_their_component() {
    let chart = rendered_chart(&json!({ "preview": { "enabled": true } }));
    let base = rendered_base(&["preview"]);
    check_same_objects(&chart, &base);
    let environment = &base["\"ConfigMap\" \"sandbox-transfer\""]["data"];
    let listen = environment["DRAY_SANDBOX_TRANSFER__PREVIEW__LISTEN"].as_str();
    assert_eq!(listen, Some("0.0.0.0:7350"));
    // Each object refers to the next one by its name: the Ingress to the Service, the Service to the container's port.
    let backend =
        &base["\"Ingress\" \"preview\""]["spec"]["rules"][0]["http"]["paths"][0]["backend"];
    assert_eq!(
        backend["service"],
        json!({"name": "sandbox-transfer", "port": {"name": "preview"}})
    );
    let service = &base["\"Service\" \"sandbox-transfer\""]["spec"];
    let port = json!({"name": "preview", "port": 7350, "targetPort": "preview"});
    assert!(
        service["ports"].as_array().unwrap().contains(&port),
        "{service}"
    );
    let pod = &base["\"Deployment\" \"sandbox-transfer\""]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = json!({"name": "preview", "containerPort": 7350});
    assert!(
        container["ports"].as_array().unwrap().contains(&port),
        "{container}"
    );
    // The policy admits only the ingress controller, and only to the port of previews.
    let policy = &base["\"NetworkPolicy\" \"preview\""]["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], service["selector"]);
    let from = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]);
    let ports = json!([{"protocol": "TCP", "port": 7350}]);
    assert_eq!(policy["ingress"], json!([{"from": from, "ports": ports}]));
    // Without previews, no object has the port.
    let without_preview = rendered_chart(&json!({}));
    assert!(
        !serde_json::to_string(&without_preview)
            .unwrap()
            .contains("7350")
    );
}

#[test]
fn the_chart_with_the_forward_proxy_is_the_base_with_its_component() {
    let chart = rendered_chart(&json!({ "egressProxy": { "enabled": true } }));
    let base = rendered_base(&["egress-proxy"]);
    check_same_objects(&chart, &base);
    let environment = &base["\"ConfigMap\" \"egress-fetcher\""]["data"];
    let listen = environment["DRAY_EGRESS_FETCHER__PROXY__LISTEN"].as_str();
    assert_eq!(listen, Some("0.0.0.0:3128"));
    let service = &base["\"Service\" \"egress-fetcher\""]["spec"];
    let port = json!({"name": "proxy", "port": 3128, "targetPort": "proxy"});
    assert!(
        service["ports"].as_array().unwrap().contains(&port),
        "{service}"
    );
    let pod = &base["\"Deployment\" \"egress-fetcher\""]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = json!({"name": "proxy", "containerPort": 3128});
    assert!(
        container["ports"].as_array().unwrap().contains(&port),
        "{container}"
    );
    let policy = &base["\"NetworkPolicy\" \"egress-proxy\""]["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], service["selector"]);
    let pods = json!({"matchLabels": {"role": "sandbox"}});
    let from = json!([{"namespaceSelector": {}, "podSelector": pods}]);
    let ports = json!([{"protocol": "TCP", "port": 3128}]);
    assert_eq!(policy["ingress"], json!([{"from": from, "ports": ports}]));
    // Without the proxy, no object has the port.
    let without_proxy = rendered_chart(&json!({}));
    assert!(
        !serde_json::to_string(&without_proxy)
            .unwrap()
            .contains("3128")
    );
}

#[test]
fn previews_of_a_cluster_have_a_valid_configuration() {
    let host = "*.look.example.org";
    let chart = rendered_chart(&json!({ "preview": { "enabled": true, "host": host } }));
    let data = chart["\"ConfigMap\" \"sandbox-transfer\""]["data"]
        .as_object()
        .unwrap();
    let mut environment: BTreeMap<String, String> = data
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(
        environment["DRAY_SANDBOX_TRANSFER__PREVIEW__URL"],
        format!("https://{host}")
    );
    environment.remove("DRAY_BUS__NATS__USER");
    let checked = command(&environment)
        .args(["config", "check"])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn alerts_link_to_the_runbooks_of_the_values() {
    let runbooks = "https://wiki.example.org/drayage/runbooks";
    let values = json!({ "monitoring": { "enabled": true, "runbooks": runbooks } });
    let rules = serde_json::to_string(&rendered_chart(&values)).unwrap();
    assert!(rules.contains(&format!("{runbooks}#draydeadletters")));
    assert!(!rules.contains("docs/runbooks.md"), "{rules}");
    let values = json!({ "monitoring": { "runbooks": "docs/own.md" } });
    assert_eq!(chart_output("render", &values).status.code(), Some(3));
}

#[test]
fn every_consumer_that_keda_queries_is_provisioned() {
    let chart = rendered_chart(&json!({ "keda": { "enabled": true } }));
    let topology = support::root().join("docs/subjects.md");
    let page = std::fs::read_to_string(topology).unwrap();
    let triggers = chart
        .values()
        .filter(|object| object["kind"] == "ScaledObject")
        .flat_map(|object| object["spec"]["triggers"].as_array().unwrap());
    let consumers: Vec<_> = triggers
        .filter(|trigger| trigger["type"] == "nats-jetstream")
        .map(|trigger| &trigger["metadata"])
        .collect();
    assert_eq!(consumers.len(), 6);
    for metadata in consumers {
        let (stream, durable) = (&metadata["stream"], &metadata["consumer"]);
        let row = format!(
            "| {} | `{}` |",
            stream.as_str().unwrap(),
            durable.as_str().unwrap()
        );
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn helm_lint_reports_no_findings() {
    let values = json!({ "keda": { "enabled": true }, "monitoring": { "enabled": true } });
    let output = chart_output("lint", &values);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]");
    assert!(output.status.success());
}

#[test]
fn values_that_the_chart_does_not_know_are_refused() {
    for (values, reason) in [
        (json!({ "replicas": 2 }), "'replicas'"),
        (json!({ "services": { "resolver": {} } }), "resolver"),
        (
            json!({ "environment": { "DRAY_BUS__NATS__PORT": 4222 } }),
            "DRAY_BUS__NATS__PORT",
        ),
        (
            json!({ "topology": { "replicas": 2 } }),
            "/topology/replicas",
        ),
        (
            json!({ "pods": { "nodeSelector": { "disk": true } } }),
            "/pods/nodeSelector/disk",
        ),
        (
            json!({ "services": { "sweeper": { "secretName": "Not A Name" } } }),
            "/services/sweeper/secretName",
        ),
        (
            json!({ "services": { "sweeper": { "volumes": [{ "name": "secrets" }] } } }),
            "/services/sweeper/volumes/0/name",
        ),
        (
            json!({ "preview": { "host": "https://preview.example.org" } }),
            "/preview/host",
        ),
        (
            json!({ "image": { "repository": "dray@sha256:00" } }),
            "/image/repository",
        ),
        (
            json!({ "image": { "digest": "sha256:00" } }),
            "/image/digest",
        ),
        (
            json!({ "autoscaling": { "minReplicas": 5, "maxReplicas": 2 } }),
            "autoscaling.minReplicas is above autoscaling.maxReplicas",
        ),
        (
            json!({ "keda": { "enabled": true, "minReplicas": 5, "maxReplicas": 2 } }),
            "keda.minReplicas is above keda.maxReplicas",
        ),
    ] {
        let output = chart_output("render", &values);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{values}: {errors}");
        assert!(errors.contains(reason), "{reason} is not in {errors}");
    }
}

#[test]
fn an_image_is_named_by_its_digest_where_the_values_have_one() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let image =
        json!({ "image": { "repository": "r.example:5000/dray", "tag": "1", "digest": digest } });
    let objects = rendered_chart(&image);
    let pod = &objects["\"Deployment\" \"sweeper\""]["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["image"],
        format!("r.example:5000/dray@{digest}")
    );
}

#[test]
fn an_empty_section_of_the_values_sets_nothing_or_is_refused_by_name() {
    // YAML reads a key whose lines are all comments as null, and Helm removes it.
    let defaults = rendered_chart(&json!({}));
    assert_eq!(rendered_chart(&json!({ "pods": null })), defaults);
    for section in ["egressProxy", "keda", "monitoring", "preview"] {
        assert_eq!(rendered_chart(&json!({ section: null })), defaults);
    }
    let without_autoscaler = rendered_chart(&json!({ "autoscaling": null }));
    assert_eq!(without_autoscaler.len(), defaults.len() - 1);
    let without_store = rendered_chart(&json!({ "storeEnvironment": null }));
    assert_eq!(without_store["\"ConfigMap\" \"store\""]["data"], json!({}));
    for (values, reason) in [
        (json!({ "image": null }), "'image'"),
        (json!({ "environment": null }), "'environment'"),
        // Without this rule the policies would be off.
        (json!({ "networkPolicies": null }), "'networkPolicies'"),
        (json!({ "topology": { "replicas": null } }), "'replicas'"),
        (
            json!({ "preview": { "enabled": true, "host": null } }),
            "'host'",
        ),
        (
            json!({ "keda": { "enabled": true, "consumers": null } }),
            "'consumers'",
        ),
        (
            json!({ "pods": { "annotations": { "checksum/config": "twice" } } }),
            "'checksum/config'",
        ),
    ] {
        let output = chart_output("render", &values);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{values}: {errors}");
        assert!(errors.contains(reason), "{reason} is not in {errors}");
    }
}
