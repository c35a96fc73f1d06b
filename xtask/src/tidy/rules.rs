//! Every rule of the egress envelope has a test that names it.
//!
//! The rules are obligations of the security specification; their ids are the names that tests, code and reviews
//! share. `docs/requirements.md` says what each is about. A test names rule `X-4` by `x_4_` in its function name or by
//! `X-4` in a comment beside it.

use std::collections::BTreeSet;

use super::source::SourceFile;

/// The groups of rules: letter, subject, first and last number.
const RULE_GROUPS: &[(char, &str, u32, u32)] = &[
    ('I', "invariants", 1, 9),
    ('C', "input contract", 1, 4),
    ('P', "policy", 1, 5),
    ('H', "host patterns", 1, 5),
    ('U', "URLs", 1, 13),
    ('D', "resolution and pinning", 1, 10),
    ('T', "connection and TLS", 1, 7),
    ('Q', "request", 1, 3),
    ('R', "response head", 1, 7),
    ('X', "redirects", 1, 6),
    ('B', "body", 1, 9),
    ('S', "isolation", 1, 5),
];

/// Rules that no test names.
pub(crate) fn violations(sources: &[SourceFile]) -> Vec<String> {
    let named = named_rules(sources);
    let mut violations = Vec::new();
    for (letter, subject, first, last) in RULE_GROUPS {
        for number in *first..=*last {
            if !named.contains(&(*letter, number)) {
                violations.push(format!(
                    "no test names rule {letter}-{number} ({subject}) of the egress envelope"
                ));
            }
        }
    }
    violations
}

/// Rules that tests refer to. The rules here are about the fetcher, its guard and its deployment, and only tests there
/// count: other specifications use the same letters.
fn named_rules(sources: &[SourceFile]) -> BTreeSet<(char, u32)> {
    let directories = [
        "crates/dray-guard/",
        "crates/dray-egress-fetcher/",
        "tests/",
        "xtask/",
    ];
    sources
        .iter()
        .filter(|source| {
            directories
                .iter()
                .any(|directory| source.path.starts_with(directory))
        })
        // The tests of this file refer to the rules, too.
        .filter(|source| !source.path.ends_with("tidy/rules.rs"))
        .flat_map(SourceFile::test_lines)
        .flat_map(|(_, line)| rule_ids(line))
        .collect()
}

/// Ids in one line: `X-4` anywhere, `x_4` in the name of a function.
fn rule_ids(line: &str) -> Vec<(char, u32)> {
    let mut ids = scan_ids(line, '-', |letter| {
        letter.is_ascii_uppercase().then_some(letter)
    });
    if let Some((_, name)) = line.split_once("fn ") {
        ids.extend(scan_ids(name, '_', |letter| {
            letter
                .is_ascii_lowercase()
                .then_some(letter.to_ascii_uppercase())
        }));
    }
    ids
}

/// Finds `<letter><separator><number>` that is not part of a longer word.
fn scan_ids(
    text: &str,
    separator: char,
    letter: impl Fn(char) -> Option<char>,
) -> Vec<(char, u32)> {
    let characters: Vec<char> = text.chars().collect();
    let mut ids = Vec::new();
    for (index, window) in characters.windows(3).enumerate() {
        let [first, second, third] = *window else {
            continue;
        };
        let Some(group) = letter(first) else { continue };
        let before = index
            .checked_sub(1)
            .and_then(|before| characters.get(before));
        // `max_4` and `UTF-8` are not rules.
        let inside_word = before.is_some_and(char::is_ascii_alphanumeric);
        if inside_word || second != separator || !third.is_ascii_digit() {
            continue;
        }
        let digits: String = characters
            .iter()
            .skip(index + 2)
            .take_while(|character| character.is_ascii_digit())
            .collect();
        if let Ok(number) = digits.parse() {
            ids.push((group, number));
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[(char, u32)]) {
        assert_eq!(rule_ids(line), expected, "{line}");
    }

    #[test]
    fn names_of_functions_and_comments_name_rules() {
        check("fn x_4_a_loop_is_refused() {", &[('X', 4)]);
        check("async fn u_1_and_u_13_hold() {", &[('U', 1), ('U', 13)]);
        check("// D-10: no search domains", &[('D', 10)]);
        check("fn refuses_u_12() {", &[('U', 12)]);
    }

    #[test]
    fn words_that_only_look_like_rules_do_not_count() {
        check("fn max_4_tries() {", &[]);
        check("let x_4 = 1;", &[]);
        check("// SHA-256, UTF-8, IPv4-4", &[]);
        check("// X-Forwarded-For, x-4", &[]);
    }

    #[test]
    fn only_tests_of_the_fetcher_count() {
        let text = "//! Why.\n// X-1 in the product\n#[cfg(test)]\n// X-2 in a test\n";
        let source = |path: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let named = named_rules(&[
            source("crates/dray-guard/src/a.rs"),
            source("crates/dray-bus/src/a.rs"),
        ]);
        assert_eq!(named, BTreeSet::from([('X', 2)]));
    }

    #[test]
    fn the_page_of_requirements_has_a_row_for_every_rule() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/requirements.md");
        let text = std::fs::read_to_string(page).unwrap();
        // Other sections have rows of the same letters.
        let (_, section) = text.split_once("## Fetching from outside\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        for (letter, subject, first, last) in RULE_GROUPS {
            for number in *first..=*last {
                let row = format!("| `{letter}-{number}` | ");
                assert!(section.contains(&row), "{row}{subject}");
            }
        }
    }

    #[test]
    fn a_rule_without_a_test_is_reported_by_name() {
        let missing = violations(&[]);
        assert_eq!(missing.len(), 83);
        assert!(
            missing
                .contains(&"no test names rule X-6 (redirects) of the egress envelope".to_owned())
        );
    }
}
