//! Tests of the values of `deploy/helm/drayage`: each changes what it names, and the objects still fit each other.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::helm::{chart_objects, rendered_chart};

#[test]
fn every_pod_has_the_scheduling_and_the_secrets_of_the_values() {
    let toleration = json!({ "key": "files", "operator": "Exists", "effect": "NoSchedule" });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }]
    }}});
    let values = json!({
        "pods": {
            "annotations": { "example.org/team": "files" },
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [toleration],
            "affinity": affinity,
            "priorityClassName": "important",
        },
        "topology": { "secretName": "own-topology" },
        "services": { "file-resolver": { "secretName": "own", "grpcSecretName": "own.tls" } },
    });
    let chart = rendered_chart(&values);
    let pods: Vec<_> = chart
        .iter()
        .filter(|(_, object)| object["spec"]["template"]["spec"]["containers"].is_array())
        .map(|(name, object)| (name, &object["spec"]["template"]))
        .collect();
    assert_eq!(pods.len(), 7, "six services and the job");
    for (name, pod) in pods {
        let annotation = &pod["metadata"]["annotations"]["example.org/team"];
        assert_eq!(annotation, "files", "{name}");
        let spec = &pod["spec"];
        assert_eq!(spec["nodeSelector"], json!({ "disk": "ssd" }), "{name}");
        assert_eq!(spec["tolerations"], json!([toleration]), "{name}");
        assert_eq!(spec["affinity"], affinity, "{name}");
        assert_eq!(spec["priorityClassName"], "important", "{name}");
    }
    let secrets = |name: &str| -> Vec<String> {
        let volumes = &chart[name]["spec"]["template"]["spec"]["volumes"];
        let names = volumes.as_array().unwrap().iter();
        names
            .filter_map(|volume| volume["secret"]["secretName"].as_str())
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        secrets("\"Deployment\" \"file-resolver\""),
        ["own", "own.tls"]
    );
    assert_eq!(secrets("\"Job\" \"topology\""), ["own-topology"]);
    assert_eq!(
        secrets("\"Deployment\" \"sandbox-transfer\""),
        ["sandbox-transfer", "sandbox-transfer-grpc"]
    );
}

