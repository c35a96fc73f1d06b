//! Files that are sent with a request (quickapps 25.1, 25.2).

use dray_agent::message::Attachment;
use dray_tool::{FileStorage, ToolFailure, UrlClass};
use dray_types::RedactedUrl;
use dray_types::reference::{FileReference, ParsedReference};
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value};

/// Argument with the addresses of files (quickapps 24.1).
pub(crate) const ATTACHMENT_PARAMETER: &str = "attachment_urls";

/// Files of one call that are resolved concurrently.
const CONCURRENT_FILES: usize = 16;

/// The addresses in the arguments, in order.
pub(crate) fn attachment_urls(arguments: &Map<String, Value>) -> Result<Vec<String>, ToolFailure> {
    let wrong = || ToolFailure::parameter(ATTACHMENT_PARAMETER, "It must be a list of strings.");
    let values = match arguments.get(ATTACHMENT_PARAMETER) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        // Some models write a single address without a list.
        Some(Value::String(one)) => return Ok(vec![strip_reference(one).to_owned()]),
        Some(Value::Array(values)) => values,
        Some(_) => return Err(wrong()),
    };
    values
        .iter()
        .map(|value| {
            value
                .as_str()
                .map(|url| strip_reference(url).to_owned())
                .ok_or_else(wrong)
        })
        .collect()
}

/// The address without `file:…::` before it.
fn strip_reference(url: &str) -> &str {
    match FileReference::parse(url) {
        ParsedReference::Reference(reference) => reference.target,
        ParsedReference::MissingPrefix | ParsedReference::Plain => url,
    }
}

/// The file behind each address, in order, each with its own outcome. `direct`: the deployment fetches addresses
/// itself.
pub(crate) async fn promote_each(
    storage: &dyn FileStorage,
    urls: &[String],
    direct: bool,
) -> Vec<Result<Attachment, ToolFailure>> {
    let all: Vec<_> = urls
        .iter()
        .map(|url| promote_one(storage, url, direct))
        .collect();
    stream::iter(all).buffered(CONCURRENT_FILES).collect().await
}

/// The file behind each address. All are resolved before the first failure, in order, is reported.
pub(crate) async fn promote_all(
    storage: &dyn FileStorage,
    urls: &[String],
    direct: bool,
) -> Result<Vec<Attachment>, ToolFailure> {
    promote_each(storage, urls, direct)
        .await
        .into_iter()
        .collect()
}

async fn promote_one(
    storage: &dyn FileStorage,
    url: &str,
    direct: bool,
) -> Result<Attachment, ToolFailure> {
    match storage.classify(url) {
        UrlClass::External if direct => Ok(passed_on(url)),
        UrlClass::Dial | UrlClass::External | UrlClass::Data => {
            storage.durable(ATTACHMENT_PARAMETER, url).await
        }
        UrlClass::Unsupported => Err(ToolFailure::parameter(
            ATTACHMENT_PARAMETER,
            UrlClass::unsupported_sentence(url),
        )),
    }
}

/// An address that the deployment fetches itself.
fn passed_on(url: &str) -> Attachment {
    let url = url.trim_start();
    let path = url.split(['?', '#']).next().unwrap_or_default();
    // The parts are the scheme, an empty part, the host and the path.
    let after_host = path.splitn(4, '/').nth(3);
    let name = after_host.and_then(|path| path.rsplit('/').next());
    let title = match name.filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => RedactedUrl::from_text(url).as_str().to_owned(),
    };
    Attachment {
        // The type is unknown without a request, which the deployment sends itself (quickapps 25.2).
        kind: Some("*/*".to_owned()),
        title: Some(title),
        url: Some(url.to_owned()),
        reference_url: Some(url.to_owned()),
        ..Attachment::default()
    }
}
