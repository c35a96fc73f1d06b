//! Sandboxes in Kubernetes pods (sandbox-transfer 6): commands over the exec endpoint, and files over commands.
//!
//! - [`KubernetesBackend`] finds containers of pods and opens them; [`Config`] names the cluster.
//! - An incarnation is the uid of the pod, the container and its id, so a pod that was created again is another one.
//! - `fake_server` (feature `fake-server`): an API server on loopback that runs commands for tests.
//!
//! What it does not do: it needs no `tar` and no `kubectl`, and it does not trust an exit status that the received
//! bytes do not confirm.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dray_sandbox::{Backend as _, Follow, SandboxPath};
//! use dray_sandbox_kubernetes::{Config, KubernetesBackend};
//!
//! let backend = KubernetesBackend::new(Config { in_cluster: true, ..Config::default() })?;
//! let sandbox = backend.open_address(&"kubernetes:agents/box/shell".parse()?).await?;
//! let report = sandbox.stat(&SandboxPath::new("/work/report.pdf")?, Follow::Yes).await?;
//! println!("{} bytes", report.size);
//! # Ok(())
//! # }
//! ```

mod access;
mod backend;
mod client;
mod cluster;
mod config;
mod ephemeral;
mod exec;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fault;
mod pod;
mod rooted;
mod target;

#[cfg(test)]
mod tests;

// `kube` requires its user to choose the version of the API.
use k8s_openapi as _;

pub use backend::KubernetesBackend;
pub use config::{Config, ConfigError};
