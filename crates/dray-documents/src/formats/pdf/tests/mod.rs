//! Tests of failing pages, blocks, ranges and limits. `tests/corpus.rs` tests complete files.

mod join;
mod pages;
pub(super) mod samples;

use std::io::Cursor;
use std::rc::Rc;

use proptest::prelude::*;

use super::engine::{Block, Cell, Engine, Field, Item, Line, Page, PageError, Run};
use crate::attachment::AttachedFile;
use crate::formats::{ConversionHint, convert};
use crate::limits::{Budget, Damage, Failure, Limit, Limits};
use crate::markdown::{Markdown, Selection, Span, Unit};

/// Lines under each other, each as wide as its text, of letters five points wide.
fn lines(texts: &[&str]) -> Vec<Line> {
    let mut y = 700.0;
    texts
        .iter()
        .map(|text| {
            y -= 12.0;
            line(text, 72.0, y)
        })
        .collect()
}

fn line(text: &str, x: f32, y: f32) -> Line {
    let width = f32::from(u16::try_from(text.chars().count()).unwrap()) * 5.0;
    Line {
        runs: vec![Run::plain(text)],
        x,
        end: x + width,
        y,
        size: 10.0,
        is_entry: false,
    }
}

/// An engine whose pages are set in advance.
struct ScriptedEngine(Vec<Result<Page, PageError>>);

impl Engine for ScriptedEngine {
    fn pages(&mut self) -> u32 {
        u32::try_from(self.0.len()).unwrap()
    }

    fn page(&mut self, number: u32) -> Result<Page, PageError> {
        self.0[number as usize - 1].clone()
    }

    fn images(&mut self, _: u32) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn damage(&self) -> Damage {
        Damage::Malformed
    }

    fn fields(&mut self) -> Vec<Field> {
        Vec::new()
    }

    fn attachments(&mut self) -> Vec<AttachedFile> {
        Vec::new()
    }
}

fn convert_pages(
    pages: Vec<Result<Page, PageError>>,
) -> (Result<(), Failure>, String, Vec<String>) {
    let mut out = Markdown::new(Rc::new(Budget::new(Limits::default())), Selection::All);
    let result = super::write_pages(&mut ScriptedEngine(pages), &mut out);
    let written = out.finish();
    (result, written.markdown, written.warnings)
}

fn paragraph_page(text: &str) -> Page {
    Page {
        blocks: vec![Block::Paragraph {
            lines: lines(&[text]),
            quote: false,
        }],
        ..Page::default()
    }
}

#[test]
fn a_page_that_fails_is_named_and_the_others_stay() {
    let (result, text, warnings) = convert_pages(vec![
        Ok(paragraph_page("first")),
        Err(PageError::Damaged),
        Ok(paragraph_page("third")),
    ]);
    assert_eq!(result, Ok(()));
    assert_eq!(text, "first\n\nthird\n");
    assert_eq!(warnings, ["page 2 could not be read"]);
}

#[test]
fn pages_that_all_fail_are_damage_and_not_a_scan() {
    let (result, ..) = convert_pages(vec![Ok(Page::default()), Err(PageError::Damaged)]);
    assert_eq!(result, Err(Failure::Corrupt(Damage::Malformed)));
}

#[test]
fn pages_without_a_word_count_as_no_text() {
    let (result, ..) = convert_pages(vec![Ok(Page::default()), Ok(Page::default())]);
    assert_eq!(result, Err(Failure::NoText));
}

#[test]
fn a_page_that_was_cut_off_makes_the_text_incomplete() {
    let cut = Page {
        cut: Some(Limit::Element),
        ..paragraph_page("begun")
    };
    let (result, text, warnings) = convert_pages(vec![Ok(cut), Ok(paragraph_page("next"))]);
    assert_eq!(result, Err(Failure::Stopped(Limit::Element)));
    assert_eq!(text, "begun\n\nnext\n");
    assert_eq!(warnings, ["page 1 is too large and was cut off"]);
}

