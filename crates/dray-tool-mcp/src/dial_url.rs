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
        for url in texts(arguments, name) {
            checked(name, url, storage.as_ref())?;
            let Some(known) = known else {
                return Err(Failure::parameter(
                    "file_url",
                    "Files cannot be shared because dial_toolset_id is not configured.",
                ));
            };
            let Some(bare) = known.dial.file(url) else {
                return Err(unsupported(name, url));
            };
            if !urls.contains(&bare) {
                urls.push(bare.clone());
            }
            *url = bare;
        }
    }
    let Some(known) = known.filter(|_| !urls.is_empty()) else {
        return Ok(());
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

/// The texts of an argument: itself, or the members of a list.
fn texts<'a>(
    arguments: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut String> {
    let values = match arguments.get_mut(name) {
        Some(Value::Array(all)) => all.as_mut_slice(),
        Some(one) => std::slice::from_mut(one),
        None => &mut [],
    };
    values.iter_mut().filter_map(|value| match value {
        Value::String(text) => Some(text),
        _ => None,
    })
}

fn unsupported(name: &str, url: &str) -> Failure {
    let shown = RedactedUrl::from_text(url);
    Failure::parameter(
        name,
        format!(
            "Parameter `{name}` requires a DIAL file but received an unsupported URL: {}.",
            shown.as_str()
        ),
    )
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
        UrlClass::Data | UrlClass::Unsupported => Err(unsupported(name, url)),
    }
}
