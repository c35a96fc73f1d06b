//! Names of extensions.

use anyhow::bail;

use super::ExtensionKind;

/// Longest name, in bytes. It becomes part of subjects, crates and metric labels.
const MAX_NAME_BYTES: usize = 24;

/// Words with another meaning where the name is used: keywords of Rust, and fields and labels next to the name.
const RESERVED_NAMES: &[&str] = &[
    "accounts",
    "as",
    "async",
    "await",
    "break",
    "cli",
    "common",
    "const",
    "continue",
    "crate",
    "delivery",
    "dyn",
    "else",
    "enum",
    "exec",
    "extern",
    "false",
    "fn",
    "for",
    "if",
    "impl",
    "in",
    "internal",
    "kinds",
    "let",
    "local",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "other",
    "policy",
    "predefined",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "tenant",
    "test",
    "tests",
    "trait",
    "transfer",
    "true",
    "type",
    "unsafe",
    "use",
    "where",
    "while",
];

/// A name that can be used for a kind of extension, in the spellings that files need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExtensionName {
    /// The name as given: `my-search`.
    pub(super) kebab: String,
    /// The name as a type: `MySearch`.
    pub(super) camel: String,
    /// The name as a module: `my_search`.
    pub(super) snake: String,
}

impl ExtensionName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// The problem, and a description of valid names.
    pub(super) fn parse(kind: ExtensionKind, name: &str) -> anyhow::Result<Self> {
        // The names of platforms and backends are before the colon of a target or an address, where no dash is allowed.
        let is_one_word = matches!(kind, ExtensionKind::Backend | ExtensionKind::Platform);
        let is_part = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_lowercase())
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !name.split('-').all(is_part) {
            bail!(
                "`{name}` is not kebab-case: write lower-case letters and digits, such as `acme2`"
            );
        }
        if is_one_word && name.contains('-') {
            bail!(
                "the name of a {} is one word, because addresses contain it: `{name}` has a dash",
                kind.as_str()
            );
        }
        if !(2..=MAX_NAME_BYTES).contains(&name.len()) {
            bail!("`{name}` must have 2 to {MAX_NAME_BYTES} characters");
        }
        if RESERVED_NAMES.contains(&name) {
            bail!("`{name}` is reserved: the source or the configuration uses the word already");
        }
        Ok(Self {
            kebab: name.to_owned(),
            camel: name.split('-').map(capitalized).collect(),
            snake: name.replace('-', "_"),
        })
    }

    /// A template with the name in place of `@name@`, `@Name@` and `@snake@`.
    pub(super) fn fill(&self, template: &str) -> String {
        template
            .replace("@name@", &self.kebab)
            .replace("@Name@", &self.camel)
            .replace("@snake@", &self.snake)
    }
}

fn capitalized(part: &str) -> String {
    let mut letters = part.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
