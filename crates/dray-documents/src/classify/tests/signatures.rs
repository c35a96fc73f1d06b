//! Signatures, row by row.

use super::super::Kind::{Archive, Binary, Document, Image};
use super::super::mime;
use super::classify_named;

/// Bytes with something at an offset.
fn at(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![b'.'; 600];
    all[offset..offset + bytes.len()].copy_from_slice(bytes);
    all
}

fn ftyp(brand: &str, compatible: &[u8]) -> Vec<u8> {
    let size = u32::try_from(16 + compatible.len()).unwrap().to_be_bytes();
    [
        &size,
        b"ftyp".as_slice(),
        brand.as_bytes(),
        b"\0\0\0\0",
        compatible,
    ]
    .concat()
}

#[test]
fn every_signature_of_an_image_is_known() {
    let mut bmp = b"BM\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    bmp.extend_from_slice(&40u32.to_le_bytes());
    for (bytes, expected) in [
        (b"\x89PNG\r\n\x1a\nrest".to_vec(), "image/png"),
        (b"\xFF\xD8\xFF\xE0".to_vec(), "image/jpeg"),
        (b"GIF87a...".to_vec(), "image/gif"),
        (b"GIF89a...".to_vec(), "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ".to_vec(), "image/webp"),
        (bmp, "image/bmp"),
        (b"II\x2a\0....".to_vec(), "image/tiff"),
        (b"MM\0\x2a....".to_vec(), "image/tiff"),
        (ftyp("avif", b""), "image/avif"),
        (ftyp("mif1", b"miafavif"), "image/avif"),
        (ftyp("mif1", b"heic"), "image/heic"),
        (ftyp("heic", b""), "image/heic"),
        (ftyp("heif", b""), "image/heic"),
    ] {
        assert_eq!(
            classify_named(&bytes, "a.txt"),
            (Image, expected),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_bitmap_needs_a_plausible_header() {
    let mut bytes = b"BM is a company, and this is a letter to it.".to_vec();
    assert_eq!(classify_named(&bytes, "x.bmp").1, "text/plain");
    bytes[14..18].copy_from_slice(&124u32.to_le_bytes());
    assert_eq!(classify_named(&bytes, "x.bmp"), (Image, "image/bmp"));
}

#[test]
fn every_signature_of_an_archive_is_known() {
    for (bytes, expected) in [
        (b"\x1f\x8b\x08\0".to_vec(), "application/gzip"),
        (b"BZh91AY&SY".to_vec(), "application/x-bzip2"),
        (b"\xfd7zXZ\0\0".to_vec(), "application/x-xz"),
        (
            b"7z\xbc\xaf\x27\x1c\0".to_vec(),
            "application/x-7z-compressed",
        ),
        (b"Rar!\x1a\x07\x01\0".to_vec(), "application/vnd.rar"),
        (b"\x28\xb5\x2f\xfd\0".to_vec(), "application/zstd"),
        (at(257, b"ustar"), "application/x-tar"),
    ] {
        assert_eq!(
            classify_named(&bytes, "a.docx"),
            (Archive, expected),
            "{bytes:?}"
        );
    }
}

#[test]
fn every_signature_of_a_binary_is_known() {
    for (bytes, expected) in [
        (b"\x7fELF\x02".to_vec(), "application/x-executable"),
        (
            b"MZ\x90\0".to_vec(),
            "application/vnd.microsoft.portable-executable",
        ),
        (
            b"\xca\xfe\xba\xbe\0\0\0\x34".to_vec(),
            "application/java-vm",
        ),
        (
            b"\xca\xfe\xba\xbe\0\0\0\x02".to_vec(),
            "application/x-mach-binary",
        ),
        (b"\xcf\xfa\xed\xfe".to_vec(), "application/x-mach-binary"),
        (b"\xfe\xed\xfa\xcf".to_vec(), "application/x-mach-binary"),
        (b"\xfe\xed\xfa\xce".to_vec(), "application/x-mach-binary"),
        (b"\0asm\x01\0\0\0".to_vec(), "application/wasm"),
        (b"SQLite format 3\0".to_vec(), "application/vnd.sqlite3"),
        (b"OggS\0".to_vec(), "audio/ogg"),
        (b"ID3\x03\0\0".to_vec(), "audio/mpeg"),
        (b"ID3 and words after it".to_vec(), "audio/mpeg"),
        (b"RIFF".to_vec(), mime::OCTET_STREAM),
        (b"\xff\xfb\x90\x64".to_vec(), "audio/mpeg"),
        (b"fLaC\0".to_vec(), "audio/flac"),
        (ftyp("isom", b"mp42"), "video/mp4"),
        (ftyp("qt  ", b""), "video/quicktime"),
        (b"RIFF\x10\0\0\0WAVEfmt ".to_vec(), "audio/wav"),
        (b"RIFF\x10\0\0\0CDXAfmt ".to_vec(), mime::OCTET_STREAM),
        (
            b"\x1a\x45\xdf\xa3\x01\x42\x82\x84webm".to_vec(),
            "video/webm",
        ),
        (b"\x1a\x45\xdf\xa3\x01".to_vec(), "video/x-matroska"),
    ] {
        assert_eq!(
            classify_named(&bytes, "a.pdf"),
            (Binary, expected),
            "{bytes:?}"
        );
    }
}

#[test]
fn the_stricter_kind_wins_where_text_begins_like_a_signature() {
    for (text, expected) in [
        (
            b"MZ was a president".as_slice(),
            "application/vnd.microsoft.portable-executable",
        ),
        (b"ID3 tags are short".as_slice(), "audio/mpeg"),
        (b"RIFF raff".as_slice(), mime::OCTET_STREAM),
    ] {
        assert_eq!(classify_named(text, "a.txt"), (Binary, expected));
    }
    // The level of compression is a part of the signature.
    assert_eq!(classify_named(b"BZhello", "a.txt").1, "text/plain");
}

#[test]
fn classes_begin_at_the_oldest_version_of_the_virtual_machine() {
    for (count, expected) in [
        (44, "application/x-mach-binary"),
        (45, "application/java-vm"),
    ] {
        let bytes = [b"\xca\xfe\xba\xbe".as_slice(), &u32::to_be_bytes(count)].concat();
        assert_eq!(classify_named(&bytes, "x"), (Binary, expected), "{count}");
    }
}

#[test]
fn a_single_mpeg_frame_header_is_not_a_signature() {
    // 128 kbit/s at 44.1 kHz: 417 bytes for a frame. Text in Latin-1 may begin with the same two letters.
    let mut lonely = vec![b'a'; 1000];
    lonely[..4].copy_from_slice(b"\xff\xfb\x90\x64");
    assert_eq!(classify_named(&lonely, "x").1, "text/plain");
    lonely[417..421].copy_from_slice(b"\xff\xfb\x90\x64");
    assert_eq!(classify_named(&lonely, "x"), (Binary, "audio/mpeg"));
}

#[test]
fn raw_pictures_of_cameras_are_binary() {
    assert_eq!(classify_named(&ftyp("crx ", b""), "a.cr3").0, Binary);
}

#[test]
fn documents_are_detected_by_signature_under_any_name() {
    assert_eq!(
        classify_named(b"%PDF-1.7\n%\xE2\xE3", "data.csv"),
        (Document, mime::PDF)
    );
    assert_eq!(
        classify_named(b"{\\rtf1\\ansi x}", "a.txt"),
        (Document, mime::RTF)
    );
}

#[test]
fn a_pdf_may_begin_after_other_bytes() {
    let mut junk = vec![0x00, 0x90, 0xFF];
    junk.extend_from_slice(b"\n%PDF-1.4\n1 0 obj");
    assert_eq!(classify_named(&junk, "x"), (Document, mime::PDF));
    let text = b"HTTP header: none\r\n\r\n%PDF-1.4\n1 0 obj\n<<>>\nendobj";
    assert_eq!(classify_named(text, "x"), (Document, mime::PDF));
    let mut far = vec![b' '; 1100];
    far.extend_from_slice(b"%PDF-1.4\n1 0 obj");
    assert_ne!(classify_named(&far, "x").1, mime::PDF);
}

#[test]
fn a_program_that_looks_for_pdf_files_is_text() {
    let program = b"if head.startswith(b'%PDF-1.'):\n    return 'pdf'\n";
    assert_eq!(classify_named(program, "sniff.py").1, "text/x-python");
}

#[test]
fn of_a_polyglot_the_first_match_wins() {
    let zip = super::samples::zip(&[("a.txt", b"a")], &[]);
    let both = [b"%PDF-1.4\n1 0 obj\n".as_slice(), &zip].concat();
    assert_eq!(classify_named(&both, "x.zip"), (Document, mime::PDF));
    let both = [b"GIF89a".as_slice(), &zip].concat();
    assert_eq!(classify_named(&both, "x.docx"), (Image, "image/gif"));
    let page = [b"GIF89a=1;".as_slice(), b"<html><script>alert(1)</script>"].concat();
    assert_eq!(classify_named(&page, "x.html"), (Image, "image/gif"));
}
