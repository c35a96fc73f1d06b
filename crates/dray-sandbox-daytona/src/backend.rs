//! Finds sandboxes and opens them.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox};
use dray_sandbox_hosted::HostedSandbox;
use dray_types::Clock;

use crate::config::{Config, ConfigError};
use crate::control::ControlClient;
use crate::link::ToolboxClient;
use crate::process::Processes;

/// The word before the colon of an address.
const BACKEND_NAME: &str = "daytona";

/// The sandboxes of one organization. Addresses are `daytona:SANDBOX_ID` or `daytona:NAME`; the incarnation is the id.
#[derive(Debug)]
pub struct DaytonaBackend {
    control: Arc<ControlClient>,
}

impl DaytonaBackend {
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
impl Backend for DaytonaBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        let end = self.control.verify_key().await?;
        let end = end.map_or_else(String::new, |end| format!(", which ends {end}"));
        Ok(BackendCheck::Ready(format!(
            "the API accepted the key{end}"
        )))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let info = self.control.find(&address.name).await?;
        Ok(Handle {
            address: address.clone(),
            incarnation: info.id,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        // The name is checked first: it may belong to another sandbox now, while the bound one still runs.
        let named = self.control.find(&handle.address.name).await?;
        if named.id != handle.incarnation {
            let other = "the name means another sandbox now";
            return Err(Error::new(ErrorKind::SandboxGone, other));
        }
        let info = self.control.usable(&handle.incarnation).await?;
        let link = ToolboxClient::new(Arc::clone(&self.control), handle.clone(), &info)?;
        let link = Arc::new(link);
        let commands = Processes::new(Arc::clone(&link));
        Ok(Arc::new(HostedSandbox::new(link, commands)))
    }
}
