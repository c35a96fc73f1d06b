//! The pictures of a page without text, as image files (ISO 32000-1, 8.9).

mod png;

use pdfboss_core::{Dict, Object, Stream};

use super::metered::MeteredDocument;
use png::{Color, Png};

/// Most pixels on one side of a picture that is handed over.
const MAX_PIXELS: usize = 30_000;

/// The image file of a picture; `None` if it cannot be created. A JPEG or JPEG 2000 is returned unchanged.
pub(super) fn image_of(stream: &Stream, source: &MeteredDocument<'_>) -> Option<Vec<u8>> {
    let data = source.picture(stream)?;
    let starts = |magic: &[u8]| data.starts_with(magic);
    // The name of the filter is an unverified claim, but the OCR program must get a file of that type.
    let is_compressed_image =
        starts(b"\xFF\xD8\xFF") || starts(b"\0\0\0\x0CjP  ") || starts(b"\xFF\x4F\xFF\x51");
    match last_filter(&stream.dict, source).as_deref() {
        Some("DCTDecode" | "DCT" | "JPXDecode") => is_compressed_image.then_some(data),
        _ => samples_to_png(&stream.dict, &data, source),
    }
}

fn last_filter(dict: &Dict, source: &MeteredDocument<'_>) -> Option<String> {
    let filter = source.fetch(dict.get("Filter")?)?;
    let last = match filter.as_array() {
        Some(filters) => source.fetch(filters.last()?)?,
        None => filter,
    };
    last.as_name().map(|name| name.0.as_str().to_owned())
}

/// Samples as a PNG file.
fn samples_to_png(dict: &Dict, data: &[u8], source: &MeteredDocument<'_>) -> Option<Vec<u8>> {
    let get = |name: &str, short: &str| dict.get(name).or_else(|| dict.get(short));
    let number = |name, short| source.fetch(get(name, short)?)?.as_int();
    let size = |name, short| usize::try_from(number(name, short)?).ok();
    let (width, height) = (size("Width", "W")?, size("Height", "H")?);
    if width == 0 || height == 0 || width > MAX_PIXELS || height > MAX_PIXELS {
        return None;
    }
    let is_mask =
        get("ImageMask", "IM").and_then(|object| source.fetch(object)?.as_bool()) == Some(true);
    let (space, bits) = if is_mask {
        (Space::Gray, 1)
    } else {
        let space =
            // An unknown colour space is read as gray, which has the fewest samples per pixel.
            get("ColorSpace", "CS").and_then(|object| read_color_space(&source.fetch(object)?, source, 0));
        let bits = size("BitsPerComponent", "BPC").unwrap_or(1);
        (space.unwrap_or(Space::Gray), bits)
    };
    let bits = u8::try_from(bits)
        .ok()
        .filter(|bits| matches!(bits, 1 | 2 | 4 | 8))?;
    let decode = get("Decode", "D").and_then(|object| source.fetch(object));
    let first = decode
        .as_ref()
        .and_then(|object| object.as_array()?.first()?.as_f64());
    // `[1 0]`: black and white are exchanged.
    let is_inverted = first.is_some_and(|first| first > 0.5) && !matches!(space, Space::Indexed(_));
    let row = (width * space.components() * usize::from(bits)).div_ceil(8);
    // If the data ends early, the available rows are used.
    let height = height.min(data.len() / row.max(1));
    if height == 0 {
        return None;
    }
    let mut rows = data.get(..row * height)?.to_vec();
    if is_inverted {
        for byte in &mut rows {
            *byte = !*byte;
        }
    }
    let (color, bits, rows) = match space {
        Space::Gray => (Color::Gray, bits, rows),
        Space::Rgb if bits == 8 => (Color::Rgb, bits, rows),
        Space::Cmyk if bits == 8 => (Color::Gray, bits, gray_of_cmyk(&rows)),
        Space::Indexed(palette) => (Color::Palette(palette), bits, rows),
        // Samples of other depths would have to be unpacked first; scans do not have them.
        Space::Rgb | Space::Cmyk => return None,
    };
    Png {
        width,
        height,
        bits,
        color,
    }
    .encode(&rows)
}

/// A colour space, as far as samples of it can be shown without its profile.
enum Space {
    Gray,
    Rgb,
    Cmyk,
    /// Red, green and blue of each colour.
    Indexed(Vec<u8>),
}

impl Space {
    fn components(&self) -> usize {
        match self {
            Self::Gray | Self::Indexed(_) => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }
}

/// Reads a colour space. Spaces that are nested deeper than writers do are not read.
fn read_color_space(object: &Object, source: &MeteredDocument<'_>, depth: u8) -> Option<Space> {
    if depth > 3 {
        return None;
    }
    if let Some(name) = object.as_name() {
        return Some(match name.0.as_str() {
            "DeviceGray" | "G" | "CalGray" => Space::Gray,
            "DeviceRGB" | "RGB" | "CalRGB" => Space::Rgb,
            "DeviceCMYK" | "CMYK" => Space::Cmyk,
            _ => return None,
        });
    }
    let array = object.as_array()?;
    let part = |index: usize| source.fetch(array.get(index)?);
    match part(0)?.as_name()?.0.as_str() {
        "CalGray" => Some(Space::Gray),
        "CalRGB" => Some(Space::Rgb),
        "ICCBased" => match part(1)?.as_stream()?.dict.get_int("N")? {
            1 => Some(Space::Gray),
            3 => Some(Space::Rgb),
            4 => Some(Space::Cmyk),
            _ => None,
        },
        "Indexed" | "I" => {
            let base = read_color_space(&part(1)?, source, depth + 1)?;
            let table = part(3)?;
            let table = match table.as_stream() {
                Some(stream) => source.picture(stream)?,
                None => table.as_str_bytes()?.to_vec(),
            };
            palette_rgb(&base, &table).map(Space::Indexed)
        }
        _ => None,
    }
}

/// The colours of a table as red, green and blue; at most as many as a byte can name.
fn palette_rgb(base: &Space, table: &[u8]) -> Option<Vec<u8>> {
    let colors = table.chunks_exact(base.components()).take(256);
    let palette: Vec<u8> = match base {
        Space::Rgb => colors.flatten().copied().collect(),
        Space::Gray => colors.flatten().flat_map(|gray| [*gray; 3]).collect(),
        Space::Cmyk => gray_of_cmyk(table)
            .into_iter()
            .take(256)
            .flat_map(|gray| [gray; 3])
            .collect(),
        Space::Indexed(_) => return None,
    };
    (!palette.is_empty()).then_some(palette)
}

/// The lightness of each colour, which is enough to recognise text.
fn gray_of_cmyk(samples: &[u8]) -> Vec<u8> {
    let light = |color: &[u8]| {
        let ink = |index: usize| u32::from(color.get(index).copied().unwrap_or_default());
        let dark = (ink(0) * 30 + ink(1) * 59 + ink(2) * 11) / 100 + ink(3);
        u8::try_from(255 - dark.min(255)).unwrap_or_default()
    };
    samples.chunks_exact(4).map(light).collect()
}
