//! The library as a caller uses it: JSON in, JSON out.

use serde_json::{Value, json};

use crate::{BuiltContext, ContextBuilder, ContextRequest};

mod build;
mod documentation;
mod ids;
mod left_out;
mod messages;
mod renewal;
mod scenario;

/// Builds from JSON.
pub(crate) fn build(request: Value) -> BuiltContext {
    let request: ContextRequest = serde_json::from_value(request).unwrap();
    ContextBuilder::build(&request).unwrap()
}

/// A file part.
pub(crate) fn file(kind: &str, name: &str, url: &str) -> Value {
    json!({"file": {"type": kind, "name": name, "url": url}})
}

/// A text part.
pub(crate) fn text(content: &str) -> Value {
    json!({"text": {"content": content}})
}

/// A stored message of the role `obj`; without `dataId` when `id` is empty.
pub(crate) fn message(obj: &str, id: &str, value: &[Value]) -> Value {
    match id {
        "" => json!({"obj": obj, "value": value}),
        id => json!({"obj": obj, "dataId": id, "value": value}),
    }
}
