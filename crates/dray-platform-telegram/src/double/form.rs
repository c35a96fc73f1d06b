//! The parameters of a method, however they were sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_types::Sha256Digest;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::multipart::{FormReader, MalformedForm};
use super::state::SharedState;

/// A file that came with a form.
#[derive(Clone, Debug)]
pub(super) struct FormUpload {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) sha256: Sha256Digest,
    pub(super) head: Vec<u8>,
}

/// Fields and files by name.
#[derive(Clone, Debug, Default)]
pub(super) struct FormData {
    pub(super) fields: BTreeMap<String, String>,
    pub(super) files: BTreeMap<String, FormUpload>,
}

impl FormData {
    /// A field; empty when it is not there.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A number; 0 when it is none.
    pub(super) fn number(&self, name: &str) -> i64 {
        self.get(name).parse().unwrap_or_default()
    }

    /// A switch.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).eq_ignore_ascii_case("true")
    }

    /// A field that holds JSON.
    pub(super) fn json(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.get(name)).ok()
    }
}

/// Reads query and body.
pub(super) async fn read_form(
    request: Request<Incoming>,
    shared: &Arc<SharedState>,
) -> Result<FormData, MalformedForm> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let content = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let reader = FormReader::new(request.into_body(), Arc::clone(shared));
    let mut form = if let Some(boundary) = form_boundary(&content) {
        reader.form(boundary).await?
    } else {
        let body = reader.all().await?;
        if content.starts_with("application/json") {
            from_json(&body)?
        } else {
            from_pairs(&String::from_utf8(body).map_err(|_| MalformedForm)?)
        }
    };
    for (name, value) in from_pairs(&query).fields {
        form.fields.entry(name).or_insert(value);
    }
    Ok(form)
}

fn form_boundary(content: &str) -> Option<&str> {
    let (kind, boundary) = content.split_once("boundary=")?;
    kind.starts_with("multipart/form-data")
        .then(|| boundary.trim_matches('"'))
}

fn from_json(body: &[u8]) -> Result<FormData, MalformedForm> {
    let object: BTreeMap<String, Value> =
        serde_json::from_slice(body).map_err(|_| MalformedForm)?;
    let fields = object.into_iter().map(|(name, value)| match value {
        Value::String(text) => (name, text),
        other => (name, other.to_string()),
    });
    Ok(FormData {
        fields: fields.collect(),
        files: BTreeMap::new(),
    })
}

fn from_pairs(text: &str) -> FormData {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let fields = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    FormData {
        fields: fields.collect(),
        files: BTreeMap::new(),
    }
}
