//! The parameters of a method, from the query, a form or JSON.

use std::collections::BTreeMap;

use dray_http::fake_server::{FormPart, MalformedBody, ReceivedRequest};
use dray_types::Sha256Digest;
use serde_json::Value;

/// A file in a form.
#[derive(Clone, Debug)]
pub(super) struct FormUpload {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) sha256: Sha256Digest,
    pub(super) head: Vec<u8>,
}

/// Fields and files by name. Of several with the same name, the last counts.
#[derive(Clone, Debug, Default)]
pub(super) struct FormData {
    pub(super) fields: BTreeMap<String, String>,
    pub(super) files: BTreeMap<String, FormUpload>,
}

impl FormData {
    /// A field; empty if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A number; 0 when the field is missing or not a number.
    pub(super) fn number(&self, name: &str) -> i64 {
        self.get(name).parse().unwrap_or_default()
    }

    /// Whether a field is `true`, in upper or lower case; false when it is missing.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).eq_ignore_ascii_case("true")
    }

    /// A field with JSON.
    pub(super) fn json(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.get(name)).ok()
    }
}

/// Reads the query and the body. Fields of the body replace those of the query.
pub(super) async fn read_form(request: ReceivedRequest) -> Result<FormData, MalformedBody> {
    let mut form = FormData {
        fields: request.parameters().into_iter().collect(),
        files: BTreeMap::new(),
    };
    let media_type = request.header("content-type").unwrap_or_default();
    if media_type.starts_with("application/json") {
        let object = request.json().await?;
        for (name, value) in object.as_object().ok_or(MalformedBody)? {
            let text = value.as_str().map(str::to_owned);
            form.fields
                .insert(name.clone(), text.unwrap_or_else(|| value.to_string()));
        }
    } else if media_type.is_empty() {
        // A method without parameters.
        request.into_reader().digest().await?;
    } else {
        let sent = request.form().await?;
        form.fields.extend(sent.fields);
        form.files = sent.files.into_iter().map(to_upload).collect();
    }
    Ok(form)
}

fn to_upload(part: FormPart) -> (String, FormUpload) {
    let upload = FormUpload {
        // Names have one line in the API.
        name: part.name.replace(['\r', '\n'], " "),
        size: part.content.size,
        sha256: part.content.sha256,
        head: part.content.head,
    };
    (part.field, upload)
}
