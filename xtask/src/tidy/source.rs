//! Rules for every Rust file.

/// A hand-written Rust file with its complete text.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Most lines of a file; a longer one has parts that should be separate modules.
const MAX_LINES: usize = 500;

/// Words that mark unfinished work. They are split here, so that this file does not contain the words.
const UNFINISHED_MARKERS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "ignore"),
];

/// Calls that wait for a time instead of a condition.
const SLEEP_CALLS: &str = concat!("sleep", "(");

/// The marker at a line, or above it, that sleeps with a clock that the test controls.
const PAUSED_MARKER: &str = "// paused clock";

/// Ways to read the environment.
const ENVIRONMENT_READS: [&str; 3] = ["env::var(", "env::vars(", "env::var_os("];

impl SourceFile {
    /// The lines that only tests are built from, with their numbers from 1.
    pub(crate) fn test_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_test = self.is_test_file();
        self.text
            .lines()
            .enumerate()
            .filter_map(move |(index, line)| {
                // By custom the test module is the last item of its file.
                is_test |= line.trim_start().starts_with("#[cfg(test)]");
                is_test.then_some((index + 1, line))
            })
    }

    /// The lines that the product is built from.
    fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let first_test = self
            .test_lines()
            .next()
            .map_or(usize::MAX, |(number, _)| number);
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .filter(move |(number, _)| *number < first_test)
    }

    /// The text that the product is built from.
    pub(super) fn product_text(&self) -> String {
        let lines: Vec<_> = self.product_lines().map(|(_, line)| line).collect();
        lines.join("\n")
    }

    /// Files that hold only tests: `tests/…`, `src/tests/…`, `tests.rs`, `…_tests.rs`.
    pub(super) fn is_test_file(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
    }
}

/// Violations in one file.
pub(crate) fn violations(source: &SourceFile) -> Vec<String> {
    let SourceFile { path, text } = source;
    let mut violations = Vec::new();
    if !text.starts_with("//!") {
        violations.push(format!(
            "{path} must begin with `//!`: what it is for, what it does not do"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        violations.push(format!("{path} has {lines} lines, more than {MAX_LINES}"));
    }
    for (index, line) in text.lines().enumerate() {
        for word in UNFINISHED_MARKERS
            .iter()
            .filter(|word| line.contains(**word))
        {
            violations.push(format!("{path}:{} holds `{word}`", index + 1));
        }
    }
    violations.extend(sleep_violations(source));
    if reads_no_environment(path) {
        for (at, _) in source
            .product_lines()
            .filter(|(_, line)| ENVIRONMENT_READS.iter().any(|call| line.contains(call)))
        {
            violations.push(format!(
                "{path}:{at} reads the environment, which is for the loader of dray-service alone"
            ));
        }
    }
    violations
}

/// Tests that wait for a time instead of a condition. Intentionally slow fake servers may do so, if the clock is paused
/// and the marker is present.
fn sleep_violations(source: &SourceFile) -> Vec<String> {
    let mut violations = Vec::new();
    let mut previous = "";
    for (at, line) in source.test_lines() {
        let excused = line.contains(PAUSED_MARKER) || previous.contains(PAUSED_MARKER);
        if line.contains(SLEEP_CALLS) && !excused {
            violations.push(format!(
                "{}:{at} sleeps in a test: `{}`; wait for the condition (dray_testkit::eventually), or pause the \
                 clock and say `{PAUSED_MARKER}`",
                source.path,
                line.trim()
            ));
        }
        // The marker may be above the call, if the line is too long for it.
        previous = line;
    }
    violations
}

/// Whether a crate gets its configuration as an argument. The command line, tools and tests read the environment
/// themselves.
fn reads_no_environment(path: &str) -> bool {
    let exempt = [
        "crates/dray-service/",
        "crates/dray/",
        "crates/dray-testkit/",
    ];
    path.starts_with("crates/") && !exempt.iter().any(|directory| path.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let source = SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(violations(&source), expected);
    }

    #[test]
    fn a_file_begins_with_its_purpose() {
        check("crates/a/src/lib.rs", "//! Why.\nfn a() {}\n", &[]);
        check(
            "crates/a/src/lib.rs",
            "fn a() {}\n",
            &["crates/a/src/lib.rs must begin with `//!`: what it is for, what it does not do"],
        );
    }

    #[test]
    fn a_file_has_a_maximum_length() {
        let longest = format!("//! Why.\n{}", "\n".repeat(MAX_LINES - 1));
        check("xtask/src/a.rs", &longest, &[]);
        check(
            "xtask/src/a.rs",
            &format!("{longest}\n"),
            &["xtask/src/a.rs has 501 lines, more than 500"],
        );
    }

    #[test]
    fn unfinished_work_is_named_with_its_line() {
        for word in UNFINISHED_MARKERS {
            check(
                "bench/src/a.rs",
                &format!("//! Why.\n\n    {word} later\n"),
                &[&format!("bench/src/a.rs:3 holds `{word}`")],
            );
        }
    }

    #[test]
    fn sleeping_tests_are_reported() {
        let text = format!(
            "//! Why.\nfn a() {{ {SLEEP_CALLS}1); }}\n#[cfg(test)]\nmod t {{ {SLEEP_CALLS}2); }}\n"
        );
        let violation = |path: &str, at: usize, line: &str| {
            format!(
                "{path}:{at} sleeps in a test: `{line}`; wait for the condition (dray_testkit::eventually), or pause \
                 the clock and say `{PAUSED_MARKER}`"
            )
        };
        let last = format!("mod t {{ {SLEEP_CALLS}2); }}");
        check(
            "crates/a/src/b.rs",
            &text,
            &[&violation("crates/a/src/b.rs", 4, &last)],
        );
        let first = format!("fn a() {{ {SLEEP_CALLS}1); }}");
        check(
            "crates/a/src/tests/b.rs",
            &text,
            &[
                &violation("crates/a/src/tests/b.rs", 2, &first),
                &violation("crates/a/src/tests/b.rs", 4, &last),
            ],
        );
    }

    #[test]
    fn a_marked_sleep_under_a_paused_clock_is_allowed() {
        let text = format!(
            "//! Why.\n{PAUSED_MARKER}: the peer answers late\n{SLEEP_CALLS}1);\n{SLEEP_CALLS}2); {PAUSED_MARKER}\n"
        );
        check("crates/a/src/tests/b.rs", &text, &[]);
    }

    #[test]
    fn the_environment_is_read_in_one_place() {
        let text = "//! Why.\nlet a = std::env::var(\"A\");\n#[cfg(test)]\nlet b = std::env::var(\"B\");\n";
        check(
            "crates/dray-store/src/a.rs",
            text,
            &[
                "crates/dray-store/src/a.rs:2 reads the environment, which is for the loader of dray-service alone",
            ],
        );
        for free in [
            "crates/dray-service/src/a.rs",
            "crates/dray/src/a.rs",
            "tests/main.rs",
        ] {
            check(free, text, &[]);
        }
    }
}
