//! The words of the source: names with too little information, and phrases that have a plain equivalent.
//!
//! `xtask/words.toml` lists refused words and phrases, with their replacements, and the limits of the shares of names
//! and comments. Shares are counted as a reader would count them, so that the limits can only become stricter over
//! time. In files of tests, only types and constants are counted.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::source::SourceFile;

/// The refused words and the limits, as `xtask/words.toml` has them.
#[derive(Debug, Default)]
pub(crate) struct WordRules {
    /// Names of types, constants, functions, modules and public fields that are refused, with the name to use instead.
    identifiers: BTreeMap<String, String>,
    /// Labels of metrics that are refused, with the name to use instead.
    labels: BTreeMap<String, String>,
    /// Phrases of comments that are counted, in lower case, with the phrase to use instead.
    phrases: BTreeMap<String, String>,
    /// One for each of [`SHARE_RULES`], in their order.
    limits: Vec<f64>,
}

/// A share that has a limit.
struct ShareRule {
    /// Its key in `xtask/words.toml`.
    key: &'static str,
    /// The counted elements and the unit.
    what: &'static str,
    bound: ShareBound,
    count: fn(&WordCounts) -> &ShareCount,
    /// The parts of a whole: 100 for percent, 1,000 for thousandths.
    scale: f64,
}

/// The side on which a share is accepted.
#[derive(PartialEq)]
enum ShareBound {
    AtMost,
    AtLeast,
}

const SHARE_RULES: [ShareRule; 6] = [
    ShareRule {
        key: "one_word_types",
        what: "types of one word (percent)",
        bound: ShareBound::AtMost,
        count: |counts| &counts.types,
        scale: 100.0,
    },
    ShareRule {
        key: "one_word_constants",
        what: "constants of one word (percent)",
        bound: ShareBound::AtMost,
        count: |counts| &counts.constants,
        scale: 100.0,
    },
    ShareRule {
        key: "one_word_functions",
        what: "functions of one word (percent)",
        bound: ShareBound::AtMost,
        count: |counts| &counts.functions,
        scale: 100.0,
    },
    ShareRule {
        key: "odd_phrases",
        what: "odd phrases per 1,000 comment lines",
        bound: ShareBound::AtMost,
        count: |counts| &counts.odd_phrases,
        scale: 1000.0,
    },
    ShareRule {
        key: "short_docs",
        what: "one-line docs of three words or fewer (percent)",
        bound: ShareBound::AtMost,
        count: |counts| &counts.short_docs,
        scale: 100.0,
    },
    ShareRule {
        key: "inline_comments",
        what: "lines that are inline comments (percent)",
        bound: ShareBound::AtLeast,
        count: |counts| &counts.inline_comments,
        scale: 100.0,
    },
];

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
        let limit = |rule: &ShareRule| {
            let value = document
                .get("limits")
                .and_then(|limits| limits.get(rule.key));
            value
                .and_then(Value::as_f64)
                .with_context(|| format!("limits.{} is missing or is not a number", rule.key))
        };
        Ok(Self {
            identifiers: table("identifiers"),
            labels: table("labels"),
            phrases: table("phrases"),
            limits: SHARE_RULES.iter().map(limit).collect::<Result<_, _>>()?,
        })
    }
}

/// Refused identifiers, and shares beyond their limits.
pub(crate) fn violations(sources: &[SourceFile], rules: &WordRules) -> Vec<String> {
    let mut violations = Vec::new();
    let mut counts = WordCounts::default();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            for (_, name) in line_definitions(line) {
                if let Some(instead) = rules.identifiers.get(name) {
                    violations.push(format!(
                        "{}:{}: write `{instead}` instead of `{name}`",
                        source.path,
                        at + 1
                    ));
                }
            }
        }
        violations.extend(refused_labels(source, rules));
        counts.add(source, rules);
    }
    for (rule, limit) in SHARE_RULES.iter().zip(&rules.limits) {
        let count = (rule.count)(&counts);
        let Some(share) = count.share(rule.scale) else {
            continue;
        };
        let description = rule.what;
        match rule.bound {
            ShareBound::AtMost if share > *limit => violations.push(format!(
                "{description}: {share:.1}, more than the limit of {limit:.1} in xtask/words.toml; the last one is {}",
                count.last
            )),
            ShareBound::AtLeast if share < *limit => violations.push(format!(
                "{description}: {share:.1}, less than the limit of {limit:.1} in xtask/words.toml"
            )),
            _ => {}
        }
    }
    violations
}

