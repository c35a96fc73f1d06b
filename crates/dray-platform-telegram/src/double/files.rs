//! The file of a message: uploaded now, or known by its id.

use dray_content::kind::{Audio, Codec, Detected, Image, Kind, Video, detect};

use super::PHOTO;
use super::answer::Refusal;
use super::form::{Form, Upload};
use super::state::{State, Stored};

/// Kinds by the name of their field and method.
pub(super) const KINDS: [&str; 6] = ["photo", "document", "audio", "voice", "video", "animation"];

/// Finds the file of a field: `attach://name`, an upload of the field's own name, or a file id. `detects` when the
/// server looks what a document really is.
pub(super) fn find(
    state: &mut State,
    form: &Form,
    kind: &'static str,
    value: &str,
    detects: bool,
    upload_limit: u64,
) -> Result<(String, Stored), Refusal> {
    let part = value.strip_prefix("attach://").unwrap_or(kind);
    if let Some(upload) = form.files.get(part) {
        let file = taken(upload, kind, detects, upload_limit)?;
        let id = state.store(file.clone());
        return Ok((id, file));
    }
    if value.is_empty() {
        return Err(Refusal::bad(&format!("there is no {kind} in the request")));
    }
    let Some(known) = state.files.get(value) else {
        return Err(Refusal::bad(
            "wrong file_id or the file is temporarily unavailable",
        ));
    };
    if known.kind != kind {
        return Err(Refusal::bad("type of file mismatch"));
    }
    Ok((value.to_owned(), known.clone()))
}

/// Checks an upload, and decides what it becomes.
fn taken(
    upload: &Upload,
    asked: &'static str,
    detects: bool,
    upload_limit: u64,
) -> Result<Stored, Refusal> {
    if upload.size == 0 {
        return Err(Refusal::bad("file must be non-empty"));
    }
    if upload.size > upload_limit {
        return Err(Refusal::of(413, "Request Entity Too Large"));
    }
    let detected = detect(&upload.head, &upload.name, upload.size);
    if asked == "photo" {
        photo(upload, &detected)?;
    }
    Ok(Stored {
        kind: becomes(asked, detected.kind, detects),
        name: upload.name.clone(),
        media_type: detected.media_type.to_owned(),
        size: upload.size,
        sha256: upload.sha256,
        bytes: None,
        path: String::new(),
    })
}

fn photo(upload: &Upload, detected: &Detected) -> Result<(), Refusal> {
    if upload.size > PHOTO {
        let why = format!(
            "file of size {} bytes is too big for a photo; the maximum size is {PHOTO} bytes",
            upload.size
        );
        return Err(Refusal::bad(&why));
    }
    let Kind::Image(Image::Png | Image::Jpeg | Image::Webp { .. } | Image::Gif { .. }) =
        detected.kind
    else {
        return Err(Refusal::bad("IMAGE_PROCESS_FAILED"));
    };
    let Some((width, height)) = detected.dimensions else {
        return Err(Refusal::bad("PHOTO_SAVE_FILE_INVALID"));
    };
    let (long, short) = (width.max(height), width.min(height));
    if width + height > 10_000 || long > short * 20 {
        return Err(Refusal::bad("PHOTO_INVALID_DIMENSIONS"));
    }
    Ok(())
}

/// The kind that the server makes of a file that was sent as another.
fn becomes(asked: &'static str, kind: Kind, detects: bool) -> &'static str {
    match (asked, kind) {
        ("document", Kind::Image(Image::Gif { animated: true })) if detects => "animation",
        ("document", Kind::Audio(Audio::Mp3 | Audio::M4a)) if detects => "audio",
        ("document", Kind::Audio(Audio::OggOpus { .. })) if detects => "voice",
        ("document", Kind::Video(Video::Mp4(Codec::H264))) if detects => "video",
        ("voice", Kind::Audio(Audio::OggOpus { .. } | Audio::Mp3 | Audio::M4a))
        | ("audio", Kind::Audio(Audio::Mp3 | Audio::M4a))
        | ("video", Kind::Video(Video::Mp4(_) | Video::Quicktime))
        | ("animation", Kind::Image(Image::Gif { .. }) | Kind::Video(Video::Mp4(_)))
        | ("photo" | "document", _) => asked,
        _ => "document",
    }
}
