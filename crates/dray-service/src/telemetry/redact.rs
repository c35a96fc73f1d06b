//! Removes the secrets of presigned URLs from log lines (messaging-reliability L-1).
//!
//! A last line of defence under every log format: code never logs such a URL on purpose. It works on the finished line,
//! so it covers URLs from every field and error.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

/// Names in lower case whose values give access.
const SECRET_NAMES: [&str; 3] = [
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
];
/// Written instead of a value.
const REDACTED_VALUE: &str = "***";

/// Replaces the values of `X-Amz-Signature`, `X-Amz-Credential` and `X-Amz-Security-Token`, in queries
/// (`name=value`, even with `=` percent-encoded), headers (`name: value`) and JSON (`"name":"value"`).
pub fn redact_line(line: &str) -> String {
    // Only ASCII letters are changed, so every offset stays the same.
    let lower = line.to_ascii_lowercase();
    let mut redacted = String::with_capacity(line.len());
    let mut done = 0;
    while let Some((start, end)) = next_value(&lower, done) {
        redacted.push_str(line.get(done..start).unwrap_or_default());
        redacted.push_str(REDACTED_VALUE);
        done = end;
    }
    redacted.push_str(line.get(done..).unwrap_or_default());
    redacted
}

/// Whether the prefix of a secret name is in the line, in any case of letters.
fn may_hold_secret(line: &[u8]) -> bool {
    let mut rest = line;
    // The search is for the hyphen, which is rarer than letters.
    while let Some(hyphen) = rest.iter().position(|byte| *byte == b'-') {
        let (before, after) = rest.split_at(hyphen + 1);
        let begins = before
            .last_chunk::<2>()
            .is_some_and(|start| start.eq_ignore_ascii_case(b"x-"));
        let continues = after
            .first_chunk::<4>()
            .is_some_and(|next| next.eq_ignore_ascii_case(b"amz-"));
        if begins && continues {
            return true;
        }
        rest = after;
    }
    false
}

/// Returns where the next secret value at or after `from` begins and ends.
fn next_value(lower: &str, mut from: usize) -> Option<(usize, usize)> {
    loop {
        let rest = lower.get(from..)?;
        let (offset, name) = SECRET_NAMES
            .iter()
            .filter_map(|name| rest.find(name).map(|offset| (offset, *name)))
            .min()?;
        let after = from + offset + name.len();
        let tail = lower.get(after..)?;
        let separator = separator_length(tail);
        let value = tail.get(separator..)?;
        let length = value.find(ends_value).unwrap_or(value.len());
        if separator > 0 && length > 0 {
            return Some((after + separator, after + separator + length));
        }
        // The name stands alone, as in prose; the search continues after it.
        from = after;
    }
}

/// Length of the separator between a name and its value; 0 when no value follows.
fn separator_length(tail: &str) -> usize {
    let quotes = |text: &str| text.len() - text.trim_start_matches(['"', '\'', '\\']).len();
    let before = quotes(tail);
    let rest = tail.get(before..).unwrap_or_default();
    // The sign may be percent-encoded once, or twice when the URL is in a query itself.
    let sign = ["=", ":", "%3d", "%253d"]
        .iter()
        .find(|sign| rest.starts_with(**sign));
    let Some(sign) = sign else {
        return 0;
    };
    let rest = rest.get(sign.len()..).unwrap_or_default();
    let blanks = rest.len() - rest.trim_start_matches(' ').len();
    let rest = rest.get(blanks..).unwrap_or_default();
    before + sign.len() + blanks + quotes(rest)
}

/// A value ends where a query, a header, a JSON text or a Markdown link would end it.
fn ends_value(character: char) -> bool {
    character.is_whitespace()
        || matches!(
            character,
            '&' | '"' | '\'' | '\\' | '#' | '>' | '<' | ')' | ']' | '}' | ','
        )
}

/// A writer of log lines that redacts each line.
#[derive(Clone, Debug)]
pub struct RedactingMakeWriter<W> {
    inner: W,
}

impl<W> RedactingMakeWriter<W> {
    /// Redacts every line on its way to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner }
    }
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for RedactingMakeWriter<W> {
    type Writer = RedactingWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter {
            inner: self.inner.make_writer(),
        }
    }
}

