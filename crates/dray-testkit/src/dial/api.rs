//! The fake's metadata, permissions, sign-in, code interpreter and chat (quickapps 5.2, 5.3).
//!
//! It returns configured responses. Every route needs a known key.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::body::{self, Body};
use super::serve::{check_access, json_response, own_bucket, status_response, with_header};
use super::{DialCore, DialState, lock_state};

/// A fault of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFault {
    /// The response has this status.
    Status(u16),
    /// No response is ever sent.
    Silent,
    /// The connection breaks after these bytes of a response.
    Cut(String),
    /// Sends these bytes of a response, and then no more.
    Stalled(String),
    /// The response consists of these bytes.
    Body(String),
}

/// A permission that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    /// Key of the owner that granted.
    pub key: String,
    /// URLs as they were sent.
    pub urls: Vec<String>,
    /// Name of the application that may read, as [`DialCore::receiver`] registered it.
    pub receiver: String,
}

/// Requests and their responses.
#[derive(Debug, Default)]
pub struct ApiState {
    pub(super) faults: HashMap<String, ApiFault>,
    pub(super) page: Option<usize>,
    documents: HashMap<String, Value>,
    receivers: HashMap<String, String>,
    grants: Vec<AccessGrant>,
    sign_ins: HashMap<String, Value>,
    interpreter: HashMap<String, VecDeque<(u16, Value)>>,
    chats: HashMap<String, VecDeque<Vec<Value>>>,
    bodies: Vec<(String, Value)>,
}

impl DialCore {
    /// Sets the response to GET of a decoded path, for instance `/openai/deployments/gpt`, to a document.
    pub fn document(&self, path: &str, document: Value) {
        self.lock().api.documents.insert(path.to_owned(), document);
    }

    /// Injects a fault for a decoded path; `None` removes it.
    pub fn inject_fault(&self, path: &str, fault: Option<ApiFault>) {
        let faults = &mut self.lock().api.faults;
        match fault {
            Some(fault) => faults.insert(path.to_owned(), fault),
            None => faults.remove(path),
        };
    }

    /// Limits the items in one page of a folder listing.
    pub fn page(&self, items: usize) {
        self.lock().api.page = Some(items);
    }

    /// Registers `key` as the key of `receiver`, which may read files that are granted to it.
    pub fn receiver(&self, receiver: &str, key: &str) {
        let receivers = &mut self.lock().api.receivers;
        receivers.insert(receiver.to_owned(), key.to_owned());
    }

    /// All permissions that were granted.
    pub fn grants(&self) -> Vec<AccessGrant> {
        self.lock().api.grants.clone()
    }

    /// Sets the result of signing in to a toolset: members `result` or `error` of the response.
    pub fn sign_in(&self, toolset: &str, response: Value) {
        self.lock()
            .api
            .sign_ins
            .insert(toolset.to_owned(), response);
    }

    /// Queues a response of the code interpreter to an action, such as `execute_code`.
    pub fn interpreter(&self, action: &str, status: u16, response: Value) {
        let mut state = self.lock();
        let queue = state.api.interpreter.entry(action.to_owned()).or_default();
        queue.push_back((status, response));
    }

    /// Queues a response of a deployment: these chunks, then `[DONE]`.
    pub fn chat(&self, deployment: &str, chunks: Vec<Value>) {
        let mut state = self.lock();
        let queue = state.api.chats.entry(deployment.to_owned()).or_default();
        queue.push_back(chunks);
    }

    /// Path and JSON body of every POST request so far.
    pub fn bodies(&self) -> Vec<(String, Value)> {
        self.lock().api.bodies.clone()
    }
}

pub(super) async fn faulty_response(fault: &ApiFault) -> Response<Body> {
    let bytes = |text: &String| Bytes::from(text.clone());
    match fault {
        ApiFault::Status(code) => status_response(*code),
        ApiFault::Silent => std::future::pending().await,
        ApiFault::Cut(text) => Response::new(body::broken_body(bytes(text))),
        ApiFault::Stalled(text) => Response::new(body::stalled_body(bytes(text))),
        ApiFault::Body(text) => Response::new(body::whole_body(bytes(text))),
    }
}

pub(super) fn get_resource(
    state: &Mutex<DialState>,
    headers: &HeaderMap,
    path: &str,
) -> Response<Body> {
    let state = lock_state(state);
    match (own_bucket(&state, headers), state.api.documents.get(path)) {
        (_, None) => status_response(404),
        (Err(code), _) => status_response(code),
        (Ok(_), Some(document)) => json_response(document),
    }
}

