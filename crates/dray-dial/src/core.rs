//! The client of DIAL Core at one origin.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::{Caller, TraceSource};
use dray_http::{HttpClient, HttpResponse, HttpTimeouts, RequestBuilder, TrustedAuthorities};
use dray_types::Secret;
use serde_json::Value;

use crate::cache::MetadataCache;
use crate::chat::ChatClient;
use crate::error::{Error, ErrorKind};
use crate::origin::DialOrigin;
use crate::retry::RetryPolicy;

/// Default of [`DialOptions::max_json_bytes`] (R3).
const MAX_JSON_BYTES: usize = 4 << 20;

/// Lifetime of a cached response of DIAL Core about a user: a role that was withdrawn still permits tools for this
/// long.
const MAX_USER_AGE: Duration = Duration::from_secs(30);

/// Longest silence of a deployment or of the interpreter in a call of a tool. The caller ends the call at the limit of
/// the tool, which is never higher.
pub(crate) const MAX_TOOL_SILENCE: Duration = Duration::from_hours(1);

/// Default of [`DialOptions::read_retries`].
pub(crate) const READ_RETRIES: u32 = 2;

/// The address of DIAL Core, and the limits of calls to it.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// `DIAL_URL`: the origin that credentials go to, with a path where the API is below one.
    pub url: String,
    /// `DIAL_API_VERSION`, the `api-version` of chat completions.
    pub api_version: String,
    /// Authorities that may sign the certificate of DIAL Core.
    pub authorities: TrustedAuthorities,
    /// Time limits of all calls except chat completions, and runs of code, which their callers limit.
    pub limits: HttpTimeouts,
    /// Time limits of chat completions of models. Callers limit those of tools, see [`crate::DialPort::chat`].
    pub chat: HttpTimeouts,
    /// How long metadata count as fresh (R14).
    pub metadata_age: Duration,
    /// Delay before the first retry; it doubles with each attempt.
    pub backoff: Duration,
    /// Further attempts of a read, or of a chat completion, after a temporary failure. Default 2.
    pub read_retries: u32,
    /// Longest JSON response that is read, in bytes. Default 4 MiB.
    pub max_json_bytes: usize,
    /// A separate code interpreter; DIAL's own if absent.
    pub interpreter: Option<InterpreterEndpoint>,
    /// The source of the trace in chat completions; none by default.
    pub trace: Option<TraceSource>,
}

impl DialOptions {
    /// Options with the usual limits.
    pub fn new(url: impl Into<String>, api_version: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_version: api_version.into(),
            authorities: TrustedAuthorities::Public,
            limits: HttpTimeouts::default(),
            chat: HttpTimeouts {
                idle: Duration::from_mins(5),
                response: Duration::from_mins(10),
                ..HttpTimeouts::default()
            },
            metadata_age: Duration::from_mins(1),
            backoff: Duration::from_millis(500),
            read_retries: READ_RETRIES,
            max_json_bytes: MAX_JSON_BYTES,
            interpreter: None,
            trace: None,
        }
    }
}

/// A separate code interpreter (quickapps 7).
#[derive(Clone, Debug)]
pub struct InterpreterEndpoint {
    /// `PY_INTERPRETER_URL`, without the path of the API.
    pub url: String,
    /// `PY_INTERPRETER_API_KEY`. Without one the caller's credentials are sent, if `url` is of the DIAL origin.
    pub key: Option<Secret>,
}

/// An operation of the code interpreter (quickapps 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpreterAction {
    /// Opens a session; the response has its id.
    OpenSession,
    /// Checks whether a session exists.
    GetSession,
    /// Ends a session; it cannot be used afterwards.
    CloseSession,
    /// Runs code in a session.
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
    /// User information of DIAL, which decides the rights of users.
    users: MetadataCache,
    retry: RetryPolicy,
    max_json_bytes: usize,
    interpreter: Option<InterpreterEndpoint>,
}

/// DIAL Core at one origin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DialClient {
    inner: Arc<CoreInner>,
}

