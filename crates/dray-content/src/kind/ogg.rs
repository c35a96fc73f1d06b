//! Ogg, distinguished by the first packet.

use super::bytes::is_at;
use super::sniff::Found;
use super::types::{Audio, Kind, Video};

pub(super) fn sniff(head: &[u8]) -> Option<Found> {
    if !head.starts_with(b"OggS") {
        return None;
    }
    // The first packet stands behind the segment table.
    let packet = 27 + usize::from(head.get(26).copied().unwrap_or(1));
    let kind = if is_at(head, packet, b"OpusHead") {
        let channels = head.get(packet + 9).copied().unwrap_or_default();
        return Some(Found::typed(
            Kind::Audio(Audio::OggOpus { channels }),
            "audio/ogg",
            "ogg",
        ));
    } else if is_at(head, packet, b"\x80theora") {
        Kind::Video(Video::Ogg)
    } else {
        Kind::Audio(Audio::OggOther)
    };
    Some(Found::of(kind))
}
