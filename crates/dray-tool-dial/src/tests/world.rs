//! A DIAL that answers as told and remembers what it was asked, and a storage that knows some files.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::{Attachment, Message};
use dray_tool::{FileStorage, HandledFailure, StageWriter, ToolCall, ToolFailure, Turn, UrlClass};
use dray_types::Secret;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{ChunkStream, DeploymentFacts, DialError, DialPort};

pub(crate) type Scripted = Vec<Result<Value, DialError>>;

/// Deployment, headers, body.
type Chat = (String, Option<Vec<String>>, Value);

/// Key of the caller, deployment.
type Asked = (String, String);

#[derive(Debug, Default)]
pub(crate) struct TestDial {
    pub(crate) facts: Mutex<HashMap<Asked, Result<DeploymentFacts, u16>>>,
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) forgotten: Mutex<Vec<Asked>>,
    pub(crate) answers: Mutex<VecDeque<Result<Scripted, DialError>>>,
    pub(crate) hangs: Mutex<bool>,
    pub(crate) alive: Arc<()>,
    pub(crate) chats: Mutex<Vec<Chat>>,
    pub(crate) interpreter: Mutex<VecDeque<(&'static str, Result<Value, DialError>)>>,
    pub(crate) operations: Mutex<Vec<(String, Value)>>,
}

impl TestDial {
    pub(crate) fn knows(self, key: &str, id: &str, facts: DeploymentFacts) -> Self {
        self.facts
            .lock()
            .unwrap()
            .insert((key.to_owned(), id.to_owned()), Ok(facts));
        self
    }

    pub(crate) fn refuses(self, key: &str, id: &str, status: u16) -> Self {
        self.facts
            .lock()
            .unwrap()
            .insert((key.to_owned(), id.to_owned()), Err(status));
        self
    }

    pub(crate) fn answers(&self, answer: Result<Scripted, DialError>) {
        self.answers.lock().unwrap().push_back(answer);
    }

    pub(crate) fn on(&self, operation: &'static str, answer: Result<Value, DialError>) {
        self.interpreter
            .lock()
            .unwrap()
            .push_back((operation, answer));
    }

    pub(crate) fn body(&self) -> Value {
        self.chats.lock().unwrap().last().unwrap().2.clone()
    }

    pub(crate) fn operations(&self) -> Vec<String> {
        let operations = self.operations.lock().unwrap();
        operations.iter().map(|(name, _)| name.clone()).collect()
    }
}

fn key(caller: &Caller) -> String {
    caller
        .api_key
        .as_ref()
        .map_or_else(String::new, |key| key.expose().to_owned())
}

#[async_trait]
impl DialPort for TestDial {
    async fn facts(&self, caller: &Caller, deployment: &str) -> Result<DeploymentFacts, DialError> {
        let asked = (key(caller), deployment.to_owned());
        self.asked.lock().unwrap().push(asked.clone());
        let known = self.facts.lock().unwrap().get(&asked).cloned();
        known.unwrap_or(Err(404)).map_err(DialError::status)
    }

    fn forget(&self, caller: &Caller, deployment: &str) {
        let forgotten = (key(caller), deployment.to_owned());
        self.forgotten.lock().unwrap().push(forgotten);
    }

    async fn chat(
        &self,
        _: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, DialError> {
        let chat = (
            deployment.to_owned(),
            headers.map(<[String]>::to_vec),
            body.clone(),
        );
        self.chats.lock().unwrap().push(chat);
        let answer = self.answers.lock().unwrap().pop_front().unwrap()?;
        let alive = Arc::clone(&self.alive);
        let is_endless = *self.hangs.lock().unwrap();
        let chunks = stream::iter(answer);
        let chunks = if is_endless {
            chunks.chain(stream::pending()).boxed()
        } else {
            chunks.boxed()
        };
        let watched = chunks.inspect(move |_| {
            let _ = &alive;
        });
        Ok(watched.boxed())
    }

    async fn code_interpreter(
        &self,
        _: &Caller,
        operation: &str,
        body: &Value,
    ) -> Result<Value, DialError> {
        let asked = (operation.to_owned(), body.clone());
        self.operations.lock().unwrap().push(asked);
        let (expected, answer) = self.interpreter.lock().unwrap().pop_front().unwrap();
        assert_eq!(operation, expected);
        answer
    }
}

/// Files below `files/b/` but `gone`; all else that is promoted becomes `files/b/promoted`.
#[derive(Debug, Default)]
pub(crate) struct FileShelf {
    pub(crate) kept: Mutex<Vec<(String, String, Bytes)>>,
    pub(crate) looked: Mutex<Vec<String>>,
    pub(crate) is_full: bool,
}

#[async_trait]
impl FileStorage for FileShelf {
    fn classify(&self, url: &str) -> UrlClass {
        match url {
            _ if url.starts_with("files/") => UrlClass::Dial,
            _ if url.starts_with("http") => UrlClass::External,
            _ if url.starts_with("data:") => UrlClass::Data,
            _ => UrlClass::Unsupported,
        }
    }

    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        self.looked.lock().unwrap().push(url.to_owned());
        if url.contains("gone") {
            return Err(ToolFailure::parameter(parameter, format!("no {url}")));
        }
        // The first of several takes longest.
        for _ in 0..usize::from(url.contains("slow")) * 50 {
            tokio::task::yield_now().await;
        }
        let url = match self.classify(url) {
            UrlClass::Dial => url,
            _ => "files/b/promoted",
        };
        Ok(Attachment {
            kind: Some("text/plain".to_owned()),
            title: url.rsplit('/').next().map(str::to_owned),
            url: Some(url.to_owned()),
            ..Attachment::default()
        })
    }

    async fn keep(
        &self,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Attachment, ToolFailure> {
        if self.is_full {
            return Err(HandledFailure::new("full").into());
        }
        let kept = (name.to_owned(), media_type.to_owned(), bytes);
        self.kept.lock().unwrap().push(kept);
        Ok(Attachment {
            kind: Some(media_type.to_owned()),
            url: Some(format!("files/b/{name}")),
            ..Attachment::default()
        })
    }
}

pub(crate) fn caller(key: &str) -> Caller {
    Caller {
        api_key: Some(Secret::new(key)),
        ..Caller::default()
    }
}

pub(crate) fn turn(history: Value, shelf: &Arc<FileShelf>) -> Turn {
    let history: Vec<Message> = serde_json::from_value(history).unwrap();
    let shelf: Arc<dyn FileStorage> = Arc::<FileShelf>::clone(shelf);
    Turn::new(caller("k"), "session", history, shelf, 1 << 20)
}

pub(crate) fn call(arguments: Value, stage: StageWriter) -> ToolCall {
    let arguments = arguments.as_object().cloned().unwrap();
    ToolCall {
        id: "call_1".to_owned(),
        written: arguments.clone(),
        arguments,
        stage,
        deadline: Instant::now() + std::time::Duration::from_mins(1),
    }
}

pub(crate) fn text(text: &str) -> Result<Value, DialError> {
    Ok(json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }))
}

pub(crate) fn end() -> Result<Value, DialError> {
    Ok(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }))
}
