//! Matroska and `WebM`, distinguished by the document type in the header.

use super::signature::FormatSignature;
use super::sniff::find_early;
use super::types::{ContentKind, VideoKind};

/// The header is far shorter than this.
const MAX_HEADER_BYTES: usize = 4096;

pub(super) fn find_signature(head: &[u8]) -> Option<FormatSignature> {
    if !head.starts_with(b"\x1A\x45\xDF\xA3") {
        return None;
    }
    // Element 0x4282, whose value is a short string with its length before it.
    // DocType is an ordinary element whose place in the header is free (RFC 8794), so it is searched for.
    let at = find_early(head, b"\x42\x82", MAX_HEADER_BYTES).unwrap_or(head.len());
    let value = head.get(at..).unwrap_or_default();
    let is_webm = value
        .get(..16.min(value.len()))
        .is_some_and(|value| find_early(value, b"webm", 16).is_some());
    Some(FormatSignature::of(ContentKind::Video(if is_webm {
        VideoKind::Webm
    } else {
        VideoKind::Matroska
    })))
}
