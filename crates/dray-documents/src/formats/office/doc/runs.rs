//! Formats of paragraphs and characters: formatted pages of the main stream (MS-DOC 2.9.33, 2.9.174), and styles.

use super::file::{File, Table};
use crate::compound::{offset_at, u8_at, u16_at};
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::Style;

/// Size of a formatted page.
const PAGE_BYTES: usize = 512;
/// Most runs of one document.
const MAX_RUNS: usize = 4_000_000;
/// Most styles that are read.
const MAX_STYLES: usize = 4096;
/// `istd` of no style.
const NO_STYLE: u16 = 0x0FFF;

/// A run of the main stream, by offset, and its format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<F> {
    first: usize,
    end: usize,
    format: F,
}

/// Character formats that change the visible text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CharacterFormat {
    pub(super) style: Style,
    pub(super) hidden: bool,
    /// Whether the text has a tracked deletion.
    pub(super) deleted: bool,
    /// Index of the font of its text.
    pub(super) font: Option<u16>,
    /// Font and code of the symbol that its character stands for.
    pub(super) symbol: Option<(u16, u16)>,
}

/// The properties of a paragraph.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParagraphFormat {
    pub(super) style: u16,
    pub(super) outline: Option<u8>,
    pub(super) in_table: bool,
    /// Whether the paragraph ends a row.
    pub(super) ends_row: bool,
    /// Depth of the list that it is an item of.
    pub(super) list_depth: Option<u8>,
}

/// Runs in the order of their offsets, and the index of the run that was found last.
#[derive(Debug)]
pub(super) struct Runs<F> {
    runs: Vec<Run<F>>,
    last: usize,
}

impl<F: Copy + Default> Runs<F> {
    /// Reads the pages to which a table refers; `read_format` reads the format of one run from the
    /// page, the count of its runs, and the index of the run.
    fn read(
        file: &File,
        table: Table,
        budget: &Budget,
        read_format: impl Fn(&[u8], usize, usize) -> Option<F>,
    ) -> Result<Self, Failure> {
        let table = file.table(table);
        let count = table.len().saturating_sub(4) / 8;
        let mut runs = Vec::new();
        for index in 0..count {
            budget.clock()?;
            // The number of the page has 22 bits; the others are unused (MS-DOC 2.9.205).
            let number = offset_at(table, (count + 1) * 4 + index * 4).unwrap_or(0) & 0x003F_FFFF;
            let page = number
                .checked_mul(PAGE_BYTES)
                .and_then(|start| file.main.get(start..start.checked_add(PAGE_BYTES)?));
            let Some(page) = page else {
                continue;
            };
            // The last byte of a page is the count of its runs.
            let run_count = usize::from(u8_at(page, PAGE_BYTES - 1).unwrap_or(0));
            for run_index in 0..run_count {
                let (Some(first), Some(end)) = (
                    offset_at(page, run_index * 4),
                    offset_at(page, run_index * 4 + 4),
                ) else {
                    break;
                };
                if end > first {
                    let format = read_format(page, run_count, run_index).unwrap_or_default();
                    runs.push(Run { first, end, format });
                }
            }
            if runs.len() > MAX_RUNS {
                return Err(Failure::Stopped(Limit::Element));
            }
        }
        runs.sort_by_key(|run| run.first);
        Ok(Self { runs, last: 0 })
    }

    /// The format at an offset.
    pub(super) fn at(&mut self, offset: usize) -> F {
        let contains_offset = |run: &Run<F>| (run.first..run.end).contains(&offset);
        // Text is requested in the order of its offsets, so the last run nearly always contains the next character,
        // too.
        if let Some(run) = self.runs.get(self.last).filter(|run| contains_offset(run)) {
            return run.format;
        }
        let next = self.runs.partition_point(|run| run.first <= offset);
        self.last = next.saturating_sub(1);
        self.runs
            .get(self.last)
            .filter(|run| contains_offset(run))
            .map(|run| run.format)
            .unwrap_or_default()
    }
}

/// The formats of all characters.
pub(super) fn character_runs(
    file: &File,
    budget: &Budget,
) -> Result<Runs<CharacterFormat>, Failure> {
    Runs::read(file, Table::CharacterRuns, budget, |page, count, run| {
        // An offset of 0 means that the format equals the style.
        let offset = usize::from(u8_at(page, (count + 1) * 4 + run)?) * 2;
        let length = usize::from(u8_at(page, offset).filter(|_| offset > 0)?);
        let mut format = CharacterFormat::default();
        for (code, operand) in Properties(page.get(offset + 1..offset + 1 + length)?) {
            let on = operand.first().is_some_and(|value| value & 1 != 0);
            match code {
                0x0835 => format.style.bold = on,
                0x0836 => format.style.italic = on,
                0x0837 => format.style.strike = on,
                0x083C => format.hidden = on,
                0x2A48 => format.style.superscript = operand.first() == Some(&1),
                0x0800 => format.deleted = on,
                0x4A4F => format.font = u16_at(operand, 0),
                0x6A09 => format.symbol = u16_at(operand, 0).zip(u16_at(operand, 2)),
                _ => {}
            }
        }
        Some(format)
    })
}

