//! Compressed RTF of Outlook (MS-OXRTFCP).

use crate::limits::{Budget, Damage, Failure};

/// Sizes, type and checksum before the compressed content (MS-OXRTFCP 2.1.3.1.1).
const HEADER_BYTES: usize = 16;
/// Size of the dictionary.
const DICTIONARY_BYTES: usize = 4096;
/// The initial content of the dictionary (MS-OXRTFCP 2.1.3.1.3).
const INITIAL_DICTIONARY: &[u8] = b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx";

/// The RTF in a compressed stream.
pub(super) fn unpack_rtf(stream: &[u8], budget: &Budget) -> Result<Vec<u8>, Failure> {
    let (Some(header), Some(content)) = (stream.get(..HEADER_BYTES), stream.get(HEADER_BYTES..))
    else {
        return Err(Failure::Corrupt(Damage::Truncated));
    };
    match header.get(8..12) {
        // The data is not compressed, but has the same header.
        Some(b"MELA") => Ok(content.to_vec()),
        Some(b"LZFu") => inflate_rtf(content, budget),
        _ => Err(Failure::Corrupt(Damage::Compression)),
    }
}

fn inflate_rtf(content: &[u8], budget: &Budget) -> Result<Vec<u8>, Failure> {
    let max = usize::try_from(budget.limits().max_part_bytes).unwrap_or(usize::MAX);
    let mut ring = [b' '; DICTIONARY_BYTES];
    for (slot, byte) in ring.iter_mut().zip(INITIAL_DICTIONARY) {
        *slot = *byte;
    }
    let mut write_position = INITIAL_DICTIONARY.len();
    let mut out = Vec::new();
    let mut bytes = content.iter().copied();
    let mut put = |byte: u8, ring: &mut [u8; DICTIONARY_BYTES], out: &mut Vec<u8>| {
        if let Some(slot) = ring.get_mut(write_position) {
            *slot = byte;
        }
        write_position = (write_position + 1) % DICTIONARY_BYTES;
        out.push(byte);
        write_position
    };
    let mut slot = INITIAL_DICTIONARY.len();
    while let Some(control) = bytes.next() {
        let bytes_before = out.len();
        for bit in 0..8 {
            let Some(first) = bytes.next() else {
                return Ok(out);
            };
            if control >> bit & 1 == 0 {
                slot = put(first, &mut ring, &mut out);
                continue;
            }
            let Some(second) = bytes.next() else {
                return Ok(out);
            };
            let pair = usize::from(first) << 8 | usize::from(second);
            let (offset, length) = (pair >> 4, (pair & 0xF) + 2);
            // A reference to the current write position marks the end.
            if offset == slot {
                return Ok(out);
            }
            // A reference may overlap with its own output, so bytes are copied one by one.
            for step in 0..length {
                let byte = ring
                    .get((offset + step) % DICTIONARY_BYTES)
                    .copied()
                    .unwrap_or_default();
                slot = put(byte, &mut ring, &mut out);
            }
        }
        budget.inflated(out.len() - bytes_before)?;
        if out.len() > max {
            return Err(Failure::Stopped(crate::limits::Limit::Size));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::unpack_rtf;
    use crate::limits::{Budget, Damage, Failure, Limits};

    #[test]
    fn the_examples_of_the_specification_are_unpacked() {
        // MS-OXRTFCP 4.1.1 and 4.1.2.
        let simple = [
            0x2d, 0, 0, 0, 0x2b, 0, 0, 0, 0x4c, 0x5a, 0x46, 0x75, 0xf1, 0xc5, 0xc7, 0xa7, 0x03,
            0x00, 0x0a, 0x00, 0x72, 0x63, 0x70, 0x67, 0x31, 0x32, 0x35, 0x42, 0x32, 0x0a, 0xf3,
            0x20, 0x68, 0x65, 0x6c, 0x09, 0x00, 0x20, 0x62, 0x77, 0x05, 0xb0, 0x6c, 0x64, 0x7d,
            0x0a, 0x80, 0x0f, 0xa0,
        ];
        let crossing = [
            0x1a, 0, 0, 0, 0x1c, 0, 0, 0, 0x4c, 0x5a, 0x46, 0x75, 0xe2, 0xd4, 0x4b, 0x51, 0x41,
            0x00, 0x04, 0x20, 0x57, 0x58, 0x59, 0x5a, 0x0d, 0x6e, 0x7d, 0x01, 0x0e, 0xb0,
        ];
        let budget = Budget::new(Limits::default());
        assert_eq!(
            unpack_rtf(&simple, &budget).unwrap(),
            b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
        );
        assert_eq!(
            unpack_rtf(&crossing, &budget).unwrap(),
            b"{\\rtf1 WXYZWXYZWXYZWXYZWXYZ}"
        );
    }

    #[test]
    fn plain_and_damaged_streams() {
        let budget = Budget::new(Limits::default());
        let plain = [&[0_u8; 8][..], b"MELA", &[0; 4], b"{\\rtf1 x}"].concat();
        assert_eq!(unpack_rtf(&plain, &budget).unwrap(), b"{\\rtf1 x}");
        assert_eq!(
            unpack_rtf(b"short", &budget),
            Err(Failure::Corrupt(Damage::Truncated))
        );
        assert_eq!(
            unpack_rtf(&[0; 20], &budget),
            Err(Failure::Corrupt(Damage::Compression))
        );
        let wild = [&[0_u8; 8][..], b"LZFu", &[0; 4], &[0xFF; 100]].concat();
        assert!(unpack_rtf(&wild, &budget).is_ok());
    }
}
