//! A fake server for tests: it speaks the control API of E2B and the protocol of the daemon in a sandbox.
//!
//! A sandbox is a directory of this host, and paths are those of the host: files really exist and commands really run.
//! `tests/python.rs` checks the fake server with the vendor's client.

mod daemon;
mod processes;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply,
    with_header,
};
use dray_sandbox_hosted::fake_server::{FaultQueue, ProviderFault};
use dray_types::{Clock, Secret, whole_millis};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The only API key that the server accepts.
pub const FAKE_API_KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";
/// Lifetime of a new sandbox, in milliseconds.
const LIFETIME_MS: u64 = 300_000;

/// A sandbox of the fake server.
#[derive(Clone, Debug)]
struct FakeSandbox {
    root: PathBuf,
    token: String,
    started: u64,
    end: u64,
    state: &'static str,
    version: &'static str,
    run: u64,
}

#[derive(Debug)]
struct FakeState {
    sandboxes: BTreeMap<String, FakeSandbox>,
    faults: FaultQueue,
    requests: Vec<String>,
    longest_life: u64,
    /// Lifetime that another client sets before the next `POST` to the control API.
    other_extension: Option<Duration>,
    runs: u64,
    clock: Clock,
}

/// The fake control API, edge proxy and daemons on one loopback port. Dropping the value stops them.
#[derive(Debug)]
pub struct FakeE2b {
    server: FakeServer<FakeState>,
}

impl FakeE2b {
    /// Starts a server without sandboxes.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(clock: Clock) -> io::Result<Self> {
        let state = FakeState {
            sandboxes: BTreeMap::new(),
            faults: FaultQueue::default(),
            requests: Vec::new(),
            longest_life: 3_600_000,
            other_extension: None,
            runs: 0,
            clock,
        };
        let server = FakeServer::start(state, |shared, request| {
            Box::pin(answer(shared, request)) as _
        })
        .await?;
        Ok(Self { server })
    }

    /// The URL for the client options `api_url` and `envd_url`.
    pub fn url(&self) -> String {
        self.server.shared().url()
    }

    /// The only API key that the server accepts.
    pub fn key(&self) -> Secret {
        Secret::new(FAKE_API_KEY)
    }

    /// Starts a sandbox in an existing directory. It replaces a sandbox with the same id.
    pub fn run(&self, id: &str, root: &Path) {
        self.run_version(id, root, "0.6.2");
    }

    /// Like [`Self::run`], with a daemon of this version.
    pub fn run_version(&self, id: &str, root: &Path, version: &'static str) {
        let mut state = self.server.shared().lock();
        state.runs += 1;
        let started = state.clock.now_ms();
        let sandbox = FakeSandbox {
            root: root.to_owned(),
            token: format!("token-of-run-{}", state.runs),
            started,
            end: started + LIFETIME_MS,
            state: "running",
            version,
            run: state.runs,
        };
        state.sandboxes.insert(id.to_owned(), sandbox);
    }

    /// Ends a sandbox: the API no longer lists it, and the edge responds with 502.
    pub fn kill(&self, id: &str) {
        self.server.shared().lock().sandboxes.remove(id);
    }

    /// Pauses a sandbox: the API reports it as paused, and the edge responds with 502.
    pub fn pause(&self, id: &str) {
        let mut state = self.server.shared().lock();
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            sandbox.state = "paused";
        }
    }

    /// Makes the daemon of a sandbox expect another token than the control API returns.
    pub fn forget_token(&self, id: &str) {
        let mut state = self.server.shared().lock();
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            "another".clone_into(&mut sandbox.token);
        }
    }

    /// The remaining lifetime of a sandbox; `None` for an unknown id.
    pub fn left(&self, id: &str) -> Option<Duration> {
        let state = self.server.shared().lock();
        let end = state.sandboxes.get(id)?.end;
        Some(Duration::from_millis(
            end.saturating_sub(state.clock.now_ms()),
        ))
    }

    /// Lets a sandbox end after this time.
    pub fn shorten(&self, id: &str, lifetime: Duration) {
        let mut state = self.server.shared().lock();
        let end = state.clock.now_ms() + whole_millis(lifetime);
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            sandbox.end = end;
        }
    }

    /// Sets the longest lifetime that the plan allows.
    pub fn allow(&self, lifetime: Duration) {
        self.server.shared().lock().longest_life = whole_millis(lifetime);
    }

    /// Lets another client extend the lifetime just before the next request that changes it.
    pub fn extend_meanwhile(&self, lifetime: Duration) {
        self.server.shared().lock().other_extension = Some(lifetime);
    }

    /// Injects a fault. It happens once.
    pub fn script(&self, fault: ProviderFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Injected faults that have not happened yet.
    pub fn faults(&self) -> Vec<ProviderFault> {
        self.server.shared().lock().faults.pending()
    }

    /// All requests until now: method, path, and the range if the request had one.
    pub fn requests(&self) -> Vec<String> {
        self.server.shared().lock().requests.clone()
    }
}

