//! Hits and their places.

use dray_documents::markdown::Unit;

use super::*;

fn search(text: &str, query: &str) -> String {
    let document = SearchText {
        markdown: text,
        ..SearchText::default()
    };
    find(&document, query)
}

fn page(number: u32, start: usize) -> Part {
    Part {
        unit: Unit::Page,
        number,
        title: None,
        start,
    }
}

#[test]
fn hits_come_with_page_line_and_heading() {
    let text = "# Intro\n\nThe Budget is tight.\n\n# End\n\nno budget, NO BUDGET\n";
    let document = SearchText {
        markdown: text,
        parts: &[page(1, 0), page(2, 31)],
        ..SearchText::default()
    };
    let hits_text = find(&document, "budget");
    assert_eq!(
        hits_text,
        "_(3 hits)_\n\n- page 1, line 3, under “Intro”: The Budget is tight.\n\
         - page 2, line 7, under “End”: no budget, NO BUDGET\n\
         - page 2, line 7, under “End”: no budget, NO BUDGET\n"
    );
}

#[test]
fn characters_that_change_length_when_folded_do_not_shift_hits() {
    assert_eq!(search("İİİ straße x\n", "STRASSE"), "_(No hits)_\n");
    assert_eq!(
        search("İİİ ziel x\n", "Ziel"),
        "_(1 hit)_\n\n- line 1: İİİ ziel x\n"
    );
    assert_eq!(
        search("a\u{a0}b\n", " a   b "),
        "_(1 hit)_\n\n- line 1: a\u{a0}b\n"
    );
    assert_eq!(search("anything", "  "), "_(No hits)_\n");
}

#[test]
fn raised_characters_are_found_as_plain_ones() {
    let hit = "_(1 hit)_\n\n- line 1: 25 m² at 10⁻³⁽ⁿ⁺¹⁾\n";
    for query in ["25 m2", "25 m²", "M² at 10-3", "10-3(n+1)"] {
        assert_eq!(search("25 m² at 10⁻³⁽ⁿ⁺¹⁾\n", query), hit, "{query}");
    }
}

#[test]
fn many_hits_are_counted_and_long_lines_cut() {
    let text = "x".repeat(1000);
    let hits_text = search(&text, "x");
    assert!(hits_text.starts_with("_(1000 hits, the first 50 shown)_\n"));
    assert!(
        hits_text
            .lines()
            .all(|line| line.chars().count() < 2 * CONTEXT_CHARACTERS + 40)
    );
}

#[test]
fn hits_in_lines_that_readers_are_not_shown_have_their_row() {
    let text = "| n |\n|---|\n| 1 |\n| 2 |\n| 3 |\n\n```\na\nb\nc\n```\n\nend\n";
    let search_lines = [
        SearchLines {
            first: 4,
            count: 2,
            rows: vec![3, 7],
        },
        SearchLines {
            first: 9,
            count: 2,
            rows: Vec::new(),
        },
    ];
    for (query, location) in [
        ("1", "line 3: | 1 |"),
        ("3", "row 7: | 3 |"),
        ("a", "line 8: a"),
        ("c", "after line 8: c"),
        ("end", "line 13: end"),
    ] {
        let document = SearchText {
            markdown: text,
            search_lines: &search_lines,
            ..SearchText::default()
        };
        let hits = find(&document, query);
        assert_eq!(hits, format!("_(1 hit)_\n\n- {location}\n"));
    }
}

#[test]
fn text_is_found_as_people_read_it() {
    for (text, query) in [
        ("**Total** amount due\n", "total amount"),
        ("a\\*b [x]\n", "a*b"),
        ("a\\*b [x]\n", "a\\*b"),
        ("2 * 3 **equals** six\n", "2 * 3 equals"),
        ("| a\\|b | c<br>d |\n", "a|b"),
        ("| a\\|b | c<br>d |\n", "c d"),
        (
            "see [the page](https://a.example/x) for ~~more~~ less\n",
            "page for more less",
        ),
        ("see [the page](https://a.example/x) for\n", "a.example/x"),
        ("![a map](map.png) of it\n", "a map of it"),
        ("run `ls *.c` now\n", "run ls *.c now"),
        ("the word[^1] goes on\n", "word goes on"),
        ("a snake_case _name_\n", "snake_case name"),
        ("> a quote of\n> two   lines\n", "quote of two lines"),
        (
            "The contract ends on\n31 December 2031.\n",
            "ends on 31 December",
        ),
        ("Η ΟΔΟΣ και η οδός\n", "οδος και"),
        ("```\nlet a =\n    1;\n```\n", "a = 1"),
        ("```\na\\*b\n```\n", "a\\*b"),
    ] {
        assert!(
            search(text, query).starts_with("_(1 hit)_"),
            "{query} in {text}"
        );
    }
}

#[test]
fn text_that_people_do_not_read_together_is_not_found() {
    for (text, query) in [
        ("one\n\ntwo\n", "one two"),
        ("> one\n>\n> two\n", "one two"),
        ("# one\ntwo\n", "one two"),
        ("| one |\n| two |\n", "| one | | two |"),
        ("```\na\\*b\n```\n", "a*b"),
        ("[a](b) [c\n\nd](e)\n", "c d"),
    ] {
        assert_eq!(search(text, query), "_(No hits)_\n", "{query} in {text}");
    }
    let document = SearchText {
        markdown: "a\\*b\n",
        is_verbatim: true,
        ..SearchText::default()
    };
    assert_eq!(find(&document, "a*b"), "_(No hits)_\n");
}

#[test]
fn a_hit_over_line_ends_has_its_first_line() {
    assert_eq!(
        search(
            "First.\n\nThe **contract** ends\non 1 May.\n\nEnd\n",
            "contract ends on"
        ),
        "_(1 hit)_\n\n- line 3: The **contract** ends on 1 May.\n"
    );
}

proptest::proptest! {
    #[test]
    fn search_never_panics(text in "([\\\\`*_\\[\\]()|>< \n]|\\PC){0,80}", query in "\\PC{0,6}") {
        let hits_text = search(&text, &query);
        proptest::prop_assert!(hits_text.ends_with('\n'));
    }

    #[test]
    fn text_as_it_is_written_is_found(text in "[a-zİ *_`\\[\\]()\n]{0,60}", start in 0..60_usize) {
        let query: String = text.chars().skip(start).take(4).collect();
        let query = query.trim();
        if !query.is_empty() && !query.contains(char::is_whitespace) {
            proptest::prop_assert!(!search(&text, query).contains("No hits"), "{query} in {text}");
        }
    }
}