#[test]
fn blocks_become_headings_lists_quotes_and_tables() {
    let item = |number, depth, text| Item {
        number,
        depth,
        lines: lines(&[text]),
    };
    let cell = |text: &str, columns, rows| Cell {
        runs: vec![Run::plain(text)],
        columns,
        rows,
    };
    let page = Page {
        blocks: vec![
            Block::Heading {
                level: 9,
                lines: lines(&["A *deep*", "heading"]),
            },
            Block::Paragraph {
                lines: lines(&["quoted"]),
                quote: true,
            },
            Block::List {
                items: vec![item(None, 0, "one"), item(Some(7), 1, "1. two")],
            },
            Block::Table {
                rows: vec![
                    vec![cell("a", 1, 1), cell("b|c", 1, 1), cell("d", 1, 2)],
                    vec![cell("wide", 2, 1)],
                    vec![cell("", 1, 1), cell("e", 1, 1), cell("f", 1, 1)],
                ],
            },
        ],
        ..Page::default()
    };
    let (_, text, _) = convert_pages(vec![Ok(page)]);
    assert_eq!(
        text,
        "###### A \\*deep\\* heading\n\n> quoted\n\n- one\n  7. 1\\. two\n\n| a | b\\|c | d |\n|---|---|---|\n| wide |  |  |\n|  | e | f |\n"
    );
}

#[test]
fn a_table_shows_a_thousand_rows_and_counts_the_rest() {
    let rows = (0..1500)
        .map(|number| {
            let text = |text: &str| Cell {
                runs: vec![Run::plain(text)],
                columns: 1,
                rows: 1,
            };
            vec![text(&number.to_string()), text("x")]
        })
        .collect();
    let page = Page {
        blocks: vec![Block::Table { rows }],
        ..Page::default()
    };
    let (_, text, _) = convert_pages(vec![Ok(page)]);
    assert!(text.contains("| 1000 | x |\n\n_(499 more rows truncated)_"));
}

/// A document of three pages, each with one line.
fn three_pages() -> Vec<u8> {
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [4 0 R 6 0 R 8 0 R] /Count 3 >>".to_owned(),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    for (number, word) in [(4, "first"), (6, "second"), (8, "third")] {
        let content = format!("BT /F 12 Tf 72 700 Td (This is the {word} page.) Tj ET");
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F 3 0 R >> >> \
             /Contents {} 0 R >>",
            number + 1
        ));
        objects.push(format!(
            "<< /Length {} >>\nstream\n{content}\nendstream",
            content.len()
        ));
    }
    samples::pdf_of_objects(&objects)
}

fn pdf() -> ConversionHint {
    ConversionHint {
        mime: "application/pdf".to_owned(),
        ..ConversionHint::default()
    }
}

#[test]
fn a_range_gives_its_pages_and_counts_all() {
    let selection = Selection::Parts {
        unit: Unit::Page,
        span: Span { first: 2, last: 2 },
    };
    let conversion = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        Limits::default(),
        selection,
    );
    assert_eq!(conversion.markdown, "This is the second page.\n");
    assert_eq!(conversion.parts_seen, 3);
    assert_eq!(
        conversion
            .parts
            .iter()
            .map(|part| part.number)
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn pages_are_found_without_a_table_of_objects() {
    let conversion = samples::convert_pdf(three_pages(), false);
    assert_eq!(
        conversion.markdown,
        "This is the first page.\n\nThis is the second page.\n\nThis is the third page.\n"
    );
    assert_eq!(conversion.failure, None);
}

#[test]
fn a_limit_keeps_the_content_before_it() {
    let limits = Limits {
        max_text_bytes: 60,
        ..Limits::default()
    };
    let conversion = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        limits,
        Selection::All,
    );
    assert!(
        conversion.markdown.starts_with("This is the first page.\n"),
        "{}",
        conversion.markdown
    );
    assert_eq!(conversion.stopped, Some(Limit::Size));
}

#[test]
fn a_time_limit_of_zero_stops_the_conversion() {
    let limits = Limits {
        wall_ms: 0,
        ..Limits::default()
    };
    let conversion = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        limits,
        Selection::All,
    );
    assert_eq!(conversion.failure, Some(Failure::Stopped(Limit::Time)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_with_any_bytes_changed_gives_text_or_a_failure(
        changes in proptest::collection::vec((0_usize..1200, any::<u8>()), 1..20),
        end in 0_usize..1300,
    ) {
        let mut file = three_pages();
        for (at, byte) in changes {
            if let Some(its) = file.get_mut(at) {
                *its = byte;
            }
        }
        file.truncate(end);
        let conversion = convert(&mut Cursor::new(file), &pdf(), Limits::default(), Selection::All);
        prop_assert_eq!(conversion.markdown.is_empty(), conversion.failure.is_some());
    }
}