/// A refusal in the form of the control API, the edge and `/files`.
fn refuse(status: u16, message: &str) -> Reply {
    json_reply(status, &json!({ "code": status, "message": message }))
}

async fn answer(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    // The lock is released before the body is read: a slow client must not hold it.
    let fault = {
        let mut state = shared.lock();
        let range = request.header("range").unwrap_or_default();
        let line = format!("{} {path} {range}", request.method);
        state.requests.push(line.trim_end().to_owned());
        state.faults.take(|fault| match fault {
            ProviderFault::Refuse(begin, ..) => path.starts_with(begin),
            ProviderFault::RateLimit(_) => path == "/files",
            _ => false,
        })
    };
    match fault {
        Some(ProviderFault::Refuse(_, status, message)) => {
            request.into_reader().digest().await?;
            return Ok(refuse(status, message));
        }
        Some(ProviderFault::RateLimit(delay)) => {
            request.into_reader().digest().await?;
            let refusal = refuse(429, "Rate limit exceeded");
            let seconds = delay.as_secs().to_string();
            return Ok(with_header(refusal, "retry-after", &seconds));
        }
        _ => {}
    }
    if path == "/v2/sandboxes" {
        return Ok(list(&shared, &request));
    }
    match path.strip_prefix("/sandboxes/") {
        Some(rest) => control(&shared, rest.to_owned(), request).await,
        None => edge(&shared, request).await,
    }
}

/// The sandboxes, at most `limit` of them.
fn list(shared: &SharedState<FakeState>, request: &ReceivedRequest) -> Reply {
    if request.header("x-api-key") != Some(FAKE_API_KEY) {
        return refuse(401, "Invalid API key");
    }
    let mut parameters = request.parameters().into_iter();
    let limit = parameters.find(|(name, _)| name == "limit");
    let limit = limit.and_then(|(_, limit)| limit.parse().ok());
    let state = shared.lock();
    let sandboxes = state.sandboxes.iter().take(limit.unwrap_or(100));
    let described = sandboxes.map(|(id, sandbox)| describe_sandbox(id, sandbox, &Value::Null));
    json_reply(200, &described.collect())
}

