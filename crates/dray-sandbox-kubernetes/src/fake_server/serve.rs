//! Routes of the fake server.

use std::sync::Arc;

use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply, with_header,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::exec::{self, FakeCommand};
use super::objects::FakePod;
use super::{FakeState, InjectedFault, fault};

type SharedFake = Arc<SharedState<FakeState>>;

/// Answers one request.
pub(super) fn answer(
    state: SharedFake,
    request: ReceivedRequest,
) -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
    route(state, request).boxed()
}

/// A `StatusBody` that reports a failure.
fn refusal(code: u16, message: &str) -> Reply {
    json_reply(
        code,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason(code), "code": code,
        }),
    )
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    }
}

async fn route(state: SharedFake, request: ReceivedRequest) -> Result<Reply, ConnectionClosed> {
    // `+` is a space only in query strings, and percent decoding leaves it.
    let query = request.query.replace('+', "%20");
    let query = percent_decode_str(&query).decode_utf8_lossy().into_owned();
    let request_line = format!("{} {} {query}", request.method, request.path);
    let planned = {
        let mut state = state.lock();
        // The request is recorded before the token is checked: tests count refused requests too.
        state.requests.push(request_line.clone());
        let planned = fault::take(&mut state.planned, &request_line);
        let token = state.token.as_ref().map(|token| format!("Bearer {token}"));
        if token.is_some_and(|token| request.header("authorization") != Some(token.as_str())) {
            return Ok(refusal(401, "Unauthorized"));
        }
        planned
    };
    match &planned {
        Some(InjectedFault::Refuse(code, message, None)) => return Ok(refusal(*code, message)),
        Some(InjectedFault::Refuse(code, message, Some(seconds))) => {
            let response = refusal(*code, message);
            return Ok(with_header(response, "retry-after", &seconds.to_string()));
        }
        Some(InjectedFault::Page(code)) => {
            return Ok(bytes_reply(*code, "text/html", "<h1>no</h1>".into()));
        }
        Some(InjectedFault::Break) => return Err(ConnectionClosed),
        _ => {}
    }
    let path = request.path.trim_end_matches('/').to_owned();
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["api", "v1", "namespaces", namespace, "pods", pod, part @ ..] => {
            let name = format!("{namespace}/{pod}");
            let Some(found) = look_up(&state, &name, &request_line) else {
                return Ok(refusal(404, &format!("pods \"{pod}\" not found")));
            };
            match (request.method.as_str(), part) {
                ("GET", []) => Ok(json_reply(200, &found.object())),
                ("GET", ["exec"]) => Ok(start(&state, &found, request, planned)),
                ("PATCH", ["ephemeralcontainers"]) => {
                    let patch = request.json().await?;
                    let mut state = state.lock();
                    let pod = state.pods.get_mut(&name).ok_or(ConnectionClosed)?;
                    pod.add_ephemeral(&patch);
                    Ok(json_reply(200, &pod.object()))
                }
                _ => Ok(refusal(405, "the server does not allow this method")),
            }
        }
        [
            "apis",
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
        ] => {
            let review = request.json().await?;
            Ok(review_access(&state, review))
        }
        _ => Ok(discover(&state, &parts)),
    }
}

/// Answers a `SelfSubjectAccessReview`: every right is granted unless a test took it away.
fn review_access(state: &SharedFake, mut review: Value) -> Reply {
    let right = |name: &str| {
        let container_ref = format!("/spec/resourceAttributes/{name}");
        let text = review.pointer(&container_ref).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let requested = format!(
        "{} {}/{}",
        right("verb"),
        right("resource"),
        right("subresource")
    );
    let allowed = !state.lock().forbidden.contains(&requested);
    if let Some(review) = review.as_object_mut() {
        review.insert("status".to_owned(), json!({ "allowed": allowed }));
    }
    json_reply(201, &review)
}

/// Answers the discovery that clients do before their first request.
fn discover(state: &SharedFake, parts: &[&str]) -> Reply {
    let object = match parts {
        ["api"] => versions(state),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        ["version"] => json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"}),
        ["api", "v1"] => resources(),
        // Clients ask for it when a pod is missing.
        ["api", "v1", "namespaces", name] => {
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        }
        _ => return refusal(404, "the server could not find the requested resource"),
    };
    json_reply(200, &object)
}

/// Returns a pod in its present state, and then applies the change that was planned for this request.
fn look_up(state: &SharedFake, name: &str, request: &str) -> Option<FakePod> {
    let mut state = state.lock();
    let found = state.pods.get(name).cloned()?;
    let due = state
        .changes
        .iter()
        .position(|change| request.contains(&change.part));
    if let Some(due) = due {
        let change = state.changes.remove(due);
        if let Some(pod) = state.pods.get_mut(name) {
            (change.what.0)(pod);
        }
    }
    Some(found)
}

fn versions(state: &SharedFake) -> Value {
    let address = state.url().replace("http://", "");
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
             "verbs": ["get", "list"], "shortNames": ["po"]},
            {"name": "pods/exec", "singularName": "", "namespaced": true, "kind": "PodExecOptions",
             "verbs": ["create", "get"]},
        ],
    })
}

/// Opens the stream of a command and runs the command.
fn start(
    state: &SharedFake,
    pod: &FakePod,
    request: ReceivedRequest,
    planned: Option<InjectedFault>,
) -> Reply {
    let container = request.parameter("container");
    let Some(found) = pod.find(container.as_deref()) else {
        let name = container.unwrap_or_default();
        return refusal(400, &format!("container {name} is not valid for pod"));
    };
    if !found.runs() {
        return refusal(500, &format!("container not running ({})", found.id));
    }
    let offered = request.header("sec-websocket-protocol").unwrap_or_default();
    let known = state.lock().versions.clone();
    let agreed = offered
        .split(',')
        .map(str::trim)
        .find(|protocol| known.iter().any(|known| known == protocol));
    let (Some(agreed), Some(key)) = (agreed, request.header("sec-websocket-key")) else {
        return refusal(400, "Upgrade request required");
    };
    let agreed = if planned == Some(InjectedFault::Foreign) {
        "channel.k8s.io"
    } else {
        agreed
    };
    let command = FakeCommand {
        container: found.clone(),
        argv: words(&request.query),
        // Go's `ParseBool` accepts these; some clients write `True`.
        stdin: request.parameter("stdin").is_some_and(|value| {
            matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True")
        }),
        half_close: agreed.starts_with("v5"),
        fault: planned,
    };
    let response = bytes_reply(101, "text/plain", bytes::Bytes::new());
    let response = with_header(response, "connection", "Upgrade");
    let response = with_header(response, "upgrade", "websocket");
    let response = with_header(
        response,
        "sec-websocket-accept",
        &derive_accept_key(key.as_bytes()),
    );
    let response = with_header(response, "sec-websocket-protocol", agreed);
    let tasks = Arc::clone(&state.lock().tasks);
    let mut tasks = tasks
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // Commands that have ended leave the set, or it would grow with every command of a test.
    while tasks.try_join_next().is_some() {}
    tasks.spawn(exec::run(command, request.into_upgrade()));
    response
}

/// The arguments of a command, byte for byte; UTF-8 is not required.
fn words(query: &str) -> Vec<Vec<u8>> {
    query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("command="))
        .map(|word| percent_decode_str(&word.replace('+', "%20")).collect())
        .collect()
}
