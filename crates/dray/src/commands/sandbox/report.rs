//! The report of a copy: the outcome of every file.

use std::fmt::Write as _;

use dray_presentation::size::human_size;
use dray_proto::v1;
use dray_sandbox_transfer::direct::KEPT_ADVICE;
use dray_types::hex::hex_digits;
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};

use super::direct::is_kept;
use super::{exact_path, path_text, receipt_json, receipt_line};
use crate::cli::GlobalOptions;
use crate::outcome::{CommandFailure, fault_json, print_line, print_note};

/// A file that arrived.
#[derive(Debug)]
pub(super) struct FileReport {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) size: u64,
    pub(super) sha256: Vec<u8>,
    /// Whether another name was taken because the wanted one existed.
    pub(super) renamed: bool,
    /// Whether a file with the same content existed already, so that no bytes were written.
    pub(super) existed: bool,
    pub(super) receipt: Option<v1::TransferReceipt>,
    /// Receipt of the reading side, for copies between two sandboxes.
    pub(super) read_receipt: Option<v1::TransferReceipt>,
}

impl FileReport {
    pub(super) fn placed(from: Vec<u8>, placed: v1::PlacedFile) -> Self {
        Self {
            from,
            to: placed.path,
            size: placed.size,
            sha256: placed.sha256,
            renamed: placed.renamed,
            existed: placed.existed,
            receipt: placed.receipt,
            read_receipt: None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "from": path_text(&self.from),
            "from_base64": exact_path(&self.from),
            "to": path_text(&self.to),
            "to_base64": exact_path(&self.to),
            "size": self.size,
            "sha256": hex_digits(&self.sha256),
            "renamed": self.renamed,
            "existed": self.existed,
            "receipt": self.receipt.as_ref().map(receipt_json),
            "read_receipt": self.read_receipt.as_ref().map(receipt_json),
        })
    }

    fn to_line(&self) -> String {
        let how = if self.existed {
            "  (was there already)".to_owned()
        } else {
            self.receipt.as_ref().map(receipt_line).unwrap_or_default()
        };
        format!("{}  {}{how}", path_text(&self.to), human_size(self.size))
    }
}

/// The report of a copy of several files. People see each file when it ends, scripts one document at the end.
#[derive(Debug, Default)]
pub(super) struct CopyReport {
    files: Vec<FileReport>,
    directories: usize,
    skipped: Vec<String>,
    failed: Vec<(Vec<u8>, CommandFailure)>,
    not_tried: Vec<Vec<u8>>,
}

impl CopyReport {
    /// Records a file that arrived.
    pub(super) fn arrived(&mut self, global: &GlobalOptions, file: FileReport) {
        if !global.json {
            print_line(&file.to_line());
        }
        self.files.push(file);
    }

    pub(super) const fn made_directories(&mut self, count: usize) {
        self.directories += count;
    }

    /// Records entries that are left out.
    pub(super) fn skipped(
        &mut self,
        global: &GlobalOptions,
        lines: impl IntoIterator<Item = String>,
    ) {
        for line in lines {
            if !global.json {
                print_note(&format!("left out: {line}"));
            }
            self.skipped.push(line);
        }
    }

    /// Records a file that did not arrive.
    pub(super) fn failed(
        &mut self,
        global: &GlobalOptions,
        from: Vec<u8>,
        failure: CommandFailure,
    ) {
        if !global.json {
            print_note(&format!("not copied: {}", path_text(&from)));
            failure.report(false);
        }
        self.failed.push((from, failure));
    }

    pub(super) fn not_tried(&mut self, from: Vec<u8>) {
        self.not_tried.push(from);
    }

    /// Prints the document for scripts or the sum for people, and returns how the command ends. `stopped` is the
    /// reason when it was cut short.
    pub(super) fn finish(
        mut self,
        global: &GlobalOptions,
        stopped: Option<CommandFailure>,
    ) -> Result<(), CommandFailure> {
        // Files end in any order; a document should not differ from run to run.
        self.files.sort_by(|left, right| left.from.cmp(&right.from));
        if global.json {
            print_line(&self.to_json(stopped.as_ref()).to_string());
        } else {
            self.print_sum();
            if let Some(stopped) = &stopped {
                stopped.report(false);
            }
        }
        // The exit code of the first failure is used.
        let first = self.failed.into_iter().map(|(_, failure)| failure).next();
        match stopped.or(first) {
            // Every failure was printed above.
            Some(failure) => Err(CommandFailure::AlreadyPrinted(Box::new(failure))),
            None => Ok(()),
        }
    }

    fn print_sum(&self) {
        let remaining = self.failed.len() + self.not_tried.len();
        // For one file its own line is sufficient.
        if self.files.len() + remaining < 2 {
            return;
        }
        let bytes = self.files.iter().map(|file| file.size).sum();
        let count = self.files.len();
        let mut sum = format!(
            "{count} of {} files, {}",
            count + remaining,
            human_size(bytes)
        );
        if !self.not_tried.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(sum, "; {} were not tried", self.not_tried.len());
        }
        print_note(&sum);
    }

    fn to_json(&self, stopped: Option<&CommandFailure>) -> Value {
        let failed: Vec<_> = self
            .failed
            .iter()
            .map(|(from, failure)| {
                json!({
                    "from": path_text(from),
                    "from_base64": exact_path(from),
                    "fault": fault_json(&failure.as_fault()),
                })
            })
            .collect();
        let files: Vec<_> = self.files.iter().map(FileReport::to_json).collect();
        let not_tried: Vec<_> = self.not_tried.iter().map(|from| path_text(from)).collect();
        json!({
            "files": files,
            "directories": self.directories,
            "skipped": self.skipped,
            "failed": failed,
            "not_tried": not_tried,
            "fault": stopped.map(|failure| fault_json(&failure.as_fault())),
        })
    }
}

/// The failure of a copy that was cut short. Advice about a kept part is passed on.
pub(super) fn interrupted(failure: &CommandFailure) -> CommandFailure {
    let fault = Fault::new(FaultCode::Unavailable, "Interrupted.").detail("interrupted");
    if is_kept(failure) {
        return fault.advice(KEPT_ADVICE).into();
    }
    fault.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_its_text_does_not_show_is_also_written_exactly() {
        let report = FileReport {
            from: b"a\xff".to_vec(),
            to: b"a.txt".to_vec(),
            size: 0,
            sha256: Vec::new(),
            renamed: false,
            existed: false,
            receipt: None,
            read_receipt: None,
        };
        let shown = report.to_json();
        assert_eq!(shown["from_base64"], "Yf8=");
        assert_eq!(shown["to_base64"], Value::Null);
    }
}
