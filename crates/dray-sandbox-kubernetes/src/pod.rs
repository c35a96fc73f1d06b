//! Pods and the state of their containers, as the API returns them.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Annotation with the name of the default container, for requests without a container.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Delay before a request for a pod or container that is being started is repeated: pulling an image takes seconds.
const START_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A pod, with the fields that are used here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodMeta {
    uid: String,
    #[serde(deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    ephemeral_containers: Vec<Container>,
    share_process_namespace: bool,
    #[serde(rename = "hostPID")]
    host_pid: bool,
}

/// A container of a pod's specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) target_container_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) security_context: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    reason: String,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    #[serde(deserialize_with = "or_default")]
    state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<Value>,
    waiting: Option<StateReason>,
    terminated: Option<StateReason>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StateReason {
    reason: String,
}

/// Reads a field that may be absent or null. Go writes empty lists and maps as null.
fn or_default<'d, T: Deserialize<'d> + Default, D: Deserializer<'d>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Pod {
    /// The container of the request, if it belongs to this pod.
    pub(crate) fn container(&self, named: Option<&str>) -> Result<&Container, Error> {
        let preset = self.metadata.annotations.get(DEFAULT_CONTAINER);
        let containers = &self.spec.containers;
        match (named.or(preset.map(String::as_str)), containers.as_slice()) {
            (Some(name), all) => all
                .iter()
                .find(|container| container.name == name)
                .ok_or_else(|| {
                    let no = format!("the pod has no container {}", name.escape_debug());
                    Error::new(ErrorKind::SandboxGone, no)
                }),
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::new(
                ErrorKind::InvalidName,
                "the pod has several containers; name one of them",
            )),
        }
    }

    /// Identity of this container, if it runs now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] for an evicted pod and for a container that was killed for its memory,
    /// [`ErrorKind::SandboxStopped`] for one that does not run.
    pub(crate) fn incarnation(&self, container: &str) -> Result<String, Error> {
        let phase = self.status.phase.as_str();
        let reason = self.status.reason.as_str();
        // The reason is checked before the phase, because an evicted pod is `Failed` too.
        if reason == "Evicted" {
            return Err(Error::new(ErrorKind::SandboxGone, "the pod was evicted"));
        }
        if phase != "Running" {
            let text = format!(
                "the pod is {} {}",
                phase.escape_debug(),
                reason.escape_debug()
            );
            let error = Error::new(ErrorKind::SandboxStopped, text);
            return Err(match phase {
                "Pending" => error.with_retry_after(START_RETRY_DELAY),
                _ => error,
            });
        }
        let statuses = &self.status.container_statuses;
        let found = statuses.iter().find(|status| status.name == container);
        let status = found.ok_or_else(|| {
            Error::new(ErrorKind::SandboxStopped, "the container was not started")
                .with_retry_after(START_RETRY_DELAY)
        })?;
        if let Some(error) = status.state.not_running_error() {
            return Err(error);
        }
        let uid = &self.metadata.uid;
        let id = &status.container_id;
        // Two such containers would count as one incarnation.
        if uid.is_empty() || id.is_empty() {
            return Err(Error::new(ErrorKind::Protocol, "the container has no id"));
        }
        Ok(format!("{uid}/{container}/{id}"))
    }

    /// Whether the first process that a helper sees is the first process of its target.
    pub(crate) fn has_own_processes(&self) -> bool {
        !self.spec.share_process_namespace && !self.spec.host_pid
    }

    /// An ephemeral container of this image that targets `target` and has not ended.
    pub(crate) fn helper(&self, target: &str, image: &str) -> Option<&str> {
        let all = self.spec.ephemeral_containers.iter();
        let mut fitting = all.filter(|container| {
            container.image == image && container.target_container_name.as_deref() == Some(target)
        });
        let usable = fitting.find(|container| match self.helper_status(&container.name) {
            Some(status) => status.state.terminated.is_none(),
            // Without a status it was created only a moment ago.
            None => true,
        });
        usable.map(|container| container.name.as_str())
    }

    /// Number of ephemeral containers whose name begins with `prefix` and that target `target`, those that ended
    /// included.
    pub(crate) fn count_helpers(&self, target: &str, prefix: &str) -> usize {
        let all = self.spec.ephemeral_containers.iter();
        let helpers = all.filter(|container| {
            container.name.starts_with(prefix)
                && container.target_container_name.as_deref() == Some(target)
        });
        helpers.count()
    }

    /// Whether an ephemeral container runs; an error when it never will.
    pub(crate) fn helper_runs(&self, name: &str) -> Result<bool, Error> {
        let Some(status) = self.helper_status(name) else {
            return Ok(false);
        };
        let broken = |found_state: &StateReason| {
            let reason = found_state.reason.escape_debug();
            let text = format!("the ephemeral container does not start: {reason}");
            Err(Error::new(ErrorKind::ToolMissing, text))
        };
        match &status.state {
            ContainerState {
                terminated: Some(found_state),
                ..
            } => broken(found_state),
            // `ErrImagePull` or `ImagePullBackOff`: waiting would mostly use up the whole timeout.
            ContainerState {
                waiting: Some(found_state),
                ..
            } if found_state.reason.contains("Image") => broken(found_state),
            state => Ok(state.running.is_some()),
        }
    }

    fn helper_status(&self, name: &str) -> Option<&ContainerStatus> {
        let all = &self.status.ephemeral_container_statuses;
        all.iter().find(|status| status.name == name)
    }
}

