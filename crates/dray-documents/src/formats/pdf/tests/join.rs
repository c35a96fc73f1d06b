//! Lines joined into paragraphs, hyphens, characters.

use super::{line, lines};
use crate::formats::pdf::characters::{clean_text, is_unreadable};
use crate::formats::pdf::engine::{Block, Line};
use crate::formats::pdf::join;

fn join_texts(lines: &[Line]) -> Vec<String> {
    let block = Block::Paragraph {
        lines: lines.to_vec(),
        quote: false,
    };
    let edges = join::ColumnEdges::of(&[block], 0.0);
    join::join_paragraphs(lines, edges.at(0))
        .into_iter()
        .map(|runs| runs.into_iter().map(|run| run.text).collect())
        .collect()
}

fn column(left: f32, right: f32) -> join::Column {
    join::Column {
        left,
        right,
        room: right,
    }
}

fn flow_markdown(texts: &[&str]) -> String {
    join::one_line(&lines(texts))
}

#[test]
fn full_lines_are_joined_into_one_paragraph() {
    let lines = lines(&[
        "The harbour was dredged in the autumn of that year",
        "because the council had grown tired of losing coal",
        "barges to the sand.",
    ]);
    assert_eq!(
        join_texts(&lines),
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
    let [text] = join_texts(&lines).try_into().unwrap();
    assert_eq!(text.lines().count(), 5);
}

#[test]
fn paragraphs_without_gap_or_indent_are_separated_by_their_last_lines() {
    let lines = lines(&[
        "The harbour was dredged in the autumn of that year because the council had",
        "grown tired of losing coal barges to the sand.",
        "The pilots, who had opposed the expense, asked for a second channel in the",
        "following spring and got it.",
        "A clerk wrote it down.",
        "The mayor signed.",
    ]);
    let paragraphs = join_texts(&lines);
    assert_eq!(paragraphs.len(), 4, "{paragraphs:?}");
    assert!(
        paragraphs[0]
            .ends_with("because the council had grown tired of losing coal barges to the sand.")
    );
    assert!(paragraphs.iter().all(|paragraph| !paragraph.contains('\n')));
}

#[test]
fn two_sentences_that_leave_room_on_the_page_are_two_paragraphs() {
    let lines = lines(&[
        "Hello from the first paragraph of this document.",
        "Second paragraph with some words.",
    ]);
    let block = |lines: &[Line]| Block::Paragraph {
        lines: lines.to_vec(),
        quote: false,
    };
    let split = |width: f32| {
        let edges = join::ColumnEdges::of(&[block(&lines)], width);
        join::join_paragraphs(&lines, edges.at(0)).len()
    };
    assert_eq!(split(612.0), 2);
    // On a narrow page the first line is full.
    assert_eq!(split(400.0), 1);
}

#[test]
fn an_address_keeps_its_lines() {
    assert_eq!(
        join_texts(&lines(&[
            "Hartwig Chandlery",
            "Quay Street 14",
            "Ostermoor"
        ])),
        ["Hartwig Chandlery\nQuay Street 14\nOstermoor"]
    );
}

#[test]
fn entries_of_a_table_of_contents_stay_apart() {
    let lines = lines(&[
        "1.1 The first survey of the bar . . . . . . . . . . 12",
        "1.2 Dredging . . . . . . . . . . . . . . . . . . . . 14",
        "1.3 What it cost . . . . . . . . . . . . . . . . . . 15",
    ]);
    let [text] = join_texts(&lines).try_into().unwrap();
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn an_indented_line_begins_a_paragraph_after_a_sentence() {
    let mut lines = lines(&[
        "The council had grown tired of losing barges there.",
        "The pilots, who had opposed the expense of dredging,",
        "asked for a second channel in the following spring.",
    ]);
    lines[1].x += 10.0;
    assert_eq!(join_texts(&lines).len(), 2);
}

#[test]
fn entries_with_hanging_indents_begin_at_the_left_edge() {
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
    let paragraphs = join_texts(&lines);
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
    assert_eq!(join_texts(&lines).len(), 2);
}

#[test]
fn a_hyphen_between_lower_case_letters_is_removed() {
    assert_eq!(
        flow_markdown(&["the inter-", "national code"]),
        "the international code"
    );
    assert_eq!(
        flow_markdown(&["the inter\u{ad}", "national code"]),
        "the international code"
    );
    assert_eq!(
        flow_markdown(&["the inter\u{2010}", "national code"]),
        "the international code"
    );
}

#[test]
fn a_hyphen_between_names_or_numbers_stays() {
    assert_eq!(
        flow_markdown(&["Mrs Harding-", "Jones"]),
        "Mrs Harding-Jones"
    );
    assert_eq!(flow_markdown(&["1880 -", "1895"]), "1880 - 1895");
    assert_eq!(flow_markdown(&["COVID-", "19"]), "COVID-19");
}

#[test]
fn scripts_without_spaces_are_joined_without_a_space() {
    assert_eq!(
        flow_markdown(&["港口在一八七四年", "秋天"]),
        "港口在一八七四年秋天"
    );
    assert_eq!(
        flow_markdown(&["the word 港口", "means harbour"]),
        "the word 港口 means harbour"
    );
}

#[test]
fn a_sentence_continues_at_the_top_of_the_next_column() {
    let left = [line("high water at the inner basin", 72.0, 100.0)];
    let right = [line("and at the timber dock.", 320.0, 700.0)];
    let mut flow = join::Flow::default();
    assert!(flow.take(&left, column(72.0, 300.0)).is_empty());
    assert!(flow.take(&right, column(320.0, 540.0)).is_empty());
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
fn a_paragraph_further_down_is_separate_even_if_it_begins_in_lower_case() {
    let above = [line("high water at the inner basin", 72.0, 700.0)];
    let below = [line("and at the timber dock.", 72.0, 600.0)];
    let mut flow = join::Flow::default();
    flow.take(&above, column(72.0, 300.0));
    assert_eq!(flow.take(&below, column(72.0, 300.0)).len(), 1);
}

#[test]
fn ligatures_and_presentation_forms_are_letters() {
    assert_eq!(
        clean_text("e\u{fb03}cient \u{fb01}re \u{fb06}"),
        "efficient fire st"
    );
    assert_eq!(
        clean_text("\u{fe80}\u{fe8d}\u{fea9}\u{feed}\u{fef1}\u{fef4}"),
        "ءادويي"
    );
    assert_eq!(clean_text("\u{fef5}\u{fefb}\u{fefc}"), "لآلالا");
    assert_eq!(clean_text("a\u{a0}b\u{7}c\td"), "a bc d");
}

#[test]
fn a_page_of_unknown_characters_is_distinguished_from_a_few_symbols() {
    assert!(is_unreadable(
        ["\u{fffd}".repeat(40).as_str(), "one line"].into_iter()
    ));
    assert!(!is_unreadable(
        ["\u{fffd}\u{e001} and a long line of readable text"].into_iter()
    ));
}
