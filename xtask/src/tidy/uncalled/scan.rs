//! The code of a file that the product is built from: the names in it, and the public items that it defines.
//!
//! It relies on the layout of `rustfmt`: an item for tests ends at the indentation where it begins.

use std::collections::{BTreeSet, HashSet};

use crate::tidy::source::SourceFile;

/// Features that only tests switch on.
const TEST_FEATURES: [&str; 6] = [
    "conformance",
    "fake",
    "fake-issuer",
    "fake-server",
    "provider-suite",
    "test-bus",
];

/// Keywords before the name that an item defines.
const DEFINING_KEYWORDS: [&str; 8] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type",
];

/// Modules that only tests are built with.
#[derive(Debug, Default)]
pub(super) struct TestModules {
    /// Paths without `.rs`.
    paths: BTreeSet<String>,
}

impl TestModules {
    /// Whether the file is one of these modules, or inside of one.
    pub(super) fn contain(&self, path: &str) -> bool {
        let stem = path.trim_end_matches(".rs");
        let ends = path.match_indices('/').map(|(at, _)| at);
        ends.filter_map(|at| path.get(..at))
            .chain([stem])
            .any(|prefix| self.paths.contains(prefix))
    }
}

/// The modules that files declare under a condition that only tests meet.
pub(super) fn test_modules(sources: &[SourceFile]) -> TestModules {
    let mut modules = TestModules::default();
    for SourceFile { path, text } in sources {
        let stem = path.trim_end_matches(".rs");
        let (parent, file) = stem.rsplit_once('/').unwrap_or(("", stem));
        let directory = match file {
            "lib" | "main" | "mod" => parent,
            _ => stem,
        };
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= is_test_attribute(line);
                continue;
            }
            let declared = line.strip_suffix(';').and_then(|line| {
                let (before, name) = line.rsplit_once("mod ")?;
                (before.is_empty() || before.starts_with("pub")).then_some(name)
            });
            if let Some(name) = declared.filter(|_| is_test) {
                modules.paths.insert(format!("{directory}/{name}"));
            }
            is_test = false;
        }
    }
    modules
}

/// The code of one file without tests, comments and re-exports.
#[derive(Debug, Default)]
pub(super) struct ProductCode<'a> {
    /// Names of public items, with their lines from 1.
    pub(super) public_items: Vec<(usize, &'a str)>,
    /// Every word, except the names that items define, and those of modules and crates in a path. The type of an `impl`
    /// does not count.
    pub(super) named: HashSet<&'a str>,
}

impl<'a> ProductCode<'a> {
    pub(super) fn scan(text: &'a str) -> Self {
        let mut code = Self::default();
        if text.lines().any(|line| line == "#![cfg(test)]") {
            return code;
        }
        let mut lines = text.lines().zip(1..);
        while let Some((line, at)) = lines.next() {
            let trimmed = line.trim_start();
            if is_test_attribute(trimmed) {
                skip_item(&mut lines, line.len() - trimmed.len());
            } else if is_reexport(trimmed) {
                if !trimmed.contains(';') {
                    let _ = lines.find(|(line, _)| line.contains(';'));
                }
            } else {
                let trimmed = without_comment(trimmed);
                code.public_items
                    .extend(public_item(trimmed).map(|name| (at, name)));
                code.add_words(trimmed);
            }
        }
        code
    }

    fn add_words(&mut self, line: &'a str) {
        let implemented = implemented_type(line);
        let mut is_defined = false;
        let mut end_of_previous = 0;
        for (at, word) in words(line) {
            // `'static` is a lifetime.
            let is_lifetime = line
                .get(end_of_previous..at)
                .is_some_and(|between| between.ends_with('\''));
            end_of_previous = at + word.len();
            if is_lifetime {
                continue;
            }
            if DEFINING_KEYWORDS.contains(&word) {
                is_defined = true;
                continue;
            }
            let is_module = is_module_name(word, line.get(end_of_previous..).unwrap_or_default());
            if !is_defined && !is_module && implemented != Some(at) {
                self.named.insert(word);
            }
            is_defined = false;
        }
    }
}

