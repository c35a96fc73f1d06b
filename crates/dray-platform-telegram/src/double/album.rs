//! `sendMediaGroup`.

use serde_json::Value;

use super::answer::{Answer, MethodError};
use super::fault::InjectedFault;
use super::files::{self, FILE_KINDS};
use super::form::FormData;
use super::media::message_json;
use super::methods::{placed_message, show_message, visible_file};
use super::shown::StoredMessage;
use super::state::{FakeState, StoredFile};

/// Longest caption, in UTF-16 units.
const MAX_CAPTION_UNITS: usize = 1024;

/// One item, checked.
struct AlbumItem {
    shown: StoredMessage,
    id: String,
    file: StoredFile,
}

pub(super) fn send_album(
    state: &mut FakeState,
    form: &FormData,
    fault: Option<&InjectedFault>,
    upload: u64,
    date: u64,
) -> Answer {
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
    let alone = ["document", "audio"];
    let mixed = kinds
        .iter()
        .any(|kind| alone.contains(kind) && kinds.iter().any(|other| other != kind));
    if mixed {
        return Err(MethodError::bad(
            "document and audio can't be mixed with other media types",
        ));
    }
    let album = format!("1374{}", state.next());
    let (mut chat, mut is_group) = (0, false);
    let mut items = Vec::new();
    for (media, kind) in media.iter().zip(kinds) {
        let field = |name: &str| media.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut shown;
        (chat, is_group, shown) =
            placed_message(state, form, field("caption").trim(), MAX_CAPTION_UNITS)?;
        let (id, file) = files::find_file(state, form, kind, field("media"), false, upload)?;
        shown.file = Some(visible_file(&file));
        shown.album.clone_from(&album);
        shown.spoiler = media.get("has_spoiler") == Some(&Value::Bool(true));
        items.push(AlbumItem { shown, id, file });
    }
    let (count, refusal) = broken_album(fault, items.len());
    items.truncate(count);
    let forgets = fault == Some(&InjectedFault::ForgetFiles);
    let mut messages = Vec::new();
    for item in items {
        let told = (!forgets).then_some((item.id.as_str(), &item.file));
        messages.push(message_json(chat, is_group, &item.shown, told, date));
        show_message(state, chat, item.shown);
    }
    refusal.map_or(Ok(Value::Array(messages)), Err)
}

fn media_kind(media: &Value) -> Result<&'static str, MethodError> {
    let asked = media
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    FILE_KINDS
        .into_iter()
        .find(|kind| *kind == asked && !matches!(asked, "animation" | "voice"))
        .ok_or_else(|| MethodError::bad("can't parse InputMedia: type of the media is unsupported"))
}

/// How many items appear, and what is said after them.
fn broken_album(fault: Option<&InjectedFault>, all: usize) -> (usize, Option<MethodError>) {
    match fault {
        Some(InjectedFault::BreakAlbum(shown, why)) => {
            let why = format!(
                "failed to send message #{} with the error message \"{why}\"",
                shown + 1
            );
            (*shown, Some(MethodError::bad(&why)))
        }
        Some(InjectedFault::ShortAlbum(shown)) => (*shown, None),
        _ => (all, None),
    }
}
