//! The way to the toolbox of one incarnation.

use std::sync::Arc;

use dray_http::{HttpResponse, RequestBuilder};
use dray_sandbox::{Error, ErrorKind, Handle};

use crate::control::{Control, Info};
use crate::fault::{refused, unanswered};

/// The toolbox of one incarnation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) control: Arc<Control>,
    pub(crate) handle: Handle,
    base: String,
}

impl Link {
    pub(crate) fn new(control: Arc<Control>, handle: Handle, info: &Info) -> Result<Self, Error> {
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

    /// Sends a request; any answer but success is an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<HttpResponse, Error> {
        let error = match request.send(&|_| {}).await {
            Ok(answer) if answer.is_success() => return Ok(answer),
            Ok(answer) => refused(answer).await,
            Err(error) => unanswered(error),
        };
        Err(self.explained(error).await)
    }

    /// The proxy answers for sandboxes that are stopped or gone in many ways, some of which a file could cause: the
    /// API knows which it is.
    pub(crate) async fn explained(&self, error: Error) -> Error {
        if !matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::Auth | ErrorKind::NotFound | ErrorKind::Protocol
        ) {
            return error;
        }
        match self.control.usable(&self.handle.incarnation).await {
            Err(told)
                if matches!(
                    told.kind(),
                    ErrorKind::SandboxGone | ErrorKind::SandboxStopped | ErrorKind::SandboxPaused
                ) =>
            {
                told.caused_by(error)
            }
            _ => error,
        }
    }
}
