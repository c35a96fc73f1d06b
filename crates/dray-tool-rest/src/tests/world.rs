//! A server that answers by a script and remembers what it was asked, and what a call needs around it.

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
use dray_http::double::{self, Closed, Received, Reply, Server, Shared};
use dray_http::{Client, Limits};
use dray_tool::pipeline::{Ended, Ran, Request, Settings, run};
use dray_tool::{Built, Failed, Failure, Resolve, Sink, Storage, Turn, UrlClass};
use dray_types::{Clock, Secret};
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};

use crate::{Options, build};

/// What the server does with one request.
#[derive(Debug)]
pub(super) enum Act {
    Json(u16, Value),
    Bytes(u16, &'static str, Vec<u8>),
    With(u16, &'static str, &'static str),
    Cut(Vec<u8>, usize),
    Close,
    Hang,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: Vec<(&'static str, Option<String>)>,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| *known == name)?;
        value.as_deref()
    }
}

const WATCHED: [&str; 8] = [
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
pub(super) struct Script {
    acts: VecDeque<Act>,
    seen: Vec<Seen>,
}

/// Keeps what it is given, or fails.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) files: Mutex<Vec<(String, String, Bytes)>>,
    pub(super) fails: bool,
}

#[async_trait]
impl Storage for Kept {
    fn classify(&self, _: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, Failure> {
        Err(Failure::parameter(parameter, "not here"))
    }

    async fn keep(&self, name: &str, kind: &str, bytes: Bytes) -> Result<Attachment, Failure> {
        if self.fails {
            return Err(Failed::new("the disk is full").into());
        }
        let kept = (name.to_owned(), kind.to_owned(), bytes);
        self.files.lock().unwrap().push(kept);
        Ok(Attachment {
            kind: Some(kind.to_owned()),
            title: Some(name.to_owned()),
            url: Some(format!("files/B/{name}")),
            ..Attachment::default()
        })
    }
}

/// Puts content in the place of every reference.
#[derive(Debug)]
struct Content64;

#[async_trait]
impl Resolve for Content64 {
    async fn resolve(
        &self,
        _: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        for value in arguments.values_mut() {
            if value.as_str().is_some_and(|text| text.starts_with("file:")) {
                *value = json!("U0VDUkVU");
            }
        }
        Ok(arguments)
    }
}

/// All that a call needs.
pub(super) struct World {
    server: Server<Script>,
    pub(super) kept: Arc<Kept>,
    pub(super) options: Options,
    pub(super) caller: Caller,
    pub(super) events: Mutex<Vec<Event>>,
}

impl World {
    pub(super) async fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let script = Script {
            acts: acts.into_iter().collect(),
            seen: Vec::new(),
        };
        let answer = |shared: Arc<Shared<Script>>, received: Received| {
            async move { play(shared, received).await }.boxed()
        };
        Self {
            server: Server::start(script, answer).await.unwrap(),
            kept: Arc::default(),
            options: Options {
                // 2026-11-20T21:08:07.123Z
                clock: Clock::manual(1_795_208_887_123),
                ..Options::default()
            },
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

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.server.shared().lock().seen.clone()
    }

    pub(super) fn last(&self) -> Seen {
        self.seen().last().unwrap().clone()
    }

    pub(super) fn build(&self, set: Value) -> Built {
        let set: RestApi = serde_json::from_value(set).unwrap();
        let client = Client::new(Limits::default(), None).unwrap();
        build(&set, &client, &self.options)
    }

    /// A set of one tool at `path` of the server; the parameters are of the form `{name: place}` or whole schemas.
    pub(super) fn set(&self, method: &str, path: &str, parameters: &Value) -> Value {
        let properties: Map<String, Value> = parameters
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| {
                let whole = match value.as_str() {
                    Some(place) => {
                        json!({"type": "string", "parameter_info": {"type": place, "key": name}})
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
    pub(super) async fn call(&self, set: Value, arguments: Value) -> Result<Ran, Ended> {
        let built = self.build(set);
        assert_eq!(built.issues, []);
        let storage: Arc<dyn Storage> = Arc::clone(&self.kept) as _;
        let turn = Turn::new(self.caller.clone(), "s", Vec::new(), storage, 1);
        let (sink, mut events) = Sink::new();
        let request = Request {
            id: "call_1",
            arguments: &arguments.to_string(),
        };
        let settings = Settings {
            level: StageLevel::Info,
            timeout: Duration::from_mins(2),
        };
        let tool = built.tools[0].as_ref();
        let ran = run(tool, request, &turn, &Content64, &settings, &sink).await;
        while let Ok(event) = events.try_recv() {
            self.events.lock().unwrap().push(event);
        }
        ran
    }

    /// Everything that stands in stages.
    pub(super) fn shown(&self) -> String {
        let events = self.events.lock().unwrap();
        let texts = events.iter().filter_map(|event| match event {
            Event::StageContent { content, .. } => Some(content.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// The text of a message.
pub(super) fn text(ran: &Ran) -> &str {
    match &ran.message.content {
        Some(Content::Text(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The files of a message.
pub(super) fn files(ran: &Ran) -> Vec<Attachment> {
    let custom = ran.message.custom_content.clone().unwrap_or_default();
    custom.attachments.unwrap_or_default()
}

async fn play(shared: Arc<Shared<Script>>, received: Received) -> Result<Reply, Closed> {
    let headers = WATCHED.map(|name| (name, received.header(name).map(str::to_owned)));
    let (method, path, query) = (
        received.method.clone(),
        received.path.clone(),
        received.query.clone(),
    );
    let body = received.into_reader().all().await?;
    let act = {
        let mut script = shared.lock();
        script.seen.push(Seen {
            method,
            path,
            query,
            headers: headers.to_vec(),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        script.acts.pop_front()
    };
    match act.unwrap_or(Act::Json(200, json!({"ok": true}))) {
        Act::Json(status, value) => Ok(double::json(status, &value)),
        Act::Bytes(status, kind, bytes) => Ok(double::reply(status, kind, bytes.into())),
        Act::With(status, name, value) => {
            let reply = double::reply(status, "text/plain", Bytes::from_static(b"x"));
            Ok(double::with_header(reply, name, value))
        }
        Act::Cut(bytes, kept) => Ok(double::cut("application/json", &bytes.into(), kept)),
        Act::Close => Err(Closed),
        Act::Hang => std::future::pending().await,
    }
}
