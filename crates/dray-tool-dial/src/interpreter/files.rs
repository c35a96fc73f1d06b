//! The files that a call needs in the session.

use std::collections::HashMap;

use dray_agent::message::Attachment;
use dray_tool::{ToolFailure, Turn, UrlClass};
use percent_encoding::percent_decode_str;

use crate::attachment::ATTACHMENT_PARAMETER;

/// A file of DIAL and its name in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedFile {
    pub(super) url: String,
    pub(super) name: String,
    /// Whether another file of the conversation has the same name.
    pub(super) has_namesake: bool,
}

/// Finds the files at the addresses. A file is an attachment of the conversation, results of this turn included, or a
/// file of DIAL; a file outside DIAL is copied to DIAL first.
pub(super) async fn requested_files(
    turn: &Turn,
    urls: &[String],
) -> Result<Vec<RequestedFile>, ToolFailure> {
    let files = turn.files();
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for url in urls {
        let url = url.replace(' ', "%20");
        let source = matching_attachment(&files, &url);
        let known = source.is_some();
        let source = source.unwrap_or(url);
        let durable = match turn.storage.classify(&source) {
            UrlClass::Dial => source.clone(),
            // Only files of the conversation are permitted; any other address from the model counts as missing.
            UrlClass::External | UrlClass::Data if known => {
                let promoted = turn.storage.durable(ATTACHMENT_PARAMETER, &source).await?;
                promoted.url.unwrap_or_else(|| source.clone())
            }
            _ => {
                missing.push(file_name(&source));
                continue;
            }
        };
        let name = file_name(&durable);
        let has_namesake =
            file_urls(&files).any(|other| *other != source && file_name(other) == name);
        found.push(RequestedFile {
            url: durable,
            name,
            has_namesake,
        });
    }
    if missing.is_empty() {
        check_names(&found)?;
        return Ok(found);
    }
    let lines = missing
        .iter()
        .map(|name| format!("- {name}: no matching attachment found in conversation"));
    let lines: Vec<_> = lines.collect();
    let text = format!("Failed to prepare input files:\n{}", lines.join("\n"));
    Err(ToolFailure::parameter(ATTACHMENT_PARAMETER, text))
}

/// Refuses two files of one name: the second would replace the first before the code runs.
fn check_names(files: &[RequestedFile]) -> Result<(), ToolFailure> {
    let mut sources = HashMap::new();
    for file in files {
        let first: &String = sources.entry(&file.name).or_insert(&file.url);
        if *first != file.url {
            let text = format!(
                "Two of the files have the name {}. Pass one of them, and the other in a later call, before which the code \
                 renames the first.",
                file.name
            );
            return Err(ToolFailure::parameter(ATTACHMENT_PARAMETER, text));
        }
    }
    Ok(())
}

/// Addresses of the files of the conversation, oldest first.
fn file_urls(files: &[Attachment]) -> impl DoubleEndedIterator<Item = &String> {
    files
        .iter()
        .filter_map(|file| file.url.as_ref().or(file.reference_url.as_ref()))
}

/// The newest file of the conversation whose URL ends with these segments.
fn matching_attachment(files: &[Attachment], wanted: &str) -> Option<String> {
    let wanted = wanted.trim_start_matches('/');
    let mut urls = file_urls(files).rev();
    let ends_with_segments = |url: &&String| {
        let before = url.strip_suffix(wanted);
        // Complete segments: `b.pdf` must not match `ab.pdf`.
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    (!wanted.is_empty()).then(|| urls.find(ends_with_segments).cloned())?
}

/// The last segment, decoded; it never leads out of the directory, and is never a part of a query.
fn file_name(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode_str(last).decode_utf8_lossy();
    let name: String = decoded
        .chars()
        .map(|character| {
            if character == '/' || character == '\\' || character.is_control() {
                '_'
            } else {
                character
            }
        })
        .collect();
    match name.as_str() {
        "" | "." | ".." => "file".to_owned(),
        _ => name,
    }
}
