//! Scripted tools, storages and resolvers, for the tests of this crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::Attachment;
use serde_json::{Map, Value, json};

use crate::{
    Call, Declaration, Failed, Failure, Output, Resolve, Rules, Storage, Tool, Turn, UrlClass,
};

/// What a tool does.
#[derive(Debug)]
enum Act {
    Says(Output),
    Fails(fn() -> Failure),
    Hangs,
    Panics,
    Streams(&'static str),
}

/// A scripted tool.
#[derive(Debug)]
pub(crate) struct Double {
    declaration: Declaration,
    pub(crate) rules: Rules,
    act: Act,
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) dropped: Arc<Mutex<u32>>,
}

impl Double {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            declaration: Declaration {
                name: name.to_owned(),
                description: None,
                parameters: json!({"type": "object", "properties": {}}),
            },
            rules: Rules {
                label: name.to_owned(),
                ..Rules::default()
            },
            act: Act::Hangs,
            calls: Mutex::default(),
            dropped: Arc::default(),
        }
    }

    pub(crate) fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    pub(crate) fn says(self, text: &str) -> Arc<Self> {
        self.gives(Output::text(text, "text/plain"))
    }

    pub(crate) fn gives(self, output: Output) -> Arc<Self> {
        self.does(Act::Says(output))
    }

    pub(crate) fn fails(self, failure: fn() -> Failure) -> Arc<Self> {
        self.does(Act::Fails(failure))
    }

    pub(crate) fn hangs(self) -> Arc<Self> {
        self.does(Act::Hangs)
    }

    pub(crate) fn panics(self) -> Arc<Self> {
        self.does(Act::Panics)
    }

    pub(crate) fn streams(self, text: &'static str) -> Arc<Self> {
        self.does(Act::Streams(text))
    }

    fn does(mut self, act: Act) -> Arc<Self> {
        self.act = act;
        Arc::new(self)
    }
}

/// Counts that it was dropped.
struct Dropped(Arc<Mutex<u32>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[async_trait]
impl Tool for Double {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    async fn call(&self, call: Call, _: &Turn) -> Result<Output, Failure> {
        let _dropped = Dropped(Arc::clone(&self.dropped));
        let stage = call.stage.clone();
        self.calls.lock().unwrap().push(call);
        match &self.act {
            Act::Says(output) => Ok(output.clone()),
            Act::Fails(failure) => Err(failure()),
            Act::Hangs => std::future::pending().await,
            Act::Panics => panic!("secret-of-a-panic"),
            Act::Streams(text) => {
                let wrote = stage.content(*text).await;
                wrote.map_err(|gone| Failed::new("gone").because(gone))?;
                Ok(Output {
                    streamed: true,
                    ..Output::text(*text, "text/markdown")
                })
            }
        }
    }
}

/// Puts `text` in the place of every reference, or fails, and counts.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) text: &'static str,
    pub(crate) fails: Option<fn() -> Failure>,
    pub(crate) hangs: bool,
    pub(crate) asked: Mutex<Vec<Map<String, Value>>>,
}

#[async_trait]
impl Resolve for Content {
    async fn resolve(
        &self,
        _: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        self.asked.lock().unwrap().push(arguments.clone());
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
}

/// Keeps nothing.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl Storage for Nothing {
    fn classify(&self, _: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, Failure> {
        Err(Failure::parameter(parameter, "nothing is kept"))
    }

    async fn keep(&self, _: &str, _: &str, _: Bytes) -> Result<Attachment, Failure> {
        Err(Failed::new("nothing is kept").into())
    }
}

pub(crate) fn turn() -> Turn {
    Turn::new(Caller::default(), "s", Vec::new(), Arc::new(Nothing), 1)
}

/// Long enough for every call of a test that is not about time.
pub(crate) const AMPLE: Duration = Duration::from_mins(10);