async fn control(
    shared: &SharedState<FakeState>,
    rest: String,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if request.header("x-api-key") != Some(FAKE_API_KEY) {
        request.into_reader().digest().await?;
        return Ok(refuse(401, "Invalid API key"));
    }
    let (id, call) = rest.split_once('/').unwrap_or((&rest, ""));
    let method = request.method.clone();
    let body = request.into_reader().all().await?;
    let mut state = shared.lock();
    let now = state.clock.now_ms();
    let longest = state.longest_life;
    let extension = state.other_extension.take_if(|_| method == "POST");
    let domain = Value::Null;
    let Some(sandbox) = state.sandboxes.get_mut(id) else {
        let message = format!("sandbox \"{id}\" doesn't exist or you don't have access to it");
        return Ok(refuse(404, &message));
    };
    let arguments: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(lifetime) = extension {
        sandbox.end = now + whole_millis(lifetime);
    }
    let timeout = arguments.get("timeout").and_then(Value::as_u64);
    let duration = arguments.get("duration").and_then(Value::as_u64);
    match (method.as_str(), call) {
        ("GET", "") => Ok(json_reply(200, &describe_sandbox(id, sandbox, &domain))),
        // Connecting resumes a paused sandbox and never shortens its lifetime.
        ("POST", "connect") => {
            sandbox.state = "running";
            if let Some(seconds) = timeout {
                sandbox.end = sandbox.end.max(now + seconds * 1000);
            }
            Ok(json_reply(200, &describe_sandbox(id, sandbox, &domain)))
        }
        // This call only extends the lifetime, by an hour at most.
        ("POST", "refreshes") => match duration {
            Some(seconds) if seconds * 1000 <= longest.min(3_600_000) => {
                sandbox.end = sandbox.end.max(now + seconds * 1000);
                Ok(bytes_reply(204, "application/json", Bytes::new()))
            }
            _ => Ok(refuse(400, "Duration is longer than allowed")),
        },
        ("POST", "timeout") => match timeout {
            Some(seconds) if seconds * 1000 <= longest => {
                sandbox.end = now + seconds * 1000;
                Ok(bytes_reply(204, "application/json", Bytes::new()))
            }
            _ => Ok(refuse(
                400,
                "Timeout cannot be greater than the plan allows",
            )),
        },
        _ => Ok(refuse(404, "no such call")),
    }
}

fn describe_sandbox(id: &str, sandbox: &FakeSandbox, domain: &Value) -> Value {
    json!({
        "sandboxID": id,
        "clientID": "fake",
        "templateID": "base",
        "alias": "base",
        // Two runs in the same millisecond must differ, because the start time identifies the incarnation.
        "startedAt": time(sandbox.started, sandbox.run),
        "endAt": time(sandbox.end, 0),
        "envdVersion": sandbox.version,
        "envdAccessToken": sandbox.token,
        "domain": domain,
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "metadata": {},
        "state": sandbox.state,
    })
}

/// Formats a time as RFC 3339. `more` microseconds distinguish runs with equal start times.
fn time(milliseconds: u64, more: u64) -> String {
    let micros = i64::try_from(milliseconds * 1000 + more).unwrap_or_default();
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| time.to_string())
}

/// The edge proxy in front of the daemons: it finds the sandbox, then the daemon checks the token.
async fn edge(
    shared: &Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let id = request.header("e2b-sandbox-id").unwrap_or_default();
    let id = id.to_owned();
    let found = shared.lock().sandboxes.get(&id).cloned();
    let sandbox = match found {
        // A paused sandbox and a deleted sandbox give the same 502; only the control API distinguishes them.
        Some(sandbox) if sandbox.state == "running" => sandbox,
        _ => {
            request.into_reader().digest().await?;
            let not_found_body = json!({
                "sandboxId": id, "message": "The sandbox was not found", "code": 502,
            });
            return Ok(json_reply(502, &not_found_body));
        }
    };
    if request.path == "/health" {
        return Ok(bytes_reply(204, "text/plain", Bytes::new()));
    }
    if request.header("x-access-token") != Some(&sandbox.token) {
        request.into_reader().digest().await?;
        let refusal = json!({ "code": 401, "message": "unauthorized access, please provide a valid access token or method signing if supported" });
        return Ok(json_reply(401, &refusal));
    }
    let path = request.path.clone();
    match (request.method.as_str(), path.as_str()) {
        ("GET", "/files") => Ok(daemon::download(shared, &id, &request)),
        ("POST", "/files") => daemon::upload(shared, &id, &sandbox, request).await,
        ("POST", "/process.Process/Start") => processes::start(shared, &sandbox, request).await,
        ("POST", call) => match call.strip_prefix("/filesystem.Filesystem/") {
            Some(call) => daemon::call(call, request).await,
            None => Ok(refuse(404, "no such call")),
        },
        _ => Ok(refuse(404, "no such call")),
    }
}
