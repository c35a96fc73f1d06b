//! `sendMediaGroup`.

use serde_json::Value;

use super::fault::InjectedFault;
use super::files::{self, FILE_KINDS};
use super::form::FormData;
use super::media::message_json;
use super::methods::{prepare_message, show_message, visible_file};
use super::response::{ApiResponse, MethodError};
use super::state::{FakeState, StoredFile};
use super::stored_message::StoredMessage;

/// Longest caption, in UTF-16 units, as the API documents it.
const MAX_CAPTION_UNITS: usize = 1024;

/// One item of an album that passed all checks. It is not visible yet.
struct AlbumItem {
    message: StoredMessage,
    id: String,
    file: StoredFile,
}

pub(super) fn send_album(
    state: &mut FakeState,
    form: &FormData,
    fault: Option<&InjectedFault>,
    upload: u64,
    date: u64,
) -> ApiResponse {
    let media = form.json("media").unwrap_or_default();
    let media = media.as_array().cloned().unwrap_or_default();
    if !(2..=10).contains(&media.len()) {
        return Err(MethodError::bad(
            "number of media in an album must be from 2 to 10",
        ));
    }
    let kinds = media
        .iter()
        .map(media_kind)
        .collect::<Result<Vec<_>, _>>()?;
    // "Documents and audio files can be only grouped in an album with messages of the same type."
    let unmixed_kinds = ["document", "audio"];
    let is_mixed = kinds
        .iter()
        .any(|kind| unmixed_kinds.contains(kind) && kinds.iter().any(|other| other != kind));
    if is_mixed {
        return Err(MethodError::bad(
            "document and audio can't be mixed with other media types",
        ));
    }
    let album = format!("1374{}", state.next());
    let (mut chat, mut is_group) = (0, false);
    let mut items = Vec::new();
    // All items are checked before the first becomes visible, so that a refused album is not visible in part.
    for (media, kind) in media.iter().zip(kinds) {
        let field = |name: &str| media.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut message;
        (chat, is_group, message) =
            prepare_message(state, form, field("caption").trim(), MAX_CAPTION_UNITS)?;
        let (id, file) = files::find_file(state, form, kind, field("media"), false, upload)?;
        message.file = Some(visible_file(&file));
        message.album.clone_from(&album);
        message.spoiler = media.get("has_spoiler") == Some(&Value::Bool(true));
        items.push(AlbumItem { message, id, file });
    }
    let (count, refusal) = broken_album(fault, items.len());
    items.truncate(count);
    let has_no_file = fault == Some(&InjectedFault::ForgetFiles);
    let mut messages = Vec::new();
    for item in items {
        let file_id = (!has_no_file).then_some((item.id.as_str(), &item.file));
        messages.push(message_json(chat, is_group, &item.message, file_id, date));
        show_message(state, chat, item.message);
    }
    refusal.map_or(Ok(Value::Array(messages)), Err)
}

fn media_kind(media: &Value) -> Result<&'static str, MethodError> {
    let requested = media
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    FILE_KINDS
        .into_iter()
        .find(|kind| *kind == requested && !matches!(requested, "animation" | "voice"))
        .ok_or_else(|| MethodError::bad("can't parse InputMedia: type of the media is unsupported"))
}

/// How many items become visible, and the refusal after them.
fn broken_album(fault: Option<&InjectedFault>, all: usize) -> (usize, Option<MethodError>) {
    match fault {
        Some(InjectedFault::BreakAlbum(shown_items, reason)) => {
            let reason = format!(
                "failed to send message #{} with the error message \"{reason}\"",
                shown_items + 1
            );
            (*shown_items, Some(MethodError::bad(&reason)))
        }
        Some(InjectedFault::ShortAlbum(shown_items)) => (*shown_items, None),
        _ => (all, None),
    }
}
