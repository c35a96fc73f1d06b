//! The writer: separation, escapes, tables, parts, limits.

use super::*;
use crate::limits::Limits;

fn write_markdown(build: impl FnOnce(&mut Markdown) -> Result<(), Limit>) -> String {
    let mut out = Markdown::new(Rc::new(Budget::new(Limits::default())), Selection::All);
    build(&mut out).unwrap();
    out.finish().markdown
}

fn bold() -> Style {
    Style {
        bold: true,
        ..Style::default()
    }
}

#[test]
fn blocks_are_separated_by_one_blank_line() {
    let text = write_markdown(|out| {
        out.heading(1, &Inline::plain("Title"))?;
        out.paragraph(&Inline::plain("one\ntwo"))?;
        out.paragraph(&Inline::plain("  "))?;
        out.code("rust", "fn main() {}\n")
    });
    assert_eq!(text, "# Title\n\none\ntwo\n\n```rust\nfn main() {}\n```\n");
}

#[test]
fn nested_lists_and_quotes_keep_their_prefixes() {
    let text = write_markdown(|out| {
        out.open_item(ListMarker::Number(3));
        out.paragraph(&Inline::plain("three"))?;
        out.open_item(ListMarker::Bullet);
        out.paragraph(&Inline::plain("deep"))?;
        out.close();
        out.close();
        out.open_item(ListMarker::Number(4));
        out.paragraph(&Inline::plain("four"))?;
        out.code("", "x")?;
        out.close();
        out.open_quote();
        out.paragraph(&Inline::plain("said"))?;
        out.paragraph(&Inline::plain("again"))?;
        out.close();
        out.paragraph(&Inline::plain("after"))
    });
    assert_eq!(
        text,
        "3. three\n   - deep\n4. four\n\n   ```\n   x\n   ```\n\n> said\n>\n> again\n\nafter\n"
    );
}

#[test]
fn items_are_indented_by_the_markers_of_their_parents() {
    let text = write_markdown(|out| {
        out.paragraph(&Inline::plain("before"))?;
        out.item(0, ListMarker::Bullet, &Inline::plain("a"))?;
        out.item(1, ListMarker::Number(1), &Inline::plain("b"))?;
        out.item(0, ListMarker::Bullet, &Inline::plain("c"))?;
        out.paragraph(&Inline::plain("after"))
    });
    assert_eq!(text, "before\n\n- a\n  1. b\n- c\n\nafter\n");
    let text = write_markdown(|out| {
        out.item(0, ListMarker::Number(9), &Inline::plain("a"))?;
        out.item(1, ListMarker::Bullet, &Inline::plain("b\nc"))?;
        out.item(2, ListMarker::Number(1), &Inline::plain("d"))?;
        out.item(0, ListMarker::Number(10), &Inline::plain("e"))?;
        out.item(1, ListMarker::Number(1), &Inline::plain("f"))?;
        out.paragraph(&Inline::plain("between"))?;
        out.item(3, ListMarker::Bullet, &Inline::plain("no parent"))
    });
    assert_eq!(
        text,
        "9. a\n   - b\n     c\n     1. d\n10. e\n    1. f\n\nbetween\n\n  - no parent\n"
    );
}

#[test]
fn only_markup_characters_are_escaped() {
    for (plain, escaped) in [
        ("snake_case 2 * 3 [x] a < b", "snake_case 2 * 3 [x] a < b"),
        ("_x_ *y* `z`", "\\_x\\_ \\*y\\* \\`z\\`"),
        ("# no heading", "\\# no heading"),
        ("#hashtag", "#hashtag"),
        ("- no item", "\\- no item"),
        ("-5 degrees", "-5 degrees"),
        ("1. no list", "1\\. no list"),
        ("1.5 kg", "1.5 kg"),
        ("> no quote", "\\> no quote"),
        ("<b>", "\\<b>"),
        ("[a](b)", "[a\\](b)"),
        ("[^1]", "\\[^1]"),
        ("C:\\dir\\_x", "C:\\dir\\\\\\_x"),
        ("===", "\\==="),
        ("---", "\\---"),
    ] {
        assert_eq!(
            write_markdown(|out| out.paragraph(&Inline::plain(plain))),
            format!("{escaped}\n")
        );
    }
}

#[test]
fn markers_never_enclose_white_space_and_runs_merge() {
    let text = write_markdown(|out| {
        let mut line = Inline::new();
        line.text("a", Style::default());
        line.text(" b", bold());
        line.text("c ", bold());
        line.text("d", Style::default());
        line.text(" ", bold());
        out.paragraph(&line)
    });
    assert_eq!(text, "a **bc** d\n");
}

#[test]
fn links_keep_text_and_lose_dangerous_targets() {
    let link = |url: &str, text: &str| {
        let mut line = Inline::new();
        line.begin_link(url);
        line.text(text, Style::default());
        line.end_link();
        write_markdown(|out| out.paragraph(&line))
    };
    assert_eq!(
        link("https://a.example/x", "here"),
        "[here](https://a.example/x)\n"
    );
    assert_eq!(
        link("https://a.example/x (1)", "here"),
        "[here](<https://a.example/x (1)>)\n"
    );
    assert_eq!(link("Java\tScript:alert(1)", "here"), "here\n");
    assert_eq!(link("file:///etc/passwd", "here"), "here\n");
    assert_eq!(
        link("https://a.example/", ""),
        "[https://a.example/](https://a.example/)\n"
    );
}

