//! Signatures at the start of a file (read-attachment 5.1). The first match wins.

use super::Kind;
use super::mime;

/// What a signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Magic {
    /// All there is to know.
    Is(Kind, &'static str),
    /// A ZIP container, to be opened.
    Zip,
    /// An OLE2 container, to be opened.
    Ole,
}

use Kind::{Archive, Binary, Document, Image};

/// Signatures that are nothing but bytes at the start, in the order of the table.
const PLAIN_SIGNATURES: &[(&[u8], Magic)] = &[
    (b"\x89PNG\r\n\x1A\n", Magic::Is(Image, "image/png")),
    (b"\xFF\xD8\xFF", Magic::Is(Image, "image/jpeg")),
    (b"GIF87a", Magic::Is(Image, "image/gif")),
    (b"GIF89a", Magic::Is(Image, "image/gif")),
    (b"II\x2A\0", Magic::Is(Image, "image/tiff")),
    (b"MM\0\x2A", Magic::Is(Image, "image/tiff")),
    (b"%PDF-", Magic::Is(Document, mime::PDF)),
    (b"{\\rtf", Magic::Is(Document, mime::RTF)),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", Magic::Ole),
    (b"PK\x03\x04", Magic::Zip),
    (b"PK\x05\x06", Magic::Zip),
    (b"PK\x07\x08", Magic::Zip),
    (b"\x1F\x8B", Magic::Is(Archive, mime::GZIP)),
    (b"BZh", Magic::Is(Archive, mime::BZIP2)),
    (b"\xFD7zXZ\0", Magic::Is(Archive, mime::XZ)),
    (
        b"7z\xBC\xAF\x27\x1C",
        Magic::Is(Archive, "application/x-7z-compressed"),
    ),
    (b"Rar!\x1A\x07", Magic::Is(Archive, "application/vnd.rar")),
    (b"\x28\xB5\x2F\xFD", Magic::Is(Archive, mime::ZSTANDARD)),
    (b"\x7FELF", Magic::Is(Binary, "application/x-elf")),
    (
        b"MZ",
        Magic::Is(Binary, "application/vnd.microsoft.portable-executable"),
    ),
    (
        b"\xCF\xFA\xED\xFE",
        Magic::Is(Binary, "application/x-mach-binary"),
    ),
    (
        b"\xCE\xFA\xED\xFE",
        Magic::Is(Binary, "application/x-mach-binary"),
    ),
    (
        b"\xFE\xED\xFA\xCF",
        Magic::Is(Binary, "application/x-mach-binary"),
    ),
    (
        b"\xFE\xED\xFA\xCE",
        Magic::Is(Binary, "application/x-mach-binary"),
    ),
    (b"\0asm", Magic::Is(Binary, "application/wasm")),
    (
        b"SQLite format 3\0",
        Magic::Is(Binary, "application/vnd.sqlite3"),
    ),
    (b"OggS", Magic::Is(Binary, "application/ogg")),
    (b"fLaC", Magic::Is(Binary, "audio/flac")),
];

/// Header sizes of a device-independent bitmap.
const DIB_SIZES: [u32; 7] = [12, 40, 52, 56, 64, 108, 124];

/// The signature at the start of `head`; nothing when there is none.
pub(super) fn find_signature(head: &[u8]) -> Option<Magic> {
    let plain = PLAIN_SIGNATURES
        .iter()
        .find(|(bytes, _)| head.starts_with(bytes))
        .map(|(_, magic)| *magic);
    plain
        .or_else(|| riff_kind(head))
        .or_else(|| bitmap_kind(head))
        .or_else(|| base_media(head))
        .or_else(|| tar_kind(head))
        .or_else(|| class_file(head))
        .or_else(|| audio_kind(head))
        .or_else(|| matroska_kind(head))
}

fn bytes_at(head: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    head.get(offset..offset.checked_add(length)?)
}

fn word_at(head: &[u8], offset: usize) -> Option<[u8; 4]> {
    bytes_at(head, offset, 4)?.try_into().ok()
}

