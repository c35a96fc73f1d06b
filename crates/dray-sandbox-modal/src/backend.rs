//! Finds sandboxes and opens them.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox};
use dray_types::Clock;

use crate::config::{Config, ConfigError, Settings};
use crate::control::{ControlClient, Task};
use crate::router::Router;
use crate::sandbox::ModalSandbox;

/// The word before the colon of an address.
const BACKEND_NAME: &str = "modal";
/// Longest id of a sandbox in bytes.
const MAX_ID_BYTES: usize = 128;

/// Sandboxes of one account. Addresses are `modal:sb-…`; the incarnation is the id of the sandbox and that of the task
/// that runs it.
#[derive(Debug)]
pub struct ModalBackend {
    control: Arc<ControlClient>,
}

impl ModalBackend {
    /// Makes a backend. It connects at the first request.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an address, a token or a file of certificates that cannot be used.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, ConfigError> {
        let settings = Arc::new(Settings::new(config)?);
        let control = ControlClient::new(settings, clock)
            .map_err(|_| ConfigError::Url(config.server_url.clone()))?;
        Ok(Self {
            control: Arc::new(control),
        })
    }

    async fn find(&self, address: &Address) -> Result<(Task, String), Error> {
        check(&address.name)?;
        let task = self.control.task(&address.name).await?;
        let incarnation = format!("{}/{}", task.sandbox_id, task.task_id);
        Ok((task, incarnation))
    }
}

#[async_trait]
impl Backend for ModalBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        self.control.verify_token().await?;
        let ready = "the control plane accepted the token";
        Ok(BackendCheck::Ready(ready.to_owned()))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let (_, incarnation) = self.find(address).await?;
        Ok(Handle {
            address: address.clone(),
            incarnation,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let (task, incarnation) = self.find(&handle.address).await?;
        // The id of a sandbox outlives its task, but the files of the old task are gone.
        if incarnation != handle.incarnation {
            let other = "another task runs the sandbox now";
            return Err(Error::new(ErrorKind::SandboxGone, other));
        }
        // The credential is fetched now, so that a sandbox without a router fails here.
        let router = Router::open(Arc::clone(&self.control), task).await?;
        Ok(Arc::new(ModalSandbox::new(
            handle.clone(),
            Arc::new(router),
        )))
    }
}

/// Checks that an id is one word, before it is sent anywhere.
fn check(id: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        "a sandbox is named by its id, sb- and letters or digits",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_words() {
        for id in ["", "sb/x", "sb x", "sb-\u{e4}", &"x".repeat(129)] {
            assert_eq!(
                check(id).unwrap_err().kind(),
                ErrorKind::InvalidName,
                "{id:?}"
            );
        }
        assert!(check("sb-0123456789abcdefghijKL").is_ok());
    }
}