/// Writer of one line. The formatter writes each line with one call, so no secret is split.
#[derive(Debug)]
pub struct RedactingWriter<W> {
    inner: W,
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nearly every line passes unchanged, and lines of audit events are long.
        if !may_hold_secret(line) {
            self.inner.write_all(line)?;
            return Ok(line.len());
        }
        // A broken character must not let the line pass unredacted.
        let text = String::from_utf8_lossy(line);
        self.inner.write_all(redact_line(&text).as_bytes())?;
        // The result is the length of the input: callers count their own bytes, not the redacted ones.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(line: &str, expected: &str) {
        assert_eq!(redact_line(line), expected);
    }

    #[test]
    fn values_are_hidden_at_every_position() {
        check("nothing to hide", "nothing to hide");
        check(
            "GET https://s3/b/k?X-Amz-Credential=AK%2F2026&X-Amz-Date=1&X-Amz-Signature=abc123 done",
            "GET https://s3/b/k?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=*** done",
        );
        check("x-amz-signature=ABC", "x-amz-signature=***");
        check(
            r#"{"url":"http://s?X-Amz-Signature=a"}"#,
            r#"{"url":"http://s?X-Amz-Signature=***"}"#,
        );
        check(
            "X-Amz-Security-Token: FwoG//8=, next",
            "X-Amz-Security-Token: ***, next",
        );
        check(
            r#"{"X-Amz-Security-Token": "t/+="}"#,
            r#"{"X-Amz-Security-Token": "***"}"#,
        );
        check(
            r#"{\"x-amz-credential\":\"k\"}"#,
            r#"{\"x-amz-credential\":\"***\"}"#,
        );
        check(
            "u=%3FX-Amz-Signature%3Dabc%26b",
            "u=%3FX-Amz-Signature%3D***",
        );
    }

    #[test]
    fn names_without_values_stay() {
        check(
            "the X-Amz-Signature header is missing",
            "the X-Amz-Signature header is missing",
        );
        check("X-Amz-Signature=", "X-Amz-Signature=");
        check(
            "X-Amz-Signature=&X-Amz-Credential=k",
            "X-Amz-Signature=&X-Amz-Credential=***",
        );
    }

    #[test]
    fn the_text_around_a_secret_is_not_changed() {
        check("ä X-Amz-Signature=ü ö", "ä X-Amz-Signature=*** ö");
        check("İ X-Amz-Signature=s", "İ X-Amz-Signature=***");
    }

    #[test]
    fn a_line_that_may_hold_a_secret_is_found_in_any_case_and_place() {
        for name in SECRET_NAMES {
            for name in [name.to_owned(), name.to_ascii_uppercase()] {
                let line = format!("a-b x-y {name}=1");
                assert!(may_hold_secret(line.as_bytes()), "{line}");
                assert!(may_hold_secret(name.as_bytes()), "{name}");
            }
        }
        for line in [
            "",
            "-",
            "x-",
            "x-am",
            "amz-",
            "x_amz-",
            "y-amz-x",
            "--x-a-mz-",
        ] {
            assert!(!may_hold_secret(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_writer_hides_a_secret_behind_a_broken_character() {
        let mut written = Vec::new();
        let mut writer = RedactingWriter {
            inner: &mut written,
        };
        writer.write_all(b"\xff X-Amz-Signature=abc end\n").unwrap();
        writer.write_all(b"nothing \xff to hide\n").unwrap();
        let written = String::from_utf8_lossy(&written);
        assert!(!written.contains("abc"), "{written}");
        assert!(
            written.ends_with("*** end\nnothing \u{fffd} to hide\n"),
            "{written}"
        );
    }

    proptest! {
        #[test]
        fn no_value_survives_redaction_in_any_context(
            before in ".{0,40}",
            name in prop::sample::select(vec!["X-Amz-Signature", "x-amz-credential", "X-AMZ-SECURITY-TOKEN"]),
            sign in prop_oneof![Just("="), Just(": "), Just("%3D"), Just("\":\"")],
            value in "[A-Z0-9/+_.~%-]{12,60}",
            after in "([&\"\\s].{0,40})?",
        ) {
            let redacted = redact_line(&format!("{before}{name}{sign}{value}{after}"));
            prop_assert!(!redacted.contains(&value), "{redacted}");
            prop_assert_eq!(redact_line(&redacted), redacted);
        }

        #[test]
        fn any_line_can_be_redacted(line in "(?s).{0,200}") {
            let redacted = redact_line(&line);
            prop_assert!(line.to_ascii_lowercase().contains("x-amz-") || redacted == line);
        }
    }
}
