//! Fonts, fills and number formats of an XLS stream, as the styles of its cells.

use std::collections::HashMap;

use super::color::Rgb;
use super::style::Style;
use crate::compound::u16_at;

const FONT_RECORD: u16 = 0x31;
const PALETTE_RECORD: u16 = 0x92;
const XF_RECORD: u16 = 0xE0;
const FORMAT_RECORD: u16 = 0x41E;
/// Number of the system's colour of text (MS-XLS 2.5.161).
const SYSTEM_TEXT: u32 = 64;
/// Number of the system's colour of paper (MS-XLS 2.5.161).
const SYSTEM_PAPER: u32 = 65;
/// Number of the automatic colour of a font.
const AUTOMATIC_COLOR: u32 = 0x7FFF;

/// The fonts, colours and formats in the records before the sheets.
#[derive(Debug, Default)]
pub(super) struct StyleRecords {
    codes: HashMap<u16, Style>,
    /// Colour numbers of the fonts, in their order.
    fonts: Vec<u16>,
    palette: Vec<Rgb>,
    formats: Vec<CellFormat>,
}

/// A record about how cells look (MS-XLS 2.4.353).
#[derive(Clone, Copy, Debug)]
struct CellFormat {
    font: u16,
    code: u16,
    /// Pattern and colour number of the fill; `None` in old files.
    fill: Option<(u32, u32)>,
}

impl StyleRecords {
    /// Notes a record of fonts, colours, number formats or cell formats; others are ignored.
    pub(super) fn note(&mut self, kind: u16, data: &[u8]) {
        match kind {
            FONT_RECORD => self.fonts.push(u16_at(data, 4).unwrap_or(0x7FFF)),
            PALETTE_RECORD => {
                let colors = data.get(2..).unwrap_or_default().chunks_exact(4);
                self.palette = colors
                    .filter_map(|rgb| match rgb {
                        [red, green, blue, _] => {
                            Some(Rgb::of_number(u32::from_be_bytes([0, *red, *green, *blue])))
                        }
                        _ => None,
                    })
                    .collect();
            }
            FORMAT_RECORD => {
                if let Some((id, code)) = format_code(data) {
                    self.codes.insert(id, Style::of_code(&code));
                }
            }
            XF_RECORD => {
                let long = |offset: usize| {
                    let bytes = data.get(offset..offset + 4)?.try_into().ok()?;
                    Some(u32::from_le_bytes(bytes))
                };
                let fill = long(14).zip(u16_at(data, 18));
                self.formats.push(CellFormat {
                    font: u16_at(data, 0).unwrap_or(0),
                    code: u16_at(data, 2).unwrap_or(0),
                    // The pattern is in the upper six bits, the colour in the lower seven (MS-XLS 2.5.20).
                    fill: fill.map(|(pattern, colors)| (pattern >> 26, u32::from(colors) & 0x7F)),
                });
            }
            _ => {}
        }
    }

    /// Reads the cell styles; the index is the style number.
    pub(super) fn into_styles(self) -> Vec<Style> {
        let formats = self.formats.iter();
        formats.map(|format| self.style(*format)).collect()
    }

    fn style(&self, format: CellFormat) -> Style {
        let known = self.codes.get(&format.code).cloned();
        let mut style = known.unwrap_or_else(|| Style::built_in(u32::from(format.code)));
        // Number 4 is never used (MS-XLS 2.5.129), so fonts with higher numbers are one place earlier in the list.
        let font = usize::from(if format.font > 4 {
            format.font - 1
        } else {
            format.font
        });
        let ink = self.fonts.get(font).map(|color| u32::from(*color));
        let ink = match ink {
            None | Some(SYSTEM_TEXT | AUTOMATIC_COLOR) => Some(Rgb::BLACK),
            Some(color) => self.color(color),
        };
        let paper = match format.fill {
            Some((0, _)) => Some(Rgb::WHITE),
            Some((1, color)) => self.color(color),
            _ => None,
        };
        style.is_invisible = ink
            .zip(paper)
            .is_some_and(|(ink, paper)| ink.looks_like(paper));
        style
    }

    fn color(&self, number: u32) -> Option<Rgb> {
        match number {
            SYSTEM_PAPER => Some(Rgb::WHITE),
            SYSTEM_TEXT | AUTOMATIC_COLOR => None,
            number => Rgb::of_index(number, &self.palette),
        }
    }
}

/// Id and code of a number format: 16-bit or 8-bit characters after their count.
fn format_code(data: &[u8]) -> Option<(u16, String)> {
    let id = u16_at(data, 0)?;
    let wide = data.get(4)? & 1 == 1;
    let rest = data.get(5..)?;
    let code = if wide {
        let units: Vec<u16> = rest
            .chunks_exact(2)
            .filter_map(|unit| u16_at(unit, 0))
            .collect();
        String::from_utf16_lossy(&units)
    } else {
        rest.iter().map(|byte| char::from(*byte)).collect()
    };
    Some((id, code))
}
