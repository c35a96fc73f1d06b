//! Colours of cells, as far as they decide whether their text can be seen.

use std::rc::Rc;

use crate::formats::office::xml::{Element, Event, Xml, decode_part};
use crate::limits::{Budget, Failure};

/// Largest difference in one channel, of 255, at which two colours look the same.
const MAX_CHANNEL_DIFFERENCE: u8 = 15;

/// The palette of workbooks without their own palette, from index 8 (ECMA-376-1, 18.8.27).
const DEFAULT_PALETTE: [u32; 56] = [
    0x00_0000, 0xFF_FFFF, 0xFF_0000, 0x00_FF00, 0x00_00FF, 0xFF_FF00, 0xFF_00FF, 0x00_FFFF,
    0x80_0000, 0x00_8000, 0x00_0080, 0x80_8000, 0x80_0080, 0x00_8080, 0xC0_C0C0, 0x80_8080,
    0x99_99FF, 0x99_3366, 0xFF_FFCC, 0xCC_FFFF, 0x66_0066, 0xFF_8080, 0x00_66CC, 0xCC_CCFF,
    0x00_0080, 0xFF_00FF, 0xFF_FF00, 0x00_FFFF, 0x80_0080, 0x80_0000, 0x00_8080, 0x00_00FF,
    0x00_CCFF, 0xCC_FFFF, 0xCC_FFCC, 0xFF_FF99, 0x99_CCFF, 0xFF_99CC, 0xCC_99FF, 0xFF_CC99,
    0x33_66FF, 0x33_CCCC, 0x99_CC00, 0xFF_CC00, 0xFF_9900, 0xFF_6600, 0x66_6699, 0x96_9696,
    0x00_3366, 0x33_9966, 0x00_3300, 0x33_3300, 0x99_3300, 0x99_3366, 0x33_3399, 0x33_3333,
];

/// Most colours of a palette, repeated ones included.
const MAX_PALETTE: usize = 64;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rgb([u8; 3]);

impl Rgb {
    pub(super) const BLACK: Self = Self([0; 3]);
    pub(super) const WHITE: Self = Self([255; 3]);

    /// The colour of a number `0xRRGGBB`; the upper byte is ignored.
    pub(super) fn of_number(number: u32) -> Self {
        let [_, red, green, blue] = number.to_be_bytes();
        Self([red, green, blue])
    }

    /// Parses `AARRGGBB`, `RRGGBB` or `#RRGGBB`; ignores the alpha channel.
    pub(super) fn of_hex(text: &str) -> Option<Self> {
        // The last six digits: worksheets ignore the alpha channel, which some writers leave at zero.
        let digits = text.get(text.len().checked_sub(6)?..)?;
        crate::hex::parse_hex(digits).map(Self::of_number)
    }

    /// The colour of a palette index; the workbook's colours begin with index 8. `None` for system colours.
    pub(super) fn of_index(index: u32, palette: &[Self]) -> Option<Self> {
        // Indices 0 to 7 name the same colours as 8 to 15.
        let position = usize::try_from(if index < 8 { index } else { index - 8 }).ok()?;
        let own = palette.get(position).copied();
        own.or_else(|| DEFAULT_PALETTE.get(position).copied().map(Self::of_number))
    }

    /// Whether a person cannot distinguish the two colours.
    pub(super) fn looks_like(self, other: Self) -> bool {
        let mut pairs = self.0.iter().zip(other.0);
        pairs.all(|(left, right)| left.abs_diff(right) <= MAX_CHANNEL_DIFFERENCE)
    }

    /// The colour made lighter by a share from 0 to 1, or darker by a negative share (ECMA-376-1, 18.8.19).
    pub(super) fn tinted(self, tint: f64) -> Self {
        let target = if tint < 0.0 { 0.0 } else { 255.0 };
        let share = tint.abs().min(1.0);
        Self(self.0.map(|channel| {
            let mixed = f64::from(channel) + (target - f64::from(channel)) * share;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 255"
            )]
            let mixed = mixed.round().clamp(0.0, 255.0) as u8;
            mixed
        }))
    }
}

