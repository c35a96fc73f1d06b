//! The exchange directory: a directory of this host that is bound into an instance.

use std::sync::Arc;

use dray_sandbox::{
    Address, Backend as _, Error, ErrorKind, FileKind, Follow, Sandbox, SandboxPath,
};
use dray_sandbox_exec::{Exec, ExecFiles};
use dray_sandbox_local::{LocalBackend, LocalOptions};

use crate::config::Exchange;

/// A bind mount whose two sides were found to be the same directory.
#[derive(Debug)]
pub(crate) struct BoundExchange {
    /// The host's side, which opens nothing outside of the directory.
    pub(crate) local: Arc<dyn Sandbox>,
    host: SandboxPath,
    container: SandboxPath,
}

impl BoundExchange {
    /// The exchange directory of an instance; `None` unless both sides see the same directory.
    pub(crate) async fn find<E: Exec + 'static>(
        exchange: &Exchange,
        name: &str,
        files: &ExecFiles<E>,
    ) -> Result<Option<Self>, Error> {
        let directory = exchange.host.join(name);
        let Some(text) = directory.to_str() else {
            return Ok(None);
        };
        let container = SandboxPath::new(&exchange.container)?;
        let inside = match files.stat(&container, Follow::Yes).await {
            Ok(inside) if inside.kind == FileKind::Directory => inside,
            Ok(_) => return Ok(None),
            // Every other failure only means that bytes go through commands instead.
            Err(error) if error.kind() == ErrorKind::SandboxGone => return Err(error),
            Err(error) => {
                tracing::info!(%error, name, "the instance has no exchange directory");
                return Ok(None);
            }
        };
        let backend = LocalBackend::new(LocalOptions {
            roots: vec![directory.clone()],
        });
        let address = Address {
            backend: "local".to_owned(),
            name: text.to_owned(),
        };
        let opened = async { backend.open(&backend.resolve(&address).await?).await };
        let local = match opened.await {
            Ok(local) => local,
            Err(error) => {
                tracing::info!(%error, name, "this host has no exchange directory for the instance");
                return Ok(None);
            }
        };
        let host = SandboxPath::new(text)?;
        let outside = local.stat(&host, Follow::Yes).await?;
        // Device and inode are the same on both sides of a bind mount; anything else is not the same directory.
        if outside.identity.is_none() || outside.identity != inside.identity {
            tracing::warn!(
                name,
                "the exchange directory in the instance is not the one on this host"
            );
            return Ok(None);
        }
        Ok(Some(Self {
            local,
            host,
            container: inside.real_path,
        }))
    }

    /// The path on this host for a resolved path of the instance; `None` outside of the directory.
    pub(crate) fn on_host(&self, path: &SandboxPath) -> Option<SandboxPath> {
        // The path is resolved in the instance, so links in it were followed there and not on this host.
        if !path.is_beneath(&self.container) {
            return None;
        }
        let rest = path.as_bytes().strip_prefix(self.container.as_bytes())?;
        SandboxPath::new([self.host.as_bytes(), b"/", rest].concat()).ok()
    }
}
