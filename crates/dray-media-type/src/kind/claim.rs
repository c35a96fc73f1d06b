//! Compares the type that a file name claims with the detected type.

use crate::names;
use crate::table::{text_type, type_of_extension};

use super::types::{ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind, VideoKind};

/// Types whose extensions do not imply certain bytes: other programs write the same extension for other content, or the
/// bytes leave the choice to the extension.
const UNCLAIMED_TYPES: &[&str] = &[
    names::DOC,
    names::XLS,
    names::PPT,
    names::MSG,
    names::DOTX,
    names::DOTM,
    names::XLTX,
    names::XLTM,
    names::XLAM,
    names::XLSB,
    names::PPSX,
    names::PPSM,
    names::POTX,
    names::POTM,
    names::PPAM,
    names::ZSTANDARD,
    "audio/aiff",
    "audio/midi",
    "application/x-msi",
    "application/wasm",
    "application/vnd.android.dex",
];

/// Whether an extension contradicts the content. An extension without a known type never does; the extension of a text
/// type does if the content is not text.
pub(super) fn extension_disagrees(kind: ContentKind, extension: &str) -> bool {
    // An empty file has no bytes that could contradict its name.
    if kind == ContentKind::Empty {
        return false;
    }
    if text_type(extension).is_some() {
        return !is_textual(kind);
    }
    type_of_extension(extension)
        .filter(|claimed| !UNCLAIMED_TYPES.contains(claimed))
        .is_some_and(|claimed| !may_be(claimed, extension, kind))
}

fn is_textual(kind: ContentKind) -> bool {
    matches!(
        kind,
        ContentKind::Text
            | ContentKind::Executable(ExecutableKind::Script)
            | ContentKind::Document(DocumentKind::Html | DocumentKind::Svg | DocumentKind::Rtf)
    )
}

/// Whether content of this kind may have the claimed type. Kinds that share a container are interchangeable.
fn may_be(claimed: &str, extension: &str, kind: ContentKind) -> bool {
    use ContentKind::{Archive, Audio, Document, Video};
    match claimed {
        "video/mp4" => matches!(
            kind,
            Video(VideoKind::Mp4(_) | VideoKind::Quicktime | VideoKind::ThreeGp)
        ),
        "video/quicktime" => matches!(kind, Video(VideoKind::Mp4(_) | VideoKind::Quicktime)),
        "video/3gpp" => matches!(kind, Video(VideoKind::ThreeGp | VideoKind::Mp4(_))),
        // WebM is a subset of Matroska, and writers of both disagree about the document type.
        "video/x-matroska" | "video/webm" => {
            matches!(kind, Video(VideoKind::Matroska | VideoKind::Webm))
        }
        // Writers of audio files often use the brand of video, such as `isom`.
        "audio/mp4" => matches!(kind, Audio(AudioKind::M4a) | Video(VideoKind::Mp4(_))),
        "audio/ogg" if extension == "opus" => matches!(kind, Audio(AudioKind::OggOpus { .. })),
        "audio/ogg" | "video/ogg" => matches!(
            kind,
            Audio(AudioKind::OggOpus { .. } | AudioKind::OggOther) | Video(VideoKind::Ogg)
        ),
        names::DOCM => kind == Document(DocumentKind::Docx),
        names::XLSM => kind == Document(DocumentKind::Xlsx),
        names::PPTM => kind == Document(DocumentKind::Pptx),
        names::ZIP => matches!(
            kind,
            Archive(ArchiveKind::Zip | ArchiveKind::Jar | ArchiveKind::Apk)
        ),
        // The manifest for Android may be after the head; the head then looks like that of a Java archive.
        "application/vnd.android.package-archive" => {
            matches!(kind, Archive(ArchiveKind::Apk | ArchiveKind::Jar))
        }
        "application/java-archive" => {
            matches!(kind, Archive(ArchiveKind::Jar | ArchiveKind::Zip))
        }
        _ => kind.media_type() == claimed,
    }
}
