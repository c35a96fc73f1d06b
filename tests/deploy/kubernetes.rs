//! Tests of `kubectl apply -k deploy/kubernetes`, as far as it can be checked without a cluster: rendered by kubectl,
//! checked with the schemas of Kubernetes, and compared with the requirements of the product.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;
use std::sync::LazyLock;

use dray_guard::addrclass::{Class, IPV4_BLOCKS, IPV6_BLOCKS, classify};
use serde_json::Value;

use super::compose::SERVICE_NAMES;
use super::distributed::command;
use super::{read, strings, yaml};
use crate::support;

mod examples;
mod memory;
mod network;
mod ports;

/// Services that may connect to addresses outside of the cluster.
const EGRESS_SERVICES: [&str; 3] = ["egress-fetcher", "orchestrator", "platform-delivery"];

/// The YAML that kubectl renders from the base.
pub(super) static RENDERED_BASE: LazyLock<String> = LazyLock::new(|| {
    support::stdout(
        Command::new(dray_testkit::kubectl::program())
            .arg("kustomize")
            .arg(support::root().join("deploy/kubernetes")),
    )
});

/// All objects of the base.
fn objects() -> Vec<Value> {
    yaml(&RENDERED_BASE)
}

/// One object by kind and name.
#[track_caller]
fn object(kind: &str, name: &str) -> Value {
    objects()
        .into_iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The pod templates of all workloads.
fn pods() -> Vec<(String, Value)> {
    objects()
        .into_iter()
        .filter(|object| matches!(object["kind"].as_str(), Some("Deployment" | "Job")))
        .map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            (name, object["spec"]["template"]["spec"].clone())
        })
        .collect()
}

#[test]
fn every_object_fits_the_schemas_of_kubernetes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    std::fs::write(&file, RENDERED_BASE.as_str()).unwrap();
    let valid = support::stdout(
        Command::new(support::python())
            .args(["-m", "kubernetes_validate", "--strict", "--no-warn"])
            .arg(&file),
    );
    drop(valid);
    assert!(objects().len() >= 20, "only {} objects", objects().len());
}

#[test]
fn the_schemas_refuse_invalid_objects() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    std::fs::write(&file, RENDERED_BASE.replace("maxSurge: 1", "maxSurge: {}")).unwrap();
    let output = Command::new(support::python())
        .args(["-m", "kubernetes_validate", "--strict"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(!output.status.success());
}

#[test]
fn s_2_every_pod_is_locked_down() {
    let pods = pods();
    assert_eq!(pods.len(), SERVICE_NAMES.len() + 1);
    for (name, pod) in pods {
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod["enableServiceLinks"], false, "{name}");
        assert_ne!(pod["hostNetwork"], true, "{name}");
        let account = object(
            "ServiceAccount",
            pod["serviceAccountName"].as_str().unwrap(),
        );
        assert_eq!(account["automountServiceAccountToken"], false, "{name}");
        let context = &pod["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{name}");
        assert_eq!(
            context["seccompProfile"]["type"], "RuntimeDefault",
            "{name}"
        );
        for container in pod["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(strings(&context["capabilities"]["drop"]), ["ALL"], "{name}");
            assert!(
                container["resources"]["limits"]["memory"].is_string(),
                "{name}"
            );
        }
    }
}

#[test]
fn s_1_no_secret_is_shared_between_services() {
    let mut secrets = BTreeSet::new();
    for (name, pod) in pods() {
        let mut volumes = pod["volumes"].as_array().unwrap().iter();
        let volume = volumes.find(|volume| volume["name"] == "secrets").unwrap();
        let secret = volume["secret"]["secretName"].as_str().unwrap();
        assert_eq!(secret, name);
        assert!(secrets.insert(secret.to_owned()), "{secret} twice");
    }
    assert_eq!(secrets.len(), SERVICE_NAMES.len() + 1);
    assert!(
        !RENDERED_BASE.contains("kind: Secret"),
        "operators create the secrets"
    );
}

#[test]
fn credentials_are_mounted_where_the_configuration_looks_for_them_and_are_not_in_the_environment() {
    for (name, pod) in pods() {
        let container = &pod["containers"][0];
        let sources = container["envFrom"].as_array().unwrap();
        let secret_sources = sources
            .iter()
            .filter(|source| source["secretRef"].is_object());
        assert_eq!(secret_sources.count(), 0, "{name}");
        let mut mounts = container["volumeMounts"].as_array().unwrap().iter();
        let mount = mounts.find(|mount| mount["name"] == "secrets").unwrap();
        assert_eq!(mount["readOnly"], true, "{name}");
        let environment = environment(&pod);
        assert_eq!(
            mount["mountPath"], environment["DRAY_SECRETS_DIR"],
            "{name}"
        );
    }
}

