//! Formats of paragraphs and characters: formatted pages of the main stream (MS-DOC 2.9.33, 2.9.174).

use super::file::{File, Table};
use crate::compound::{offset_at, u8_at, u16_at};
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::Style;

/// Size of a formatted page.
const PAGE_BYTES: usize = 512;
/// Most runs of one document.
const MAX_RUNS: usize = 4_000_000;

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
    /// The number of its style of characters.
    pub(super) character_style: Option<u16>,
    /// Whether it is hidden, unless its styles decide.
    pub(super) hidden: Option<ToggleValue>,
    /// Whether the text has a tracked deletion.
    pub(super) deleted: bool,
    /// Index of the font of its text.
    pub(super) font: Option<u16>,
    /// Font and code of the symbol that its character stands for.
    pub(super) symbol: Option<(u16, u16)>,
}

/// The value of a property that styles switch, too (MS-DOC, `ToggleOperand`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToggleValue {
    On,
    Off,
    /// The value of the styles.
    Same,
    /// The opposite of the value of the styles.
    Opposite,
}

impl ToggleValue {
    fn of(operand: u8) -> Self {
        match operand {
            0x80 => Self::Same,
            0x81 => Self::Opposite,
            value if value & 1 != 0 => Self::On,
            _ => Self::Off,
        }
    }
}

/// The properties of a paragraph.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParagraphFormat {
    pub(super) style: u16,
    pub(super) outline: Option<u8>,
    pub(super) in_table: bool,
    /// Whether the paragraph ends a row.
    pub(super) ends_row: bool,
    /// The number of the reference to the list that it is an item of; 0 for none, regardless of its style.
    pub(super) list: Option<u16>,
    pub(super) list_level: Option<u8>,
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
        for (code, operand) in PropertyModifiers(page.get(offset + 1..offset + 1 + length)?) {
            let on = operand.first().is_some_and(|value| value & 1 != 0);
            match code {
                0x0835 => format.style.bold = on,
                0x0836 => format.style.italic = on,
                0x0837 => format.style.strike = on,
                0x083C => format.hidden = operand.first().map(|value| ToggleValue::of(*value)),
                0x4A30 => format.character_style = u16_at(operand, 0),
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
        for (code, operand) in PropertyModifiers(data.get(2..)?) {
            let value = operand.first().copied().unwrap_or(0);
            match code {
                0x2416 => format.in_table = value != 0,
                0x2417 => format.ends_row = value != 0,
                0x6649 => format.in_table |= value != 0,
                0x2640 => format.outline = Some(value),
                0x260A => format.list_level = Some(value),
                0x460B => format.list = u16_at(operand, 0),
                _ => {}
            }
        }
        Some(format)
    })
}

/// Property modifications, one after the other: code and operand (MS-DOC 2.6.1).
pub(super) struct PropertyModifiers<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for PropertyModifiers<'a> {
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
