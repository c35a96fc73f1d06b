//! Arguments that take files of DIAL (quickapps 27.5): the tool set gets the right to read them, for this request.

use std::sync::Arc;

use dray_tool::{Failed, Failure, Storage, UrlClass};
use dray_types::RedactedUrl;
use serde_json::{Map, Value};

use crate::server::Known;

/// The arguments of a tool that its schema marks with `"dial_url": true`: a text or a list of texts.
pub(crate) fn parameters(schema: &Map<String, Value>) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| property.get("dial_url") == Some(&Value::Bool(true)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Checks the files, grants all of them with one call, and leaves their bare URLs in the arguments.
pub(crate) async fn grant(
    parameters: &[String],
    arguments: &mut Map<String, Value>,
    known: Option<&Known>,
    caller: &dray_agent::caller::Caller,
    storage: &Arc<dyn Storage>,
) -> Result<(), Failure> {
    let mut urls = Vec::new();
    for name in parameters {
        let values = match arguments.get_mut(name) {
            Some(Value::Array(all)) => all.as_mut_slice(),
            Some(one) => std::slice::from_mut(one),
            None => continue,
        };
        for value in values {
            if let Value::String(url) = value {
                checked(name, url, storage.as_ref())?;
                *url = bare(url);
                if !urls.contains(url) {
                    urls.push(url.clone());
                }
            }
        }
    }
    if urls.is_empty() {
        return Ok(());
    }
    let Some(known) = known else {
        return Err(Failure::parameter(
            "file_url",
            "Files cannot be shared because dial_toolset_id is not configured.",
        ));
    };
    let granted = known.dial.grant(caller, &urls, &known.id).await;
    granted.map_err(|refused| {
        let failed = match refused.status {
            Some(status) => Failed::new(format!(
                "The files cannot be shared with the tool: DIAL answered {status}."
            ))
            .status(status),
            None => Failed::new("The files cannot be shared with the tool: DIAL cannot be asked."),
        };
        failed.because(refused).into()
    })
}

/// `files/…` of any spelling of a file of DIAL.
fn bare(url: &str) -> String {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once("/v1/").map_or(url, |(_, path)| path),
        None => url,
    };
    path.trim_start_matches('/').to_owned()
}

fn checked(name: &str, url: &str, storage: &dyn Storage) -> Result<(), Failure> {
    let shown = RedactedUrl::from_text(url);
    let shown = shown.as_str();
    match storage.classify(url) {
        UrlClass::Dial => Ok(()),
        UrlClass::External => Err(Failure::parameter(
            name,
            format!(
                "Parameter `{name}` requires a DIAL file but received an external URL: {shown}. Pass the content of \
                 the file to a parameter that takes content instead, with `file:base64::{shown}` or \
                 `file:text::{shown}`."
            ),
        )),
        UrlClass::Data | UrlClass::Unsupported => Err(Failure::parameter(
            name,
            format!(
                "Parameter `{name}` requires a DIAL file but received an unsupported URL: {shown}."
            ),
        )),
    }
}