#[test]
fn s_1_every_grpc_endpoint_has_tls_and_callers_of_its_own() {
    for name in ["file-resolver", "sandbox-transfer", "platform-delivery"] {
        let pod = &object("Deployment", name)["spec"]["template"]["spec"];
        let environment = environment(pod);
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == "grpc").unwrap();
        assert_eq!(mount["readOnly"], true, "{name}");
        let directory = mount["mountPath"].as_str().unwrap();
        for field in ["CERTIFICATE", "PRIVATE_KEY", "IDENTITIES"] {
            let path = &environment[&format!("DRAY_GRPC__{field}")];
            assert!(path.starts_with(directory), "{name}: {path}");
        }
        assert!(!environment.contains_key("DRAY_GRPC__INSECURE"), "{name}");
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "grpc");
        let secret = &volume.unwrap()["secret"]["secretName"];
        assert_eq!(
            *secret,
            format!("{name}-grpc"),
            "no two services share a key"
        );
    }
}

#[test]
fn a_service_is_probed_replaced_and_ended_in_order() {
    for name in SERVICE_NAMES {
        let deployment = object("Deployment", name);
        let rolling_update = &deployment["spec"]["strategy"]["rollingUpdate"];
        assert_eq!(rolling_update["maxUnavailable"], 0, "{name}");
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], 60, "{name}");
        let container = &pod["containers"][0];
        for (probe, path) in [
            ("startupProbe", "/started"),
            ("livenessProbe", "/live"),
            ("readinessProbe", "/ready"),
        ] {
            assert_eq!(container[probe]["httpGet"]["path"], path, "{name}");
        }
        assert_eq!(strings(&container["args"]), ["up", "--only", name]);
        let budget = object("PodDisruptionBudget", name);
        assert_eq!(budget["spec"]["maxUnavailable"], 1, "{name}");
        // While the bus is away, all pods are unready, and the budget alone would refuse every eviction.
        let policy = &budget["spec"]["unhealthyPodEvictionPolicy"];
        assert_eq!(policy, "AlwaysAllow", "{name}");
        assert_eq!(
            budget["spec"]["selector"], deployment["spec"]["selector"],
            "{name}"
        );
        object("Service", name);
    }
}

#[test]
fn streams_have_three_copies_in_a_cluster() {
    let job = object("Job", "topology");
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let arguments = strings(&container["args"]);
    assert_eq!(arguments[2..], ["--wait", "10m", "--replicas", "3"]);
    // The program accepts these arguments: with `--help` it only prints text.
    let mut help = arguments;
    help.push("--help");
    support::stdout(Command::new(support::dray()).args(help));
}

#[test]
fn only_the_fetcher_scales_and_by_its_queue() {
    let scaler = object("HorizontalPodAutoscaler", "egress-fetcher");
    assert_eq!(scaler["spec"]["scaleTargetRef"]["name"], "egress-fetcher");
    let deployment = object("Deployment", "egress-fetcher");
    assert!(
        deployment["spec"]["replicas"].is_null(),
        "every apply would reset the number of replicas that the autoscaler chose"
    );
    let documented = read("docs/metrics.md");
    let adapter = &yaml(&read("deploy/kubernetes/queue-metrics.yaml.example"))[0];
    let served_metrics = adapter["rules"]["custom"][0]["seriesQuery"]
        .as_str()
        .unwrap();
    let metrics = scaler["spec"]["metrics"].as_array().unwrap();
    assert_eq!(metrics.len(), 2);
    for metric in metrics {
        let name = metric["pods"]["metric"]["name"].as_str().unwrap();
        assert!(documented.contains(&format!("| `{name}` |")), "{name}");
        let last = name.strip_prefix("dray_egress_").unwrap();
        assert!(
            served_metrics.contains(last),
            "the adapter does not serve {name}"
        );
    }
}

