//! RIFF: WebP, WAV, AVI.

use super::bytes::{array_at, is_at, le16, le24, le32};
use super::signature::FormatSignature;
use super::types::{AudioKind, ContentKind, ImageKind, VideoKind};

/// RIFF of a known form.
pub(super) fn find_signature(head: &[u8]) -> Option<FormatSignature> {
    if !head.starts_with(b"RIFF") {
        return None;
    }
    match &array_at::<4>(head, 8)? {
        b"WEBP" => Some(sniff_webp(head)),
        b"WAVE" => Some(FormatSignature::of(ContentKind::Audio(AudioKind::Wav))),
        b"AVI " => Some(FormatSignature::of(ContentKind::Video(VideoKind::Avi))),
        _ => None,
    }
}

/// WebP in its three forms: extended, lossless, lossy.
fn sniff_webp(head: &[u8]) -> FormatSignature {
    let animated = is_at(head, 12, b"VP8X") && head.get(20).is_some_and(|flags| flags & 2 != 0);
    let dimensions = match array_at::<4>(head, 12).as_ref() {
        // All three forms: RFC 9649. The canvas of `VP8X` and the frame of `VP8L` store their sizes less one.
        Some(b"VP8X") => le24(head, 24)
            .zip(le24(head, 27))
            .map(|(width, height)| (width + 1, height + 1)),
        Some(b"VP8L") => {
            // The 14-bit fields of `VP8L` are after its signature byte 0x2F.
            le32(head, 21).map(|bits| ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        Some(b"VP8 ") => le16(head, 26)
            .zip(le16(head, 28))
            // The two upper bits are the scaling hint of VP8 (RFC 6386 §9.1).
            .map(|(width, height)| (u32::from(width & 0x3FFF), u32::from(height & 0x3FFF))),
        _ => None,
    };
    let dimensions = dimensions.filter(|(width, height)| *width > 0 && *height > 0);
    FormatSignature {
        dimensions,
        ..FormatSignature::of(ContentKind::Image(ImageKind::Webp { animated }))
    }
}
