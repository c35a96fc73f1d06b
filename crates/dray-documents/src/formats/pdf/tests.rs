//! Joining, characters, what becomes of pages that fail, ranges and limits. Whole files are tried in `tests/corpus.rs`.

use std::io::Cursor;
use std::rc::Rc;

use proptest::prelude::*;

use super::characters::{clean, unreadable};
use super::engine::{Block, Cell, Engine, Field, Item, Line, Page, Run, Trouble};
use super::join;
use crate::formats::{Hint, convert};
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
        runs: vec![Run {
            text: text.to_owned(),
            code: false,
        }],
        x,
        end: x + width,
        y,
        size: 10.0,
    }
}

fn joined(lines: &[Line]) -> Vec<String> {
    let block = Block::Paragraph {
        lines: lines.to_vec(),
        quote: false,
    };
    let edges = join::Edges::of(&[block]);
    join::paragraphs(lines, edges.at(0))
        .into_iter()
        .map(|runs| runs.into_iter().map(|run| run.text).collect())
        .collect()
}

fn flowed(texts: &[&str]) -> String {
    join::one_line(&lines(texts))
}

#[test]
fn lines_that_are_full_are_one_paragraph() {
    let lines = lines(&[
        "The harbour was dredged in the autumn of that year",
        "because the council had grown tired of losing coal",
        "barges to the sand.",
    ]);
    assert_eq!(
        joined(&lines),
        [
            "The harbour was dredged in the autumn of that year because the council had grown tired of losing coal \
             barges to the sand."
        ]
    );
}

#[test]
fn a_line_that_ends_short_was_ended_on_purpose() {
    let lines = lines(&[
        "Name: Marigold",
        "Length: eleven metres",
        "A remark that is a good deal longer than the others are",
        "Berth: north",
        "Paid: yes",
    ]);
    let [text] = joined(&lines).try_into().unwrap();
    assert_eq!(text.lines().count(), 5);
}

#[test]
fn an_address_keeps_its_lines() {
    assert_eq!(
        joined(&lines(&[
            "Hartwig Chandlery",
            "Quay Street 14",
            "Ostermoor"
        ])),
        ["Hartwig Chandlery\nQuay Street 14\nOstermoor"]
    );
}

#[test]
fn a_line_further_in_begins_a_paragraph_after_a_sentence() {
    let mut lines = lines(&[
        "The council had grown tired of losing barges there.",
        "The pilots, who had opposed the expense of dredging,",
        "asked for a second channel in the following spring.",
    ]);
    lines[1].x += 10.0;
    assert_eq!(joined(&lines).len(), 2);
}

#[test]
fn entries_that_hang_begin_at_the_edge() {
    let mut lines = lines(&[
        "Aldous, M. The dredging of the outer channel, with maps.",
        "printed for the author in the town of Ostermoor, and",
        "sold at the quay, 1881.",
        "Brandt, P. Tide tables of the coast and of the islands.",
        "printed by the school of navigation in two volumes of",
        "unequal size, 1884.",
    ]);
    for at in [1, 2, 4, 5] {
        lines[at].x += 15.0;
        lines[at].end += 15.0;
    }
    let paragraphs = joined(&lines);
    assert_eq!(paragraphs.len(), 2);
    assert!(paragraphs[1].starts_with("Brandt"));
}

#[test]
fn a_wider_step_begins_a_paragraph() {
    let mut lines = lines(&[
        "The harbour was dredged in the autumn of that year",
        "because the council had grown tired of losing coal",
        "barges to the sand, and because of the insurance it",
        "had bought, which did not cover what everyone knew.",
    ]);
    lines[3].y -= 6.0;
    assert_eq!(joined(&lines).len(), 2);
}

#[test]
fn a_hyphen_between_small_letters_is_undone() {
    assert_eq!(
        flowed(&["the inter-", "national code"]),
        "the international code"
    );
    assert_eq!(
        flowed(&["the inter\u{ad}", "national code"]),
        "the international code"
    );
    assert_eq!(
        flowed(&["the inter\u{2010}", "national code"]),
        "the international code"
    );
}

