//! Finds containers and opens them.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{
    Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox, SandboxPath,
};
use dray_sandbox_exec::{ExecSandbox, GuardedExec};

use crate::access;
use crate::cluster::Cluster;
use crate::config::{Config, ConfigError};
use crate::ephemeral;
use crate::exec::{PodContainer, PodExec};
use crate::rooted::{PROCESS_ROOT, RootedSandbox};
use crate::target::Target;

/// The word before the colon of an address.
pub(crate) const BACKEND_NAME: &str = "kubernetes";

/// Containers of the pods of one cluster. Addresses are `kubernetes:NAMESPACE/POD[/CONTAINER]`; the incarnation is
/// the uid of the pod, the name of the container and its id.
#[derive(Debug)]
pub struct KubernetesBackend {
    cluster: Arc<Cluster>,
}

impl KubernetesBackend {
    /// Makes a backend. It connects at the first request.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for settings that contradict each other or name impossible objects.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            cluster: Arc::new(Cluster::new(config)),
        })
    }

    /// Reads an address, if its namespace may be used.
    fn target(&self, address: &Address) -> Result<Target, Error> {
        let target = Target::parse(address)?;
        let allowed = &self.cluster.config().namespaces;
        if allowed.is_empty() || allowed.contains(&target.namespace) {
            return Ok(target);
        }
        Err(Error::new(
            ErrorKind::Auth,
            "the configuration does not allow this namespace",
        ))
    }
}

#[async_trait]
impl Backend for KubernetesBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        access::check_access(&self.cluster).await
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let target = self.target(address)?;
        let pod = self.cluster.pod(&target).await?;
        let container = pod.container(target.container.as_deref())?;
        Ok(Handle {
            address: address.clone(),
            incarnation: pod.incarnation(&container.name)?,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let target = self.target(&handle.address)?;
        let pod = self.cluster.pod(&target).await?;
        let container = pod.container(target.container.as_deref())?;
        if pod.incarnation(&container.name)? != handle.incarnation {
            let message = "the name means another container now";
            return Err(Error::new(ErrorKind::SandboxGone, message));
        }
        // The pod may have been replaced between the two requests; only this incarnation is opened.
        let container_ref = Arc::new(PodContainer {
            cluster: Arc::clone(&self.cluster),
            target,
            container: container.name.clone(),
            incarnation: handle.incarnation.clone(),
        });
        match PodExec::open(Arc::clone(&container_ref), &container_ref.container).await {
            Ok(exec) => {
                // Each request still asks for the pod, but needs no new stream and no supervision of it.
                let exec = GuardedExec::new(exec, container_ref);
                let sandbox = ExecSandbox::new(handle.clone(), exec).with_request_shell();
                Ok(Arc::new(sandbox))
            }
            // The opening runs an empty script, so a container without a shell shows here.
            Err(error) if error.kind() == ErrorKind::ToolMissing => {
                let Some(image) = &self.cluster.config().ephemeral_image else {
                    let message = "the container has no shell, and no image for an ephemeral container is configured";
                    return Err(Error::new(ErrorKind::ToolMissing, message).caused_by(error));
                };
                let name = ephemeral::ensure(&container_ref, &pod, container, image).await?;
                let exec = PodExec::open(Arc::clone(&container_ref), &name).await?;
                let exec = GuardedExec::new(exec, container_ref);
                let root = SandboxPath::new(PROCESS_ROOT)?;
                Ok(Arc::new(RootedSandbox::new(handle.clone(), exec, root)))
            }
            Err(error) => Err(error),
        }
    }
}