fn riff_kind(head: &[u8]) -> Option<Magic> {
    if !head.starts_with(b"RIFF") {
        return None;
    }
    Some(match &word_at(head, 8).unwrap_or_default() {
        b"WEBP" => Magic::Is(Image, "image/webp"),
        b"WAVE" => Magic::Is(Binary, "audio/wav"),
        b"AVI " => Magic::Is(Binary, "video/x-msvideo"),
        _ => Magic::Is(Binary, mime::OCTET_STREAM),
    })
}

fn bitmap_kind(head: &[u8]) -> Option<Magic> {
    let size = u32::from_le_bytes(word_at(head, 14)?);
    (head.starts_with(b"BM") && DIB_SIZES.contains(&size)).then_some(Magic::Is(Image, "image/bmp"))
}

/// ISO base media: the brand distinguishes a picture from a video.
fn base_media(head: &[u8]) -> Option<Magic> {
    if bytes_at(head, 4, 4)? != b"ftyp" {
        return None;
    }
    // The size is a claim of the file; more than a few brands say nothing new.
    let size = u32::from_be_bytes(word_at(head, 0)?).clamp(16, 256);
    let compatible = || {
        let end = usize::try_from(size).unwrap_or(16).min(head.len());
        let brands = head.get(16..end).unwrap_or_default();
        brands.chunks_exact(4).any(|brand| brand == b"avif")
    };
    Some(match &word_at(head, 8)? {
        b"avif" => Magic::Is(Image, "image/avif"),
        b"mif1" if compatible() => Magic::Is(Image, "image/avif"),
        b"heic" | b"heif" | b"mif1" => Magic::Is(Image, "image/heic"),
        b"qt  " => Magic::Is(Binary, "video/quicktime"),
        b"M4A " => Magic::Is(Binary, "audio/mp4"),
        _ => Magic::Is(Binary, "video/mp4"),
    })
}

fn tar_kind(head: &[u8]) -> Option<Magic> {
    (bytes_at(head, 257, 5)? == b"ustar").then_some(Magic::Is(Archive, mime::TAR))
}

/// A Java class and a Mach-O file for several processors share a signature; the latter counts few of them.
fn class_file(head: &[u8]) -> Option<Magic> {
    if !head.starts_with(b"\xCA\xFE\xBA\xBE") {
        return None;
    }
    let count = word_at(head, 4).map_or(0, u32::from_be_bytes);
    Some(if count < 40 {
        Magic::Is(Binary, "application/x-mach-binary")
    } else {
        Magic::Is(Binary, "application/java-vm")
    })
}

/// MPEG audio: a tag, or a frame whose bit rate and sample rate exist.
fn audio_kind(head: &[u8]) -> Option<Magic> {
    let frame = matches!(
        // Index 0 is a free bit rate and 15 a forbidden one; sample rate 3 is reserved.
        *head,
        [0xFF, 0xFB | 0xF3 | 0xF2, third, _, ..] if !matches!(third >> 4, 0 | 15) && (third >> 2) & 3 != 3
    );
    (frame || head.starts_with(b"ID3")).then_some(Magic::Is(Binary, "audio/mpeg"))
}

fn matroska_kind(head: &[u8]) -> Option<Magic> {
    if !head.starts_with(b"\x1A\x45\xDF\xA3") {
        return None;
    }
    // The document type stands in the EBML header, far ahead of any content.
    let start = head.get(..64).unwrap_or(head);
    let web = start.windows(4).any(|four| four == b"webm");
    let mime = if web {
        "video/webm"
    } else {
        "video/x-matroska"
    };
    Some(Magic::Is(Binary, mime))
}

/// Where a PDF begins that has something else before it: within the first 1024 bytes, with a version. In what is else a
/// text, an object must follow too: a program that looks for PDF files is not a PDF.
pub(super) fn late_pdf(head: &[u8], is_text: bool) -> bool {
    let window = head.get(..1024).unwrap_or(head);
    let begins =
        |bytes: &[u8]| bytes.starts_with(b"%PDF-") && bytes.get(5).is_some_and(u8::is_ascii_digit);
    let Some(start) =
        (0..window.len()).find(|start| begins(window.get(*start..).unwrap_or_default()))
    else {
        return false;
    };
    let rest = head.get(start..).unwrap_or_default();
    !is_text || rest.windows(6).any(|six| six == b" 0 obj")
}
