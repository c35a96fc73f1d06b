//! The interface through which previews open sandboxes.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use dray_proto::v1;
use dray_transfer_engine::{Engine, Places, Policy};
use dray_types::{Fault, TenantId};

/// Opens sandboxes for previews.
#[async_trait]
pub trait PreviewSource: Debug + Send + Sync {
    /// Opens the sandbox that a reference means now, with the policy that applies to the tenant now.
    ///
    /// # Errors
    ///
    /// The faults of every call about a sandbox.
    async fn open(&self, tenant: &TenantId, sandbox: &v1::SandboxRef)
    -> Result<OpenSandbox, Fault>;
}

/// An open sandbox, with the policy for reading in it.
#[derive(Clone, Debug)]
pub struct OpenSandbox {
    /// The incarnation.
    pub engine: Arc<Engine>,
    /// The paths of it that may be read.
    pub policy: Policy,
    /// The directories to which relative paths refer.
    pub places: Places,
}
