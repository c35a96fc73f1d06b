//! Output of a chat: the text of answers on standard output, stages and files on standard error; for scripts, one
//! object per line. Control characters in received text do not reach the terminal.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use dray_agent::message::Attachment;
use dray_dial::chat::{AnswerEnding, StageDelta, StageEnd};
use dray_dial::inline_bytes;
use dray_presentation::{name, size};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::downloads::DownloadOutcome;
use crate::outcome::{self, CommandFailure, print_line, print_text};
use crate::progress;

/// Longest name of a stage that is shown, in characters.
const MAX_NAME_CHARACTERS: usize = 160;
/// Most bytes that are kept of the name and of the content of a stage.
const MAX_STAGE_BYTES: usize = 256 << 10;
/// Longest link that is shown, in characters.
const MAX_LINK_CHARACTERS: usize = 4000;

/// Writes a chat to the terminal and tracks which parts are visible, such as the spinner.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(super) struct ChatScreen {
    json: bool,
    stages: bool,
    verbose: bool,
    out_is_terminal: bool,
    err_is_terminal: bool,
    /// Whether text was written whose line has not ended.
    in_line: bool,
    bar: Option<ProgressBar>,
    open: BTreeMap<u32, ShownStage>,
}

#[derive(Debug, Default)]
struct ShownStage {
    name: String,
    content: String,
}

impl ChatScreen {
    /// Output for people, or with `json` for scripts.
    pub(super) fn new(json: bool, stages: bool, verbose: bool) -> Self {
        Self {
            json,
            stages,
            verbose,
            out_is_terminal: std::io::stdout().is_terminal(),
            err_is_terminal: std::io::stderr().is_terminal(),
            in_line: false,
            bar: None,
            open: BTreeMap::new(),
        }
    }

    /// Begins an answer: shows that the program waits for it.
    pub(super) fn begin(&mut self) {
        self.open.clear();
        self.working("waiting");
    }

