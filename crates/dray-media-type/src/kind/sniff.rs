//! The order in which kinds are tried: containers by their magic, then text, then the long tail.

use infer::MatcherType;

use crate::names;
use crate::table::usual_extension;

use super::bytes::{be32, find_from, is_at, le32};
use super::types::{
    ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind, ImageKind, VideoKind,
};
use super::{ebml, image, iso, ogg, riff, text, zip};

/// What was found, with what the kind alone does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct SniffResult {
    pub(super) kind: ContentKind,
    pub(super) media_type: Option<&'static str>,
    pub(super) extension: Option<&'static str>,
    pub(super) dimensions: Option<(u32, u32)>,
}

impl SniffResult {
    /// A kind that says everything.
    pub(super) const fn of(kind: ContentKind) -> Self {
        Self {
            kind,
            media_type: None,
            extension: None,
            dimensions: None,
        }
    }

    /// A kind of which there are several media types.
    pub(super) fn typed(kind: ContentKind, media_type: &'static str) -> Self {
        Self {
            kind,
            media_type: Some(media_type),
            extension: usual_extension(media_type),
            dimensions: None,
        }
    }
}

/// Magic numbers at the start that need no second look.
const MAGIC_NUMBERS: &[(&[u8], ContentKind)] = &[
    (b"%PDF-", ContentKind::Document(DocumentKind::Pdf)),
    (b"{\\rtf", ContentKind::Document(DocumentKind::Rtf)),
    (b"fLaC", ContentKind::Audio(AudioKind::Flac)),
    (b"#!AMR", ContentKind::Audio(AudioKind::Amr)),
    (b"MThd\0\0\0\x06", ContentKind::Audio(AudioKind::Midi)),
    (b"BZh", ContentKind::Archive(ArchiveKind::Bzip2)),
    (b"\xFD7zXZ\0", ContentKind::Archive(ArchiveKind::Xz)),
    (b"\x28\xB5\x2F\xFD", ContentKind::Archive(ArchiveKind::Zstd)),
    (
        b"7z\xBC\xAF\x27\x1C",
        ContentKind::Archive(ArchiveKind::SevenZip),
    ),
    (b"Rar!\x1A\x07", ContentKind::Archive(ArchiveKind::Rar)),
    (b"\x7FELF", ContentKind::Executable(ExecutableKind::Elf)),
    (
        b"\xFE\xED\xFA\xCE",
        ContentKind::Executable(ExecutableKind::MachO),
    ),
    (
        b"\xFE\xED\xFA\xCF",
        ContentKind::Executable(ExecutableKind::MachO),
    ),
    (
        b"\xCE\xFA\xED\xFE",
        ContentKind::Executable(ExecutableKind::MachO),
    ),
    (
        b"\xCF\xFA\xED\xFE",
        ContentKind::Executable(ExecutableKind::MachO),
    ),
    (b"\0asm", ContentKind::Executable(ExecutableKind::Other)),
    (b"dex\n0", ContentKind::Executable(ExecutableKind::Other)),
];

/// The compound file of old Office.
const COMPOUND_FILE_MAGIC: &[u8] = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1";

/// Finds out what a file with bytes is. `extension` is in lower case; `whole` when `head` is all of the file.
pub(super) fn sniff(head: &[u8], extension: &str, whole: bool) -> SniffResult {
    if let Some(found) = sniff_structured(head, extension) {
        return found;
    }
    if let Some((_, kind)) = MAGIC_NUMBERS
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
    {
        return sniff_magic(*kind, head);
    }
    // Text goes before the short magics: `MZ`, `ID3` and `FORM` are also how a sentence may begin.
    if let Some(found) = text::sniff(head, extension, whole) {
        return found;
    }
    if let Some(kind) = sniff_short_magic(head) {
        return SniffResult::of(kind);
    }
    sniff_other(head)
}

/// Formats whose start must be read to know them.
fn sniff_structured(head: &[u8], extension: &str) -> Option<SniffResult> {
    image::sniff(head)
        .or_else(|| riff::sniff(head))
        .or_else(|| iso::sniff(head))
        .or_else(|| ebml::sniff(head))
        .or_else(|| ogg::sniff(head))
        .or_else(|| zip::sniff(head, extension))
        .or_else(|| sniff_gzip(head, extension))
        .or_else(|| sniff_compound_file(head, extension))
        // tar is last: its mark stands at 257, where any format above may hold the same bytes as content.
        .or_else(|| is_tar(head).then_some(SniffResult::of(ContentKind::Archive(ArchiveKind::Tar))))
}

/// The mark of POSIX; before it there was only the sum of the header, with its own field as spaces.
fn is_tar(head: &[u8]) -> bool {
    if is_at(head, 257, b"ustar") {
        return true;
    }
    let (Some(header), Some(field)) = (head.get(..512), head.get(148..156)) else {
        return false;
    };
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let octal = field
        .trim_ascii_start()
        .split(|byte| !byte.is_ascii_digit())
        .next()
        .unwrap_or_default();
    let told = str::from_utf8(octal)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 8).ok());
    // A first byte of zero is an empty block, whose sum would match as well.
    head.first() != Some(&0) && told == Some(sum(header) - sum(field) + 8 * u32::from(b' '))
}

/// gzip; a compressed SVG is one still.
fn sniff_gzip(head: &[u8], extension: &str) -> Option<SniffResult> {
    head.starts_with(b"\x1F\x8B\x08").then(|| match extension {
        // The usual extension of SVG is that of the text; these bytes are compressed.
        "svgz" => SniffResult {
            extension: Some("svgz"),
            ..SniffResult::of(ContentKind::Document(DocumentKind::Svg))
        },
        _ => SniffResult::of(ContentKind::Archive(ArchiveKind::Gzip)),
    })
}

