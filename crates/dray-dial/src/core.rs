//! DIAL Core at one origin, and how it is asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_http::{HttpClient, HttpResponse, HttpTimeouts, RequestBuilder};
use dray_types::Secret;
use serde_json::Value;

use crate::cache::MetadataCache;
use crate::chat::ChatClient;
use crate::error::{Error, ErrorKind};
use crate::origin::{DialOrigin, canonical_path};
use crate::retry::RetryPolicy;

/// Longest JSON answer that is read, in bytes (R3).
const MAX_JSON_BYTES: usize = 4 << 20;

/// How DIAL Core is reached.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// `DIAL_URL`.
    pub url: String,
    /// `DIAL_API_VERSION`, the `api-version` of chat completions.
    pub api_version: String,
    /// PEM file with authorities that are trusted beside the public ones.
    pub ca_file: Option<PathBuf>,
    /// Time limits of all calls but chat completions.
    pub limits: HttpTimeouts,
    /// Time limits of chat completions.
    pub chat: HttpTimeouts,
    /// How long metadata count as fresh (R14).
    pub metadata_age: Duration,
    /// Wait before the first further try; doubles.
    pub backoff: Duration,
    /// Code interpreter somewhere else; DIAL's own when absent.
    pub interpreter: Option<InterpreterEndpoint>,
}

impl DialOptions {
    /// Options with the usual limits.
    pub fn new(url: impl Into<String>, api_version: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_version: api_version.into(),
            ca_file: None,
            limits: HttpTimeouts::default(),
            chat: HttpTimeouts {
                idle: Duration::from_mins(5),
                answer: Duration::from_mins(10),
                ..HttpTimeouts::default()
            },
            metadata_age: Duration::from_mins(1),
            backoff: Duration::from_millis(500),
            interpreter: None,
        }
    }
}

/// A code interpreter of its own (quickapps 7).
#[derive(Clone, Debug)]
pub struct InterpreterEndpoint {
    /// `PY_INTERPRETER_URL`, without the path of the API.
    pub url: String,
    /// `PY_INTERPRETER_API_KEY`. Without one the caller's credentials go along, when `url` is of the DIAL origin.
    pub key: Option<Secret>,
}

/// What the code interpreter is asked to do (quickapps 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpreterAction {
    /// Opens a session.
    OpenSession,
    /// Checks whether a session lives.
    GetSession,
    /// Ends a session.
    CloseSession,
    /// Runs code.
    ExecuteCode,
    /// Lists the files of a session.
    ListFiles,
    /// Copies a file of DIAL into a session.
    TransferInputFile,
}

impl InterpreterAction {
    /// The last segment of its path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenSession => "open_session",
            Self::GetSession => "get_session",
            Self::CloseSession => "close_session",
            Self::ExecuteCode => "execute_code",
            Self::ListFiles => "list_files",
            Self::TransferInputFile => "transfer_input_file",
        }
    }
}

#[derive(Debug)]
struct CoreInner {
    origin: DialOrigin,
    http: HttpClient,
    chat: ChatClient,
    cache: MetadataCache,
    retry: RetryPolicy,
    interpreter: Option<InterpreterEndpoint>,
}

/// DIAL Core at one origin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DialClient {
    inner: Arc<CoreInner>,
}

impl DialClient {
    /// A client; nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Request`] when the URL or the file of authorities is not usable.
    pub fn new(options: DialOptions) -> Result<Self, Error> {
        let origin = DialOrigin::parse(&options.url)
            .ok_or_else(|| Error::new(ErrorKind::Request, "the DIAL URL is not usable"))?;
        let authorities = options.ca_file.as_deref();
        let http = HttpClient::new(options.limits, authorities)?;
        let retry = RetryPolicy {
            base: options.backoff,
        };
        let chat = ChatClient::of_core(
            HttpClient::new(options.chat, authorities)?,
            origin.clone(),
            options.api_version,
            retry,
        );
        let inner = CoreInner {
            origin,
            http,
            chat,
            cache: MetadataCache::new(options.metadata_age),
            retry,
            interpreter: options.interpreter,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The origin that keys go to.
    pub fn origin(&self) -> &DialOrigin {
        &self.inner.origin
    }

    /// Chat completions of its deployments.
    pub fn chat(&self) -> ChatClient {
        self.inner.chat.clone()
    }

    /// Where the MCP server of a toolset or an application is (quickapps 5.3). `None` when the id is none.
    pub fn mcp_url(&self, id: &str) -> Option<String> {
        let id = canonical_path("", id)?;
        Some(self.inner.origin.url(&format!("v1/toolset/{id}/mcp")))
    }

    /// Lets `receiver`, a toolset or a deployment, read files while this request lives (quickapps 5.2). One call for
    /// all of them; none without files.
    pub async fn grant(
        &self,
        caller: &Caller,
        files: &[crate::FileUrl],
        receiver: &str,
    ) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(());
        }
        let permissions: Vec<_> = files
            .iter()
            .map(|file| serde_json::json!({ "url": file.as_str(), "permissions": ["READ"] }))
            .collect();
        let body = serde_json::json!({ "resourcePermissions": permissions, "receiver": receiver });
        let url = self
            .inner
            .origin
            .url("v1/ops/resource/per-request-permissions/grant");
        self.send(with_caller(self.inner.http.post(&url), caller).json(&body))
            .await?;
        Ok(())
    }

