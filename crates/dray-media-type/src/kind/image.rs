//! Pictures and their dimensions: PNG, JPEG, GIF, BMP, TIFF.

use super::bytes::{array_at, be16, be32, le16, le32};
use super::signature::FormatSignature;
use super::types::{ContentKind, ImageKind};

pub(super) fn find_signature(head: &[u8]) -> Option<FormatSignature> {
    let (image, dimensions) = if head.starts_with(b"\x89PNG\r\n\x1A\n") {
        (ImageKind::Png, png_dimensions(head))
    } else if head.starts_with(b"\xFF\xD8\xFF") {
        (ImageKind::Jpeg, jpeg_dimensions(head))
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        let animated = gif_is_animated(head);
        (
            ImageKind::Gif { animated },
            dimensions_pair(le16(head, 6), le16(head, 8)),
        )
    } else if is_bmp(head) {
        (ImageKind::Bmp, bmp_dimensions(head))
    } else if head.starts_with(b"II*\0") || head.starts_with(b"MM\0*") {
        (ImageKind::Tiff, None)
    } else {
        return None;
    };
    let dimensions = dimensions.filter(|(width, height)| *width > 0 && *height > 0);
    Some(FormatSignature {
        dimensions,
        ..FormatSignature::of(ContentKind::Image(image))
    })
}

/// Two small numbers as dimensions.
fn dimensions_pair(width: Option<u16>, height: Option<u16>) -> Option<(u32, u32)> {
    Some((u32::from(width?), u32::from(height?)))
}

fn png_dimensions(head: &[u8]) -> Option<(u32, u32)> {
    // `IHDR` is required to come first (PNG 3rd edition, 5.6); another chunk here means a broken file.
    (array_at(head, 12)? == *b"IHDR").then_some((be32(head, 16)?, be32(head, 20)?))
}

/// Walks the segments to the frame header.
fn jpeg_dimensions(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let [0xFF, marker] = array_at(head, at)? else {
            return None;
        };
        match marker {
            // Fill bytes, and markers without a segment.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD8 => at += 2,
            // C4, C8 and CC are not frame headers: they are two tables and a reserved code (ITU-T T.81, B.1).
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return dimensions_pair(be16(head, at + 7), be16(head, at + 5));
            }
            // This is the scan or the end: no frame header was found.
            0xD9 | 0xDA => return None,
            // A segment's length counts its own two bytes; a smaller one is an encoder's error and is read as 2.
            _ => at += 2 + usize::from(be16(head, at + 2)?.max(2)),
        }
    }
}

/// Whether a second frame is in the head, or the loop extension promises one.
fn gif_is_animated(head: &[u8]) -> bool {
    let Some(flags) = head.get(10) else {
        return false;
    };
    let mut at = 13 + color_table(*flags);
    let mut frames = 0;
    loop {
        match head.get(at) {
            // Some writers put the loop extension far before the second frame, which is then after the head.
            Some(0x21) if head.get(at + 3..at + 14) == Some(b"NETSCAPE2.0") => return true,
            Some(0x21) => at = skip_blocks(head, at + 2),
            Some(0x2C) => {
                frames += 1;
                if frames > 1 {
                    return true;
                }
                let Some(flags) = head.get(at + 9) else {
                    return false;
                };
                // Ten bytes of descriptor and the code size of LZW; both are outside of the chain of sub-blocks.
                at = skip_blocks(head, at + 11 + color_table(*flags));
            }
            _ => return false,
        }
    }
}

/// Bytes of the colour table that these flags announce.
fn color_table(flags: u8) -> usize {
    if flags & 0x80 == 0 {
        0
    } else {
        3 << ((flags & 7) + 1)
    }
}

/// Where the chain of sub-blocks at `at` ends.
fn skip_blocks(head: &[u8], mut at: usize) -> usize {
    while let Some(length) = head.get(at).filter(|length| **length > 0) {
        at += 1 + usize::from(*length);
    }
    at + 1
}

/// Many texts begin with `BM`, so the following header must have one of the defined sizes (read-attachment 5.1).
fn is_bmp(head: &[u8]) -> bool {
    let header = le32(head, 14);
    head.starts_with(b"BM")
        && header.is_some_and(|size| matches!(size, 12 | 40 | 52 | 56 | 64 | 108 | 124))
}

fn bmp_dimensions(head: &[u8]) -> Option<(u32, u32)> {
    if le32(head, 14) == Some(12) {
        return dimensions_pair(le16(head, 18), le16(head, 20));
    }
    // A negative height means that the rows are ordered from top to bottom.
    let height = i32::from_le_bytes(array_at(head, 22)?);
    Some((le32(head, 18)?, height.unsigned_abs()))
}
