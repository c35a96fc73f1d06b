//! A server that responds according to a script and records requests, and the other objects that a call needs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::event::Event;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::manifest::toolset::RestApi;
use dray_agent::message::{Attachment, Content};
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_http::{HttpClient, HttpTimeouts};
use dray_tool::pipeline::{CompletedCall, PipelineSettings, RequestEnd, ToolRequest, run_call};
use dray_tool::{
    ArgumentResolver, EventSink, FileStorage, HandledFailure, ToolFailure, ToolsetResult, Turn,
    UrlClass,
};
use dray_types::{Clock, Secret};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::{RestOptions, build_set};

/// The server's action for one request.
#[derive(Debug)]
pub(super) enum FakeAction {
    Json(u16, Value),
    Bytes(u16, &'static str, Vec<u8>),
    With(u16, &'static str, &'static str),
    Cut(Vec<u8>, usize),
    /// Sends the second half of the text only while the semaphore has a permit.
    Pause(Arc<Semaphore>),
    Close,
    Hang,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct SeenRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: Vec<(&'static str, Option<String>)>,
    pub(super) body: String,
}

impl SeenRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| *known == name)?;
        value.as_deref()
    }
}

const WATCHED_HEADERS: [&str; 8] = [
    "accept",
    "authorization",
    "content-type",
    "content-length",
    "x-key",
    "x-tenant",
    "x-secret",
    "x-text",
];

#[derive(Debug, Default)]
pub(super) struct FakeScript {
    acts: VecDeque<FakeAction>,
    requests: Vec<SeenRequest>,
}

/// A storage that stores every file, or fails.
#[derive(Debug, Default)]
pub(super) struct MemoryStorage {
    pub(super) files: Mutex<Vec<(String, String, Bytes)>>,
    pub(super) fails: bool,
}

#[async_trait]
impl FileStorage for MemoryStorage {
    fn classify(&self, _: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, ToolFailure> {
        Err(ToolFailure::parameter(parameter, "not here"))
    }

    async fn keep(&self, name: &str, kind: &str, bytes: Bytes) -> Result<Attachment, ToolFailure> {
        if self.fails {
            return Err(HandledFailure::new("the disk is full").into());
        }
        let file = (name.to_owned(), kind.to_owned(), bytes);
        self.files.lock().unwrap().push(file);
        Ok(Attachment {
            kind: Some(kind.to_owned()),
            title: Some(name.to_owned()),
            url: Some(format!("files/B/{name}")),
            ..Attachment::default()
        })
    }
}

/// Replaces every reference by content.
#[derive(Debug)]
struct FixedResolver;

#[async_trait]
impl ArgumentResolver for FixedResolver {
    async fn resolve(
        &self,
        _: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        for value in arguments.values_mut() {
            if value.as_str().is_some_and(|text| text.starts_with("file:")) {
                *value = json!("U0VDUkVU");
            }
        }
        Ok(arguments)
    }

    async fn replace_ids(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        Ok(arguments)
    }

    fn replace_ids_by_addresses(&self, _: &mut Value) {}
}

/// Everything that a call needs.
pub(super) struct RestFixture {
    server: FakeServer<FakeScript>,
    pub(super) storage: Arc<MemoryStorage>,
    pub(super) options: RestOptions,
    pub(super) timeouts: HttpTimeouts,
    pub(super) caller: Caller,
    pub(super) events: Mutex<Vec<Event>>,
}

impl RestFixture {
    pub(super) async fn new(acts: impl IntoIterator<Item = FakeAction>) -> Self {
        let script = FakeScript {
            acts: acts.into_iter().collect(),
            requests: Vec::new(),
        };
        let response = |shared: Arc<SharedState<FakeScript>>, received: ReceivedRequest| {
            async move { play(shared, received).await }.boxed()
        };
        Self {
            server: FakeServer::start(script, response).await.unwrap(),
            storage: Arc::default(),
            options: RestOptions {
                // 2026-11-20T21:08:07.123Z
                clock: Clock::manual(1_795_208_887_123),
                ..RestOptions::default()
            },
            timeouts: HttpTimeouts::default(),
            caller: Caller {
                authorization: Some(Secret::new("Bearer of-the-user")),
                forwarded: vec![
                    ("x-tenant".to_owned(), "t1".to_owned()),
                    ("x-secret".to_owned(), "s1".to_owned()),
                    ("x-key".to_owned(), "forged".to_owned()),
                ],
                ..Caller::default()
            },
            events: Mutex::default(),
        }
    }

    pub(super) fn url(&self) -> String {
        self.server.shared().url()
    }

