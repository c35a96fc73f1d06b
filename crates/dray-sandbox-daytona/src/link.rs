//! The connection to the toolbox of one incarnation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_http::{ByteStream, HttpResponse, RequestBuilder};
use dray_sandbox::{Error, ErrorKind, Handle};
use dray_sandbox_hosted::{MessageRefusal, OCTET_STREAM, Provider, refused};

use crate::control::{ControlClient, SandboxInfo};
use crate::process::Processes;

/// The toolbox of one incarnation.
#[derive(Debug)]
pub(crate) struct ToolboxClient {
    pub(crate) control: Arc<ControlClient>,
    handle: Handle,
    base: String,
}

impl ToolboxClient {
    pub(crate) fn new(
        control: Arc<ControlClient>,
        handle: Handle,
        info: &SandboxInfo,
    ) -> Result<Self, Error> {
        Ok(Self {
            base: control.toolbox(info)?,
            control,
            handle,
        })
    }

    /// A GET request to the toolbox.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        let request = self.control.client.get(&format!("{}{path}", self.base));
        request.authorization("Bearer", &self.control.config.api_key)
    }

    /// A POST request to the toolbox.
    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        let request = self.control.client.post(&format!("{}{path}", self.base));
        request.authorization("Bearer", &self.control.config.api_key)
    }
}

#[async_trait]
impl Provider for ToolboxClient {
    type Commands = Processes;

    const HAS_RANGES: bool = false;
    const HAS_LONG_OUTPUT: bool = false;
    /// For a sandbox that is stopped or gone, the proxy answers with one of several statuses.
    const DOUBTFUL_KINDS: &'static [ErrorKind] = &[
        ErrorKind::Unavailable,
        ErrorKind::Auth,
        ErrorKind::NotFound,
        ErrorKind::Protocol,
    ];

    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn life_left(&self) -> Result<Option<Duration>, Error> {
        let info = self.control.usable(&self.handle.incarnation).await?;
        Ok(info.remaining_lifetime(&self.control.clock))
    }

    fn download(&self, path: &str) -> RequestBuilder {
        self.get("/files/download").query(&[("path", path)])
    }

    fn upload(&self, path: &str, size: u64, body: ByteStream) -> RequestBuilder {
        self.post("/files/upload-v2")
            .query(&[("path", path)])
            .stream(OCTET_STREAM, size, body)
    }

    async fn refused(&self, response: HttpResponse) -> Error {
        refused::<MessageRefusal>(response).await
    }
}
