//! The words of the source: names that say too little, and phrases that have a plain equivalent.
//!
//! `xtask/words.toml` lists what is refused, with the word to write instead, and the shares that names and comments may
//! not exceed. Shares are counted as a reader would count them, so that the limits can only go down over time. Files of
//! tests count for types and constants only.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::source::SourceFile;

/// What `xtask/words.toml` says.
#[derive(Debug, Default)]
pub(crate) struct WordRules {
    /// Names of types and constants that are refused, with the name to use instead.
    identifiers: BTreeMap<String, String>,
    /// Phrases of comments that are counted, in lower case, with the phrase to use instead.
    phrases: BTreeMap<String, String>,
    limits: WordLimits,
}

/// Largest shares that are accepted.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct WordLimits {
    /// Percent of the types whose name is one word.
    one_word_types: f64,
    /// Percent of the constants whose name is one word.
    one_word_constants: f64,
    /// Percent of the functions outside tests whose name is one word.
    one_word_functions: f64,
    /// Lines with a refused phrase among 1,000 comment lines.
    odd_phrases: f64,
}

impl WordRules {
    /// Reads the rules of the workspace at `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let path = root.join("xtask/words.toml");
        let text = std::fs::read_to_string(&path).context("cannot read xtask/words.toml")?;
        Self::parse(&text).context("xtask/words.toml is not valid")
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let document: Value = toml::from_str(text)?;
        let table = |name: &str| -> BTreeMap<String, String> {
            let entries = document.get(name).and_then(Value::as_object);
            entries
                .into_iter()
                .flatten()
                .filter_map(|(word, instead)| Some((word.clone(), instead.as_str()?.to_owned())))
                .collect()
        };
        let limit = |name: &str| {
            let value = document.get("limits").and_then(|limits| limits.get(name));
            value
                .and_then(Value::as_f64)
                .with_context(|| format!("limits.{name} is missing or is not a number"))
        };
        Ok(Self {
            identifiers: table("identifiers"),
            phrases: table("phrases"),
            limits: WordLimits {
                one_word_types: limit("one_word_types")?,
                one_word_constants: limit("one_word_constants")?,
                one_word_functions: limit("one_word_functions")?,
                odd_phrases: limit("odd_phrases")?,
            },
        })
    }
}

/// Refused identifiers, and shares above their limits.
pub(crate) fn breaches(sources: &[SourceFile], rules: &WordRules) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut counts = WordCounts::default();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            for (_, name) in line_definitions(line) {
                if let Some(instead) = rules.identifiers.get(name) {
                    breaches.push(format!(
                        "{}:{}: write `{instead}` instead of `{name}`",
                        source.path,
                        at + 1
                    ));
                }
            }
        }
        counts.add(source, rules);
    }
    let (found, limits) = (counts.shares(), rules.limits);
    let shares = [
        (
            "types of one word (percent)",
            found.one_word_types,
            limits.one_word_types,
        ),
        (
            "constants of one word (percent)",
            found.one_word_constants,
            limits.one_word_constants,
        ),
        (
            "functions of one word (percent)",
            found.one_word_functions,
            limits.one_word_functions,
        ),
        (
            "odd phrases per 1,000 comment lines",
            found.odd_phrases,
            limits.odd_phrases,
        ),
    ];
    for (what, share, limit) in shares {
        if share > limit {
            breaches.push(format!(
                "{what}: {share:.1}, more than the limit of {limit:.1} in xtask/words.toml; the last odd phrase is {}",
                counts.last_phrase
            ));
        }
    }
    breaches
}

#[derive(Debug, Default)]
struct WordCounts {
    types: NameCount,
    constants: NameCount,
    functions: NameCount,
    comment_lines: usize,
    odd_lines: usize,
    /// Where the last odd phrase stands, and what to write instead.
    last_phrase: String,
}

#[derive(Debug, Default)]
struct NameCount {
    all: usize,
    one_word: usize,
}