#[test]
fn a_hyphen_that_belongs_there_stays() {
    assert_eq!(flowed(&["Mrs Harding-", "Jones"]), "Mrs Harding-Jones");
    assert_eq!(flowed(&["1880 -", "1895"]), "1880 - 1895");
    assert_eq!(flowed(&["COVID-", "19"]), "COVID-19");
}

#[test]
fn scripts_without_spaces_are_joined_without_one() {
    assert_eq!(
        flowed(&["港口在一八七四年", "秋天"]),
        "港口在一八七四年秋天"
    );
    assert_eq!(
        flowed(&["the word 港口", "means harbour"]),
        "the word 港口 means harbour"
    );
}

#[test]
fn a_sentence_goes_on_at_the_head_of_the_next_column() {
    let left = [line("high water at the inner basin", 72.0, 100.0)];
    let right = [line("and at the timber dock.", 320.0, 700.0)];
    let mut flow = join::Flow::default();
    assert!(flow.take(&left, (72.0, 300.0)).is_empty());
    assert!(flow.take(&right, (320.0, 540.0)).is_empty());
    let text: String = flow
        .end()
        .unwrap()
        .into_iter()
        .map(|run| run.text)
        .collect();
    assert_eq!(
        text,
        "high water at the inner basin and at the timber dock."
    );
}

#[test]
fn a_paragraph_below_is_another_one_though_it_begins_small() {
    let above = [line("high water at the inner basin", 72.0, 700.0)];
    let below = [line("and at the timber dock.", 72.0, 600.0)];
    let mut flow = join::Flow::default();
    flow.take(&above, (72.0, 300.0));
    assert_eq!(flow.take(&below, (72.0, 300.0)).len(), 1);
}

#[test]
fn ligatures_and_presentation_forms_are_letters() {
    assert_eq!(
        clean("e\u{fb03}cient \u{fb01}re \u{fb06}"),
        "efficient fire st"
    );
    assert_eq!(
        clean("\u{fe80}\u{fe8d}\u{fea9}\u{feed}\u{fef1}\u{fef4}"),
        "ءادويي"
    );
    assert_eq!(clean("\u{fef5}\u{fefb}\u{fefc}"), "لآلالا");
    assert_eq!(clean("a\u{a0}b\u{7}c\td"), "a bc d");
}

#[test]
fn a_page_of_unknown_characters_is_told_from_a_few_symbols() {
    assert!(unreadable(
        ["\u{fffd}".repeat(40).as_str(), "one line"].into_iter()
    ));
    assert!(!unreadable(
        ["\u{fffd}\u{e001} and a long line of readable text"].into_iter()
    ));
}

/// An engine whose pages are told beforehand.
struct Told(Vec<Result<Page, Trouble>>);

impl Engine for Told {
    fn pages(&mut self) -> u32 {
        u32::try_from(self.0.len()).unwrap()
    }

    fn page(&mut self, number: u32) -> Result<Page, Trouble> {
        self.0[number as usize - 1].clone()
    }

    fn damage(&self) -> Damage {
        Damage::Malformed
    }

    fn fields(&mut self) -> Vec<Field> {
        Vec::new()
    }
}

fn written(pages: Vec<Result<Page, Trouble>>) -> (Result<(), Failure>, String, Vec<String>) {
    let mut out = Markdown::new(Rc::new(Budget::new(Limits::default())), Selection::All);
    let result = super::write(&mut Told(pages), &mut out);
    let written = out.finish();
    (result, written.markdown, written.warnings)
}

fn said(text: &str) -> Page {
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
    let (result, text, warnings) = written(vec![
        Ok(said("first")),
        Err(Trouble::Damaged),
        Ok(said("third")),
    ]);
    assert_eq!(result, Ok(()));
    assert_eq!(text, "first\n\nthird\n");
    assert_eq!(warnings, ["page 2 could not be read"]);
}

