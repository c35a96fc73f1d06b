//! Finds containers and opens them.

use std::sync::Arc;

use async_trait::async_trait;
use bollard::models::ContainerInspectResponse;
use dray_sandbox::{Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox};
use dray_types::Clock;

use crate::client::Client;
use crate::config::{Config, ConfigError};
use crate::sandbox::DockerSandbox;

/// The word before the colon of an address.
const BACKEND_NAME: &str = "docker";

/// Containers of one Docker Engine. Addresses are `docker:NAME` or `docker:ID`; the incarnation is the full id.
#[derive(Debug)]
pub struct DockerBackend {
    client: Arc<Client>,
    clock: Clock,
}

impl DockerBackend {
    /// Makes a backend. It connects at the first request.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an endpoint that cannot be used, or one without its certificates.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, ConfigError> {
        Ok(Self {
            client: Arc::new(Client::new(config)?),
            clock,
        })
    }

    /// Opens a container that the engine has just described.
    async fn open_known(
        &self,
        handle: Handle,
        known: Box<ContainerInspectResponse>,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        let client = Arc::clone(&self.client);
        let clock = self.clock.clone();
        let sandbox = DockerSandbox::open(client, clock, handle, known).await?;
        Ok(Arc::new(sandbox))
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        let (engine, api) = self.client.describe_engine().await?;
        Ok(BackendCheck::Ready(format!("engine {engine}, API {api}")))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        check(&address.name)?;
        let known = self.client.inspect(&address.name).await?;
        Ok(Handle {
            address: address.clone(),
            incarnation: full_id(known.id)?,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        check(&handle.address.name)?;
        let known = self.client.inspect(&handle.address.name).await?;
        // A name may belong to another container by now, and so may a short id.
        if full_id(known.id.clone())? != handle.incarnation {
            let other = "the name means another container now";
            return Err(Error::new(ErrorKind::SandboxGone, other));
        }
        self.open_known(handle.clone(), known).await
    }

    // One request to the engine is enough: it describes the container with its id.
    async fn open_address(&self, address: &Address) -> Result<Arc<dyn Sandbox>, Error> {
        check(&address.name)?;
        let known = self.client.inspect(&address.name).await?;
        let handle = Handle {
            address: address.clone(),
            incarnation: full_id(known.id.clone())?,
        };
        self.open_known(handle, known).await
    }
}

/// Checks a name, which goes into the paths of requests as it is.
fn check(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let only_dots = name.bytes().all(|byte| byte == b'.');
    if name.bytes().all(is_allowed) && !only_dots && name.len() <= 255 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        "the name of a container has only letters, digits, `_`, `.` and `-`",
    ))
}

fn full_id(id: Option<String>) -> Result<String, Error> {
    id.filter(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "a container without an id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_a_request_are_refused() {
        for name in ["", "..", "a/b", "a?b", "a b", "a%2fb", "\u{e4}", "a\n"] {
            assert_eq!(
                check(name).unwrap_err().kind(),
                ErrorKind::InvalidName,
                "{name:?}"
            );
        }
        for name in ["web", "my_box-1.2", &"a".repeat(64)] {
            assert!(check(name).is_ok());
        }
    }

    #[test]
    fn only_a_whole_id_is_an_incarnation() {
        assert!(full_id(Some("ab".repeat(32))).is_ok());
        for id in [
            None,
            Some(String::new()),
            Some("ab".repeat(6)),
            Some("x".repeat(64)),
        ] {
            assert_eq!(full_id(id).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