pub(super) async fn post_resource(
    state: &Mutex<DialState>,
    headers: &HeaderMap,
    path: &str,
    incoming: Incoming,
) -> Response<Body> {
    let Ok(received) = incoming.collect().await else {
        return status_response(400);
    };
    let body = serde_json::from_slice(&received.to_bytes()).unwrap_or_default();
    let mut state = lock_state(state);
    // The request is recorded before the key is checked, because tests also inspect requests with a wrong key.
    state.api.bodies.push((path.to_owned(), body));
    let body = state
        .api
        .bodies
        .last()
        .map(|(_, body)| body.clone())
        .unwrap_or_default();
    let key = match own_bucket(&state, headers) {
        Ok((key, _)) => key,
        Err(code) => return status_response(code),
    };
    if path == "/v1/ops/resource/per-request-permissions/grant" {
        return grant_access(&mut state, headers, &key, &body);
    }
    if path == "/v1/ops/client-channel/interact" {
        return interact_response(&state, headers, &body);
    }
    if let Some(action) = path.strip_prefix("/v1/ops/code_interpreter/") {
        let queue = state.api.interpreter.get_mut(action);
        return match queue.and_then(VecDeque::pop_front) {
            None => status_response(404),
            Some((200, body)) => json_response(&body),
            Some((code, body)) => {
                let mut response = json_response(&body);
                *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
                response
            }
        };
    }
    let deployment = path
        .strip_prefix("/openai/deployments/")
        .and_then(|path| path.strip_suffix("/chat/completions"));
    let queue = deployment.and_then(|id| state.api.chats.get_mut(id));
    match queue.and_then(VecDeque::pop_front) {
        Some(chunks) => event_stream(
            chunks
                .iter()
                .map(Value::to_string)
                // The end of a stream of chat completions, which is not JSON.
                .chain(["[DONE]".to_owned()]),
        ),
        None => status_response(404),
    }
}

fn grant_access(
    state: &mut DialState,
    headers: &HeaderMap,
    key: &str,
    body: &Value,
) -> Response<Body> {
    let (Some(entries), Some(receiver)) = (
        body["resourcePermissions"].as_array(),
        body["receiver"].as_str(),
    ) else {
        return status_response(400);
    };
    let Some(receiver_key) = state.api.receivers.get(receiver).cloned() else {
        return status_response(404);
    };
    let mut urls = Vec::new();
    for entry in entries {
        let Some(url) = entry["url"].as_str() else {
            return status_response(400);
        };
        let decoded = percent_decode_str(url).decode_utf8_lossy();
        let Some(path) = decoded.strip_prefix("files/") else {
            return status_response(400);
        };
        // As in DIAL Core, only the owner of a bucket may grant access; who was granted access may not.
        if check_access(state, headers, path, true).is_err() {
            return status_response(403);
        }
        // Files before a refused one stay granted, so a client must not assume that all or none are granted.
        state.shared.insert((receiver_key.clone(), path.to_owned()));
        urls.push(url.to_owned());
    }
    let (key, receiver) = (key.to_owned(), receiver.to_owned());
    state.api.grants.push(AccessGrant {
        key,
        urls,
        receiver,
    });
    status_response(200)
}

fn interact_response(state: &DialState, headers: &HeaderMap, body: &Value) -> Response<Body> {
    if !headers.contains_key("x-dial-client-channel-id") {
        return status_response(400);
    }
    let responses = body.as_array().into_iter().flatten().filter_map(|request| {
        let toolset = request.pointer("/params/toolsetId")?.as_str()?;
        let mut response = state.api.sign_ins.get(toolset)?.clone();
        let members = response.as_object_mut()?;
        members.insert("jsonrpc".to_owned(), json!("2.0"));
        // JSON-RPC 2.0: the response has the id of its request.
        members.insert("id".to_owned(), request["id"].clone());
        Some(response)
    });
    let responses: Vec<_> = responses.collect();
    event_stream([Value::Array(responses).to_string()])
}

fn event_stream(events: impl IntoIterator<Item = String>) -> Response<Body> {
    let mut text = String::new();
    for event in events {
        text.push_str("data: ");
        text.push_str(&event);
        text.push_str("\n\n");
    }
    with_header(
        Response::new(body::whole_body(text)),
        CONTENT_TYPE,
        "text/event-stream",
    )
}