    /// Shows a chunk of text.
    pub(super) fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.json {
            print_event(&json!({ "event": "content", "text": text }));
            return;
        }
        self.clear_spinner();
        // A pipe gets the bytes unchanged: the reader may want any bytes.
        if self.out_is_terminal {
            print_text(&strip_control_characters(text));
        } else {
            print_text(text);
        }
        self.in_line = !text.ends_with('\n');
    }

    /// Shows a change of a stage.
    pub(super) fn stage(&mut self, delta: &StageDelta) {
        // Stages arrive in chunks with an index, and several can be open.
        let is_new = !self.open.contains_key(&delta.index);
        let stage = self.open.entry(delta.index).or_default();
        append_bounded(&mut stage.name, delta.name.as_deref());
        append_bounded(&mut stage.content, delta.content.as_deref());
        if is_new && self.json {
            let name = stage.name.clone();
            print_event(
                &json!({ "event": "stage", "index": delta.index, "name": name, "status": "running" }),
            );
        }
        match delta.status {
            Some(end) => self.finish(delta.index, Some(end)),
            None if self.stages => {
                let names: Vec<_> = self.open.values().map(|stage| stage.name.trim()).collect();
                let names = name::shown_text(names.join(", "), MAX_NAME_CHARACTERS);
                self.working(&names);
            }
            None => {}
        }
    }

    fn finish(&mut self, index: u32, end: Option<StageEnd>) {
        let Some(stage) = self.open.remove(&index) else {
            return;
        };
        let (mark, status) = match end {
            Some(StageEnd::Completed) => ("✓", "completed"),
            Some(StageEnd::Failed) => ("✗", "failed"),
            None => ("·", "open"),
        };
        if self.json {
            print_event(&json!({
                "event": "stage", "index": index, "name": stage.name, "status": status, "content": stage.content,
            }));
        } else if self.stages {
            let shown = name::shown_text(stage.name.trim(), MAX_NAME_CHARACTERS);
            self.note(&format!("{mark} {shown}"));
            if self.verbose {
                for line in strip_control_characters(&stage.content).lines() {
                    self.note(&format!("    {line}"));
                }
            }
        }
    }

    /// Ends an answer: closes stages and lines that are still open.
    pub(super) fn stop(&mut self) {
        // The peer never ended these stages.
        let open: Vec<_> = self.open.keys().copied().collect();
        for index in open {
            self.finish(index, None);
        }
        self.clear_spinner();
        if self.in_line {
            print_text("\n");
            self.in_line = false;
        }
    }

    /// Shows a received file and its outcome. Returns the line, for `/files`.
    pub(super) fn file(
        &mut self,
        attachment: &Attachment,
        download: Option<&DownloadOutcome>,
    ) -> String {
        let line = describe_attachment(attachment, download);
        if self.json {
            let mut report = json!({
                "event": "attachment", "type": attachment.kind, "title": attachment.title,
            });
            let fields = report.as_object_mut();
            if let Some(fields) = fields {
                // The content itself is not repeated in the event.
                let is_held = inline_bytes(attachment).is_some();
                let url = attachment.url.as_ref().filter(|_| !is_held);
                fields.insert("url".to_owned(), json!(url));
                match download {
                    Some(DownloadOutcome::Saved { path, size }) => {
                        let path = path.to_string_lossy();
                        fields.insert("saved_to".to_owned(), json!(path));
                        fields.insert("size".to_owned(), json!(size));
                    }
                    Some(DownloadOutcome::Failed(reason)) => {
                        fields.insert("error".to_owned(), json!(reason));
                    }
                    Some(DownloadOutcome::NotFetched) | None => {}
                }
            }
            print_event(&report);
        } else {
            self.note(&line);
        }
        line
    }

    /// Reports the end of a complete answer, for scripts.
    pub(super) fn end(&mut self, ending: &AnswerEnding) {
        if !self.json {
            return;
        }
        if let Some(state) = &ending.state {
            print_event(&json!({ "event": "state", "state": state }));
        }
        let usage = ending.usage.as_ref().map(
            |usage| json!({ "prompt_tokens": usage.prompt, "completion_tokens": usage.completion }),
        );
        print_event(
            &json!({ "event": "end", "finish_reason": ending.finish_reason, "usage": usage }),
        );
    }

    /// Reports a failure, and marks it as reported, so that it is not printed again.
    pub(super) fn failure(&mut self, failure: CommandFailure) -> CommandFailure {
        self.clear_spinner();
        match failure {
            CommandFailure::Reported | CommandFailure::AlreadyPrinted(_) => failure,
            failure => {
                if self.json {
                    let fault = outcome::fault_json(&failure.as_fault());
                    print_event(&json!({ "event": "error", "fault": fault }));
                } else {
                    failure.report(false);
                }
                CommandFailure::AlreadyPrinted(Box::new(failure))
            }
        }
    }

    /// A line for people; scripts do not get it.
    pub(super) fn print_note(&mut self, line: &str) {
        if !self.json {
            self.note(line);
        }
    }

    fn note(&mut self, line: &str) {
        self.clear_spinner();
        self.break_line();
        outcome::print_note(line);
    }

    /// Shows on a terminal that work continues, with this text.
    fn working(&mut self, text: &str) {
        if self.json || !self.err_is_terminal {
            return;
        }
        self.break_line();
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => self.bar = Some(progress::spinner_with_text(text, false)),
        }
    }

    /// Removes the output of [`ChatScreen::working`]. Called before other output, which would break the spinner's line.
    fn clear_spinner(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Ends a line of text before a note where both go to one terminal.
    fn break_line(&mut self) {
        if self.in_line && self.out_is_terminal && self.err_is_terminal {
            print_text("\n");
            self.in_line = false;
        }
    }
}

fn print_event(event: &Value) {
    print_line(&event.to_string());
}

