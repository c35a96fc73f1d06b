//! Ogg, distinguished by the first packet.

use super::bytes::is_at;
use super::signature::FormatSignature;
use super::types::{AudioKind, ContentKind, VideoKind};

pub(super) fn find_signature(head: &[u8]) -> Option<FormatSignature> {
    if !head.starts_with(b"OggS") {
        return None;
    }
    // The first packet is after the segment table. If the head ends before the count, the offset is beyond its end and
    // matches nothing (RFC 3533 §6).
    let packet = 27 + usize::from(head.get(26).copied().unwrap_or(1));
    let kind = if is_at(head, packet, b"OpusHead") {
        // The channel count of the identification header (RFC 7845 §5.1).
        let channels = head.get(packet + 9).copied().unwrap_or_default();
        ContentKind::Audio(AudioKind::OggOpus { channels })
    } else if is_at(head, packet, b"\x80theora") {
        ContentKind::Video(VideoKind::Ogg)
    } else {
        ContentKind::Audio(AudioKind::OggOther)
    };
    Some(FormatSignature::of(kind))
}
