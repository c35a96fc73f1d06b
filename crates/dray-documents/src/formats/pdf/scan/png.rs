//! Writes PNG files (ISO/IEC 15948) with unfiltered rows and fast compression.

use std::io::Write as _;

use flate2::{Compression, Crc, write::ZlibEncoder};

/// The meaning of the samples of a picture.
pub(super) enum Color {
    Gray,
    Rgb,
    /// Red, green and blue of each colour.
    Palette(Vec<u8>),
}

/// The header of a file.
pub(super) struct Png {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Bits of one sample.
    pub(super) bits: u8,
    pub(super) color: Color,
}

impl Png {
    /// The file with these rows, each of which has a whole number of bytes; `None` if it cannot be written.
    pub(super) fn encode(&self, rows: &[u8]) -> Option<Vec<u8>> {
        let color = match self.color {
            Color::Gray => 0,
            Color::Rgb => 2,
            Color::Palette(_) => 3,
        };
        let mut header = Vec::with_capacity(13);
        header.extend_from_slice(&u32::try_from(self.width).ok()?.to_be_bytes());
        header.extend_from_slice(&u32::try_from(self.height).ok()?.to_be_bytes());
        header.extend_from_slice(&[self.bits, color, 0, 0, 0]);
        let mut file = b"\x89PNG\r\n\x1A\n".to_vec();
        chunk(&mut file, *b"IHDR", &header)?;
        if let Color::Palette(colors) = &self.color {
            chunk(&mut file, *b"PLTE", colors)?;
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        for row in rows.chunks_exact(rows.len().checked_div(self.height)?.max(1)) {
            // The row has no filter. A filter would make the file smaller, which is not worth it for a temporary file.
            packed.write_all(&[0]).ok()?;
            packed.write_all(row).ok()?;
        }
        chunk(&mut file, *b"IDAT", &packed.finish().ok()?)?;
        chunk(&mut file, *b"IEND", &[])?;
        Some(file)
    }
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) -> Option<()> {
    file.extend_from_slice(&u32::try_from(content.len()).ok()?.to_be_bytes());
    let mut sum = Crc::new();
    for part in [&kind, content] {
        sum.update(part);
        file.extend_from_slice(part);
    }
    file.extend_from_slice(&sum.sum().to_be_bytes());
    Some(())
}
