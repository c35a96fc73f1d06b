//! Files that the model requests one at a time (quickapps 16): the strategy `lazy_on_demand`.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use crate::message::{Attachment, Content, Message, Role};
use crate::pair::CallPair;

#[cfg(test)]
mod tests;

/// Name of the tool that attaches a file for the model.
pub const CONTENT_TOOL: &str = "internal_attachments_get_content";

/// Error of a call without an address.
pub const MISSING_URL_MESSAGE: &str = "Missing or empty attachment_url.";

/// Error of a call whose address is not in the file storage of DIAL.
pub const INVALID_PATH_MESSAGE: &str = "Invalid storage path for attachment file.";

/// Error for a file whose type the model does not accept.
pub const UNACCEPTED_TYPE_MESSAGE: &str = "Orchestrator deployment does not accept this file type.";

/// The result of a call that attached a file.
#[derive(Deserialize)]
struct ReturnedFile {
    ok: bool,
    url: String,
}

/// Whether the model accepts files of a type. `types` are patterns as in quickapps 19.2.
pub fn accepts_type(types: &[String], kind: Option<&str>) -> bool {
    types
        .iter()
        .any(|pattern| dray_media_type::matches_pattern(kind, pattern))
}

/// The tool's result for a file that it gives.
pub fn given_file_text(attachment: &Attachment) -> String {
    json!({
        "ok": true,
        "url": attachment.url,
        "title": attachment.title,
        "type": attachment.kind,
    })
    .to_string()
}

/// The tool's result for a file that it refuses, with the types that it would give.
pub fn refused_file_text(error: &str, types: &[String]) -> String {
    json!({"ok": false, "error": error, "accepted_types": types}).to_string()
}

/// Whether a file stays with its message: the tool returned it, DIAL stores it, and the model accepts its type.
pub fn keeps_attachment(message: &Message, attachment: &Attachment, types: &[String]) -> bool {
    let Some(url) = attachment.url.as_deref() else {
        return false;
    };
    message.role == Role::Tool
        && url.starts_with("files/")
        && accepts_type(types, attachment.kind.as_deref())
        // Other tools return files of an accepted type too, which the model did not request.
        && is_returned(message, url)
}

/// Whether a message is the result of the tool that returns this file.
fn is_returned(message: &Message, url: &str) -> bool {
    let Some(Content::Text(text)) = &message.content else {
        return false;
    };
    serde_json::from_str::<ReturnedFile>(text).is_ok_and(|given| given.ok && given.url == url)
}

/// Adds the files of the last user message as if the model had requested them, directly after that message.
pub fn inject_files(messages: &mut Vec<Message>, types: &[String]) {
    let is_user = |message: &Message| message.role == Role::User;
    let Some(last) = messages.iter().rposition(is_user) else {
        return;
    };
    let files = messages
        .get(last)
        .map_or_else(Vec::new, message_attachments);
    let mut seen = HashSet::new();
    let mut insert_index = last + 1;
    for file in files {
        let file = canonical_attachment(file);
        let url = file.url.clone().unwrap_or_default();
        // `keeps_attachment` would keep no other address inline.
        let is_wanted = url.starts_with("files/") && accepts_type(types, file.kind.as_deref());
        if !is_wanted || !seen.insert(url.clone()) {
            continue;
        }
        let pair = CallPair {
            tool: CONTENT_TOOL.to_owned(),
            arguments: json!({ "attachment_url": format!("file:url::{url}") }),
            content: given_file_text(&file),
        };
        // The same file may appear in every turn, so equal pairs need different ids.
        let [call, mut result] = pair.messages_as(pair.id_in(messages));
        let custom = result.custom_content.get_or_insert_default();
        custom.attachments = Some(vec![file]);
        messages.splice(insert_index..insert_index, [call, result]);
        // The pairs are in the order of the files.
        insert_index += 2;
    }
}

/// Removes the files of the tool's results after the model refused them, and makes these results failures. Returns
/// `false` without such a file: then another call of the model would fail in the same way.
pub fn remove_refused_files(messages: &mut [Message], types: &[String]) -> bool {
    let mut has_refused_files = false;
    for message in messages {
        if !message_attachments(message)
            .iter()
            .any(|attachment| keeps_attachment(message, attachment, types))
        {
            continue;
        }
        has_refused_files = true;
        // The next call shows the model a refusal in place of the file (quickapps 16).
        message.content = Some(Content::Text(refused_file_text(
            UNACCEPTED_TYPE_MESSAGE,
            types,
        )));
        if let Some(custom) = &mut message.custom_content {
            custom.attachments = None;
        }
    }
    has_refused_files
}

fn message_attachments(message: &Message) -> Vec<Attachment> {
    let custom = message.custom_content.as_ref();
    custom
        .and_then(|custom| custom.attachments.clone())
        .unwrap_or_default()
}

/// The file with its address in DIAL's form, without the leading slash that clients may add, and with a title.
fn canonical_attachment(file: Attachment) -> Attachment {
    // Only one slash is removed, as in the arguments of the tool (quickapps 16).
    let url = file.url.map(|url| match url.strip_prefix('/') {
        Some(rest) => rest.to_owned(),
        None => url,
    });
    let last = url.as_deref().and_then(|url| url.rsplit('/').next());
    Attachment {
        title: file.title.or_else(|| last.map(str::to_owned)),
        data: None,
        url,
        ..file
    }
}
