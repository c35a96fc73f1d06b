//! Frames of MPEG audio, layers II and III (ISO/IEC 11172-3 and 13818-3).

/// Bit rates of MPEG-1 layer III in kbit/s, by the index in a frame header. Index 0 is a free rate, 15 is forbidden.
const V1_LAYER_3_BITRATES: [usize; 15] = [
    0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
];
/// The same for MPEG-1 layer II.
const V1_LAYER_2_BITRATES: [usize; 15] = [
    0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
];
/// The same for MPEG-2, layers II and III.
const V2_BITRATES: [usize; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];

/// Whether the head begins with a frame. If the head is long enough, a second frame has to follow.
pub(super) fn has_frames(head: &[u8]) -> bool {
    let Some(length) = frame_bytes(head) else {
        return false;
    };
    head.get(length..)
        // One frame header is eleven bits of sync and matches noise too easily; the next frame confirms it.
        .is_none_or(|next| next.len() < 4 || frame_bytes(next).is_some())
}

/// The length in bytes of the frame at the start.
fn frame_bytes(head: &[u8]) -> Option<usize> {
    let [0xFF, second, third, _, ..] = *head else {
        return None;
    };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if second & 0xE0 != 0xE0 || version == 1 || !matches!(layer, 1 | 2) {
        return None;
    }
    let rates = match (version, layer) {
        (3, 1) => V1_LAYER_3_BITRATES,
        (3, _) => V1_LAYER_2_BITRATES,
        _ => V2_BITRATES,
    };
    let kilobits = rates
        .get(usize::from(third >> 4))
        .copied()
        .filter(|rate| *rate > 0)?;
    let base = [44_100, 48_000, 32_000]
        .get(usize::from(third >> 2 & 3))
        .copied()?;
    let rate = match version {
        3 => base,
        2 => base / 2,
        _ => base / 4,
    };
    // Layer III of MPEG-2 and 2.5 has half the samples in a frame (576), so half the bytes.
    let slots = if version != 3 && layer == 1 { 72 } else { 144 };
    Some(slots * kilobits * 1000 / rate + usize::from(third >> 1 & 1))
}
