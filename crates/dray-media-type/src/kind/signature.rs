//! Signatures at the start of a file, the same for every caller (read-attachment 5.1, platform-delivery 4).
//!
//! This module defines the signatures. The caller decides whether text has priority over a printable one; see
//! [`FormatSignature::printable`].

use crate::table::usual_extension;

use super::bytes::{be32, is_at};
use super::types::{ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind};
use super::{ebml, image, iso, mpeg, ogg, riff};

/// The meaning of the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// A format that the first bytes identify.
    Format(FormatSignature),
    /// A ZIP; its directory determines whether it is a document.
    Zip,
    /// A compound file (MS-CFB): its directory determines the program that wrote it.
    CompoundFile,
}

/// A format that the first bytes identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSignature {
    /// The kind of content.
    pub kind: ContentKind,
    /// The media type, which may be more precise than the type of the kind.
    pub media_type: &'static str,
    /// Whether a text may begin with the same bytes, such as `MZ` or `ID3`. In this case, reading uses the stricter
    /// kind (read-attachment 5), and delivery uses text.
    pub printable: bool,
    pub(super) extension: Option<&'static str>,
    pub(super) dimensions: Option<(u32, u32)>,
}

impl FormatSignature {
    pub(super) fn of(kind: ContentKind) -> Self {
        let media_type = kind.media_type();
        Self {
            kind,
            media_type,
            printable: false,
            extension: kind.extension(),
            dimensions: None,
        }
    }

    pub(super) fn typed(kind: ContentKind, media_type: &'static str) -> Self {
        Self {
            media_type,
            extension: usual_extension(media_type),
            ..Self::of(kind)
        }
    }

    const fn printable(mut self) -> Self {
        self.printable = true;
        self
    }
}

/// Signatures that are conclusive: bytes, kind, and the media type if the kind has several.
const PLAIN_SIGNATURES: &[(&[u8], ContentKind, Option<&str>)] = &[
    (b"%PDF-", ContentKind::Document(DocumentKind::Pdf), None),
    (b"{\\rtf", ContentKind::Document(DocumentKind::Rtf), None),
    (b"\x1F\x8B", ContentKind::Archive(ArchiveKind::Gzip), None),
    (b"\xFD7zXZ\0", ContentKind::Archive(ArchiveKind::Xz), None),
    (
        b"7z\xBC\xAF\x27\x1C",
        ContentKind::Archive(ArchiveKind::SevenZip),
        None,
    ),
    (
        b"Rar!\x1A\x07",
        ContentKind::Archive(ArchiveKind::Rar),
        None,
    ),
    (
        b"\x28\xB5\x2F\xFD",
        ContentKind::Archive(ArchiveKind::Zstd),
        None,
    ),
    (
        b"\x7FELF",
        ContentKind::Executable(ExecutableKind::Elf),
        None,
    ),
    (
        b"\xFE\xED\xFA\xCE",
        ContentKind::Executable(ExecutableKind::MachO),
        None,
    ),
    (
        b"\xFE\xED\xFA\xCF",
        ContentKind::Executable(ExecutableKind::MachO),
        None,
    ),
    (
        b"\xCE\xFA\xED\xFE",
        ContentKind::Executable(ExecutableKind::MachO),
        None,
    ),
    (
        b"\xCF\xFA\xED\xFE",
        ContentKind::Executable(ExecutableKind::MachO),
        None,
    ),
    (
        b"\0asm",
        ContentKind::Executable(ExecutableKind::Other),
        Some("application/wasm"),
    ),
    (
        b"dex\n0",
        ContentKind::Executable(ExecutableKind::Other),
        Some("application/vnd.android.dex"),
    ),
    (
        b"SQLite format 3\0",
        ContentKind::Binary,
        Some("application/vnd.sqlite3"),
    ),
    (b"fLaC", ContentKind::Audio(AudioKind::Flac), None),
    (b"#!AMR", ContentKind::Audio(AudioKind::Amr), None),
    (b"MThd\0\0\0\x06", ContentKind::Audio(AudioKind::Midi), None),
];

/// The compound file of old Office (MS-CFB 2.2).
const COMPOUND_FILE_SIGNATURE: &[u8] = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1";

