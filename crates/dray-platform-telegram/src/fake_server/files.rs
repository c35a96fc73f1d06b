//! The file of a message: uploaded now, or known by its id.

use dray_media_type::kind::{
    AudioKind, ContentKind, DetectedKind, ImageKind, VideoCodec, VideoKind, detect_kind,
};

use super::MAX_PHOTO_BYTES;
use super::form::{FormData, FormUpload};
use super::response::MethodError;
use super::state::{FakeState, StoredFile};

/// Kinds by the name of their field and method.
pub(super) const FILE_KINDS: [&str; 6] =
    ["photo", "document", "audio", "voice", "video", "animation"];

/// Finds the file of a field: `attach://name`, an upload with the name of the field, or a file id. With `detects`, the
/// server detects the kind of a document.
pub(super) fn find_file(
    state: &mut FakeState,
    form: &FormData,
    kind: &'static str,
    value: &str,
    detects: bool,
    upload_limit: u64,
) -> Result<(String, StoredFile), MethodError> {
    let part = value.strip_prefix("attach://").unwrap_or(kind);
    if let Some(upload) = form.files.get(part) {
        let file = accept_upload(upload, kind, detects, upload_limit)?;
        let id = state.store(file.clone());
        return Ok((id, file));
    }
    if value.is_empty() {
        return Err(MethodError::bad(&format!("the request has no {kind}")));
    }
    let Some(known) = state.files.get(value) else {
        return Err(MethodError::bad(
            "wrong file_id or the file is temporarily unavailable",
        ));
    };
    // A file id cannot change its kind.
    if known.kind != kind {
        return Err(MethodError::bad("type of file mismatch"));
    }
    Ok((value.to_owned(), known.clone()))
}

/// Checks an upload and determines its kind.
fn accept_upload(
    upload: &FormUpload,
    requested: &'static str,
    detects: bool,
    upload_limit: u64,
) -> Result<StoredFile, MethodError> {
    if upload.size == 0 {
        return Err(MethodError::bad("file must be non-empty"));
    }
    if upload.size > upload_limit {
        return Err(MethodError::of(413, "Request Entity Too Large"));
    }
    let detected = detect_kind(&upload.head, &upload.name, upload.size);
    if requested == "photo" {
        check_photo(upload, &detected)?;
    }
    Ok(StoredFile {
        kind: resulting_kind(requested, detected.kind, detects),
        name: upload.name.clone(),
        media_type: detected.media_type.to_owned(),
        size: upload.size,
        sha256: upload.sha256,
        bytes: None,
        path: String::new(),
    })
}

fn check_photo(upload: &FormUpload, detected: &DetectedKind) -> Result<(), MethodError> {
    if upload.size > MAX_PHOTO_BYTES {
        let reason = format!(
            "file of size {} bytes is too big for a photo; the maximum size is {MAX_PHOTO_BYTES} bytes",
            upload.size
        );
        return Err(MethodError::bad(&reason));
    }
    let ContentKind::Image(
        ImageKind::Png | ImageKind::Jpeg | ImageKind::Webp { .. } | ImageKind::Gif { .. },
    ) = detected.kind
    else {
        return Err(MethodError::bad("IMAGE_PROCESS_FAILED"));
    };
    let Some((width, height)) = detected.dimensions else {
        return Err(MethodError::bad("PHOTO_SAVE_FILE_INVALID"));
    };
    let (long, short) = (width.max(height), width.min(height));
    if width + height > 10_000 || long > short * 20 {
        return Err(MethodError::bad("PHOTO_INVALID_DIMENSIONS"));
    }
    Ok(())
}

/// The kind of a file that was sent as `requested`. A file that does not fit becomes a document.
fn resulting_kind(requested: &'static str, kind: ContentKind, detects: bool) -> &'static str {
    match (requested, kind) {
        ("document", ContentKind::Image(ImageKind::Gif { animated: true })) if detects => {
            "animation"
        }
        ("document", ContentKind::Audio(AudioKind::Mp3 | AudioKind::M4a)) if detects => "audio",
        ("document", ContentKind::Audio(AudioKind::OggOpus { .. })) if detects => "voice",
        ("document", ContentKind::Video(VideoKind::Mp4(VideoCodec::H264))) if detects => "video",
        (
            "voice",
            ContentKind::Audio(AudioKind::OggOpus { .. } | AudioKind::Mp3 | AudioKind::M4a),
        )
        | ("audio", ContentKind::Audio(AudioKind::Mp3 | AudioKind::M4a))
        | ("video", ContentKind::Video(VideoKind::Mp4(_) | VideoKind::Quicktime))
        | (
            "animation",
            ContentKind::Image(ImageKind::Gif { .. }) | ContentKind::Video(VideoKind::Mp4(_)),
        )
        | ("photo" | "document", _) => requested,
        _ => "document",
    }
}
