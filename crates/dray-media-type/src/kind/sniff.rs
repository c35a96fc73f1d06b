//! The order in which kinds are tried: signatures, then text, then formats that are rarer or harder to recognise.

use infer::MatcherType;

use crate::names;
use crate::table::usual_extension;

use super::bytes::{find_from, is_at, le32};
use super::signature::{FormatSignature, Signature, find_signature};
use super::types::{
    ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind, ImageKind, VideoKind,
};
use super::{iso, text, zip};

/// The detected kind, with details that are not part of the kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct SniffResult {
    pub(super) kind: ContentKind,
    pub(super) media_type: Option<&'static str>,
    pub(super) extension: Option<&'static str>,
    pub(super) dimensions: Option<(u32, u32)>,
}

impl SniffResult {
    /// A result without further details.
    pub(super) const fn of(kind: ContentKind) -> Self {
        Self {
            kind,
            media_type: None,
            extension: None,
            dimensions: None,
        }
    }

    /// A result of a kind with several media types.
    pub(super) fn typed(kind: ContentKind, media_type: &'static str) -> Self {
        Self {
            kind,
            media_type: Some(media_type),
            extension: usual_extension(media_type),
            dimensions: None,
        }
    }
}

/// Detects the kind of a file that is not empty. `extension` is in lower case; `whole` is whether `head` is the
/// complete file.
pub(super) fn sniff(head: &[u8], extension: &str, whole: bool) -> SniffResult {
    let found = find_signature(head).map(|signature| match signature {
        Signature::Format(format) => (by_format(format, extension), format.printable),
        Signature::Zip => (zip::sniff(head, extension), false),
        Signature::CompoundFile => (sniff_compound_file(extension), false),
    });
    match found {
        Some((found, false)) => found,
        // A sentence may begin with a printable signature too, and no platform plays or runs a text.
        printable => text::sniff(head, extension, whole)
            .or(printable.map(|(found, _)| found))
            .unwrap_or_else(|| sniff_other(head)),
    }
}

fn by_format(format: FormatSignature, extension: &str) -> SniffResult {
    match (format.kind, extension) {
        // A compressed SVG is an SVG, too. Its extension is `svgz` and not the usual `svg`, because these bytes are
        // compressed.
        (ContentKind::Archive(ArchiveKind::Gzip), "svgz") => SniffResult {
            extension: Some("svgz"),
            ..SniffResult::of(ContentKind::Document(DocumentKind::Svg))
        },
        _ => SniffResult {
            kind: format.kind,
            media_type: Some(format.media_type),
            extension: format.extension,
            dimensions: format.dimensions,
        },
    }
}

/// The directory that identifies the program of a compound file may be after the head, so the extension decides.
fn sniff_compound_file(extension: &str) -> SniffResult {
    match extension {
        "doc" | "dot" => SniffResult::of(ContentKind::Document(DocumentKind::Doc)),
        "xls" | "xlt" => SniffResult::of(ContentKind::Document(DocumentKind::Xls)),
        "ppt" | "pps" | "pot" => SniffResult::of(ContentKind::Document(DocumentKind::Ppt)),
        "msi" | "msp" => SniffResult::typed(
            ContentKind::Executable(ExecutableKind::Other),
            "application/x-msi",
        ),
        "msg" => SniffResult::typed(ContentKind::Document(DocumentKind::Other), names::MSG),
        _ => SniffResult::typed(ContentKind::Document(DocumentKind::Other), names::OLE),
    }
}

/// Types that are checked more precisely here than in the library, so its result for them is ignored.
const REFINED_TYPES: [&str; 4] = [
    "audio/mpeg",
    "audio/aac",
    "image/bmp",
    "application/x-bzip2",
];

/// Formats without a signature in this crate: two that are checked only after text is ruled out, and formats of a
/// library.
fn sniff_other(head: &[u8]) -> SniffResult {
    if iso::is_old_quicktime(head) {
        return SniffResult::of(ContentKind::Video(VideoKind::Quicktime));
    }
    // The second byte of ADTS: the rest of the sync word, MPEG-4 or MPEG-2, layer 0, with or without CRC.
    if matches!(head, [0xFF, 0xF0 | 0xF1 | 0xF8 | 0xF9, ..]) {
        return SniffResult::of(ContentKind::Audio(AudioKind::Aac));
    }
    // Only files without `MZ` reach this line. If the offset at 0x3C leads to a PE header, the file is still a program.
    if le32(head, 0x3C).is_some_and(|at| is_at(head, super::bytes::to_index(at), b"PE\0\0")) {
        return SniffResult::of(ContentKind::Executable(ExecutableKind::Pe));
    }
    let Some(known) = infer::get(head).filter(|known| !REFINED_TYPES.contains(&known.mime_type()))
    else {
        return SniffResult::of(ContentKind::Binary);
    };
    let kind = match known.matcher_type() {
        MatcherType::Image => ContentKind::Image(ImageKind::Other),
        MatcherType::Video => ContentKind::Video(VideoKind::Other),
        MatcherType::Audio => ContentKind::Audio(AudioKind::Other),
        MatcherType::Archive => ContentKind::Archive(ArchiveKind::Other),
        MatcherType::Book | MatcherType::Doc => ContentKind::Document(DocumentKind::Other),
        MatcherType::App | MatcherType::Font | MatcherType::Text | MatcherType::Custom => {
            ContentKind::Binary
        }
    };
    SniffResult {
        extension: Some(known.extension()),
        ..SniffResult::typed(kind, known.mime_type())
    }
}

/// Where `needle` is in the first `within` bytes.
pub(super) fn find_early(head: &[u8], needle: &[u8], within: usize) -> Option<usize> {
    find_from(
        head.get(..within.min(head.len())).unwrap_or(head),
        0,
        needle,
    )
}