/// The colours that cells refer to by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Colors {
    /// Colours of the theme by their number in `theme="…"`.
    theme: Vec<Option<Rgb>>,
    palette: Vec<Rgb>,
}

impl Colors {
    /// Reads the colours of a theme: two dark and light ones, then the accents.
    pub(super) fn of_theme(bytes: &[u8], budget: &Rc<Budget>) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut scheme: Vec<Option<Rgb>> = Vec::new();
        let mut inside = None;
        loop {
            match xml.next()? {
                Event::Open(element) => match element.name() {
                    "clrScheme" => inside = Some(xml.depth()),
                    "srgbClr" if inside.is_some() => {
                        scheme.push(element.attr("val").and_then(|hex| Rgb::of_hex(&hex)));
                    }
                    // The colour that the system had when the file was saved.
                    "sysClr" if inside.is_some() => {
                        scheme.push(element.attr("lastClr").and_then(|hex| Rgb::of_hex(&hex)));
                    }
                    "fontScheme" | "fmtScheme" => xml.skip()?,
                    _ => {}
                },
                Event::Close if inside.is_some_and(|depth| xml.depth() < depth) => inside = None,
                Event::End => break,
                _ => {}
            }
        }
        // The file lists dark 1, light 1, dark 2, light 2; the numbers begin with light 1, dark 1.
        for pair in scheme.chunks_mut(2).take(2) {
            pair.reverse();
        }
        Ok(Self {
            theme: scheme,
            palette: Vec::new(),
        })
    }

    /// Adds a colour of the workbook's own palette.
    pub(super) fn add_to_palette(&mut self, color: Rgb) {
        if self.palette.len() < MAX_PALETTE {
            self.palette.push(color);
        }
    }

    /// A colour of the palette by its index; `None` for system colours. The workbook's colours begin with index 0,
    /// unlike in XLS.
    pub(super) fn of_index(&self, index: u32) -> Option<Rgb> {
        let position = usize::try_from(index).ok()?;
        let own = self.palette.get(position).copied();
        own.or_else(|| Rgb::of_index(index, &[]))
    }

    /// A `color`, `fgColor` or `bgColor`; `None` for an automatic or system colour.
    pub(super) fn read(&self, element: &Element<'_>) -> Option<Rgb> {
        let tint = element.number::<f64>("tint").unwrap_or(0.0);
        let color = if let Some(hex) = element.attr("rgb") {
            Rgb::of_hex(&hex)
        } else if let Some(theme) = element.number::<usize>("theme") {
            self.of_theme_number(theme)
        } else {
            let index = element.number::<u32>("indexed")?;
            self.of_index(index)
        };
        color.map(|color| color.tinted(tint))
    }

    /// A colour of the theme. Without a theme number 0, the background, is white and number 1, the text, is black.
    pub(super) fn of_theme_number(&self, number: usize) -> Option<Rgb> {
        let known = self.theme.get(number).copied().flatten();
        known.or(match number {
            0 => Some(Rgb::WHITE),
            1 => Some(Rgb::BLACK),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_compared_as_a_person_sees_them() {
        assert!(Rgb::of_number(0xFF_FFFF).looks_like(Rgb::of_number(0xF8_FAFF)));
        assert!(!Rgb::WHITE.looks_like(Rgb::of_number(0xD0_D0D0)));
        assert_eq!(Rgb::of_index(9, &[]), Some(Rgb::WHITE));
        assert_eq!(Rgb::of_index(1, &[]), Some(Rgb::WHITE));
        assert_eq!(Rgb::of_index(64, &[]), None);
        assert_eq!(Rgb::of_hex("FFFFFFFF"), Some(Rgb::WHITE));
        assert_eq!(Rgb::of_hex("FF+FFFFF"), None);
        assert_eq!(Rgb::BLACK.tinted(1.0), Rgb::WHITE);
        assert_eq!(Rgb::WHITE.tinted(-0.5), Rgb::of_number(0x80_8080));
    }
}
