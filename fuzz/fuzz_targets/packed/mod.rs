//! Packs parts as a ZIP without compression, so that the converter reads the bytes that the fuzzer changes.

/// A ZIP with these parts, each a name and its content (APPNOTE.TXT, 4.3).
pub(crate) fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in parts {
        let at = u32::try_from(out.len()).expect("fits");
        let size = u32::try_from(content.len()).expect("fits");
        let mut common = vec![0; 6];
        common.extend([0; 4]);
        common.extend(checksum(content).to_le_bytes());
        common.extend(size.to_le_bytes());
        common.extend(size.to_le_bytes());
        common.extend(u16::try_from(name.len()).expect("fits").to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(*content);
        directory.extend(b"PK\x01\x02\0\0");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let at = u32::try_from(out.len()).expect("fits");
    let count = u16::try_from(parts.len()).expect("fits").to_le_bytes();
    let size = u32::try_from(directory.len()).expect("fits");
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(size.to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// CRC-32 with the polynomial of ZIP (APPNOTE.TXT, 4.4.7).
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |mut sum, byte| {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ 0xEDB8_8320
            } else {
                sum >> 1
            };
        }
        sum
    })
}
