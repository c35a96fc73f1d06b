//! A DIAL that responds from a script and records requests, and a storage with some files.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::{Attachment, Message};
use dray_dial::fake::{FakeDial, ScriptedChat};
use dray_dial::meta::{Deployment, DeploymentFeatures};
use dray_dial::{Error, InterpreterAction};
use dray_tool::{FileStorage, HandledFailure, StageWriter, ToolCall, ToolFailure, Turn, UrlClass};
use dray_types::Secret;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::DeploymentFacts;

/// The methods that these tests use on a fake DIAL.
pub(crate) trait ScriptedDial: Sized {
    /// Adds a deployment that the caller with this key may use.
    fn knows(self, key: &str, id: &str, facts: DeploymentFacts) -> Self;

    fn answers(&self, response: Result<ScriptedChat, Error>);

    fn on(&self, action: InterpreterAction, response: Result<Value, Error>);

    /// The body of the last chat completion.
    fn body(&self) -> Value;

    /// The actions of the interpreter, in order.
    fn operations(&self) -> Vec<InterpreterAction>;
}

impl ScriptedDial for FakeDial {
    fn knows(self, key: &str, id: &str, facts: DeploymentFacts) -> Self {
        let deployment = Deployment {
            display_name: facts.display_name.unwrap_or_else(|| id.to_owned()),
            description: facts.description,
            input_attachment_types: facts
                .takes_files
                .then(|| "*/*".to_owned())
                .into_iter()
                .collect(),
            features: DeploymentFeatures {
                url_attachments: facts.url_attachments,
                mcp: facts.mcp,
                configuration: facts.configuration.is_some(),
            },
            ..Deployment::default()
        };
        self.with_deployment(key, id, deployment, facts.configuration)
    }

    fn answers(&self, response: Result<ScriptedChat, Error>) {
        self.chat_responses.lock().unwrap().push_back(response);
    }

    fn on(&self, action: InterpreterAction, response: Result<Value, Error>) {
        let mut responses = self.interpreter_responses.lock().unwrap();
        responses.push_back((action, response));
    }

    fn body(&self) -> Value {
        self.chats.lock().unwrap().last().unwrap().body.clone()
    }

    fn operations(&self) -> Vec<InterpreterAction> {
        let requests = self.interpreter_requests.lock().unwrap();
        requests.iter().map(|(action, _)| *action).collect()
    }
}

/// Files below `files/b/` except `gone`; all other promoted files become `files/b/promoted`. The id of `files/b/here` is
/// `a1-0`.
#[derive(Debug, Default)]
pub(crate) struct FakeFileStorage {
    pub(crate) kept: Mutex<Vec<(String, String, Bytes)>>,
    pub(crate) looked: Mutex<Vec<String>>,
    pub(crate) is_full: bool,
}

#[async_trait]
impl FileStorage for FakeFileStorage {
    fn classify(&self, url: &str) -> UrlClass {
        match url {
            _ if url.starts_with("files/") => UrlClass::Dial,
            _ if url.starts_with("http") => UrlClass::External,
            _ if url.starts_with("data:") => UrlClass::Data,
            _ => UrlClass::Unsupported,
        }
    }

    fn address_of(&self, id: &str) -> Option<String> {
        (id == "a1-0").then(|| "files/b/here".to_owned())
    }

    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        self.looked.lock().unwrap().push(url.to_owned());
        if url.contains("gone") {
            return Err(ToolFailure::parameter(parameter, format!("no {url}")));
        }
        // The first one takes longest, so that a wrong order would show.
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

pub(crate) fn turn(history: Value, storage: &Arc<FakeFileStorage>) -> Turn {
    let history: Vec<Message> = serde_json::from_value(history).unwrap();
    let storage: Arc<dyn FileStorage> = Arc::<FakeFileStorage>::clone(storage);
    Turn::new(caller("k"), "session", history, storage, 1 << 20)
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

pub(crate) fn text(text: &str) -> Result<Value, Error> {
    Ok(json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }))
}

pub(crate) fn end() -> Result<Value, Error> {
    Ok(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }))
}
