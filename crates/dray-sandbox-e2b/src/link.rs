//! The way to the daemon of one incarnation.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_http::{HttpResponse, RequestBuilder};
use dray_sandbox::{Error, ErrorKind, Handle};
use dray_types::Secret;
use serde::Serialize;
use tokio_util::task::TaskTracker;

use crate::control::{Control, Info};
use crate::fault::{refused, unanswered};

/// Where the daemon listens in a sandbox.
const DAEMON_PORT: &str = "49983";
/// The first version that takes a file as the body of a request.
const PLAIN_UPLOADS: [u64; 3] = [0, 5, 7];

/// The daemon of one incarnation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) control: Arc<Control>,
    pub(crate) handle: Handle,
    /// Whether a file can be the body of a request.
    pub(crate) plain_uploads: bool,
    /// What must still be done for callers who went away.
    pub(crate) aftermath: TaskTracker,
    base: String,
    by_header: bool,
    token: Option<Secret>,
    basic: Secret,
}

impl Link {
    pub(crate) fn new(control: Arc<Control>, handle: Handle, info: &Info) -> Self {
        let config = &control.config;
        let domain = info.domain().unwrap_or(&config.domain);
        let name = &handle.address.name;
        let base = match &config.envd_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if config.shared_host => format!("https://sandbox.{domain}"),
            None => format!("https://{DAEMON_PORT}-{name}.{domain}"),
        };
        let own = Some(&config.access_token).filter(|token| !token.is_empty());
        Self {
            by_header: config.shared_host || config.envd_url.is_some(),
            token: info.token().or(own).cloned(),
            basic: Secret::new(STANDARD.encode(format!("{}:", config.user))),
            plain_uploads: info.is_at_least(PLAIN_UPLOADS),
            aftermath: TaskTracker::new(),
            base,
            handle,
            control,
        }
    }

    /// The user that everything is done as.
    pub(crate) fn user(&self) -> &str {
        &self.control.config.user
    }

    /// A request to the daemon.
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.base);
        let client = &self.control.client;
        let mut request = if method == "GET" {
            client.get(&url)
        } else {
            client.post(&url)
        };
        if self.by_header {
            request = request
                .header("e2b-sandbox-id", &self.handle.address.name)
                .header("e2b-sandbox-port", DAEMON_PORT);
        }
        if let Some(token) = &self.token {
            request = request.header("x-access-token", token.expose());
        }
        request.authorization("Basic", &self.basic)
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

    /// A call that has one answer.
    pub(crate) async fn call(&self, name: &str, message: &impl Serialize) -> Result<(), Error> {
        let request = self
            .request("POST", &format!("/{name}"))
            .header("connect-protocol-version", "1")
            .json(message);
        self.send(request).await.map(drop)
    }

    /// The edge answers 502 for a sandbox that is gone and for its own time limits alike, and another sandbox refuses
    /// our token: the control API knows which it is.
    pub(crate) async fn explained(&self, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Auth) {
            return error;
        }
        match self.control.same(&self.handle).await {
            Err(told)
                if matches!(
                    told.kind(),
                    ErrorKind::SandboxGone | ErrorKind::SandboxPaused
                ) =>
            {
                told.caused_by(error)
            }
            _ => error,
        }
    }
}
