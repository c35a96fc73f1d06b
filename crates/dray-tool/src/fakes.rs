//! Scripted tools, storages and resolvers, for the tests of this crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::Attachment;
use serde_json::{Map, Value, json};

use crate::{
    ArgumentResolver, CallRules, FileStorage, HandledFailure, Tool, ToolCall, ToolDeclaration,
    ToolFailure, ToolOutput, Turn, UrlClass,
};

/// The scripted behaviour of a tool.
#[derive(Debug)]
enum FakeAction {
    Says(Box<ToolOutput>),
    Fails(fn() -> ToolFailure),
    Hangs,
    Panics,
    Streams(&'static str),
}

/// A scripted tool.
#[derive(Debug)]
pub(crate) struct FakeTool {
    declaration: ToolDeclaration,
    pub(crate) rules: CallRules,
    act: FakeAction,
    pub(crate) calls: Mutex<Vec<ToolCall>>,
    pub(crate) dropped: Arc<Mutex<u32>>,
}

impl FakeTool {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            declaration: ToolDeclaration {
                name: name.to_owned(),
                description: None,
                parameters: json!({"type": "object", "properties": {}}),
            },
            rules: CallRules {
                label: name.to_owned(),
                ..CallRules::default()
            },
            act: FakeAction::Hangs,
            calls: Mutex::default(),
            dropped: Arc::default(),
        }
    }

    pub(crate) fn rules(mut self, rules: CallRules) -> Self {
        self.rules = rules;
        self
    }

    pub(crate) fn says(self, text: &str) -> Arc<Self> {
        self.gives(ToolOutput::text(text, "text/plain"))
    }

    pub(crate) fn gives(self, output: ToolOutput) -> Arc<Self> {
        self.does(FakeAction::Says(Box::new(output)))
    }

    pub(crate) fn fails(self, failure: fn() -> ToolFailure) -> Arc<Self> {
        self.does(FakeAction::Fails(failure))
    }

    pub(crate) fn hangs(self) -> Arc<Self> {
        self.does(FakeAction::Hangs)
    }

    pub(crate) fn panics(self) -> Arc<Self> {
        self.does(FakeAction::Panics)
    }

    pub(crate) fn streams(self, text: &'static str) -> Arc<Self> {
        self.does(FakeAction::Streams(text))
    }

    fn does(mut self, act: FakeAction) -> Arc<Self> {
        self.act = act;
        Arc::new(self)
    }
}

/// Counts how often it was dropped.
struct DropCounter(Arc<Mutex<u32>>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[async_trait]
impl Tool for FakeTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _: &Turn) -> Result<ToolOutput, ToolFailure> {
        let _dropped = DropCounter(Arc::clone(&self.dropped));
        let stage = call.stage.clone();
        self.calls.lock().unwrap().push(call);
        match &self.act {
            FakeAction::Says(output) => Ok((**output).clone()),
            FakeAction::Fails(failure) => Err(failure()),
            FakeAction::Hangs => std::future::pending().await,
            FakeAction::Panics => panic!("secret-of-a-panic"),
            FakeAction::Streams(text) => {
                let wrote = stage.content(*text).await;
                wrote.map_err(|gone| HandledFailure::new("gone").because(gone))?;
                Ok(ToolOutput {
                    streamed: true,
                    ..ToolOutput::text(*text, "text/markdown")
                })
            }
        }
    }
}

/// Puts `text` in place of every reference, or fails, and counts.
#[derive(Debug, Default)]
pub(crate) struct FakeResolver {
    pub(crate) text: &'static str,
    pub(crate) fails: Option<fn() -> ToolFailure>,
    pub(crate) hangs: bool,
    pub(crate) resolved: Mutex<Vec<Map<String, Value>>>,
}

#[async_trait]
impl ArgumentResolver for FakeResolver {
    async fn resolve(
        &self,
        _: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        self.resolved.lock().unwrap().push(arguments.clone());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(fails) = self.fails {
            return Err(fails());
        }
        for value in arguments.values_mut() {
            if value.as_str().is_some_and(|text| text.starts_with("file:")) {
                *value = Value::from(self.text);
            }
        }
        Ok(arguments)
    }

    async fn replace_ids(
        &self,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        if let Some(fails) = self.fails {
            return Err(fails());
        }
        for value in arguments.values_mut().filter(|value| *value == "a1-0") {
            *value = Value::from("https://files.example/a");
        }
        Ok(arguments)
    }

    fn replace_ids_by_addresses(&self, argument: &mut Value) {
        for item in argument.as_array_mut().into_iter().flatten() {
            if *item == "a1-0" {
                *item = Value::from("files/B/a");
            }
        }
    }
}

/// Stores nothing.
#[derive(Debug)]
struct NoStorage;

#[async_trait]
impl FileStorage for NoStorage {
    fn classify(&self, _: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, ToolFailure> {
        Err(ToolFailure::parameter(parameter, "nothing is kept"))
    }

    async fn keep(&self, _: &str, _: &str, _: Bytes) -> Result<Attachment, ToolFailure> {
        Err(HandledFailure::new("nothing is kept").into())
    }
}

pub(crate) fn test_turn() -> Turn {
    Turn::new(Caller::default(), "s", Vec::new(), Arc::new(NoStorage), 1)
}

/// A timeout that is longer than any call of a test that is not about time.
pub(crate) const AMPLE_TIMEOUT: Duration = Duration::from_mins(10);