/// A file on one line.
fn describe_attachment(attachment: &Attachment, download: Option<&DownloadOutcome>) -> String {
    let title = attachment.title.as_deref().unwrap_or("attachment");
    let mut line = format!(
        "file: {}",
        name::shown_text(title, name::MAX_SHOWN_CHARACTERS)
    );
    let inline_size = inline_bytes(attachment).map(|bytes| bytes.len() as u64);
    let kind = attachment
        .kind
        .as_deref()
        .map(|kind| name::shown_text(kind, 80));
    let size = match download {
        Some(DownloadOutcome::Saved { size, .. }) => Some(*size),
        _ => inline_size,
    };
    let about: Vec<_> = kind.into_iter().chain(size.map(size::human_size)).collect();
    if !about.is_empty() {
        line.push_str(" (");
        line.push_str(&about.join(", "));
        line.push(')');
    }
    let url = attachment.url.as_deref().filter(|_| inline_size.is_none());
    match (download, url) {
        (Some(DownloadOutcome::Saved { path, .. }), _) => {
            line.push_str(" saved to ");
            line.push_str(&name::shown_text(
                path.to_string_lossy().as_bytes(),
                MAX_LINK_CHARACTERS,
            ));
        }
        (Some(DownloadOutcome::Failed(reason)), _) => {
            line.push_str(" could not be saved: ");
            line.push_str(&name::shown_text(reason, MAX_LINK_CHARACTERS));
        }
        (_, Some(url)) => {
            line.push_str(" at ");
            line.push_str(&name::shown_text(url, MAX_LINK_CHARACTERS));
        }
        (None, None) => line.push_str("; --downloads DIR saves it"),
        (Some(DownloadOutcome::NotFetched), None) => {}
    }
    line
}

/// A text without control characters, except line ends and tabs: others could move the cursor or change the terminal.
fn strip_control_characters(text: &str) -> String {
    let is_tame = |letter: &char| matches!(letter, '\n' | '\t') || !letter.is_control();
    text.chars().filter(is_tame).collect()
}

fn append_bounded(text: &mut String, more: Option<&str>) {
    let more = more.unwrap_or_default();
    let room = MAX_STAGE_BYTES.saturating_sub(text.len());
    // The text is not cut in the middle of a character.
    let end = more.floor_char_boundary(room.min(more.len()));
    text.push_str(more.get(..end).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_received_text_do_not_reach_the_terminal() {
        assert_eq!(
            strip_control_characters("a\u{1b}[31mb\u{9b}2J\rc\n\td é"),
            "a[31mb2Jc\n\td é"
        );
        let attachment = Attachment {
            title: Some("a\u{1b}]0;x\u{7}\n.txt".to_owned()),
            url: Some("http://x/\u{202e}a".to_owned()),
            ..Attachment::default()
        };
        let line = describe_attachment(&attachment, None);
        assert!(
            !line.contains(|letter: char| letter.is_control() || letter == '\u{202e}'),
            "{line}"
        );
    }

    #[test]
    fn a_file_is_reported_with_size_and_place() {
        let attachment = Attachment {
            kind: Some("text/csv".to_owned()),
            title: Some("a.csv".to_owned()),
            data: Some("a,b".to_owned()),
            ..Attachment::default()
        };
        assert_eq!(
            describe_attachment(&attachment, None),
            "file: a.csv (text/csv, 3 B); --downloads DIR saves it"
        );
        let saved = DownloadOutcome::Saved {
            path: "out/a.csv".into(),
            size: 3,
        };
        assert_eq!(
            describe_attachment(&attachment, Some(&saved)),
            "file: a.csv (text/csv, 3 B) saved to out/a.csv"
        );
        let failed = DownloadOutcome::Failed("status 403".to_owned());
        assert!(
            describe_attachment(&attachment, Some(&failed))
                .ends_with("could not be saved: status 403")
        );
    }

    #[test]
    fn the_buffered_text_of_a_stage_is_limited() {
        let mut text = "x".repeat(MAX_STAGE_BYTES - 1);
        append_bounded(&mut text, Some("é and more"));
        assert_eq!(text.len(), MAX_STAGE_BYTES - 1);
        append_bounded(&mut text, None);
        append_bounded(&mut text, Some("ab"));
        assert_eq!(text.len(), MAX_STAGE_BYTES);
    }
}
