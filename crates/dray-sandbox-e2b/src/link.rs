//! The connection to the daemon of one incarnation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_http::{ByteStream, HttpResponse, MultipartForm, RequestBuilder};
use dray_sandbox::{Error, ErrorKind, Handle, SandboxPath};
use dray_sandbox_hosted::{OCTET_STREAM, Provider, refused, unanswered};
use dray_types::Secret;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use crate::control::{ControlClient, SandboxInfo};
use crate::fault::Refusal;
use crate::process::Processes;

/// Port of the daemon in a sandbox.
const DAEMON_PORT: &str = "49983";
/// The first version that takes a file as the body of a request.
const PLAIN_UPLOADS: [u64; 3] = [0, 5, 7];

/// The daemon of one incarnation.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    control: Arc<ControlClient>,
    handle: Handle,
    /// Whether a file can be the body of a request.
    plain_uploads: bool,
    /// The latest end that running transfers count on, in Unix milliseconds. The lock is held while the lifetime is
    /// extended.
    promised_end_ms: Mutex<u64>,
    /// Tasks that kill commands whose callers were dropped.
    pub(crate) background_tasks: TaskTracker,
    base: String,
    /// Whether headers name the sandbox and the port, because the host serves several sandboxes.
    by_header: bool,
    token: Option<Secret>,
    /// The user, as credentials of HTTP Basic with an empty password.
    basic_credentials: Secret,
}

impl DaemonClient {
    pub(crate) fn new(control: Arc<ControlClient>, handle: Handle, info: &SandboxInfo) -> Self {
        let config = &control.config;
        let domain = info.domain().unwrap_or(&config.domain);
        let name = &handle.address.name;
        let base = match &config.envd_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if config.shared_host => format!("https://sandbox.{domain}"),
            None => format!("https://{DAEMON_PORT}-{name}.{domain}"),
        };
        let configured = Some(&config.access_token).filter(|token| !token.is_empty());
        Self {
            // One host for all sandboxes: the edge needs the id in a header (sandbox-transfer 8.1).
            by_header: config.shared_host || config.envd_url.is_some(),
            // The API's token comes first: it belongs to this run of the sandbox, the configured one to a whole
            // installation.
            token: info.token().or(configured).cloned(),
            // The daemon takes the user from these credentials.
            basic_credentials: Secret::new(STANDARD.encode(format!("{}:", config.user))),
            plain_uploads: info.is_at_least(PLAIN_UPLOADS),
            promised_end_ms: Mutex::default(),
            background_tasks: TaskTracker::new(),
            base,
            handle,
            control,
        }
    }

    /// The user of all files and commands.
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
        request.authorization("Basic", &self.basic_credentials)
    }

    /// Makes a unary call of Connect and drops its response.
    pub(crate) async fn call(&self, name: &str, message: &impl Serialize) -> Result<(), Error> {
        let request = self
            .request("POST", &format!("/{name}"))
            .header("connect-protocol-version", "1")
            .json(message);
        self.send(request).await.map(drop)
    }
}

/// One file of the response to an upload.
#[derive(Debug, Deserialize)]
struct UploadedFile {
    path: String,
}

#[async_trait]
impl Provider for DaemonClient {
    type Commands = Processes;

    const HAS_RANGES: bool = true;
    const HAS_LONG_OUTPUT: bool = true;
    /// The edge answers 502 for a sandbox that is gone and for its own time limits alike, and another sandbox refuses
    /// our token.
    const DOUBTFUL_KINDS: &'static [ErrorKind] = &[ErrorKind::Unavailable, ErrorKind::Auth];

    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn life_left(&self) -> Result<Option<Duration>, Error> {
        let info = self.control.require_incarnation(&self.handle).await?;
        Ok(Some(info.remaining_lifetime(&self.control.clock)))
    }

    async fn ensure_lifetime(&self, needed: Duration) -> Result<(), Error> {
        let mut promised_end_ms = self.promised_end_ms.lock().await;
        self.control
            .prolong(&self.handle, needed, &mut promised_end_ms)
            .await
    }

    fn download(&self, path: &str) -> RequestBuilder {
        self.request("GET", "/files")
            .query(&[("path", path), ("username", self.user())])
    }

    fn upload(&self, path: &str, size: u64, body: ByteStream) -> RequestBuilder {
        let request = self
            .request("POST", "/files")
            .query(&[("path", path), ("username", self.user())]);
        if self.plain_uploads {
            return request.stream(OCTET_STREAM, size, body);
        }
        request.multipart(MultipartForm::new().file("file", path, OCTET_STREAM, size, body))
    }

    async fn check_upload(&self, path: &SandboxPath, response: HttpResponse) -> Result<(), Error> {
        let files: Vec<UploadedFile> = response.json().await.map_err(unanswered)?;
        match files.as_slice() {
            // The daemon resolves the path itself, so its response is compared with what was meant.
            [file] if SandboxPath::new(&file.path)? == *path => Ok(()),
            _ => Err(Error::new(ErrorKind::Protocol, "another file was written")),
        }
    }

    async fn replace(&self, from: &str, to: &str) -> Result<bool, Error> {
        let message = json!({ "source": from, "destination": to });
        self.call("filesystem.Filesystem/Move", &message).await?;
        Ok(true)
    }

    async fn refused(&self, response: HttpResponse) -> Error {
        refused::<Refusal>(response).await
    }
}