#[test]
fn the_startup_probe_outlasts_the_waits_of_a_service() {
    let minutes = |text: &str| text.parse::<u64>().unwrap() * 60;
    let documented = read("docs/configuration.md");
    let default = |variable: &str| {
        let row = documented
            .lines()
            .find(|line| line.contains(&format!("`{variable}`")))
            .unwrap_or_else(|| panic!("{variable} is not documented"));
        let value = row.split('|').nth(3).unwrap().trim().trim_matches('`');
        minutes(value.strip_suffix('m').unwrap())
    };
    let longest_wait = default("DRAY_BUS__WAIT_FOR_SERVER")
        + default("DRAY_STORE__WAIT_FOR_SERVER")
        + default("DRAY_BUS__WAIT_FOR_TOPOLOGY");
    for name in SERVICE_NAMES {
        let deployment = object("Deployment", name);
        let probe = &deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"];
        let probed =
            probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap();
        assert!(
            probed > longest_wait,
            "{name}: {probed} s for {longest_wait} s"
        );
    }
}

#[test]
fn image_tag_is_the_version_of_the_workspace() {
    for (name, pod) in pods() {
        let image = pod["containers"][0]["image"].as_str().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(image.ends_with(&format!(":{version}")), "{name}: {image}");
    }
}