/// The formats of all paragraphs.
pub(super) fn paragraph_runs(
    file: &File,
    budget: &Budget,
) -> Result<Runs<ParagraphFormat>, Failure> {
    Runs::read(file, Table::ParagraphRuns, budget, |page, count, run| {
        let offset = usize::from(u8_at(page, (count + 1) * 4 + run * 13)?) * 2;
        // Two ways to write the length of the properties (MS-DOC 2.9.175).
        let (start, length) = match usize::from(u8_at(page, offset).filter(|_| offset > 0)?) {
            0 => (offset + 2, usize::from(u8_at(page, offset + 1)?) * 2),
            words => (offset + 1, words * 2 - 1),
        };
        let data = page.get(start..start + length)?;
        let mut format = ParagraphFormat {
            style: u16_at(data, 0)?,
            ..ParagraphFormat::default()
        };
        let (mut level, mut list) = (0, 0);
        for (code, operand) in Properties(data.get(2..)?) {
            let value = operand.first().copied().unwrap_or(0);
            match code {
                0x2416 => format.in_table = value != 0,
                0x2417 => format.ends_row = value != 0,
                0x6649 => format.in_table |= value != 0,
                0x2640 => format.outline = Some(value),
                0x260A => level = value,
                0x460B => list = u16_at(operand, 0).unwrap_or(0),
                _ => {}
            }
        }
        // Values from 0xF801 on remove the paragraph from its list (MS-DOC 2.6.2, sprmPIlfo).
        format.list_depth = (list != 0 && list < 0xF801).then_some(level.min(8));
        Some(format)
    })
}

/// Property modifications, one after the other: code and operand (MS-DOC 2.6.1).
struct Properties<'a>(&'a [u8]);

impl<'a> Iterator for Properties<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = u16_at(self.0, 0)?;
        let rest = self.0.get(2..)?;
        // The upper three bits encode the length of the operand (MS-DOC 2.6.1); sprmTDefTable alone has a length of two
        // bytes.
        let (skipped, length) = match code >> 13 {
            0 | 1 => (0, 1),
            2 | 4 | 5 => (0, 2),
            3 => (0, 4),
            7 => (0, 3),
            _ if code == 0xD608 => (2, usize::from(u16_at(rest, 0)?).saturating_sub(1)),
            _ => (1, usize::from(u8_at(rest, 0)?)),
        };
        let operand = rest.get(skipped..skipped + length)?;
        self.0 = rest.get(skipped + length..)?;
        Some((code, operand))
    }
}

/// Levels of headings by the number of the style (MS-DOC 2.9.271, 2.9.260).
pub(super) fn heading_styles(file: &File) -> Vec<Option<u8>> {
    let sheet = file.table(Table::Styles);
    if sheet.is_empty() {
        // Built-in headings always have these numbers.
        return (0..10).map(|style| (style > 0).then_some(style)).collect();
    }
    let header = usize::from(u16_at(sheet, 0).unwrap_or(0));
    let count = usize::from(u16_at(sheet, 2).unwrap_or(0)).min(MAX_STYLES);
    let mut entry = header + 2;
    let mut styles: Vec<(Option<u8>, u16)> = Vec::new();
    for _ in 0..count {
        let Some(length) = u16_at(sheet, entry).map(usize::from) else {
            break;
        };
        let style = sheet.get(entry + 2..entry + 2 + length).unwrap_or_default();
        let level = match u16_at(style, 0).map(|name| name & 0x0FFF) {
            Some(level @ 1..=9) => u8::try_from(level).ok(),
            Some(0x3E) => Some(1),
            Some(0x4A) => Some(2),
            _ => None,
        };
        let base = u16_at(style, 2).map_or(NO_STYLE, |base| base >> 4);
        styles.push((level.filter(|_| length > 0), base));
        // Every entry begins at an even offset.
        entry += 2 + length + length % 2;
    }
    (0..styles.len())
        .map(|style| inherited_level(&styles, style))
        .collect()
}

/// The level of a style, or of its base style.
fn inherited_level(styles: &[(Option<u8>, u16)], style: usize) -> Option<u8> {
    let mut ancestor = style;
    // Styles may be based on each other in a circle.
    for _ in 0..16 {
        let (level, base) = styles.get(ancestor)?;
        if level.is_some() {
            return *level;
        }
        ancestor = usize::from(*base);
    }
    None
}