/// A compound file names its program only deep inside; the file name must do.
fn sniff_compound_file(head: &[u8], extension: &str) -> Option<SniffResult> {
    head.starts_with(COMPOUND_FILE_MAGIC)
        .then(|| match extension {
            "doc" | "dot" => SniffResult::of(ContentKind::Document(DocumentKind::Doc)),
            "xls" | "xlt" => SniffResult::of(ContentKind::Document(DocumentKind::Xls)),
            "ppt" | "pps" | "pot" => SniffResult::of(ContentKind::Document(DocumentKind::Ppt)),
            "msi" | "msp" => SniffResult::typed(
                ContentKind::Executable(ExecutableKind::Other),
                "application/x-msi",
            ),
            "msg" => SniffResult::typed(ContentKind::Document(DocumentKind::Other), names::MSG),
            _ => SniffResult::typed(ContentKind::Document(DocumentKind::Other), names::OLE),
        })
}

/// Magic of few characters is believed only when what follows is not text.
fn sniff_magic(kind: ContentKind, head: &[u8]) -> SniffResult {
    let bzip2_level = head.get(3).is_some_and(u8::is_ascii_digit);
    match kind {
        ContentKind::Archive(ArchiveKind::Bzip2) if !bzip2_level => {
            text::sniff(head, "", false).unwrap_or(SniffResult::of(ContentKind::Binary))
        }
        ContentKind::Executable(ExecutableKind::Other) if head.starts_with(b"\0asm") => {
            SniffResult::typed(kind, "application/wasm")
        }
        ContentKind::Executable(ExecutableKind::Other) => {
            SniffResult::typed(kind, "application/vnd.android.dex")
        }
        kind => SniffResult::of(kind),
    }
}

/// Formats whose magic is so short that text could begin with it; text was ruled out before.
fn sniff_short_magic(head: &[u8]) -> Option<ContentKind> {
    if head.starts_with(b"MZ") {
        return Some(ContentKind::Executable(ExecutableKind::Pe));
    }
    if head.starts_with(b"\xCA\xFE\xBA\xBE") {
        // Both fat binaries and classes begin so; no binary has as many architectures as the oldest class has version.
        let fat = be32(head, 4).is_some_and(|count| count < 45);
        return Some(ContentKind::Executable(if fat {
            ExecutableKind::MachO
        } else {
            ExecutableKind::Other
        }));
    }
    if head.starts_with(b"FORM") && (is_at(head, 8, b"AIFF") || is_at(head, 8, b"AIFC")) {
        return Some(ContentKind::Audio(AudioKind::Aiff));
    }
    if head.starts_with(b"ID3") || mpeg_frames(head) {
        return Some(ContentKind::Audio(AudioKind::Mp3));
    }
    // The second byte of ADTS: the rest of the sync word, MPEG-4 or MPEG-2, layer 0, with or without CRC.
    if matches!(head, [0xFF, 0xF0 | 0xF1 | 0xF8 | 0xF9, ..]) {
        return Some(ContentKind::Audio(AudioKind::Aac));
    }
    None
}

/// Whether the head begins with a frame of MPEG audio layer III or II that another one follows, when it is long
/// enough to show it.
fn mpeg_frames(head: &[u8]) -> bool {
    let Some(length) = mpeg_frame(head) else {
        return false;
    };
    head.get(length..)
        // One frame header is eleven bits of sync and matches noise too easily; the next frame confirms it.
        .is_none_or(|next| next.len() < 4 || mpeg_frame(next).is_some())
}

/// The length in bytes of the MPEG audio frame at the start.
fn mpeg_frame(head: &[u8]) -> Option<usize> {
    const V1_L3: [usize; 15] = [
        0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    ];
    const V1_L2: [usize; 15] = [
        0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
    ];
    const MP3_V2_BITRATES: [usize; 15] =
        [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let [0xFF, second, third, _, ..] = *head else {
        return None;
    };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if second & 0xE0 != 0xE0 || version == 1 || !matches!(layer, 1 | 2) {
        return None;
    }
    let rates = match (version, layer) {
        (3, 1) => V1_L3,
        (3, _) => V1_L2,
        _ => MP3_V2_BITRATES,
    };
    let kilobits = rates
        .get(usize::from(third >> 4))
        .copied()
        .filter(|rate| *rate > 0)?;
    let base = [44_100, 48_000, 32_000]
        .get(usize::from(third >> 2 & 3))
        .copied()?;
    let rate = match version {
        3 => base,
        2 => base / 2,
        _ => base / 4,
    };
    // Layer III of MPEG-2 and 2.5 has half the samples in a frame (576), so half the bytes.
    let slots = if version != 3 && layer == 1 { 72 } else { 144 };
    Some(slots * kilobits * 1000 / rate + usize::from(third >> 1 & 1))
}

/// What was looked at more closely here than the library does, and was found to be something else.
const REFINED_TYPES: [&str; 4] = [
    "audio/mpeg",
    "audio/aac",
    "image/bmp",
    "application/x-bzip2",
];

/// What a library knows of formats without special routing.
fn sniff_other(head: &[u8]) -> SniffResult {
    // Only files without `MZ` come here; an offset at 0x3C that leads to a PE header still makes a program.
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

/// Where `needle` stands in the first `within` bytes.
pub(super) fn find_early(head: &[u8], needle: &[u8], within: usize) -> Option<usize> {
    find_from(
        head.get(..within.min(head.len())).unwrap_or(head),
        0,
        needle,
    )
}
