//! `dray completions` and `dray man`: completion scripts and manual pages, generated from the same definitions as
//! `--help`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::outcome::{CommandFailure, print_text};

/// Date of the manual pages: that of the release, once `CHANGELOG.md` names it. With the date of the build, every build
/// would be different.
const PAGE_DATE: &str = "2026-11-28";

/// Prints the completion script of `shell` to standard output.
pub(crate) fn print_completions(shell: Shell) {
    // The script is written into memory first: `generate` panics where its writer fails.
    let mut script: Vec<u8> = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dray", &mut script);
    print_text(&String::from_utf8_lossy(&script));
}

/// Writes one page for each visible command into `directory`, which is created when it is missing.
pub(crate) fn write_pages(directory: &Path) -> Result<(), CommandFailure> {
    let cannot = || CommandFailure::local(format!("cannot write into {}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot())?;
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    write_page(&program, directory).map_err(cannot())
}

/// Writes the page of a command and those of its subcommands.
fn write_page(command: &Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() {
            write_page(subcommand, directory)?;
        }
    }
    let page = Man::new(command.clone())
        // A subcommand has no version, and without a date its name would be read as one.
        .date(PAGE_DATE)
        .source(concat!("Drayage ", env!("CARGO_PKG_VERSION")))
        .manual("Drayage Manual");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = remove_requests_without_effect(&String::from_utf8_lossy(&text));
    let text = escape_non_ascii(&text);
    std::fs::write(directory.join(page.get_filename()), text)
}

/// Removes what has no effect and what `mandoc -T lint` reports: blanks at the ends of lines, and line breaks next to
/// vertical space.
fn remove_requests_without_effect(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    // An empty line is vertical space, too (`groff(7)`).
    let is_space = |line: Option<&&str>| line.is_some_and(|line| matches!(*line, ".sp" | ""));
    let mut kept = String::with_capacity(text.len());
    for (index, line) in lines.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| lines.get(index));
        let is_idle = *line == ".br" && (is_space(before) || is_space(lines.get(index + 1)));
        if !is_idle {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Writes all characters that are not ASCII as escapes (`groff_char(7)`): troff reads pages as Latin-1.
fn escape_non_ascii(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\[u{:04X}]", u32::from(character));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_title_a_date_and_a_version_and_is_ascii() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(directory.path()).unwrap();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.is_ascii(), "{name}");
            let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
            let start = format!(
                ".TH {name} 1 {PAGE_DATE} \"Drayage {}\"",
                env!("CARGO_PKG_VERSION")
            );
            assert!(title.starts_with(&start), "{title}");
            names.push(name);
        }
        assert!(names.len() > 60, "{names:?}");
        assert!(names.iter().any(|name| name == "dray-sandbox-get"));
    }

    #[test]
    fn requests_without_effect_are_left_out() {
        let text = ".TP \na \n.br\n.sp\n.br\nb\n.br\n\n.br\nc\n.br\nd\n";
        let kept = ".TP\na\n.sp\nb\n\nc\n.br\nd\n";
        assert_eq!(remove_requests_without_effect(text), kept);
    }

    #[test]
    fn the_date_of_the_pages_is_that_of_the_release() {
        let changes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md");
        let changes = std::fs::read_to_string(changes).unwrap();
        let heading = concat!("## ", env!("CARGO_PKG_VERSION"), ", ");
        let mut headings = changes
            .lines()
            .filter_map(|line| line.strip_prefix(heading));
        let date = headings.next().unwrap();
        assert!(date == "not released" || date == PAGE_DATE, "{date}");
    }

    #[test]
    fn characters_that_are_not_ascii_become_escapes() {
        assert_eq!(
            escape_non_ascii("a\u{2026}\u{1f600}"),
            "a\\[u2026]\\[u1F600]"
        );
    }
}
