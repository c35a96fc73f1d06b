//! Finds sandboxes and opens them.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, BackendCheck, Error, Handle, Sandbox};
use dray_sandbox_hosted::HostedSandbox;
use dray_types::Clock;

use crate::config::{Config, ConfigError};
use crate::control::ControlClient;
use crate::link::DaemonClient;
use crate::process::Processes;

/// The word before the colon of an address.
const BACKEND_NAME: &str = "e2b";

/// The sandboxes of one account. Addresses are `e2b:SANDBOX`; the incarnation is the id and the start time.
#[derive(Debug)]
pub struct E2bBackend {
    control: Arc<ControlClient>,
}

impl E2bBackend {
    /// Makes a backend. It connects at the first request.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a setting that cannot be used. Without a key each request fails.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, ConfigError> {
        Ok(Self {
            control: Arc::new(ControlClient::new(config, clock)?),
        })
    }
}

#[async_trait]
impl Backend for E2bBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        self.control.verify_key().await?;
        let ready = "the control API accepted the key";
        Ok(BackendCheck::Ready(ready.to_owned()))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let info = self.control.find(address).await?;
        Ok(ControlClient::handle(address, &info))
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let info = self.control.require_incarnation(handle).await?;
        let link = DaemonClient::new(Arc::clone(&self.control), handle.clone(), &info);
        let link = Arc::new(link);
        let commands = Processes::new(Arc::clone(&link));
        Ok(Arc::new(HostedSandbox::new(link, commands)))
    }
}
