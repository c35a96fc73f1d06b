//! Small files of each format, made by hand.

/// Starts of files that make a parser read beyond the signature.
pub(super) const DEEP_STARTS: &[&[u8]] = &[
    b"",
    b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR",
    b"\xFF\xD8\xFF",
    b"\xFF\xD8\xFF\xE0\0\x04ab",
    b"GIF89a\x05\0\x06\0",
    b"GIF89a\x05\0\x06\0\x80\0\0\0\0\0\0\0\0\x2C",
    b"BM",
    b"RIFF\0\0\0\0WEBPVP8X",
    b"RIFF\0\0\0\0WEBPVP8L",
    b"RIFF\0\0\0\0WEBPVP8 ",
    b"\0\0\0\x18ftyp",
    b"\0\0\0\x18ftypmif1",
    b"\0\0\0\x18ftypisom\0\0\0\0stsd",
    b"\x1A\x45\xDF\xA3",
    b"\x1A\x45\xDF\xA3\x42\x82",
    b"OggS",
    b"PK\x03\x04",
    b"PK\x03\x04\x14\0\x08\0\0\0",
    b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1",
    b"\xFF\xFB",
    b"ID3",
    b"MZ",
    b"\xCA\xFE\xBA\xBE",
    b"<!doctype ",
    b"<?xml ",
    b"<!--",
    b"#!",
    b"BZh",
    b"{\\rtf",
    b"\0\0\x01\xB3",
];

pub(super) fn png(width: u32, height: u32) -> Vec<u8> {
    let head = b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR".as_slice();
    [
        head,
        &width.to_be_bytes(),
        &height.to_be_bytes(),
        &[8, 6, 0, 0, 0],
    ]
    .concat()
}

/// A GIF of 5 × 6 with a palette of two colours.
pub(super) fn gif(frames: usize, looped: bool) -> Vec<u8> {
    let mut bytes = b"GIF89a\x05\0\x06\0\x80\0\0\0\0\0\xFF\xFF\xFF".to_vec();
    if looped {
        bytes.extend(b"\x21\xFF\x0BNETSCAPE2.0\x03\x01\0\0\0");
    }
    for _ in 0..frames {
        bytes.extend(b"\x21\xF9\x04\0\0\0\0\0");
        bytes.extend(b"\x2C\0\0\0\0\x05\0\x06\0\0\x02\x02\x4C\x01\0");
    }
    bytes.push(0x3B);
    bytes
}

/// A frame of MPEG 1 layer III with 128 kbit/s at 44 100 Hz: 417 bytes.
pub(super) fn mp3_frame() -> Vec<u8> {
    let mut frame = vec![0; 417];
    frame[..4].copy_from_slice(b"\xFF\xFB\x90\x00");
    frame
}

/// A ZIP of stored entries.
pub(super) fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(name, content)| entry(name, content, 0))
        .collect()
}

/// One entry; with bit 3 set, its size is after its content.
pub(super) fn entry(name: &str, content: &[u8], flags: u16) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap();
    let declared_size = if flags & 8 == 0 { size } else { 0 };
    let name_length = u16::try_from(name.len()).unwrap();
    let mut bytes = b"PK\x03\x04\x14\0".to_vec();
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0; 10]);
    bytes.extend(declared_size.to_le_bytes());
    bytes.extend(declared_size.to_le_bytes());
    bytes.extend(name_length.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(name.as_bytes());
    bytes.extend(content);
    if flags & 8 != 0 {
        bytes.extend(b"PK\x07\x08\0\0\0\0");
        bytes.extend(size.to_le_bytes());
        bytes.extend(size.to_le_bytes());
    }
    bytes
}

/// A box of ISO base media.
pub(super) fn iso_box(kind: &[u8], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes(), kind, content].concat()
}

/// An Ogg page whose first packet is this.
pub(super) fn ogg(packet: &[u8]) -> Vec<u8> {
    let mut page = b"OggS\0\x02".to_vec();
    page.extend([0; 20]);
    page.push(1);
    page.push(u8::try_from(packet.len()).unwrap());
    page.extend(packet);
    page
}

/// A file of each format that is parsed beyond its signature.
pub(super) fn samples() -> Vec<Vec<u8>> {
    vec![
        png(3, 4),
        gif(2, true),
        [mp3_frame(), mp3_frame()].concat(),
        zip(&[
            ("[Content_Types].xml", b"<x/>"),
            ("word/document.xml", b"<w/>"),
        ]),
        entry("a", b"content", 8),
        ogg(b"OpusHead\x01\x02"),
        iso_box(b"ftyp", b"isom\0\0\0\0mp42"),
    ]
}