impl ContainerState {
    /// The error for a container that does not run; `None` for one that does.
    fn not_running_error(&self) -> Option<Error> {
        let failure = |kind, state: &StateReason, text| {
            let reason = state.reason.escape_debug();
            Some(Error::new(kind, format!("the container {text}: {reason}")))
        };
        match self {
            Self {
                terminated: Some(state),
                ..
            } if state.reason == "OOMKilled" => {
                failure(ErrorKind::SandboxGone, state, "was killed")
            }
            Self {
                terminated: Some(state),
                ..
            } => failure(ErrorKind::SandboxStopped, state, "has ended"),
            Self {
                running: Some(_), ..
            } => None,
            Self { waiting, .. } => {
                let state = waiting.clone().unwrap_or_default();
                let error = failure(ErrorKind::SandboxStopped, &state, "waits")?;
                Some(error.with_retry_after(START_RETRY_DELAY))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, state: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"name": "a"}]},
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": "a", "containerID": "containerd://1", "state": state}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn r_1_an_incarnation_is_pod_and_container() {
        let pod = pod("Running", &json!({"running": {}}));
        assert_eq!(pod.incarnation("a").unwrap(), "u/a/containerd://1");
        assert_eq!(
            pod.incarnation("b").unwrap_err().kind(),
            ErrorKind::SandboxStopped
        );
    }

    #[test]
    fn a_container_that_does_not_run_is_reported_as_stopped_or_ended() {
        let (running, none) = (json!({"running": {}}), json!({}));
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        let ended = |reason: &str| json!({"terminated": {"reason": reason}});
        let starting = Some(START_RETRY_DELAY);
        for (phase, state, kind, delay) in [
            ("Pending", &running, ErrorKind::SandboxStopped, starting),
            ("Succeeded", &running, ErrorKind::SandboxStopped, None),
            ("Running", &waiting, ErrorKind::SandboxStopped, starting),
            ("Running", &ended("Error"), ErrorKind::SandboxStopped, None),
            ("Running", &ended("OOMKilled"), ErrorKind::SandboxGone, None),
            ("Running", &none, ErrorKind::SandboxStopped, starting),
        ] {
            let error = pod(phase, state).incarnation("a").unwrap_err();
            assert_eq!(
                (error.kind(), error.retry_after()),
                (kind, delay),
                "{phase} {state}"
            );
        }
        let evicted: Pod =
            serde_json::from_value(json!({"status": {"phase": "Failed", "reason": "Evicted"}}))
                .unwrap();
        assert_eq!(
            evicted.incarnation("a").unwrap_err().kind(),
            ErrorKind::SandboxGone
        );
        let nameless: Pod = serde_json::from_value(json!({
            "status": {"phase": "Running", "containerStatuses": [{"name": "a", "state": {"running": {}}}]},
        }))
        .unwrap();
        assert_eq!(
            nameless.incarnation("a").unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }

    #[test]
    fn no_container_is_guessed() {
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let pod: Pod = serde_json::from_value(two.clone()).unwrap();
        assert_eq!(
            pod.container(None).unwrap_err().kind(),
            ErrorKind::InvalidName
        );
        assert_eq!(pod.container(Some("b")).unwrap().name, "b");
        assert_eq!(
            pod.container(Some("c")).unwrap_err().kind(),
            ErrorKind::SandboxGone
        );
        let mut preset = two;
        preset["metadata"] = json!({"annotations": {DEFAULT_CONTAINER: "b"}});
        let pod: Pod = serde_json::from_value(preset).unwrap();
        assert_eq!(pod.container(None).unwrap().name, "b");
    }

    #[test]
    fn an_ephemeral_container_is_used_again_unless_it_ended() {
        let with = |state: Value| -> Pod {
            serde_json::from_value(json!({
                "spec": {"ephemeralContainers": [{"name": "h", "image": "i", "targetContainerName": "a"}]},
                "status": {"ephemeralContainerStatuses": [{"name": "h", "state": state}]},
            }))
            .unwrap()
        };
        let running = with(json!({"running": {}}));
        assert_eq!(running.helper("a", "i"), Some("h"));
        assert_eq!(running.helper("b", "i"), None);
        assert_eq!(running.helper("a", "other"), None);
        assert!(running.helper_runs("h").unwrap());
        let ended = with(json!({"terminated": {"reason": "Error"}}));
        assert_eq!(ended.helper("a", "i"), None);
        assert!(ended.helper_runs("h").is_err());
        let waiting = with(json!({"waiting": {"reason": "ContainerCreating"}}));
        assert!(!waiting.helper_runs("h").unwrap());
        let no_image = with(json!({"waiting": {"reason": "ErrImagePull"}}));
        assert_eq!(
            no_image.helper_runs("h").unwrap_err().kind(),
            ErrorKind::ToolMissing
        );
    }
}
