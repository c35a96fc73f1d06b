//! Ephemeral containers beside containers that have no shell (sandbox-transfer R-9).

use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use rand::Rng as _;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::exec::PodContainer;
use crate::pod::{Container, Pod};

/// Time between two checks whether the container runs.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Beginning of the names of helpers; people add ephemeral containers too.
const NAME_PREFIX: &str = "dray-";

/// Most helpers that one container gets while its pod exists. A process of the container may kill them, and the pod
/// keeps those that ended.
pub(crate) const MAX_HELPERS: usize = 16;

/// Command of the helper: it waits for commands, and ends on SIGTERM.
const HELPER_COMMAND: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// Settings of the container that its helper gets too. The kernel lets the helper access the files of the container's
/// processes if it has their user and all of their capabilities; with more capabilities it could read more than they can.
/// Namespaces that enforce the standard `restricted` refuse a helper without the last three.
const COPIED_SETTINGS: [&str; 5] = [
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "capabilities",
    "seccompProfile",
];

/// Name of an ephemeral container that runs beside `container`: an existing container, or a new one.
///
/// # Errors
///
/// [`ErrorKind::ToolMissing`]: the pod cannot have an ephemeral container. [`ErrorKind::Auth`]: the right to
/// `pods/ephemeralcontainers` is missing. [`ErrorKind::Timeout`]: the container does not start in time.
pub(crate) async fn ensure(
    container_ref: &PodContainer,
    pod: &Pod,
    container: &Container,
    image: &str,
) -> Result<String, Error> {
    // In a shared process namespace the first process does not belong to the target.
    if !pod.has_own_processes() {
        let shared =
            "processes of the pod are shared, so that its containers cannot be distinguished";
        return Err(Error::new(ErrorKind::ToolMissing, shared));
    }
    // Ephemeral containers cannot be removed, so a running one is reused.
    let name = match pod.helper(&container.name, image) {
        Some(name) => name.to_owned(),
        None if pod.count_helpers(&container.name, NAME_PREFIX) >= MAX_HELPERS => {
            let ended = "too many ephemeral containers of the container have ended";
            return Err(Error::new(ErrorKind::ToolMissing, ended));
        }
        None => add(container_ref, container, image).await?,
    };
    let start_timeout = container_ref
        .cluster
        .config()
        .ephemeral_timeout
        .as_duration();
    let until = Instant::now() + start_timeout;
    loop {
        let pod = container_ref.cluster.pod(&container_ref.target).await?;
        // The pod may be replaced while its helper starts; the new one has another incarnation.
        if pod.incarnation(&container_ref.container)? != container_ref.incarnation {
            return Err(Error::new(
                ErrorKind::SandboxGone,
                "another container runs now",
            ));
        }
        if pod.helper_runs(&name)? {
            return Ok(name);
        }
        if Instant::now() > until {
            let timed_out = "the ephemeral container does not start";
            return Err(Error::new(ErrorKind::Timeout, timed_out));
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn add(
    container_ref: &PodContainer,
    container: &Container,
    image: &str,
) -> Result<String, Error> {
    // Names must be unique in the pod, ended ephemeral containers included.
    let name = format!("{NAME_PREFIX}{:08x}", rand::rng().random::<u32>());
    let same = COPIED_SETTINGS.iter().filter_map(|key| {
        let value = container.security_context.get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    let mut security: Map<String, Value> = same.collect();
    security.insert("allowPrivilegeEscalation".into(), false.into());
    let patch = json!({"spec": {"ephemeralContainers": [{
        "name": name,
        "image": image,
        "command": ["sh", "-c", HELPER_COMMAND],
        "targetContainerName": container.name,
        "securityContext": security,
    }]}});
    container_ref
        .cluster
        .patch(&container_ref.target, "ephemeralcontainers", &patch)
        .await?;
    Ok(name)
}