impl WordCounts {
    fn add(&mut self, source: &SourceFile, rules: &WordRules) {
        let is_test = source.is_test_file();
        for (at, line) in source.text.lines().enumerate() {
            for (kind, name) in line_definitions(line) {
                match kind {
                    DefinitionKind::Type => self.types.add(!name[1..].contains(char::is_uppercase)),
                    DefinitionKind::Constant => self.constants.add(!name.contains('_')),
                    DefinitionKind::Function if !is_test => self.functions.add(!name.contains('_')),
                    DefinitionKind::Function => {}
                }
            }
            if !is_test && line.trim_start().starts_with("//") {
                self.comment_lines += 1;
                if let Some((phrase, instead)) = odd_phrase(line, rules) {
                    self.odd_lines += 1;
                    self.last_phrase =
                        format!("`{phrase}` ({instead}) at {}:{}", source.path, at + 1);
                }
            }
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of lines and names are small"
    )]
    fn shares(&self) -> WordLimits {
        let thousandths = |part: usize, all: usize| part as f64 * 1000.0 / all.max(1) as f64;
        let percent = |count: &NameCount| thousandths(count.one_word, count.all) / 10.0;
        WordLimits {
            one_word_types: percent(&self.types),
            one_word_constants: percent(&self.constants),
            one_word_functions: percent(&self.functions),
            odd_phrases: thousandths(self.odd_lines, self.comment_lines),
        }
    }
}

impl NameCount {
    fn add(&mut self, is_one_word: bool) {
        self.all += 1;
        self.one_word += usize::from(is_one_word);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DefinitionKind {
    Type,
    Constant,
    Function,
}

/// The names that a line of code defines.
fn line_definitions(line: &str) -> Vec<(DefinitionKind, &str)> {
    let code = line.split("//").next().unwrap_or_default();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = code
        .split(|character| !is_word(character))
        .filter(|word| !word.is_empty());
    let mut names = Vec::new();
    while let Some(word) = words.next() {
        let kind = match word {
            "struct" | "enum" | "trait" => DefinitionKind::Type,
            "const" => DefinitionKind::Constant,
            "fn" => DefinitionKind::Function,
            _ => continue,
        };
        let Some(name) = words.clone().next() else {
            break;
        };
        let is_upper = name.starts_with(char::is_uppercase);
        let is_named = match kind {
            DefinitionKind::Type => is_upper,
            DefinitionKind::Constant => is_upper && !name.contains(char::is_lowercase),
            DefinitionKind::Function => !is_upper && !name.starts_with('_'),
        };
        if is_named {
            names.push((kind, name));
        }
    }
    names
}

/// The first refused phrase of a comment, with the phrase to use instead.
fn odd_phrase<'a>(line: &str, rules: &'a WordRules) -> Option<(&'a str, &'a str)> {
    let lower = line.to_lowercase();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let found = rules.phrases.iter().find(|(phrase, _)| {
        lower.match_indices(phrase.as_str()).any(|(at, _)| {
            let before = lower[..at].chars().next_back();
            let after = lower[at + phrase.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    });
    found.map(|(phrase, instead)| (phrase.as_str(), instead.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_RULES: &str = r#"
        [identifiers]
        Shop = "WorkerContext"
        [phrases]
        "at once" = "immediately, or concurrently"
        [limits]
        one_word_types = 50
        one_word_constants = 50
        one_word_functions = 50
        odd_phrases = 500
    "#;

    fn check(text: &str, expected: &[&str]) {
        let source = SourceFile {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        let rules = WordRules::parse(TEST_RULES).unwrap();
        assert_eq!(breaches(&[source], &rules), expected);
    }

    #[test]
    fn refuses_an_identifier_with_the_name_to_use_instead() {
        check(
            "pub struct Shop;\nstruct ShopWindow;\n// struct Shop\n",
            &["a.rs:1: write `WorkerContext` instead of `Shop`"],
        );
    }

    #[test]
    fn refuses_shares_above_their_limits() {
        check(
            "const LONGEST: u8 = 1;\nconst MAX_BYTES: u8 = 1;\nconst fn max_bytes() {}\nenum TwoWords {}\n",
            &[],
        );
        check(
            "const LONGEST: u8 = 1;\n/// Ends At once.\nfn run() {}\n",
            &[
                "constants of one word (percent): 100.0, more than the limit of 50.0 in xtask/words.toml; the last odd \
                 phrase is `at once` (immediately, or concurrently) at a.rs:2",
                "functions of one word (percent): 100.0, more than the limit of 50.0 in xtask/words.toml; the last odd \
                 phrase is `at once` (immediately, or concurrently) at a.rs:2",
                "odd phrases per 1,000 comment lines: 1000.0, more than the limit of 500.0 in xtask/words.toml; the \
                 last odd phrase is `at once` (immediately, or concurrently) at a.rs:2",
            ],
        );
    }

    #[test]
    fn a_phrase_is_not_found_inside_words() {
        check("/// Format onceover.\n/// That oncet.\n", &[]);
    }

    #[test]
    fn a_missing_limit_is_reported_by_name() {
        let error = WordRules::parse("[limits]\none_word_types = 1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "limits.one_word_constants is missing or is not a number"
        );
    }
}
