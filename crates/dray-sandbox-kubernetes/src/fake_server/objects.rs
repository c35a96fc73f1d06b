//! Pods and containers of the fake server.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

/// A container: a directory of this host, in which its commands run.
#[derive(Clone, Debug)]
pub struct FakeContainer {
    /// Name of the container in its pod.
    pub name: String,
    /// Directory in which its commands start; for an empty path one is made.
    pub root: PathBuf,
    /// Directories in which its programs are searched; empty for a container without a shell.
    pub search_path: String,
    /// Arguments that precede every command, for instance `setpriv` with another user.
    pub prefix: Vec<String>,
    /// Id that the runtime gave it, part of the incarnation.
    pub id: String,
    /// The `state` of its status, as the API returns it.
    pub state: Value,
    /// The container's `securityContext`, as the API returns it.
    pub security: Value,
    /// The container that it targets, if it is an ephemeral one.
    pub target: Option<String>,
    /// Name of its image.
    pub image: String,
}

impl FakeContainer {
    /// A running container with the programs of this host.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            root: PathBuf::new(),
            search_path: super::SEARCH_PATH.to_owned(),
            prefix: Vec::new(),
            id: String::new(),
            state: json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
            security: json!({}),
            target: None,
            image: "box:1".to_owned(),
        }
    }

    /// Removes the shell and all other programs.
    #[must_use]
    pub fn without_shell(mut self) -> Self {
        self.search_path = String::new();
        self
    }

    fn spec(&self) -> Value {
        let mut spec = Map::new();
        spec.insert("name".into(), self.name.clone().into());
        spec.insert("image".into(), self.image.clone().into());
        spec.insert("securityContext".into(), self.security.clone());
        if let Some(target) = &self.target {
            spec.insert("targetContainerName".into(), target.clone().into());
        }
        Value::Object(spec)
    }

    fn status(&self) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": "sha256:0",
            "containerID": self.id,
            "ready": true,
            "restartCount": 0,
            "state": self.state,
        })
    }

    /// Whether commands run in the container.
    pub(super) fn runs(&self) -> bool {
        self.state.get("running").is_some()
    }
}

/// A pod of the fake server.
#[derive(Clone, Debug)]
pub struct FakePod {
    namespace: String,
    name: String,
    /// The uid, which a pod of the same name does not share.
    pub uid: String,
    /// The `phase` of its status.
    pub phase: String,
    /// The `reason` of its status.
    pub reason: String,
    /// Whether containers see the processes of each other.
    pub shares_processes: bool,
    /// Annotation that names the container for requests without one.
    pub default_container: Option<String>,
    /// Containers of its specification.
    pub containers: Vec<FakeContainer>,
    /// Ephemeral containers that were added so far.
    pub ephemeral: Vec<FakeContainer>,
    /// The `state` of ephemeral containers that are added from now on.
    pub ephemeral_state: Value,
}

impl FakePod {
    pub(super) fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            phase: "Running".to_owned(),
            reason: String::new(),
            shares_processes: false,
            default_container: None,
            containers: Vec::new(),
            ephemeral: Vec::new(),
            ephemeral_state: json!({"running": {}}),
        }
    }

    /// Finds a container of either kind by its name. Without a name, returns the first one.
    pub(super) fn find(&self, name: Option<&str>) -> Option<&FakeContainer> {
        let mut all = self.containers.iter().chain(&self.ephemeral);
        match name {
            Some(name) => all.find(|container| container.name == name),
            None => all.next(),
        }
    }

    /// The object that the API returns.
    pub(super) fn object(&self) -> Value {
        let annotations = self
            .default_container
            .as_ref()
            .map(|name| json!({"kubectl.kubernetes.io/default-container": name}));
        let specs = |all: &[FakeContainer]| all.iter().map(FakeContainer::spec).collect::<Vec<_>>();
        let statuses =
            |all: &[FakeContainer]| all.iter().map(FakeContainer::status).collect::<Vec<_>>();
        json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": annotations,
            },
            "spec": {
                "nodeName": "node",
                "shareProcessNamespace": self.shares_processes,
                "containers": specs(&self.containers),
                "ephemeralContainers": specs(&self.ephemeral),
            },
            "status": {
                "phase": self.phase,
                "reason": self.reason,
                "containerStatuses": statuses(&self.containers),
                "ephemeralContainerStatuses": statuses(&self.ephemeral),
            },
        })
    }

    /// Adds the containers of a patch of `ephemeralcontainers`. They have the programs of this host.
    pub(super) fn add_ephemeral(&mut self, patch: &Value) {
        let added = patch.pointer("/spec/ephemeralContainers");
        for one in added.and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default();
            let target = text("targetContainerName").to_owned();
            // The files of the target, because the fake has no `/proc/1/root` that leads to them.
            let root = self.find(Some(&target)).map(|target| target.root.clone());
            self.ephemeral.push(FakeContainer {
                image: text("image").to_owned(),
                target: Some(target),
                security: one.get("securityContext").cloned().unwrap_or_default(),
                state: self.ephemeral_state.clone(),
                root: root.unwrap_or_default(),
                ..FakeContainer::new(text("name"))
            });
        }
    }
}