#[test]
fn a_service_has_the_volumes_and_the_token_that_its_values_name() {
    let volume = json!({ "name": "manifests", "configMap": { "name": "agents" } });
    let mount =
        json!({ "name": "manifests", "mountPath": "/etc/dray/manifests", "readOnly": true });
    let chart = rendered_chart(&json!({ "services": {
        "orchestrator": { "volumes": [volume], "volumeMounts": [mount] },
        "sandbox-transfer": { "serviceAccountToken": true },
    }}));
    for name in ["orchestrator", "sandbox-transfer", "file-resolver"] {
        let pod = &chart[&format!("\"Deployment\" \"{name}\"")]["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let has_files = name == "orchestrator";
        assert_eq!(volumes.contains(&volume), has_files, "{name}");
        assert_eq!(mounts.contains(&mount), has_files, "{name}");
        let account = &chart[&format!("\"ServiceAccount\" \"{name}\"")];
        let has_token = name == "sandbox-transfer";
        for object in [pod, account] {
            assert_eq!(object["automountServiceAccountToken"], has_token, "{name}");
        }
    }
}

#[test]
fn the_job_of_the_topology_is_no_hook_and_a_changed_pod_is_another_job() {
    // With `--wait`, Helm runs hooks after the installation only when all services are ready, and they wait for the job.
    for object in chart_objects(&json!({})) {
        let annotations = object["metadata"]["annotations"].to_string();
        assert!(!annotations.contains("helm.sh/hook"), "{object}");
    }
    let job_name = |values: Value| {
        let objects = chart_objects(&values);
        let job = objects.iter().find(|object| object["kind"] == "Job");
        job.unwrap()["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // An unchanged job is not replaced.
    let sweeper = json!({ "services": { "sweeper": { "replicas": 2 } } });
    assert_eq!(job_name(sweeper), job_name(json!({})));
    let names: BTreeSet<_> = [
        json!({}),
        json!({ "image": { "tag": "0.2.0" } }),
        json!({ "topology": { "replicas": 1 } }),
        json!({ "topology": { "storeSize": "40GiB" } }),
        json!({ "environment": { "DRAY_BUS__NATS__SERVERS": "nats://elsewhere:4222" } }),
    ]
    .map(job_name)
    .into();
    assert_eq!(names.len(), 5, "{names:?}");
}

#[test]
fn streams_are_sized_only_when_a_size_is_named() {
    let arguments = |values: &Value| {
        let chart = rendered_chart(values);
        let pod = &chart["\"Job\" \"topology\""]["spec"]["template"]["spec"];
        pod["containers"][0]["args"].clone()
    };
    let unsized_streams = json!(["topology", "apply", "--wait", "10m", "--replicas", "3"]);
    assert_eq!(arguments(&json!({})), unsized_streams);
    let sized = arguments(&json!({ "topology": { "storeSize": "40GiB" } }));
    let tail = &sized.as_array().unwrap()[6..];
    assert_eq!(tail, [json!("--store-size"), json!("40GiB")]);
}

#[test]
fn an_autoscaled_service_has_no_number_of_replicas() {
    let services =
        json!({ "egress-fetcher": { "replicas": 3 }, "file-resolver": { "replicas": 3 } });
    for (values, count) in [
        (json!({ "services": services }), 1),
        (
            json!({ "services": services, "keda": { "enabled": true } }),
            4,
        ),
    ] {
        let chart = rendered_chart(&values);
        let scalers: Vec<_> = chart
            .values()
            .filter(|object| object["spec"]["scaleTargetRef"].is_object())
            .collect();
        assert_eq!(scalers.len(), count);
        for scaler in scalers {
            let name = scaler["spec"]["scaleTargetRef"]["name"].to_string();
            let deployment = &chart[&format!("\"Deployment\" {name}")];
            assert!(deployment["spec"]["replicas"].is_null(), "{name}");
        }
    }
    let values = json!({ "services": services, "autoscaling": { "enabled": false } });
    let chart = rendered_chart(&values);
    assert_eq!(
        chart["\"Deployment\" \"egress-fetcher\""]["spec"]["replicas"],
        3
    );
}

#[test]
fn no_network_policy_is_left_without_the_others() {
    let values = json!({
        "networkPolicies": false, "egressProxy": { "enabled": true }, "keda": { "enabled": true },
        "preview": { "enabled": true },
    });
    let chart = rendered_chart(&values);
    assert!(chart.contains_key("\"Ingress\" \"preview\""));
    assert!(chart.contains_key("\"ScaledObject\" \"file-resolver\""));
    let policy = chart.keys().find(|name| name.contains("NetworkPolicy"));
    assert_eq!(policy, None);
}

#[test]
fn previews_without_their_service_have_no_objects() {
    let preview = json!({ "enabled": true });
    let without_service = json!({ "services": { "sandbox-transfer": null } });
    let with_preview = json!({ "services": without_service["services"], "preview": preview });
    assert_eq!(
        rendered_chart(&with_preview),
        rendered_chart(&without_service)
    );
}

#[test]
fn values_change_the_settings_that_they_name() {
    let values = json!({
        "image": { "repository": "registry.example.org/dray", "tag": "0.2.0", "pullSecrets": ["123"] },
        "services": { "file-resolver": { "replicas": 5 }, "orchestrator": null },
        "networkPolicies": false,
    });
    let chart = rendered_chart(&values);
    let deployment = &chart["\"Deployment\" \"file-resolver\""]["spec"];
    assert_eq!(deployment["replicas"], 5);
    let pod = &deployment["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["image"],
        "registry.example.org/dray:0.2.0"
    );
    assert_eq!(pod["imagePullSecrets"][0]["name"], "123");
    assert!(!chart.contains_key("\"Deployment\" \"orchestrator\""));
    assert!(!chart.keys().any(|name| name.contains("NetworkPolicy")));
}
