//! The response of the service as text for the model and files for the user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_agent::message::Attachment;
use dray_tool::{FileStorage, ToolFailure, ToolOutput};
use dray_types::Sha256Digest;
use serde_json::{Map, Value};

/// Default number of characters of a page.
pub(super) const PAGE_SIZE: u64 = 3000;

/// Replaces data that became a file.
const FILE_PLACEHOLDER: &str = "Content will be presented as attachment";

/// Types that become files, and whether the data are base64.
const FILE_TYPES: &[(&str, bool)] = &[
    ("image/png", true),
    ("image/jpeg", true),
    (PLOTLY_TYPE, false),
    ("application/json", false),
    ("text/csv", false),
    ("application/xml", false),
    ("text/xml", false),
];

/// A chart of Plotly. It is not in the table of media types, because viewers identify it by a double extension.
const PLOTLY_TYPE: &str = "application/vnd.plotly.v1+json";

/// The beginning of long values that the model gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValuePage {
    sampled: bool,
    number: usize,
    size: usize,
}

impl ValuePage {
    /// The page that the arguments choose.
    pub(super) fn of(arguments: &Map<String, Value>) -> Result<Self, ToolFailure> {
        let number_argument = |name: &str, default: u64, least: u64| match arguments.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => {
                let number = value.as_u64().filter(|number| *number >= least);
                let wrong = || format!("It must be a whole number of at least {least}.");
                number.ok_or_else(|| ToolFailure::parameter(name, wrong()))
            }
        };
        let sampled = arguments.get("sample_data").and_then(Value::as_bool);
        Ok(Self {
            sampled: sampled.unwrap_or(true),
            number: usize::try_from(number_argument("page", 0, 0)?).unwrap_or(usize::MAX),
            size: usize::try_from(number_argument("page_size", PAGE_SIZE, 1)?)
                .unwrap_or(usize::MAX),
        })
    }

    /// A text, or a page of a long one with its total length.
    fn cut(self, text: &str) -> String {
        let length = text.chars().count();
        if !self.sampled || length <= self.size {
            return text.to_owned();
        }
        let start = self.number.saturating_mul(self.size);
        let page: String = text.chars().skip(start).take(self.size).collect();
        let last = (length - 1) / self.size;
        format!(
            "{page}\n… (page {} of 0 to {last}, {length} characters in all)",
            self.number
        )
    }

    fn sample(self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.cut(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.sample(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.sample(member)),
            _ => {}
        }
    }
}

/// The result as JSON for the model, and its files.
pub(super) async fn result_output(
    mut response: Value,
    page: ValuePage,
    storage: &dyn FileStorage,
) -> ToolOutput {
    let mut files = Vec::new();
    if let Some(result) = response.get_mut("result") {
        files.extend(extract_files(result, storage).await);
    }
    if let Some(Value::Array(displayed)) = response.get_mut("display") {
        for shown in displayed {
            files.extend(extract_files(shown, storage).await);
        }
    }
    // This comes after the files were extracted, because it cuts long texts.
    page.sample(&mut response);
    let text = serde_json::to_string_pretty(&response).unwrap_or_else(|_| response.to_string());
    let mut output = ToolOutput::text(format!("\n```json\n{text}\n```\n"), "text/markdown");
    output.attachments = files;
    output
}

/// Stores data of known types as files, and replaces it by a mark. Data that cannot be stored is kept, except images.
async fn extract_files(shown: &mut Value, storage: &dyn FileStorage) -> Vec<Attachment> {
    let mut files = Vec::new();
    let Some(shown) = shown.as_object_mut() else {
        return files;
    };
    for (kind, data) in shown.iter_mut() {
        let Some((media_type, is_base64)) = FILE_TYPES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(kind))
        else {
            continue;
        };
        let Some(bytes) = value_bytes(data, *is_base64) else {
            continue;
        };
        // The file is named by the content: the same output has the same name in a repeated turn (R16).
        let digest = Sha256Digest::of(&bytes).to_hex();
        let ending = match *media_type {
            PLOTLY_TYPE => "plotly.json",
            other => dray_media_type::usual_extension(other).unwrap_or("bin"),
        };
        let name = format!("output-{}.{ending}", digest.get(..12).unwrap_or(&digest));
        match storage.keep(&name, media_type, bytes).await {
            Ok(file) => {
                files.push(file);
                *data = FILE_PLACEHOLDER.into();
            }
            Err(failure) => {
                tracing::warn!(%failure, media_type, "a result of the interpreter cannot be kept");
                // Base64 of an image would only fill the model's context.
                if *is_base64 {
                    *data = "The content could not be stored.".into();
                }
            }
        }
    }
    files
}

/// The bytes of a value: text unchanged, images decoded from base64.
fn value_bytes(data: &Value, is_base64: bool) -> Option<Bytes> {
    match (data, is_base64) {
        (Value::String(text), true) => {
            // Python's `base64.encodebytes` breaks lines.
            let packed: String = text.split_ascii_whitespace().collect();
            STANDARD.decode(packed).ok().map(Bytes::from)
        }
        (Value::String(text), false) => Some(Bytes::from(text.clone())),
        (Value::Null, _) | (_, true) => None,
        (other, false) => Some(Bytes::from(other.to_string())),
    }
}