impl DialClient {
    /// Creates a client without connecting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Request`] when the URL or the file of authorities is not usable.
    pub fn new(options: DialOptions) -> Result<Self, Error> {
        let origin = DialOrigin::parse(&options.url)
            .map_err(|_| Error::new(ErrorKind::Request, "the DIAL URL is not usable"))?;
        let http = HttpClient::trusting(options.limits, &options.authorities)?;
        let retry = RetryPolicy {
            base: options.backoff,
            retries: options.read_retries,
        };
        // Completions have a separate client, because only they may take minutes.
        let chat = ChatClient::of_core(
            HttpClient::trusting(options.chat, &options.authorities)?,
            origin.clone(),
            options.api_version,
            retry,
        );
        let chat = match options.trace {
            Some(source) => chat.with_trace(source),
            None => chat,
        };
        let inner = CoreInner {
            origin,
            http,
            chat,
            cache: MetadataCache::new(options.metadata_age),
            users: MetadataCache::new(options.metadata_age.min(MAX_USER_AGE)),
            retry,
            max_json_bytes: options.max_json_bytes,
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

    /// Permits `receiver`, a toolset or a deployment, to read files for the lifetime of this request (quickapps 5.2).
    /// Sends one call for all files, and none without files.
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

    /// Calls the code interpreter (quickapps 5.3, 29). Never retried, because code has effects. The code may run for an
    /// hour: the caller limits the call.
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
                    // Credentials of the caller go to the exact origin of DIAL only (R2).
                    None if self.inner.origin.owns(&url) => with_caller(request, caller),
                    None => request,
                }
            }
        };
        let request = request.response_within(MAX_TOOL_SILENCE).json(body);
        let response = self.send(request).await?;
        self.json_body(response).await
    }

    pub(crate) fn users(&self) -> &MetadataCache {
        &self.inner.users
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

    /// Sends a request once; a status outside of 2xx is an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<HttpResponse, Error> {
        let response = request.send(&|_| ()).await?;
        if response.is_success() {
            Ok(response)
        } else {
            Err(Error::of(response).await)
        }
    }

    /// Sends a GET request. Repeats it while the peer is busy or the connection breaks before the response.
    pub(crate) async fn get(&self, caller: &Caller, path: &str) -> Result<HttpResponse, Error> {
        for attempt in 1.. {
            match self.send(self.request(caller, HttpMethod::Get, path)).await {
                Err(error)
                    if error.is_transient()
                        && self
                            .inner
                            .retry
                            .wait_for_retry(attempt, error.retry_after)
                            .await => {}
                other => return other,
            }
        }
        // Only the compiler requires this line: the retry policy ends the loop.
        Err(Error::new(ErrorKind::Request, "no attempt is left"))
    }

    /// Reads JSON, with retries.
    pub(crate) async fn get_json(&self, caller: &Caller, path: &str) -> Result<Value, Error> {
        let response = self.get(caller, path).await?;
        self.json_body(response).await
    }

    /// The body as JSON of at most [`DialOptions::max_json_bytes`].
    pub(crate) async fn json_body(&self, response: HttpResponse) -> Result<Value, Error> {
        let body = response.bytes(self.inner.max_json_bytes).await?;
        serde_json::from_slice(&body)
            .map_err(|_| Error::new(ErrorKind::Malformed, "the response is not JSON"))
    }
}

/// The HTTP methods of calls to DIAL Core.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HttpMethod {
    Get,
    Put,
    Post,
    Delete,
}

/// Adds the caller's credentials. Only for URLs of the DIAL origin (R2).
pub(crate) fn with_caller(mut request: RequestBuilder, caller: &Caller) -> RequestBuilder {
    for (name, secret) in [
        ("api-key", &caller.api_key),
        ("authorization", &caller.authorization),
    ] {
        if let Some(secret) = secret.as_ref().filter(|secret| !secret.is_empty()) {
            request = request.secret_header(name, secret);
        }
    }
    request
}