/// The signature at the start of `head`, which may end at any byte; `None` without a known signature.
///
/// Signatures at byte 0 go before those at an offset: `ftyp` and `ustar` may be content of any other format.
pub fn find_signature(head: &[u8]) -> Option<Signature> {
    // PK 03 04 begins an entry, PK 05 06 an empty archive, PK 07 08 a split one (APPNOTE 4.3 and 8.5).
    if [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"]
        .iter()
        .any(|magic| head.starts_with(*magic))
    {
        return Some(Signature::Zip);
    }
    if head.starts_with(COMPOUND_FILE_SIGNATURE) {
        return Some(Signature::CompoundFile);
    }
    plain_signature(head)
        .or_else(|| image::find_signature(head))
        .or_else(|| riff_signature(head))
        .or_else(|| ebml::find_signature(head))
        .or_else(|| ogg::find_signature(head))
        .or_else(|| short_signature(head))
        .or_else(|| iso::find_signature(head))
        .or_else(|| {
            is_tar(head).then(|| FormatSignature::of(ContentKind::Archive(ArchiveKind::Tar)))
        })
        .map(Signature::Format)
}

fn plain_signature(head: &[u8]) -> Option<FormatSignature> {
    let (_, kind, media_type) = PLAIN_SIGNATURES
        .iter()
        .find(|(magic, _, _)| head.starts_with(magic))?;
    Some(match media_type {
        Some(media_type) => FormatSignature::typed(*kind, media_type),
        None => FormatSignature::of(*kind),
    })
}

/// RIFF of any form: an unknown form is binary content, too.
fn riff_signature(head: &[u8]) -> Option<FormatSignature> {
    if !head.starts_with(b"RIFF") {
        return None;
    }
    let unknown = || FormatSignature::of(ContentKind::Binary).printable();
    Some(riff::find_signature(head).unwrap_or_else(unknown))
}

/// Signatures of few bytes, each with a check of the bytes after them.
fn short_signature(head: &[u8]) -> Option<FormatSignature> {
    if head.starts_with(b"MZ") {
        let program = ContentKind::Executable(ExecutableKind::Pe);
        return Some(FormatSignature::of(program).printable());
    }
    if head.starts_with(b"\xCA\xFE\xBA\xBE") {
        return Some(class_or_mach_o(head));
    }
    // The level of compression belongs to the signature; text may continue after `BZh`.
    if head.starts_with(b"BZh") && matches!(head.get(3), Some(b'1'..=b'9')) {
        let archive = ContentKind::Archive(ArchiveKind::Bzip2);
        return Some(FormatSignature::of(archive).printable());
    }
    if head.starts_with(b"FORM") && (is_at(head, 8, b"AIFF") || is_at(head, 8, b"AIFC")) {
        let audio = ContentKind::Audio(AudioKind::Aiff);
        return Some(FormatSignature::of(audio).printable());
    }
    if head.starts_with(b"ID3") {
        return Some(FormatSignature::of(ContentKind::Audio(AudioKind::Mp3)).printable());
    }
    mpeg::has_frames(head).then(|| FormatSignature::of(ContentKind::Audio(AudioKind::Mp3)))
}

/// The major version of the oldest class file, that of JDK 1.0.2 (JVMS, table 4.1-A).
const OLDEST_CLASS_VERSION: u32 = 45;

/// Java classes and Mach-O files for several processors share a signature. The next four bytes are the versions of a
/// class, minor and then major, or the number of processors, which is always smaller.
fn class_or_mach_o(head: &[u8]) -> FormatSignature {
    // A head that ends here leaves the question open; a class is the more common file.
    if be32(head, 4).is_some_and(|count| count < OLDEST_CLASS_VERSION) {
        return FormatSignature::of(ContentKind::Executable(ExecutableKind::MachO));
    }
    FormatSignature::typed(
        ContentKind::Executable(ExecutableKind::Other),
        "application/java-vm",
    )
}

/// The magic of POSIX. Older headers have only a checksum, calculated with its own field as spaces.
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
    let stored = str::from_utf8(octal)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 8).ok());
    // A first byte of zero is an empty block, whose sum would match as well.
    head.first() != Some(&0) && stored == Some(sum(header) - sum(field) + 8 * u32::from(b' '))
}
