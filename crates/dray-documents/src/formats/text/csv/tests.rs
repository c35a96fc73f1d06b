//! CSV and TSV: delimiters, quotes, windows, size.

use std::fmt::Write as _;
use std::io::Cursor;

use crate::formats::convert;
use crate::formats::text::testing::{convert_bytes, convert_to_markdown, test_hint};
use crate::limits::{Limit, Limits};
use crate::markdown::{Selection, Span};

fn csv(source: &str) -> String {
    convert_to_markdown("text/csv", "csv", source.as_bytes())
}

#[test]
fn values_stay_as_they_are_spelled() {
    assert_eq!(
        csv("id,n,f\r\n000123,1e5, \"x\" \r\n\r\n7,0.50,\r\n"),
        "| id | n | f |\n|---|---|---|\n| 000123 | 1e5 | \"x\" |\n| 7 | 0.50 |  |\n"
    );
}

#[test]
fn quoted_fields_hold_delimiters_quotes_and_line_breaks() {
    assert_eq!(
        csv("a,b\n\"x,y\",\"say \"\"hi\"\"\"\n\"1\r\n2\",\"p|q\\\" tail\n"),
        "| a | b |\n|---|---|\n| x,y | say \"hi\" |\n| 1<br>2 | p\\|q\\\\ tail |\n"
    );
}

#[test]
fn the_delimiter_gives_records_the_same_number_of_fields() {
    for (source, shown) in [
        (
            "a;b\n1,5;2\n3,5;4\n",
            "| a | b |\n|---|---|\n| 1,5 | 2 |\n| 3,5 | 4 |\n",
        ),
        (
            "1,5;2,5\n3,5;4,5\n",
            "| 1,5 | 2,5 |\n|---|---|\n| 3,5 | 4,5 |\n",
        ),
        ("a|b\nx, y|z\n", "| a | b |\n|---|---|\n| x, y | z |\n"),
        ("a\tb\n1,2\t3\n", "| a | b |\n|---|---|\n| 1,2 | 3 |\n"),
        (
            "a,b\n1;2,\"3;4\"\n5,6\n",
            "| a | b |\n|---|---|\n| 1;2 | 3;4 |\n| 5 | 6 |\n",
        ),
        (
            "10.0.0.1,Mozilla (X11; Linux),200\n10.0.0.2,Mozilla (X11; BSD),404\n",
            "| 10.0.0.1 | Mozilla (X11; Linux) | 200 |\n|---|---|---|\n\
             | 10.0.0.2 | Mozilla (X11; BSD) | 404 |\n",
        ),
        (
            "1,5; 2,5\n3,5; 4,5\n",
            "| 1,5 | 2,5 |\n|---|---|\n| 3,5 | 4,5 |\n",
        ),
        ("sep=;\na,b;c\n", "| a,b | c |\n|---|---|\n"),
        ("one\ntwo\n", "| one |\n|---|\n| two |\n"),
    ] {
        assert_eq!(csv(source), shown, "{source}");
    }
    assert_eq!(
        convert_to_markdown(
            "text/tab-separated-values",
            "tsv",
            b"a,b\tc,d\n1,2\t3,4\n\t\nx\ty\n"
        ),
        "| a,b | c,d |\n|---|---|\n| 1,2 | 3,4 |\n|  |  |\n| x | y |\n"
    );
}

#[test]
fn ragged_rows_are_kept() {
    assert_eq!(
        csv("a,b\n1\n2,3,4\n5,6\n"),
        "| a | b |  |\n|---|---|---|\n| 1 |  |  |\n| 2 | 3 | 4 |\n| 5 | 6 |  |\n"
    );
}

#[test]
fn a_quote_that_is_never_closed_hides_no_text() {
    for source in [
        "a,b\n\"1,2\n3,4\n".to_owned(),
        format!("a,b\n\"1,2\n3,4\n{}\"\n", "\n".repeat(70_000)),
    ] {
        let conversion = convert_bytes(
            &test_hint("text/csv", "csv"),
            source.as_bytes(),
            Limits::default(),
        );
        assert!(
            conversion
                .markdown
                .starts_with("| a | b |\n|---|---|\n| \"1 | 2 |\n| 3 | 4 |\n"),
            "{}",
            conversion.markdown
        );
        assert_eq!(
            conversion.warnings,
            ["a quote is never closed; quotes are shown as text"]
        );
    }
}

#[test]
fn ten_megabytes_after_an_open_quote_are_read_once_more() {
    let source = format!(
        "a,\"b\n{}",
        format!("x,{}\n", "y".repeat(97)).repeat(100_000)
    );
    let text = csv(&source);
    assert!(text.starts_with("| a | \"b |\n|---|---|\n| x | yy"));
    assert!(text.ends_with("y |\n\n_(99000 more rows truncated)_\n"));
}

#[test]
fn quotes_at_every_record_are_read_in_linear_time() {
    let source = "\"a\"\"".repeat(200_000);
    let conversion = convert_bytes(
        &test_hint("text/csv", "csv"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(conversion.failure, None);
}

#[test]
fn a_range_of_rows_uses_the_row_numbers_of_the_file() {
    let mut source = String::from("n\n");
    for row in 2..=5000 {
        let _ = writeln!(source, "{row}");
    }
    let selection = Selection::Rows {
        span: Span {
            first: 4001,
            last: 4002,
        },
    };
    let conversion = convert(
        &mut Cursor::new(source.as_bytes()),
        &test_hint("text/csv", "csv"),
        Limits::default(),
        selection,
    );
    assert_eq!(conversion.markdown, "| n |\n|---|\n| 4001 |\n| 4002 |\n");
}

#[test]
fn rows_count_as_elements_and_those_before_the_limit_are_kept() {
    let limits = Limits {
        max_elements: 3,
        ..Limits::default()
    };
    let conversion = convert_bytes(&test_hint("text/csv", "csv"), b"a\n1\n2\n3\n4\n", limits);
    assert_eq!(conversion.stopped, Some(Limit::Element));
    assert_eq!(conversion.markdown, "| a |\n|---|\n| 1 |\n| 2 |\n");
}

#[test]
fn rows_wider_than_the_text_limit_stop_the_conversion() {
    let limits = Limits {
        max_text_bytes: 100,
        ..Limits::default()
    };
    let source = format!("a,b\n1,2\n{},z\n3,4\n", "y".repeat(200));
    let conversion = convert_bytes(&test_hint("text/csv", "csv"), source.as_bytes(), limits);
    assert_eq!(conversion.stopped, Some(Limit::Size));
    assert_eq!(conversion.markdown, "| a | b |\n|---|---|\n| 1 | 2 |\n");
}

#[test]
fn a_row_of_half_a_million_fields_and_nulls_pass() {
    let source = format!("{}\n\0,\0\n", ",".repeat(500_000));
    let conversion = convert_bytes(
        &test_hint("text/csv", "csv"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(conversion.failure, None);
    assert!(conversion.markdown.len() < 100);
}

#[test]
fn blank_files_write_nothing() {
    assert_eq!(csv("\n \n\r\n"), "");
    assert_eq!(csv(""), "");
}