    pub(super) fn requests(&self) -> Vec<SeenRequest> {
        self.server.shared().lock().requests.clone()
    }

    pub(super) fn last(&self) -> SeenRequest {
        self.requests().last().unwrap().clone()
    }

    pub(super) fn build(&self, set: Value) -> ToolsetResult {
        let set: RestApi = serde_json::from_value(set).unwrap();
        let client = HttpClient::new(self.timeouts, None).unwrap();
        build_set(&set, &client, &self.options)
    }

    /// A set of one tool at `path` of the server; the parameters are of the form `{name: place}` or complete schemas.
    pub(super) fn set(&self, method: &str, path: &str, parameters: &Value) -> Value {
        let properties: Map<String, Value> = parameters
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                let whole = match value.as_str() {
                    Some(parameter_place) => {
                        json!({"type": "string", "parameter_info": {"type": parameter_place, "key": name}})
                    }
                    None => value.clone(),
                };
                (name.clone(), whole)
            })
            .collect();
        json!({"name": "shop", "tools": [{
            "type": "restapi-tool",
            "open_ai_tool": {"type": "function", "function": {
                "name": "order", "parameters": {"type": "object", "properties": properties},
            }},
            "rest_api_method_info": {"method_url": format!("{}{path}", self.url()), "method_type": method},
        }]})
    }

    /// Calls the only tool of a set.
    pub(super) async fn call(
        &self,
        set: Value,
        arguments: Value,
    ) -> Result<CompletedCall, RequestEnd> {
        let built = self.build(set);
        assert_eq!(built.issues, []);
        let storage: Arc<dyn FileStorage> = Arc::clone(&self.storage) as _;
        let turn = Turn::new(self.caller.clone(), "s", Vec::new(), storage, 1);
        let (sink, mut events) = EventSink::new();
        let request = ToolRequest {
            id: "call_1",
            arguments: &arguments.to_string(),
            answered: None,
        };
        let settings = PipelineSettings {
            level: StageLevel::Info,
            timeout: Duration::from_mins(2),
        };
        let tool = built.tools[0].as_ref();
        let ran = run_call(tool, request, &turn, &FixedResolver, &settings, &sink).await;
        while let Ok(event) = events.try_recv() {
            self.events.lock().unwrap().push(event);
        }
        ran
    }

    /// The text of all stages.
    pub(super) fn stage_text(&self) -> String {
        let events = self.events.lock().unwrap();
        let texts = events.iter().filter_map(|event| match event {
            Event::StageContent { content, .. } => Some(content.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// The text of a message.
pub(super) fn text(ran: &CompletedCall) -> &str {
    match &ran.message.content {
        Some(Content::Text(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The files of a message.
pub(super) fn files(ran: &CompletedCall) -> Vec<Attachment> {
    let custom = ran.message.custom_content.clone().unwrap_or_default();
    custom.attachments.unwrap_or_default()
}

async fn play(
    shared: Arc<SharedState<FakeScript>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let headers = WATCHED_HEADERS.map(|name| (name, received.header(name).map(str::to_owned)));
    let (method, path, query) = (
        received.method.clone(),
        received.path.clone(),
        received.query.clone(),
    );
    let body = received.into_reader().all().await?;
    let act = {
        let mut script = shared.lock();
        script.requests.push(SeenRequest {
            method,
            path,
            query,
            headers: headers.to_vec(),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        script.acts.pop_front()
    };
    match act.unwrap_or(FakeAction::Json(200, json!({"ok": true}))) {
        FakeAction::Json(status, value) => Ok(fake_server::json_reply(status, &value)),
        FakeAction::Bytes(status, kind, bytes) => {
            Ok(fake_server::bytes_reply(status, kind, bytes.into()))
        }
        FakeAction::With(status, name, value) => {
            let reply = fake_server::bytes_reply(status, "text/plain", Bytes::from_static(b"x"));
            Ok(fake_server::with_header(reply, name, value))
        }
        FakeAction::Cut(bytes, sent_bytes) => Ok(fake_server::cut_reply(
            "application/json",
            &bytes.into(),
            sent_bytes,
        )),
        FakeAction::Pause(resumed) => {
            let first = stream::iter([Ok::<_, ConnectionClosed>(Bytes::from_static(b"one "))]);
            let second = stream::once(async move {
                let permit = resumed.acquire().await;
                let sent = permit.map(|_permit| Bytes::from_static(b"two"));
                sent.map_err(|_| ConnectionClosed)
            });
            Ok(fake_server::stream_reply("text/plain", first.chain(second)))
        }
        FakeAction::Close => Err(ConnectionClosed),
        FakeAction::Hang => std::future::pending().await,
    }
}
