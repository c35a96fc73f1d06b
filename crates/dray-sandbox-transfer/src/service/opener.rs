//! Opens the sandboxes that requests and previews name.

use std::sync::Arc;

use async_trait::async_trait;
use dray_preview::{OpenSandbox, PreviewSource};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, sandbox_ref::Sandbox};
use dray_sandbox::Handle;
use dray_service::ReplaceableValue;
use dray_types::{Fault, TenantId};

use super::OpenedSandbox;
use crate::error::Error;
use crate::sessions::Sessions;
use crate::settings::TransferSettings;
use crate::wire;

/// The sessions, the settings and the open incarnations.
#[derive(Clone, Debug)]
pub(crate) struct SandboxOpener {
    pub(super) settings: ReplaceableValue<TransferSettings>,
    pub(super) sessions: Sessions,
}

impl SandboxOpener {
    /// Opens the sandbox that a reference names, with the policy that applies to it.
    pub(super) async fn open_reference(
        &self,
        tenant: &TenantId,
        sandbox: v1::SandboxRef,
    ) -> Result<OpenedSandbox, Error> {
        match sandbox.sandbox {
            None => Err(InvalidMessage::Missing("sandbox").into()),
            Some(Sandbox::Session(session)) => {
                let session = self.sessions.show(tenant, &session).await?;
                self.open_session(session).await
            }
            Some(Sandbox::Address(address)) => {
                let settings = self.settings.get();
                let handle = settings.resolve(tenant, &address).await?;
                open_handle(settings, handle, v1::Session::default()).await
            }
        }
    }

    /// Opens the sandbox that is bound to a session.
    pub(super) async fn open_session(&self, session: v1::Session) -> Result<OpenedSandbox, Error> {
        let handle = session.sandbox.clone().ok_or(Error::NoSandbox)?;
        open_handle(self.settings.get(), wire::own_handle(handle), session).await
    }
}

async fn open_handle(
    settings: Arc<TransferSettings>,
    handle: Handle,
    session: v1::Session,
) -> Result<OpenedSandbox, Error> {
    let opened = OpenedSandbox::open(Arc::clone(&settings), &handle, session).await;
    // A sandbox that failed like this is opened again for the next request.
    if let Err(Error::Sandbox(error)) = &opened {
        settings.backends.failed(&handle, error.kind());
    }
    opened
}

#[async_trait]
impl PreviewSource for SandboxOpener {
    async fn open(
        &self,
        tenant: &TenantId,
        sandbox: &v1::SandboxRef,
    ) -> Result<OpenSandbox, Fault> {
        let opened = self.open_reference(tenant, sandbox.clone()).await?;
        Ok(OpenSandbox {
            engine: opened.engine,
            policy: opened.policy,
            places: opened.places,
        })
    }
}
