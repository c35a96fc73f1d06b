//! A fake server for tests, with the API and the toolbox of each sandbox.
//!
//! A sandbox is a directory of this host, under its real path: its files and commands are real.

mod toolbox;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, json_reply, with_header,
};
use dray_sandbox_hosted::fake_server::{FaultQueue, ProviderFault};
use dray_types::{Clock, Secret, whole_millis};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The only API key that the server accepts.
pub const FAKE_API_KEY: &str = "dtn_0123456789abcdef0123456789abcdef";

/// A sandbox of the fake server.
#[derive(Clone, Debug)]
struct FakeSandbox {
    id: String,
    root: PathBuf,
    state: &'static str,
    destroy_at: Option<u64>,
}

#[derive(Debug)]
struct FakeState {
    sandboxes: BTreeMap<String, FakeSandbox>,
    faults: FaultQueue,
    requests: Vec<String>,
    runs: u64,
}

impl FakeState {
    /// Finds a sandbox by its name or its id.
    fn sandbox(&self, name: &str) -> Option<(&String, &FakeSandbox)> {
        let mut all = self.sandboxes.iter();
        all.find(|(known, sandbox)| *known == name || sandbox.id == name)
    }
}

/// The fake API and toolboxes on one loopback port. They end when this is dropped.
#[derive(Debug)]
pub struct FakeDaytona {
    server: FakeServer<FakeState>,
    clock: Clock,
}

impl FakeDaytona {
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
            runs: 0,
        };
        let server = FakeServer::start(state, |shared, request| {
            Box::pin(answer(shared, request)) as _
        })
        .await?;
        Ok(Self { server, clock })
    }

    /// The value for `api_url` of a client.
    pub fn url(&self) -> String {
        format!("{}/api", self.server.shared().url())
    }

    /// The only API key that the server accepts.
    pub fn key(&self) -> Secret {
        Secret::new(FAKE_API_KEY)
    }

    /// Starts a sandbox in an existing directory and returns its id. A sandbox with the same name is replaced.
    pub fn run(&self, name: &str, root: &Path) -> String {
        let mut state = self.server.shared().lock();
        state.runs += 1;
        let id = format!("0b5c2c1e-7d0e-4f6a-9a51-{:012}", state.runs);
        let sandbox = FakeSandbox {
            id: id.clone(),
            root: root.to_owned(),
            state: "started",
            destroy_at: None,
        };
        state.sandboxes.insert(name.to_owned(), sandbox);
        id
    }

    /// Changes the state of a sandbox: `stopped`, `paused`, `started` …
    pub fn set_state(&self, name: &str, to: &'static str) {
        let mut state = self.server.shared().lock();
        if let Some(sandbox) = state.sandboxes.get_mut(name) {
            sandbox.state = to;
        }
    }

    /// Sets the remaining lifetime of a sandbox.
    pub fn destroy_in(&self, name: &str, lifetime: Duration) {
        let lifetime = whole_millis(lifetime);
        let end = self.clock.now_ms().saturating_add(lifetime);
        let mut state = self.server.shared().lock();
        if let Some(sandbox) = state.sandboxes.get_mut(name) {
            sandbox.destroy_at = Some(end);
        }
    }

    /// Injects a fault. It happens once.
    pub fn script(&self, fault: ProviderFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Injected faults that have not happened yet.
    pub fn faults(&self) -> Vec<ProviderFault> {
        self.server.shared().lock().faults.pending()
    }

    /// Requests until now: method and path.
    pub fn requests(&self) -> Vec<String> {
        self.server.shared().lock().requests.clone()
    }
}

/// A refusal in the form that the API and the toolbox share.
fn refuse(status: u16, message: &str) -> Reply {
    json_reply(
        status,
        &json!({ "statusCode": status, "message": message, "code": "ERROR" }),
    )
}

async fn answer(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    shared
        .lock()
        .requests
        .push(format!("{} {path}", request.method));
    if request.header("authorization") != Some(&format!("Bearer {FAKE_API_KEY}")) {
        request.into_reader().digest().await?;
        return Ok(refuse(401, "Invalid credentials"));
    }
    if path == "/api/api-keys/current" {
        let key = json!({
            "name": "fake", "value": "dtn_***", "createdAt": "2026-01-01T00:00:00Z",
            "permissions": ["write:sandboxes"], "lastUsedAt": null, "expiresAt": "2099-01-01T00:00:00Z", "userId": "u1",
        });
        return Ok(json_reply(200, &key));
    }
    if let Some(name) = path.strip_prefix("/api/sandbox/") {
        request.into_reader().digest().await?;
        return Ok(control(&shared, name));
    }
    let call = path.strip_prefix("/toolbox/").unwrap_or_default();
    let (id, call) = call.split_once('/').unwrap_or((call, ""));
    let found = shared
        .lock()
        .sandbox(id)
        .map(|(_, sandbox)| sandbox.clone());
    let sandbox = match found {
        Some(sandbox) if sandbox.id == id && sandbox.state == "started" => sandbox,
        Some(_) => {
            request.into_reader().digest().await?;
            // The proxy's response for a stopped sandbox does not name the cause: a client has to ask the API.
            return Ok(refuse(400, "bad request: failed to get runner info"));
        }
        None => {
            request.into_reader().digest().await?;
            return Ok(refuse(404, "sandbox not found"));
        }
    };
    let fault = shared.lock().faults.take(|fault| match fault {
        ProviderFault::Refuse(begin, ..) => call.starts_with(begin),
        ProviderFault::RateLimit(_) => call.starts_with("files"),
        _ => false,
    });
    match fault {
        Some(ProviderFault::Refuse(_, status, message)) => {
            request.into_reader().digest().await?;
            Ok(refuse(status, message))
        }
        Some(ProviderFault::RateLimit(delay)) => {
            request.into_reader().digest().await?;
            let seconds = delay.as_secs().to_string();
            Ok(with_header(
                refuse(429, "Too many requests"),
                "retry-after",
                &seconds,
            ))
        }
        _ => toolbox::call(&shared, &sandbox, call, request).await,
    }
}

fn control(shared: &SharedState<FakeState>, name: &str) -> Reply {
    let state = shared.lock();
    let Some((known, sandbox)) = state.sandbox(name) else {
        let message = format!("Sandbox with ID or name {name} not found");
        return refuse(404, &message);
    };
    let end = sandbox.destroy_at.and_then(|end| {
        let end = i64::try_from(end).ok()?;
        Some(Timestamp::from_millisecond(end).ok()?.to_string())
    });
    let volumes: [Value; 0] = [];
    let described = json!({
        "id": sandbox.id,
        "organizationId": "00000000-0000-4000-8000-000000000000",
        "name": known,
        "user": "daytona",
        "env": {},
        "labels": {},
        "public": false,
        "networkBlockAll": false,
        "kvm": false,
        "target": "fake",
        "cpu": 1,
        "gpu": 0,
        "memory": 1,
        "disk": 3,
        "state": sandbox.state,
        "volumes": volumes,
        "autoDestroyAt": end,
        "toolboxProxyUrl": format!("{}/toolbox", shared.url()),
    });
    json_reply(200, &described)
}