/// Labels of metrics with a refused name.
fn refused_labels(source: &SourceFile, rules: &WordRules) -> Vec<String> {
    // The name may be on the line after the call.
    let calls = source.text.match_indices("KeyValue::new(");
    calls
        .filter_map(|(at, call)| {
            let argument = source.text.get(at + call.len()..)?.trim_start();
            let (name, _) = argument.strip_prefix('"')?.split_once('"')?;
            let instead = rules.labels.get(name)?;
            let line = source.text.get(..at)?.matches('\n').count() + 1;
            Some(format!(
                "{}:{line}: write `{instead}` instead of the label `{name}`",
                source.path
            ))
        })
        .collect()
}

#[derive(Debug, Default)]
struct WordCounts {
    types: ShareCount,
    constants: ShareCount,
    functions: ShareCount,
    /// Their share of all comment lines.
    odd_phrases: ShareCount,
    /// Share of short docs among docs of one line.
    short_docs: ShareCount,
    /// Share of inline comments among lines that are not empty.
    inline_comments: ShareCount,
}

#[derive(Debug, Default)]
struct ShareCount {
    all: usize,
    counted: usize,
    /// The last counted element, with its position.
    last: String,
}

impl ShareCount {
    fn add(&mut self, is_counted: bool, describe: impl FnOnce() -> String) {
        self.all += 1;
        if is_counted {
            self.counted += 1;
            self.last = describe();
        }
    }

    /// `None` for a tree without such elements.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of lines and names are small"
    )]
    fn share(&self, scale: f64) -> Option<f64> {
        (self.all > 0).then(|| self.counted as f64 * scale / self.all as f64)
    }
}

impl WordCounts {
    fn add(&mut self, source: &SourceFile, rules: &WordRules) {
        let is_test = source.is_test_file();
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let location = || format!("{}:{}", source.path, at + 1);
            for (kind, name) in line_definitions(line) {
                let named = || format!("`{name}` at {}", location());
                let is_one_word = !name.contains('_');
                match kind {
                    DefinitionKind::Type => {
                        let is_one_word = !name[1..].contains(char::is_uppercase);
                        self.types.add(is_one_word, named);
                    }
                    DefinitionKind::Constant => self.constants.add(is_one_word, named),
                    DefinitionKind::Function if !is_test => self.functions.add(is_one_word, named),
                    DefinitionKind::Function | DefinitionKind::Module | DefinitionKind::Field => {}
                }
            }
            if is_test || line.is_empty() {
                continue;
            }
            let is_inline =
                line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
            self.inline_comments.add(is_inline, location);
            if line.starts_with("//") {
                let odd = odd_phrase(line, rules);
                self.odd_phrases.add(odd.is_some(), || {
                    let (phrase, instead) = odd.unwrap_or_default();
                    format!("`{phrase}` ({instead}) at {}", location())
                });
            }
            if let Some(doc) = one_line_doc(&lines, at) {
                let is_short = doc.split_whitespace().count() <= MAX_SHORT_DOC_WORDS;
                self.short_docs.add(is_short, location);
            }
        }
    }
}

/// A doc with this number of words or fewer usually repeats the name.
const MAX_SHORT_DOC_WORDS: usize = 3;

/// The text of a doc comment that has no other line.
fn one_line_doc<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let is_doc = |at: Option<usize>| {
        let line = at.and_then(|at| lines.get(at));
        line.is_some_and(|line| line.starts_with("///"))
    };
    let doc = lines.get(at)?.strip_prefix("///")?;
    (!is_doc(at.checked_sub(1)) && !is_doc(at.checked_add(1))).then_some(doc)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DefinitionKind {
    Type,
    Constant,
    Function,
    Module,
    /// A public field of a struct.
    Field,
}

/// The names that a line of code defines.
fn line_definitions(line: &str) -> Vec<(DefinitionKind, &str)> {
    // Comments may mention a name that code must not define.
    let code = line.split("//").next().unwrap_or_default();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = code
        .split(|character| !is_word(character))
        .filter(|word| !word.is_empty());
    let mut names = Vec::new();
    if let Some(field) = public_field(code) {
        names.push((DefinitionKind::Field, field));
    }
    while let Some(word) = words.next() {
        let kind = match word {
            "struct" | "enum" | "trait" => DefinitionKind::Type,
            "const" => DefinitionKind::Constant,
            "fn" => DefinitionKind::Function,
            "mod" => DefinitionKind::Module,
            _ => continue,
        };
        // The next word is read from a copy: in `const fn name` the next word is the next keyword.
        let Some(name) = words.clone().next() else {
            break;
        };
        let is_upper = name.starts_with(char::is_uppercase);
        let is_named = match kind {
            DefinitionKind::Type => is_upper,
            DefinitionKind::Constant => is_upper && !name.contains(char::is_lowercase),
            DefinitionKind::Function | DefinitionKind::Module | DefinitionKind::Field => {
                !is_upper && !name.starts_with('_')
            }
        };
        if is_named {
            names.push((kind, name));
        }
    }
    names
}