#[test]
fn images_have_a_name_and_never_data() {
    let image = |alt: &str, name: &str| {
        let mut line = Inline::new();
        line.image(alt, name);
        write_markdown(|out| out.paragraph(&line))
    };
    assert_eq!(
        image("A chart", "media/image1.png"),
        "![A chart](media/image1.png)\n"
    );
    assert_eq!(image("A dot", "data:image/png;base64,AAAA"), "![A dot]\n");
    assert_eq!(image("", ""), "");
}

#[test]
fn table_cells_are_escaped_trimmed_and_filled_up_to_the_width() {
    let text = write_markdown(|out| {
        let mut table = out.new_table();
        table.row(
            1,
            vec![Cell::plain("a|b"), Cell::plain("c\\d"), Cell::plain("")],
        );
        table.row(2, vec![Cell::plain(" one\r\ntwo ")]);
        table.row(3, vec![Cell::default()]);
        out.table(table)
    });
    assert_eq!(text, "| a\\|b | c\\\\d |\n|---|---|\n| one<br>two |  |\n");
}

#[test]
fn spans_leave_empty_cells_and_never_allocate_by_their_number() {
    let text = write_markdown(|out| {
        let mut table = out.new_table();
        table.row(
            1,
            vec![Cell::plain("wide").columns(2), Cell::plain("tall").rows(2)],
        );
        table.row(2, vec![Cell::plain("x"), Cell::plain("y")]);
        table.row(
            3,
            vec![Cell::plain("1"), Cell::plain("2"), Cell::plain("3")],
        );
        out.table(table)
    });
    assert_eq!(
        text,
        "| wide |  | tall |\n|---|---|---|\n| x | y |  |\n| 1 | 2 | 3 |\n"
    );
    let mut table = Table::new();
    table.row(
        1,
        vec![Cell::plain("x").columns(usize::MAX).rows(usize::MAX)],
    );
    table.row(2, vec![Cell::plain("y")]);
    assert_eq!(table.render().unwrap().text.matches('|').count(), 3 * 66);
}

#[test]
fn a_table_shows_a_thousand_rows_and_counts_the_rest() {
    let text = write_markdown(|out| {
        let mut table = out.new_table();
        for number in 1..=1501 {
            table.row(number, vec![Cell::plain(&number.to_string())]);
        }
        out.table(table)
    });
    assert!(
        text.ends_with("| 1001 |\n\n_(500 more rows truncated)_\n"),
        "{text}"
    );
}

#[test]
fn a_search_gets_all_rows_with_their_numbers_in_the_source() {
    let write = |all: bool| {
        let budget = Rc::new(Budget::new(Limits::default()));
        let mut out = Markdown::new(budget, Selection::All).with_all_rows(all);
        out.paragraph(&Inline::plain("before")).unwrap();
        let mut table = out.new_table().limit(2);
        for number in [1, 3, 4, 7, 9] {
            table.row(number, vec![Cell::plain(&number.to_string())]);
        }
        out.table(table).unwrap();
        out.code_lines("one\ntwo\nthree", 2).unwrap();
        out.finish()
    };
    let shown = write(false);
    assert_eq!(
        shown.markdown,
        "before\n\n| 1 |\n|---|\n| 3 |\n| 4 |\n\n_(2 more rows truncated)_\n\n\
         ```\none\ntwo\n```\n\n_(1 more lines truncated)_\n"
    );
    assert_eq!(shown.omitted, 3);
    assert_eq!(shown.warnings, ["not shown: 1 line, 2 rows"]);
    let all = write(true);
    assert_eq!(
        all.markdown,
        "before\n\n| 1 |\n|---|\n| 3 |\n| 4 |\n| 7 |\n| 9 |\n\n```\none\ntwo\nthree\n```\n"
    );
    assert_eq!((all.omitted, all.warnings.len()), (0, 0));
    let lines: Vec<&str> = all.markdown.lines().collect();
    let [rows, output] = all.search_lines.as_slice() else {
        panic!("{:?}", all.search_lines);
    };
    assert_eq!(rows.count, 2);
    assert_eq!(rows.rows, [7, 9]);
    assert_eq!(lines[rows.first - 1], "| 7 |");
    assert_eq!((output.count, output.rows.len()), (1, 0));
    assert_eq!(lines[output.first - 1], "three");
}

#[test]
fn a_window_keeps_the_header_and_the_rows_in_it() {
    let mut table = Table::new().window(Some(Span { first: 3, last: 4 }));
    for number in 1..=9 {
        table.row(number, vec![Cell::plain(&number.to_string())]);
    }
    let rendered = table.render().unwrap();
    assert_eq!(rendered.text, "| 1 |\n|---|\n| 3 |\n| 4 |");
    assert_eq!(rendered.beyond, 0);
}