#[test]
fn pages_that_all_fail_are_damage_and_not_a_scan() {
    let (result, ..) = written(vec![Ok(Page::default()), Err(Trouble::Damaged)]);
    assert_eq!(result, Err(Failure::Corrupt(Damage::Malformed)));
}

#[test]
fn pages_without_a_word_are_no_text() {
    let (result, ..) = written(vec![Ok(Page::default()), Ok(Page::default())]);
    assert_eq!(result, Err(Failure::NoText));
}

#[test]
fn a_page_that_was_cut_off_makes_the_text_incomplete() {
    let cut = Page {
        cut: Some(Limit::Element),
        ..said("begun")
    };
    let (result, text, warnings) = written(vec![Ok(cut), Ok(said("next"))]);
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
        text: text.to_owned(),
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
    let (_, text, _) = written(vec![Ok(page)]);
    assert_eq!(
        text,
        "###### A \\*deep\\* heading\n\n> quoted\n\n- one\n  7. 1\\. two\n\n| a | b\\|c | d |\n|---|---|---|\n| wide |  |  |\n|  | e | f |\n"
    );
}

#[test]
fn a_table_shows_a_thousand_rows_and_counts_the_rest() {
    let rows = (0..1500)
        .map(|n| {
            let text = |text: &str| Cell {
                text: text.to_owned(),
                columns: 1,
                rows: 1,
            };
            vec![text(&n.to_string()), text("x")]
        })
        .collect();
    let page = Page {
        blocks: vec![Block::Table { rows }],
        ..Page::default()
    };
    let (_, text, _) = written(vec![Ok(page)]);
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
    let mut file = "%PDF-1.4\n".to_owned();
    for (at, object) in objects.iter().enumerate() {
        let text = format!("{} 0 obj\n{object}\nendobj\n", at + 1);
        file.push_str(&text);
    }
    file.push_str("trailer\n<< /Root 1 0 R >>\n%%EOF\n");
    file.into_bytes()
}

fn pdf() -> Hint {
    Hint {
        mime: "application/pdf".to_owned(),
        ..Hint::default()
    }
}

#[test]
fn a_range_gives_its_pages_and_counts_all() {
    let selection = Selection::Parts {
        unit: Unit::Page,
        span: Span { first: 2, last: 2 },
    };
    let got = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        Limits::default(),
        selection,
    );
    assert_eq!(got.markdown, "This is the second page.\n");
    assert_eq!(got.parts_seen, 3);
    assert_eq!(
        got.parts.iter().map(|part| part.number).collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn pages_are_found_without_a_table_of_objects() {
    let got = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        Limits::default(),
        Selection::All,
    );
    assert_eq!(
        got.markdown,
        "This is the first page.\n\nThis is the second page.\n\nThis is the third page.\n"
    );
    assert_eq!(got.failure, None);
}

#[test]
fn a_limit_keeps_what_came_before_it() {
    let limits = Limits {
        max_text_bytes: 60,
        ..Limits::default()
    };
    let got = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        limits,
        Selection::All,
    );
    assert!(
        got.markdown.starts_with("This is the first page.\n"),
        "{}",
        got.markdown
    );
    assert_eq!(got.stopped, Some(Limit::Size));
}

#[test]
fn no_time_is_a_limit_and_no_damage() {
    let limits = Limits {
        wall_ms: 0,
        ..Limits::default()
    };
    let got = convert(
        &mut Cursor::new(three_pages()),
        &pdf(),
        limits,
        Selection::All,
    );
    assert_eq!(got.failure, Some(Failure::Stopped(Limit::Time)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_with_any_bytes_changed_ends_with_an_answer(
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
        let got = convert(&mut Cursor::new(file), &pdf(), Limits::default(), Selection::All);
        prop_assert_eq!(got.markdown.is_empty(), got.failure.is_some());
    }
}
