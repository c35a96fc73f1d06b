//! The details of faults that stand in the code of the product: their table in `docs/faults.md`, and their rules.
//!
//! It reads `Fault::new(FaultCode::…, "sentence")` with `.detail("…")` after it. A detail that a function gets as an
//! argument, or that an enumeration names, is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::source::SourceFile;
use super::uncalled;

/// The code of `Fault::internal()`, whose sentence is always the same.
const INTERNAL_CODE: &str = "internal";

/// A fault that is written out in the code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WrittenFault {
    detail: String,
    code: String,
    is_retryable: bool,
    /// Variable parts are in braces; empty if the sentence is not written at the fault.
    sentence: String,
    /// Empty without advice.
    advice: String,
}

/// The part of `docs/faults.md` with the faults of all crates.
pub(crate) fn details_section(root: &Path) -> anyhow::Result<String> {
    Ok(markdown(&faults_by_crate(&super::read_sources(root)?)))
}

/// Details that are not written in snake case, or that have two codes in one crate.
pub(crate) fn violations(sources: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, faults) in faults_by_crate(sources) {
        let mut codes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for fault in &faults {
            codes.entry(&fault.detail).or_default().insert(&fault.code);
        }
        for (detail, codes) in codes {
            if !is_snake_case(detail) {
                violations.push(format!("{name}: write the detail `{detail}` in snake case"));
            }
            if codes.len() > 1 {
                let codes = codes.into_iter().collect::<Vec<_>>().join(" and ");
                violations.push(format!(
                    "{name}: the detail `{detail}` comes with the codes {codes}: callers act on the code, so use two details"
                ));
            }
        }
    }
    violations
}

fn is_snake_case(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
}

fn faults_by_crate(sources: &[SourceFile]) -> BTreeMap<String, BTreeSet<WrittenFault>> {
    let mut crates: BTreeMap<String, BTreeSet<WrittenFault>> = BTreeMap::new();
    for (name, source) in uncalled::product_files(sources) {
        let faults = faults_of(&source.product_text());
        if !faults.is_empty() {
            crates.entry(name.to_owned()).or_default().extend(faults);
        }
    }
    crates
}

fn markdown(crates: &BTreeMap<String, BTreeSet<WrittenFault>>) -> String {
    let mut text = String::from(
        "\n## Details by crate\n\nThe details whose fault is written out in the code; `{…}` stands for a value, and \
         without a sentence it varies. Details that come from a list, such as the kinds of errors of sandboxes and platforms, are on the pages of their service.\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for (name, faults) in crates {
        let _ = write!(
            text,
            "\n### {name}\n\n| detail | code | retry | sentence | advice |\n|---|---|---|---|---|\n"
        );
        for fault in faults {
            let retry = if fault.is_retryable { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "| `{}` | `{}` | {retry} | {} | {} |",
                fault.detail,
                fault.code,
                cell(&fault.sentence),
                cell(&fault.advice)
            );
        }
    }
    text
}

/// The faults with a written detail in the text of a file.
fn faults_of(text: &str) -> Vec<WrittenFault> {
    let created = text.match_indices("new(").filter_map(|(at, call)| {
        let (arguments, rest) = split_at_closing(&text[at + call.len()..])?;
        let (code, sentence) = arguments
            .trim()
            .strip_prefix("FaultCode::")?
            .split_once(',')?;
        written_fault(snake_case(code.trim()), written_text(sentence), rest)
    });
    let internal = text.match_indices("internal()").filter_map(|(at, call)| {
        let rest = &text[at + call.len()..];
        let mut fault = written_fault(INTERNAL_CODE.to_owned(), String::new(), rest)?;
        fault.is_retryable = true;
        Some(fault)
    });
    created.chain(internal).collect()
}

/// The fault with the calls that follow its construction: `.detail("…").advice("…").retry_after(…)`.
fn written_fault(code: String, sentence: String, mut rest: &str) -> Option<WrittenFault> {
    let mut fault = WrittenFault {
        detail: String::new(),
        code,
        is_retryable: false,
        sentence,
        advice: String::new(),
    };
    while let Some(call) = rest.trim_start().strip_prefix('.') {
        let Some((method, after)) = call.split_once('(') else {
            break;
        };
        let Some((arguments, next)) = split_at_closing(after) else {
            break;
        };
        match method {
            "detail" => fault.detail = written_text(arguments),
            "advice" => fault.advice = written_text(arguments),
            "retry_after" => fault.is_retryable = true,
            _ => {}
        }
        rest = next;
    }
    (!fault.detail.is_empty()).then_some(fault)
}