#[test]
fn a_limit_keeps_the_text_before_it() {
    let budget = Rc::new(Budget::new(Limits {
        max_elements: 2,
        ..Limits::default()
    }));
    let mut out = Markdown::new(budget, Selection::All);
    out.paragraph(&Inline::plain("1")).unwrap();
    out.paragraph(&Inline::plain("2")).unwrap();
    assert_eq!(out.paragraph(&Inline::plain("3")), Err(Limit::Element));
    assert_eq!(out.finish().markdown, "1\n\n2\n");
}

#[test]
fn parts_that_are_not_wanted_are_counted_only() {
    let mut out = Markdown::new(
        Rc::new(Budget::new(Limits::default())),
        Selection::Parts {
            unit: Unit::Page,
            span: Span { first: 2, last: 2 },
        },
    );
    for page in 1..=3 {
        if out.part(Unit::Page, page, None).unwrap() {
            out.paragraph(&Inline::plain(&page.to_string())).unwrap();
        }
    }
    let written = out.finish();
    assert_eq!(
        (
            written.markdown.as_str(),
            written.parts.len(),
            written.parts_seen
        ),
        ("2\n", 1, 3)
    );
}

#[test]
fn a_text_beyond_the_remaining_budget_is_cut_and_its_fence_closed() {
    let short = |build: fn(&mut Markdown) -> Result<(), Limit>| {
        let limits = Limits {
            max_text_bytes: 24,
            ..Limits::default()
        };
        let mut out = Markdown::new(Rc::new(Budget::new(limits)), Selection::All);
        assert_eq!(build(&mut out), Err(Limit::Size));
        out.finish().markdown
    };
    assert_eq!(
        short(|out| out.paragraph(&Inline::plain("one two three four five six"))),
        "one two three four five\n"
    );
    assert_eq!(short(|out| out.as_is("ééééééééééééééé")), "éééééééééééé\n");
    assert_eq!(
        short(|out| out.code("", "0123456789\n0123456789\n")),
        "```\n0123456789\n012345678\n```\n"
    );
    assert_eq!(
        short(|out| {
            let mut table = out.new_table();
            for number in 1..9 {
                table.row(number, vec![Cell::plain(&format!("{number}"))]);
            }
            out.table(table)
        }),
        "| 1 |\n|---|\n| 2 |\n| 3 |\n"
    );
}

#[test]
fn prefixes_count_as_text() {
    let limits = Limits {
        max_text_bytes: 1000,
        ..Limits::default()
    };
    let mut out = Markdown::new(Rc::new(Budget::new(limits)), Selection::All);
    for _ in 0..20 {
        out.open_quote();
    }
    assert_eq!(out.code("", &"\n".repeat(500)), Err(Limit::Size));
    assert!(out.finish().markdown.len() < 2000);
}

#[test]
fn text_as_it_is_keeps_its_blank_lines_and_spaces() {
    assert_eq!(
        write_markdown(|out| out.as_is("  a  \n\n\n# b\n")),
        "  a  \n\n\n# b\n"
    );
}

#[test]
fn at_most_one_blank_line_stays_within_a_paragraph() {
    assert_eq!(
        write_markdown(|out| out.paragraph(&Inline::plain("a\n\n \n\nb\nc"))),
        "a\n\nb\nc\n"
    );
}

#[test]
fn terms_have_definitions() {
    let text = write_markdown(|out| {
        out.paragraph(&Inline::plain("Term"))?;
        out.open_item(ListMarker::Definition);
        out.paragraph(&Inline::plain("what it means"))?;
        out.close();
        Ok(())
    });
    assert_eq!(text, "Term\n\n: what it means\n");
}

#[test]
fn a_table_that_ran_into_a_limit_is_still_written() {
    let budget = Rc::new(Budget::new(Limits {
        max_elements: 0,
        ..Limits::default()
    }));
    let mut out = Markdown::new(budget, Selection::All);
    let mut table = out.new_table();
    table.row(1, vec![Cell::plain("a")]);
    table.row(2, vec![Cell::plain("b")]);
    assert_eq!(out.budget().element(), Err(Limit::Element));
    out.table_so_far(table).unwrap();
    assert_eq!(out.finish().markdown, "| a |\n|---|\n| b |\n");
}

#[test]
fn a_link_with_an_unusable_target_keeps_its_text() {
    let mut line = Inline::new();
    line.begin_link(&format!("https://a.example/{}", "x".repeat(9000)));
    line.text("here", Style::default());
    line.end_link();
    assert_eq!(write_markdown(|out| out.paragraph(&line)), "here\n");
}

#[test]
fn every_kind_of_line_end_is_a_line_feed() {
    assert_eq!(
        write_markdown(|out| out.code("", "a\r\nb\rc\u{2028}d\n")),
        "```\na\nb\nc\nd\n```\n"
    );
    let text = write_markdown(|out| {
        let mut table = out.new_table();
        table.row(1, vec![Cell::new(&Inline::plain("a\rb\u{2029}c\r\nd"))]);
        out.table(table)
    });
    assert_eq!(text, "| a<br>b<br>c<br>d |\n|---|\n");
}
