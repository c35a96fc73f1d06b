//! The backend `ssh`: hosts that are reached with the OpenSSH client of the system.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox};
use tokio::process::Command;

use crate::client::Client;
use crate::config::{Config, ConfigError, Settings};
use crate::link::HostLink;
use crate::sandbox::SshSandbox;
use crate::target::Target;

/// Finds and opens hosts as sandboxes: `ssh:[user@]host[:port][/directory]`, where the host may be an alias of the
/// configuration of `ssh`.
#[derive(Debug)]
pub struct SshBackend {
    settings: Arc<Settings>,
}

impl SshBackend {
    /// Checks the settings and creates the control directory.
    ///
    /// # Errors
    ///
    /// A setting is invalid, or the control directory could not be created.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            settings: Arc::new(Settings::new(config)?),
        })
    }

    fn client(&self, address: &Address) -> Result<(Client, Target), Error> {
        // A name that belongs to another backend could happen to be the name of a host.
        if address.backend != self.name() {
            return Err(Error::new(
                ErrorKind::InvalidName,
                "the address belongs to another backend",
            ));
        }
        let target = Target::parse(&address.name)?;
        let client = Client::new(Arc::clone(&self.settings), target.clone());
        Ok((client, target))
    }

    async fn connect(
        &self,
        address: &Address,
        expected: Option<&str>,
    ) -> Result<SshSandbox, Error> {
        let (client, target) = self.client(address)?;
        let directory = target.directory.or_else(|| self.settings.directory.clone());
        let open = |link| SshSandbox::open(link, directory.clone(), address.clone(), expected);
        let name = match HostLink::from_name_cache(client.clone()).map(Arc::new) {
            None => client.connection_name().await?,
            Some(link) => {
                // The examination of the host changes nothing, so it may begin before the name is confirmed.
                let opening = Box::pin(open(Arc::clone(&link)));
                let (opened, name) = tokio::join!(opening, client.connection_name());
                let name = name?;
                let is_same = link.confirm(&name);
                match opened {
                    // `Unavailable` is a lost or full connection; with a confirmed name others can be made.
                    Err(error) if is_same && error.kind() != ErrorKind::Unavailable => {
                        return Err(error);
                    }
                    Ok(sandbox) if is_same => return Ok(sandbox),
                    _ => name,
                }
            }
        };
        Box::pin(open(Arc::new(HostLink::new(client, &name)))).await
    }
}

#[async_trait]
impl Backend for SshBackend {
    fn name(&self) -> &'static str {
        "ssh"
    }

    /// Checks only the client program, because addresses name the hosts.
    async fn check(&self) -> Result<BackendCheck, Error> {
        let version = client_version(&self.settings.config.program).await?;
        Ok(BackendCheck::Unverified(format!(
            "{version}; only opening a host shows whether it works"
        )))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let sandbox = self.connect(address, None).await?;
        Ok(sandbox.handle().clone())
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let sandbox = self
            .connect(&handle.address, Some(&handle.incarnation))
            .await?;
        Ok(Arc::new(sandbox))
    }

    async fn open_address(&self, address: &Address) -> Result<Arc<dyn Sandbox>, Error> {
        Ok(Arc::new(self.connect(address, None).await?))
    }
}

/// The version that the client reports, on the first line that `ssh -V` prints.
async fn client_version(program: &Path) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.arg("-V").stdin(Stdio::null()).kill_on_drop(true);
    let missing =
        |error| Error::new(ErrorKind::ToolMissing, "`ssh` cannot be started").caused_by(error);
    let output = command.output().await.map_err(missing)?;
    if !output.status.success() {
        return Err(Error::new(ErrorKind::ToolMissing, "`ssh -V` failed"));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.chars().take(80).collect())
}