/// The arguments of a call that begin here, and what comes after their closing bracket.
fn split_at_closing(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut in_text) = (1_usize, false);
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if in_text => {
                letters.next();
            }
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// The text of a literal, also of one inside `format!`; empty for anything else. A line that ends with a backslash
/// continues at the first letter of the next one.
fn written_text(argument: &str) -> String {
    let argument = argument.trim();
    let literal = match argument.strip_prefix("format!(") {
        Some(inner) => inner.trim_start(),
        None => argument,
    };
    let Some(literal) = literal.strip_prefix('"') else {
        return String::new();
    };
    let mut text = String::new();
    let mut letters = literal.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => match letters.next() {
                Some('\n') => while letters.next_if(|next| next.is_whitespace()).is_some() {},
                Some('n') => text.push(' '),
                Some(escaped) => text.push(escaped),
                None => {}
            },
            other => text.push(other),
        }
    }
    text
}

/// `InvalidArgument` as `invalid_argument`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    const FULL: &str = "fn full() -> Fault {\n    Fault::new(\n        FaultCode::RateLimited,\n        \
        format!(\"The store has {count} files | links (and\\\n             more).\", count = 3),\n    )\n    \
        .detail(\"store_full\")\n    .advice(\"Use \\\"other\\\" files.\")\n    .retry_after(Duration::from_secs(1))\n}\n";

    #[test]
    fn reads_code_sentence_detail_advice_and_retry_of_a_fault() {
        let text = format!(
            "{FULL}let other = Self::new(FaultCode::NotFound, reason).detail(\"gone\");\n\
             let plain = Fault::new(FaultCode::Denied, \"No.\");\n\
             let bug = Fault::internal().detail(\"signing_failed\").into();\n\
             let variable = Fault::new(FaultCode::Denied, \"No.\").detail(detail);\n"
        );
        let fault =
            |detail: &str, code: &str, is_retryable, sentence: &str, advice: &str| WrittenFault {
                detail: detail.to_owned(),
                code: code.to_owned(),
                is_retryable,
                sentence: sentence.to_owned(),
                advice: advice.to_owned(),
            };
        assert_eq!(
            faults_of(&text),
            [
                fault(
                    "store_full",
                    "rate_limited",
                    true,
                    "The store has {count} files | links (andmore).",
                    "Use \"other\" files."
                ),
                fault("gone", "not_found", false, "", ""),
                fault("signing_failed", "internal", true, "", ""),
            ]
        );
    }

    #[test]
    fn the_table_has_the_faults_of_the_product_by_crate() {
        let sources = [
            source("crates/dray-store/src/error.rs", FULL),
            source(
                "crates/dray-store/src/tests/error.rs",
                &FULL.replace("store_full", "of_a_test"),
            ),
            source(
                "crates/dray-bus/src/lib.rs",
                "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { Fault::new(FaultCode::Denied, \"m\").detail(\"d\") }\n}\n",
            ),
        ];
        let text = markdown(&faults_by_crate(&sources));
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            rows,
            [
                "| `store_full` | `rate_limited` | yes | The store has {count} files \\| links (andmore). | Use \"other\" files. |"
            ]
        );
        assert!(
            text.contains("### dray-store") && !text.contains("dray-bus"),
            "{text}"
        );
    }

    #[test]
    fn a_detail_is_in_snake_case_and_has_one_code_in_its_crate() {
        let text = "Fault::new(FaultCode::Denied, \"a\").detail(\"one\");\n\
            Fault::new(FaultCode::Timeout, \"b\").detail(\"one\");\n\
            Fault::new(FaultCode::Denied, \"c\").detail(\"Two-words\");\n";
        let other = "Fault::new(FaultCode::NotFound, \"a\").detail(\"one\");\n";
        assert_eq!(
            violations(&[
                source("crates/dray-bus/src/lib.rs", text),
                source("crates/dray-store/src/lib.rs", other),
            ]),
            [
                "dray-bus: write the detail `Two-words` in snake case",
                "dray-bus: the detail `one` comes with the codes denied and timeout: callers act on the code, so use two details",
            ]
        );
    }
}
