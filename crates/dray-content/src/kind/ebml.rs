//! Matroska and `WebM`, distinguished by the document type in the header.

use super::sniff::{Found, early};
use super::types::{Kind, Video};

/// The header is far shorter than this.
const HEADER: usize = 4096;

pub(super) fn sniff(head: &[u8]) -> Option<Found> {
    if !head.starts_with(b"\x1A\x45\xDF\xA3") {
        return None;
    }
    // Element 0x4282, whose value is a short string with its length before it.
    let at = early(head, b"\x42\x82", HEADER).unwrap_or(head.len());
    let value = head.get(at..).unwrap_or_default();
    let is_webm = value
        .get(..16.min(value.len()))
        .is_some_and(|value| early(value, b"webm", 16).is_some());
    Some(Found::of(Kind::Video(if is_webm {
        Video::Webm
    } else {
        Video::Matroska
    })))
}