/// The environment of a pod.
fn environment(pod: &Value) -> BTreeMap<String, String> {
    let container = &pod["containers"][0];
    let mut environment = BTreeMap::new();
    for source in container["envFrom"].as_array().unwrap() {
        let Some(name) = source["configMapRef"]["name"].as_str() else {
            continue;
        };
        for (name, value) in object("ConfigMap", name)["data"].as_object().unwrap() {
            environment.insert(name.clone(), value.as_str().unwrap().to_owned());
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let text = |key: &str| variable[key].as_str().unwrap().to_owned();
        environment.insert(text("name"), text("value"));
    }
    environment
}

/// The mounted secret of a pod with this environment. Secrets are not in the tree, so the values are made up.
fn mounted_secret(environment: &BTreeMap<String, String>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut names = vec!["DRAY_BUS__NATS__PASSWORD"];
    if environment.contains_key("DRAY_STORE__MODE") {
        names.extend(["DRAY_STORE__S3__ACCESS_KEY", "DRAY_STORE__S3__SECRET_KEY"]);
    }
    for name in names {
        std::fs::write(directory.path().join(name), "secret").unwrap();
    }
    directory
}

#[test]
fn every_pod_has_a_valid_configuration() {
    for (name, pod) in pods() {
        let mut environment = environment(&pod);
        // A cluster adds this variable to every pod.
        environment.insert("KUBERNETES_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned());
        let secrets = mounted_secret(&environment);
        let directory = secrets.path().to_str().unwrap().to_owned();
        environment.insert("DRAY_SECRETS_DIR".to_owned(), directory);
        let checked = command(&environment).args(["config", "check"]).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{name}: {checked:?}");
        let user = if name == "topology" {
            "provisioner"
        } else {
            &name
        };
        assert_eq!(environment["DRAY_BUS__NATS__USER"], user, "{name}");
    }
}

/// Blocks of addresses to which a policy permits connections, with their exceptions.
fn address_blocks(policy: &Value) -> Vec<(String, Vec<String>)> {
    let rules = policy["spec"]["egress"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    rules
        .iter()
        .flat_map(|rule| rule["to"].as_array().cloned().unwrap_or_default())
        .filter_map(|peer| {
            let block = peer["ipBlock"].as_object()?.clone();
            let except = strings(&block["except"]).into_iter().map(str::to_owned);
            Some((block["cidr"].as_str()?.to_owned(), except.collect()))
        })
        .collect()
}

/// A network as its first address and prefix length.
fn network(text: &str) -> (IpAddr, u8) {
    let (address, prefix) = text.split_once('/').expect("an address and a length");
    (address.parse().unwrap(), prefix.parse().unwrap())
}

/// Whether the outer network contains the inner one.
fn is_inside(inner: &str, outer: &str) -> bool {
    let ((inner, inner_prefix), (outer, outer_prefix)) = (network(inner), network(outer));
    let has_same_prefix = match (inner, outer) {
        (IpAddr::V4(inner), IpAddr::V4(outer)) => {
            let shift = 32 - u32::from(outer_prefix);
            inner.to_bits().checked_shr(shift) == outer.to_bits().checked_shr(shift)
        }
        (IpAddr::V6(inner), IpAddr::V6(outer)) => {
            let shift = 128 - u32::from(outer_prefix);
            inner.to_bits().checked_shr(shift) == outer.to_bits().checked_shr(shift)
        }
        _ => false,
    };
    has_same_prefix && inner_prefix >= outer_prefix
}

#[test]
fn s_3_the_policies_except_exactly_the_networks_that_the_guard_refuses() {
    for name in EGRESS_SERVICES {
        compare_with_the_guard(&address_blocks(&object("NetworkPolicy", name)));
    }
}

fn compare_with_the_guard(blocks: &[(String, Vec<String>)]) {
    let guard: Vec<String> = IPV4_BLOCKS
        .iter()
        .map(|block| block.network().to_string())
        .chain(IPV6_BLOCKS.iter().map(|block| block.network().to_string()))
        .collect();
    for refused in &guard {
        for (open, except) in blocks {
            let is_reachable = is_inside(refused, open)
                && !except.iter().any(|exception| is_inside(refused, exception));
            assert!(!is_reachable, "{refused} can be reached through {open}");
            assert!(!is_inside(open, refused), "{open} lies in {refused}");
        }
    }
    for (open, except) in blocks {
        for exception in except {
            assert!(
                guard.contains(exception),
                "{exception} is not refused by the guard"
            );
            assert!(
                is_inside(exception, open),
                "{exception} does not lie in {open}"
            );
        }
    }
    let open: Vec<_> = blocks.iter().map(|(open, _)| open.as_str()).collect();
    assert_eq!(open, ["0.0.0.0/0", "2000::/3"]);
}

#[test]
fn s_3_edges_of_every_exception_are_edges_of_the_guard() {
    for (_, except) in address_blocks(&object("NetworkPolicy", "egress-fetcher")) {
        for exception in except {
            let (first, prefix) = network(&exception);
            assert!(
                matches!(classify(first), Class::Blocked(_)),
                "{first} of {exception}"
            );
            let last: IpAddr = match first {
                IpAddr::V4(first) => {
                    let span = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                    std::net::Ipv4Addr::from_bits(first.to_bits() | span).into()
                }
                IpAddr::V6(first) => {
                    let span = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                    std::net::Ipv6Addr::from_bits(first.to_bits() | span).into()
                }
            };
            assert!(
                matches!(classify(last), Class::Blocked(_)),
                "{last} of {exception}"
            );
        }
    }
}

#[test]
fn writable_paths_are_on_a_scratch_volume() {
    for (name, size) in [
        ("file-resolver", "1Gi"),
        ("orchestrator", "1Gi"),
        // Above the default of `sandbox-transfer.spool_limit`, 16 GiB: an eviction ends all transfers of the pod.
        ("sandbox-transfer", "20Gi"),
        ("platform-delivery", "1Gi"),
    ] {
        let pod = &object("Deployment", name)["spec"]["template"]["spec"];
        let mut volumes = pod["volumes"].as_array().unwrap().iter();
        let volume = volumes.find(|volume| volume["name"] == "scratch").unwrap();
        assert_eq!(volume["emptyDir"]["sizeLimit"], size, "{name}");
        let mut mounts = pod["containers"][0]["volumeMounts"]
            .as_array()
            .unwrap()
            .iter();
        let mount = mounts.find(|mount| mount["name"] == "scratch").unwrap();
        assert_eq!(mount["mountPath"], "/tmp", "{name}");
    }
}

#[test]
fn s_3_no_other_pod_has_egress() {
    for policy in objects() {
        if policy["kind"] != "NetworkPolicy" {
            continue;
        }
        let name = policy["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            address_blocks(&policy).is_empty(),
            !EGRESS_SERVICES.contains(&name),
            "{name}"
        );
        for rule in policy["spec"]["egress"].as_array().into_iter().flatten() {
            let to = rule["to"].as_array().map_or(0, Vec::len);
            let ports = rule["ports"].as_array().map_or(0, Vec::len);
            assert!(
                to > 0 && ports > 0,
                "{name} has a rule for all peers or ports"
            );
        }
    }
    let nothing = object("NetworkPolicy", "nothing");
    assert_eq!(nothing["spec"]["podSelector"], serde_json::json!({}));
    assert_eq!(
        strings(&nothing["spec"]["policyTypes"]),
        ["Ingress", "Egress"]
    );
    assert!(nothing["spec"]["egress"].is_null());
}
