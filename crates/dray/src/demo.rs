//! `dray demo`: the complete system in one process, without a network and without keys.

mod agent;
mod container;
mod delivery;
mod files;
mod public_hosts;
mod reading;
mod scenario;
mod system;
mod tickets;

use std::cell::Cell;
use std::path::Path;

use serde_json::Value;

use crate::cli::GlobalOptions;
use crate::outcome::{CommandFailure, print_line};

/// Starts the system, runs the chapters, and stops the system even when one of them fails.
pub(crate) async fn run(global: &GlobalOptions) -> Result<(), CommandFailure> {
    let directory = tempfile::tempdir().map_err(CommandFailure::local(
        "cannot make a directory for the demo",
    ))?;
    let reporter = StepReporter::new(global.json);
    let system =
        system::DemoSystem::start(directory.path(), Path::new(container::SOCKET_PATH)).await?;
    let result = scenario::run_chapters(&system, &reporter).await;
    system.stop().await;
    result
}

/// Prints what happens: sentences for people, one JSON document per step for scripts.
#[derive(Debug)]
struct StepReporter {
    json: bool,
    chapters: Cell<usize>,
    facts: Cell<usize>,
}

/// Widest line of the demo, in characters: it fits a README and half of a wide terminal.
const MAX_COLUMNS: usize = 100;
/// Width of the label in front of a line, with the space after it.
const LABEL_COLUMNS: usize = 12;

impl StepReporter {
    fn new(json: bool) -> Self {
        Self {
            json,
            chapters: Cell::new(0),
            facts: Cell::new(0),
        }
    }

    /// Begins a chapter with this title. Scripts see no titles.
    fn chapter(&self, title: &str) {
        self.chapters.set(self.chapters.get() + 1);
        if !self.json {
            print_line("");
            for line in wrap_words(title, MAX_COLUMNS) {
                print_line(&line);
            }
        }
    }

    /// Prints one labelled line of a chapter; long text continues below without the label.
    fn line(&self, label: &str, text: &str) {
        if self.json {
            return;
        }
        let mut label = label;
        for line in wrap_words(text, MAX_COLUMNS - LABEL_COLUMNS) {
            print_line(&format!("  {label:<9} {line}"));
            label = "";
        }
    }

    /// Prints the result of a step for scripts, and counts it.
    fn fact(&self, step: &str, fact: &Value) {
        self.facts.set(self.facts.get() + 1);
        if self.json {
            print_line(&serde_json::json!({ "step": step, "result": fact }).to_string());
        }
    }
}

/// Splits text into lines of at most `columns` characters, between words where that is possible.
fn wrap_words(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    // Each word keeps the space after it; the space is removed where the line ends.
    for word in text.split_inclusive(' ') {
        let word_length = word.trim_end().chars().count();
        if length > 0 && length + word_length > columns {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
            length = 0;
        }
        // One character at a time, because one word may be longer than a line.
        for character in word.chars() {
            if length == columns {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
                length = 0;
            }
            // A space at the start of a continued line would look like an indent.
            if length == 0 && character == ' ' && !lines.is_empty() {
                continue;
            }
            line.push(character);
            length += 1;
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_between_words_and_splits_words_longer_than_a_line() {
        assert_eq!(wrap_words("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_words("one", 7), ["one"]);
        assert_eq!(wrap_words("", 7), [""]);
        assert_eq!(wrap_words("a bcdefghijk", 4), ["a", "bcde", "fghi", "jk"]);
        let digest = "d".repeat(64);
        for line in wrap_words(&format!("sha256 {digest} of the file"), 40) {
            assert!(line.chars().count() <= 40, "{line}");
        }
    }
}