/// Whether a word is a module or a crate in a path, to judge by the text after it: a function may have the same name.
fn is_module_name(word: &str, after: &str) -> bool {
    let is_path = after.starts_with("::") && !after.starts_with("::<");
    is_path && word.starts_with(|character: char| character.is_ascii_lowercase())
}

/// Whether an attribute removes its item from the product.
fn is_test_attribute(line: &str) -> bool {
    let Some(condition) = line.strip_prefix("#[cfg(") else {
        return false;
    };
    let is_test = ["test)", "any(test", "all(test"]
        .iter()
        .any(|start| condition.starts_with(start));
    is_test
        || TEST_FEATURES
            .iter()
            .any(|feature| condition.starts_with(&format!("feature = \"{feature}\"")))
}

/// Skips the rest of an item that begins at this indentation.
fn skip_item<'a>(lines: &mut impl Iterator<Item = (&'a str, usize)>, indentation: usize) {
    let _ = lines.find(|(line, _)| {
        let trimmed = line.trim_start();
        let is_outer = line.len() - trimmed.len() == indentation;
        let is_before = trimmed.starts_with("#[") || trimmed.starts_with("//");
        is_outer && !is_before && trimmed.ends_with([';', '}', ','])
    });
}

/// Whether a line begins a re-export, which is no use of what it names.
fn is_reexport(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub") else {
        return false;
    };
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.starts_with(" use ")
}

/// The line up to a comment. A text may contain `//`.
fn without_comment(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| {
        let before = line.get(..*at).unwrap_or_default();
        before.matches('"').count() % 2 == 0
    });
    comment.and_then(|(at, _)| line.get(..at)).unwrap_or(line)
}

/// The name of the public item that a line defines.
fn public_item(line: &str) -> Option<&str> {
    let mut found = line.strip_prefix("pub ")?;
    loop {
        let (word, rest) = found.split_once(' ')?;
        match word {
            "async" | "unsafe" => found = rest,
            "const" if rest.starts_with("fn ") => found = rest,
            "const" | "enum" | "fn" | "static" | "struct" | "trait" | "type" => {
                // A macro defines `$name`.
                let named = Some(rest).filter(|rest| !rest.starts_with('$'))?;
                return words(named).next().map(|(_, name)| name);
            }
            _ => return None,
        }
    }
}

/// Where the type of an `impl` block is in its line; `None` for another line, and for a type such as `&Name`.
fn implemented_type(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => after_generics(generics)?,
        None => rest.strip_prefix(' ')?,
    };
    let rest = rest.trim_start();
    let implemented = rest.rsplit_once(" for ").map_or(rest, |(_, after)| after);
    let path_length = implemented
        .find(|character: char| !is_word(character) && character != ':')
        .unwrap_or(implemented.len());
    let path = implemented.get(..path_length)?;
    let name = path.rsplit("::").next().filter(|name| !name.is_empty())?;
    // `implemented` is a suffix of the line.
    Some(line.len() - implemented.len() + path.len() - name.len())
}

/// The text after the `>` that closes generics.
fn after_generics(generics: &str) -> Option<&str> {
    let mut depth = 1;
    let mut previous = ' ';
    for (at, character) in generics.char_indices() {
        match character {
            '<' => depth += 1,
            // `->` closes nothing.
            '>' if previous != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return generics.get(at + 1..);
        }
        previous = character;
    }
    None
}

const fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The words of a line, with their positions.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = line.get(at..)?;
        let start = at + rest.find(is_word)?;
        let rest = line.get(start..)?;
        let length = rest
            .find(|character| !is_word(character))
            .unwrap_or(rest.len());
        at = start + length;
        Some((start, line.get(start..at)?))
    })
}
