//! Tests of the objects beside the base that operators adjust and apply themselves.

use std::process::Command;

use super::object;
use crate::deploy::{read, yaml};
use crate::support;

#[test]
fn the_examples_fit_the_schemas() {
    for name in ["sandboxes", "webhooks"] {
        let file = support::root().join(format!("deploy/kubernetes/{name}.yaml.example"));
        let valid = support::stdout(
            Command::new(support::python())
                .args(["-m", "kubernetes_validate", "--strict", "--no-warn"])
                .arg(&file),
        );
        drop(valid);
    }
}

#[test]
fn the_example_for_webhooks_opens_one_port_of_the_service_that_answers_them() {
    let objects = yaml(&read("deploy/kubernetes/webhooks.yaml.example"));
    let [service, ingress, policy] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    let deployment = object("Deployment", "platform-delivery");
    let pods = &deployment["spec"]["selector"]["matchLabels"];
    assert_eq!(&service["spec"]["selector"], pods);
    assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], pods);
    let port = &service["spec"]["ports"][0]["targetPort"];
    assert_eq!(&policy["spec"]["ingress"][0]["ports"][0]["port"], port);
    let paths = ingress["spec"]["rules"][0]["http"]["paths"].as_array();
    let paths: Vec<_> = paths.into_iter().flatten().collect();
    assert_eq!(paths.len(), 2);
    for path in paths {
        let backend = &path["backend"]["service"];
        assert_eq!(backend["name"], service["metadata"]["name"]);
    }
}