    /// Asks the code interpreter (quickapps 5.3, 29). Never tried twice: code has effects.
    pub async fn interpreter(
        &self,
        caller: &Caller,
        action: InterpreterAction,
        body: &Value,
    ) -> Result<Value, Error> {
        let path = format!("v1/ops/code_interpreter/{}", action.as_str());
        let request = match &self.inner.interpreter {
            None => with_caller(self.inner.http.post(&self.inner.origin.url(&path)), caller),
            Some(own) => {
                let url = format!("{}/{path}", own.url.trim_end_matches('/'));
                let request = self.inner.http.post(&url);
                match &own.key {
                    Some(key) => request.header("api-key", key.expose()),
                    None if self.inner.origin.owns(&url) => with_caller(request, caller),
                    None => request,
                }
            }
        };
        json_body(self.send(request.json(body)).await?).await
    }

    pub(crate) fn cache(&self) -> &MetadataCache {
        &self.inner.cache
    }

    /// A request with the caller's credentials. `path` is encoded and below the base of the origin.
    pub(crate) fn request(
        &self,
        caller: &Caller,
        method: HttpMethod,
        path: &str,
    ) -> RequestBuilder {
        let url = self.inner.origin.url(path);
        let http = &self.inner.http;
        let request = match method {
            HttpMethod::Get => http.get(&url),
            HttpMethod::Put => http.put(&url),
            HttpMethod::Post => http.post(&url),
            HttpMethod::Delete => http.delete(&url),
        };
        with_caller(request, caller)
    }

    /// Sends once.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<HttpResponse, Error> {
        let answer = request.send(&|_| ()).await?;
        if answer.is_success() {
            Ok(answer)
        } else {
            Err(Error::of(answer).await)
        }
    }

    /// Reads; tried again when the peer is busy or the connection breaks before the answer.
    pub(crate) async fn get(&self, caller: &Caller, path: &str) -> Result<HttpResponse, Error> {
        for made in 1.. {
            match self.send(self.request(caller, HttpMethod::Get, path)).await {
                Err(error)
                    if error.is_passing()
                        && self.inner.retry.again(made, error.retry_after).await => {}
                other => return other,
            }
        }
        Err(Error::new(ErrorKind::Request, "no more tries"))
    }

    /// Reads JSON.
    pub(crate) async fn get_json(&self, caller: &Caller, path: &str) -> Result<Value, Error> {
        json_body(self.get(caller, path).await?).await
    }
}

/// Methods that are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HttpMethod {
    Get,
    Put,
    Post,
    Delete,
}

/// The body as JSON of at most 4 MiB.
pub(crate) async fn json_body(answer: HttpResponse) -> Result<Value, Error> {
    let body = answer.bytes(MAX_JSON_BYTES).await?;
    serde_json::from_slice(&body)
        .map_err(|_| Error::new(ErrorKind::Malformed, "the answer is not JSON"))
}

/// With the caller's credentials; only for URLs of the DIAL origin (R2).
pub(crate) fn with_caller(mut request: RequestBuilder, caller: &Caller) -> RequestBuilder {
    for (name, secret) in [
        ("api-key", &caller.api_key),
        ("authorization", &caller.authorization),
    ] {
        if let Some(secret) = secret.as_ref().filter(|secret| !secret.is_empty()) {
            request = request.header(name, secret.expose());
        }
    }
    request
}
