//! ISO base media: MP4, M4A, MOV, 3GP, HEIC, AVIF, distinguished by brand.

use super::bytes::{array_at, be32, find_from, is_at, to_index};
use super::signature::FormatSignature;
use super::types::{AudioKind, ContentKind, ImageKind, VideoCodec, VideoKind};

/// Most compatible brands that are read.
const MAX_BRANDS: usize = 32;

pub(super) fn find_signature(head: &[u8]) -> Option<FormatSignature> {
    if !is_at(head, 4, b"ftyp") {
        return None;
    }
    let major = array_at::<4>(head, 8)?;
    // The declared size of the box is not trusted: it must not exceed the head.
    let end = to_index(be32(head, 0)?).min(head.len());
    let compatible = head.get(16..end).unwrap_or_default().as_chunks::<4>().0;
    let compatible = compatible
        .get(..compatible.len().min(MAX_BRANDS))
        .unwrap_or_default();
    Some(FormatSignature::of(by_brand(major, compatible, head)))
}

fn by_brand(major: [u8; 4], compatible: &[[u8; 4]], head: &[u8]) -> ContentKind {
    match &major {
        b"heic" | b"heif" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"hevm" | b"hevs" => {
            ContentKind::Image(ImageKind::Heic)
        }
        b"avif" | b"avis" => ContentKind::Image(ImageKind::Avif),
        // `mif1` and `msf1` are brands of any HEIF image; the compatible brands name the coding.
        b"mif1" | b"msf1"
            if compatible
                .iter()
                .any(|brand| matches!(brand, b"avif" | b"avis")) =>
        {
            ContentKind::Image(ImageKind::Avif)
        }
        b"mif1" | b"msf1" => ContentKind::Image(ImageKind::Heic),
        b"M4A " | b"M4B " | b"M4P " => ContentKind::Audio(AudioKind::M4a),
        b"qt  " => ContentKind::Video(VideoKind::Quicktime),
        [b'3', b'g', ..] => ContentKind::Video(VideoKind::ThreeGp),
        b"crx " => ContentKind::Image(ImageKind::Other),
        // Recorders write audio files with the general brand `isom` and list `M4A ` among the compatible ones.
        _ if compatible.contains(b"M4A ") => ContentKind::Audio(AudioKind::M4a),
        _ => ContentKind::Video(VideoKind::Mp4(video_codec(head))),
    }
}

/// Whether the head may be `QuickTime` from before `ftyp`, which begins with a box of another name.
///
/// This is not a signature: the four bytes before the name are a size and may have any value, so the text `the wide
/// world` looks like a box `wide`. The caller must exclude text first.
pub(super) fn is_old_quicktime(head: &[u8]) -> bool {
    let known: [&[u8]; 4] = [b"moov", b"mdat", b"wide", b"pnot"];
    let size = be32(head, 0);
    // A size of 1 means that a 64-bit size follows.
    size.is_some_and(|size| size == 1 || size >= 8) && known.iter().any(|kind| is_at(head, 4, kind))
}

/// Reads the sample descriptions. A file has one per track; those of audio tracks are ignored.
fn video_codec(head: &[u8]) -> VideoCodec {
    let mut from = 0;
    let mut found = VideoCodec::Unknown;
    while let Some(at) = find_from(head, from, b"stsd") {
        // These bytes follow `stsd`: version and flags, the count, and the size of the first entry, each of four bytes.
        match array_at::<4>(head, at + 16).as_ref() {
            Some(b"avc1" | b"avc2" | b"avc3" | b"avc4") => return VideoCodec::H264,
            Some(
                b"hvc1" | b"hev1" | b"av01" | b"vp08" | b"vp09" | b"mp4v" | b"dvh1" | b"dvhe"
                | b"apch" | b"apcn",
            ) => {
                found = VideoCodec::Other;
            }
            _ => {}
        }
        from = at + 4;
    }
    found
}