/// The name of the public field that a line declares: `pub name: Type` or `pub(crate) name: Type`.
fn public_field(code: &str) -> Option<&str> {
    let declared = code.trim_start().strip_prefix("pub")?;
    let declared = match declared.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => declared,
    };
    let (name, _) = declared.strip_prefix(' ')?.split_once(':')?;
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    name.chars().all(is_name).then_some(name)
}

/// The first refused phrase of a comment, with the phrase to use instead.
fn odd_phrase<'a>(line: &str, rules: &'a WordRules) -> Option<(&'a str, &'a str)> {
    // A phrase may begin a sentence.
    let lower = line.to_lowercase();
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let matched = rules.phrases.iter().find(|(phrase, _)| {
        lower.match_indices(phrase.as_str()).any(|(at, _)| {
            let before = lower[..at].chars().next_back();
            let after = lower[at + phrase.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    });
    matched.map(|(phrase, instead)| (phrase.as_str(), instead.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_RULES: &str = r#"
        [identifiers]
        Shop = "WorkerContext"
        keeper = "reconciler"
        [labels]
        route = "transport"
        [phrases]
        "at once" = "immediately, or concurrently"
        [limits]
        one_word_types = 50
        one_word_constants = 50
        one_word_functions = 50
        odd_phrases = 500
        short_docs = 50
        inline_comments = 0
    "#;

    fn findings(text: &str, rules: &str) -> Vec<String> {
        let source = SourceFile {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        violations(&[source], &WordRules::parse(rules).unwrap())
    }

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(findings(text, TEST_RULES), expected);
    }

    #[test]
    fn refuses_an_identifier_with_the_name_to_use_instead() {
        check(
            "pub struct Shop;\nstruct ShopWindow;\n// struct Shop\n",
            &["a.rs:1: write `WorkerContext` instead of `Shop`"],
        );
    }

    #[test]
    fn refuses_a_module_and_a_function_by_name() {
        check(
            "pub mod keeper;\nmod keeper_state;\nasync fn keeper() {}\nasync fn run_it() {}\n",
            &[
                "a.rs:1: write `reconciler` instead of `keeper`",
                "a.rs:3: write `reconciler` instead of `keeper`",
            ],
        );
    }

    #[test]
    fn refuses_a_label_of_a_metric_by_name() {
        check(
            "KeyValue::new(\"route\", one);\n\nKeyValue::new(\n    \"route\",\n    two,\n);\nKeyValue::new(\"other\", \"route\");\n",
            &[
                "a.rs:1: write `transport` instead of the label `route`",
                "a.rs:3: write `transport` instead of the label `route`",
            ],
        );
    }

    #[test]
    fn refuses_a_public_field_by_name() {
        check(
            "    pub keeper: u8,\n    pub(crate) keeper: u8,\n    pub fn run_it(keeper: u8)\n    pub keeper_state: u8,\n    keeper: 1,\n",
            &[
                "a.rs:1: write `reconciler` instead of `keeper`",
                "a.rs:2: write `reconciler` instead of `keeper`",
            ],
        );
    }

    #[test]
    fn refuses_shares_above_their_limits_with_the_last_example() {
        check(
            "const LONGEST: u8 = 1;\nconst MAX_BYTES: u8 = 1;\nconst fn max_bytes() {}\nenum TwoWords {}\n",
            &[],
        );
        check(
            "const LONGEST: u8 = 1;\n/// Ends At once.\nfn run() {}\n",
            &[
                "constants of one word (percent): 100.0, more than the limit of 50.0 in xtask/words.toml; the last one \
                 is `LONGEST` at a.rs:1",
                "functions of one word (percent): 100.0, more than the limit of 50.0 in xtask/words.toml; the last one \
                 is `run` at a.rs:3",
                "odd phrases per 1,000 comment lines: 1000.0, more than the limit of 500.0 in xtask/words.toml; the \
                 last one is `at once` (immediately, or concurrently) at a.rs:2",
                "one-line docs of three words or fewer (percent): 100.0, more than the limit of 50.0 in \
                 xtask/words.toml; the last one is a.rs:2",
            ],
        );
    }

    #[test]
    fn docs_of_several_lines_or_four_words_are_not_short() {
        check("/// Its four words here.\n", &[]);
        check("/// Its name.\n/// Its use.\n", &[]);
    }

    #[test]
    fn refuses_a_tree_with_too_few_inline_comments() {
        let rules = TEST_RULES.replace("inline_comments = 0", "inline_comments = 40");
        let code = "fn two_words() {\n    // Why it is odd.\n}\n";
        assert_eq!(
            findings(code, &rules),
            [
                "lines that are inline comments (percent): 33.3, less than the limit of 40.0 in xtask/words.toml"
            ]
        );
        assert_eq!(
            findings(&code.replace("}\n", "// More.\n}\n"), &rules),
            [""; 0]
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
