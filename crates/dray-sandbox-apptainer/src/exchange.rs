//! The folder of this host that an instance sees too.

use std::sync::Arc;

use dray_sandbox::exec::{Exec, ExecFiles};
use dray_sandbox::local::{LocalBackend, LocalOptions};
use dray_sandbox::{
    Address, Backend as _, Error, ErrorKind, FileKind, Follow, Sandbox, SandboxPath,
};

use crate::config::Exchange;

/// A bind mount that was seen from both sides.
#[derive(Debug)]
pub(crate) struct Bound {
    /// On this host, with nothing outside of it ever opened.
    pub(crate) local: Arc<dyn Sandbox>,
    host: SandboxPath,
    container: SandboxPath,
}

impl Bound {
    /// The exchange folder of an instance, when there is one and both sides see the same folder.
    pub(crate) async fn find<E: Exec + 'static>(
        exchange: &Exchange,
        name: &str,
        files: &ExecFiles<E>,
    ) -> Result<Option<Self>, Error> {
        let folder = exchange.host.join(name);
        let Some(text) = folder.to_str() else {
            return Ok(None);
        };
        let container = SandboxPath::new(&exchange.container)?;
        let inside = match files.stat(&container, Follow::Yes).await {
            Ok(inside) if inside.kind == FileKind::Directory => inside,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::SandboxGone => return Err(error),
            Err(error) => {
                tracing::info!(%error, name, "the instance has no exchange folder");
                return Ok(None);
            }
        };
        let backend = LocalBackend::new(LocalOptions {
            roots: vec![folder.clone()],
        });
        let address = Address {
            backend: "local".to_owned(),
            name: text.to_owned(),
        };
        let opened = async { backend.open(&backend.resolve(&address).await?).await };
        let local = match opened.await {
            Ok(local) => local,
            Err(error) => {
                tracing::info!(%error, name, "this host has no exchange folder for the instance");
                return Ok(None);
            }
        };
        let host = SandboxPath::new(text)?;
        let outside = local.stat(&host, Follow::Yes).await?;
        if outside.identity.is_none() || outside.identity != inside.identity {
            tracing::warn!(name, "the exchange folder of the instance is another one");
            return Ok(None);
        }
        Ok(Some(Self {
            local,
            host,
            container: inside.real_path,
        }))
    }

    /// Where a resolved path of the instance lies on this host; `None` for what is not in the folder.
    pub(crate) fn on_host(&self, path: &SandboxPath) -> Option<SandboxPath> {
        if !path.is_beneath(&self.container) {
            return None;
        }
        let rest = path.as_bytes().strip_prefix(self.container.as_bytes())?;
        SandboxPath::new([self.host.as_bytes(), b"/", rest].concat()).ok()
    }
}
