//! The plan of a call, decided before any file is read.

use std::fmt::Write as _;

use super::answer::{FileAnswer, ReadAnswer, ReadStatus};
use super::arguments::{ReadArguments, ReadHandle};
use super::failure::{FailureCode, ReadFailure};
use super::page;
use crate::catalog::{self, FileCatalog};
use crate::limits;
use crate::model::AgentInputFile;

/// The plan of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// How the call names files; the key of each result.
    pub handle: ReadHandle,
    /// One for each name, in order, duplicates included.
    pub entries: Vec<PlanEntry>,
    /// Offset of the first returned character of each file.
    pub offset: usize,
    /// Characters of each file at most.
    pub limit: Option<usize>,
    /// Characters of all files together.
    pub budget: usize,
}

/// One name of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// The name as the model wrote it.
    pub name: String,
    /// The step for this name.
    pub step: PlanStep,
}

/// The step for one name of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Read this file; its text is passed to [`ReadPlan::assemble`].
    Read(ReadTask),
    /// Do not read the file; it gets this refusal.
    Refuse {
        /// Name of the file, when one was found.
        file_name: String,
        /// The reason why it cannot be read, for programs and for the model.
        failure: ReadFailure,
    },
}

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTask {
    /// The file. If it has a key, read it by its key and not by its URL.
    pub file: AgentInputFile,
    /// The URL that others can open.
    pub public_url: Option<String>,
    /// A part of the document, such as `pages 3-5`.
    pub range: Option<String>,
}

/// The result of a reader: the complete text, or the complete requested range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadText {
    /// The text from the reader, before it is cut into pages.
    pub text: String,
    /// Name of the download; used if the upload had none.
    pub file_name: Option<String>,
    /// Whether the reader omitted text after the end of this text.
    pub incomplete: bool,
    /// Remarks of the reader, such as how much hidden content was left out. Never text of the file.
    pub warnings: Vec<String>,
}

impl ReadText {
    /// The complete text of a file, without a name.
    pub fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

impl ReadPlan {
    /// Plans a call. `budget` is in characters; see [`limits::DEFAULT_READ_BUDGET_CHARS`].
    pub fn new(arguments: &ReadArguments, catalog: &FileCatalog, budget: usize) -> Self {
        let entries = arguments.names.iter().enumerate();
        let entries = entries.map(|(index, name)| PlanEntry {
            name: name.clone(),
            // The rest is refused one by one, so that each name has a result.
            step: if index < limits::MAX_READ_IDS {
                decide_step(arguments, catalog, name)
            } else {
                refuse_file("", ReadFailure::of(FailureCode::TooMany))
            },
        });
        Self {
            handle: arguments.handle,
            entries: entries.collect(),
            offset: arguments.offset,
            limit: arguments.limit,
            // With a smaller budget, pages would be too short to be useful.
            budget: budget.max(limits::MIN_READ_BUDGET),
        }
    }

    /// The files to read, in the order in which [`ReadPlan::assemble`] expects the results. A file that the call
    /// contains twice is listed twice.
    pub fn tasks(&self) -> impl Iterator<Item = &ReadTask> {
        self.entries.iter().filter_map(|entry| match &entry.step {
            PlanStep::Read(task) => Some(task),
            PlanStep::Refuse { .. } => None,
        })
    }

    /// Reads the files one after the other and assembles the answer.
    #[cfg(test)]
    pub(crate) fn run(
        &self,
        read: impl FnMut(&ReadTask) -> Result<ReadText, ReadFailure>,
    ) -> ReadAnswer {
        self.assemble(self.tasks().map(read).collect())
    }

    /// Puts results, in the order of the tasks, into the order of the request. A result that is missing is a failure of
    /// that file alone.
    pub fn assemble(&self, results: Vec<Result<ReadText, ReadFailure>>) -> ReadAnswer {
        let results: Vec<_> = results.into_iter().map(not_empty).collect();
        let limit = self.limit.unwrap_or(usize::MAX);
        let demands: Vec<_> = self
            .tasks()
            .enumerate()
            .map(|(index, _)| match results.get(index) {
                Some(Ok(found)) => found
                    .text
                    .chars()
                    .count()
                    .saturating_sub(self.offset)
                    .min(limit),
                // Failures need no share, so the other files get more.
                _ => 0,
            })
            .collect();
        let mut shares = page::share_budget(self.budget, &demands).into_iter();
        let mut results = results.into_iter();
        let files = self.entries.iter().map(|entry| {
            let empty_answer = FileAnswer::of(self.handle, &entry.name);
            match &entry.step {
                PlanStep::Refuse { file_name, failure } => empty_answer.failed(file_name, failure),
                PlanStep::Read(task) => {
                    let result = results.next();
                    let result =
                        result.unwrap_or_else(|| Err(ReadFailure::of(FailureCode::Failed)));
                    let share = shares.next().unwrap_or(0);
                    self.answer(empty_answer, task, result, share)
                }
            }
        });
        ReadAnswer {
            files: files.collect(),
        }
    }

    fn answer(
        &self,
        empty_answer: FileAnswer,
        task: &ReadTask,
        result: Result<ReadText, ReadFailure>,
        share: usize,
    ) -> FileAnswer {
        let name = &task.file.name;
        let found = match result {
            Ok(found) => found,
            Err(failure) => return empty_answer.failed(name, &failure),
        };
        let Some(page) = page::cut_page(&found.text, self.offset, share) else {
            let length = found.text.chars().count();
            let message = format!(
                "{} It has {length} characters.",
                FailureCode::OutOfRange.sentence()
            );
            return empty_answer.failed(
                name,
                &ReadFailure::with_message(FailureCode::OutOfRange, message),
            );
        };
        // The name of the upload has priority over that of the download (section 11).
        let upload_name = Some(name.clone()).filter(|name| !name.is_empty());
        FileAnswer {
            file_name: upload_name.or(found.file_name).unwrap_or_default(),
            content: page.text.to_owned(),
            status: ReadStatus::Ok,
            offset: Some(page.offset),
            length: Some(page.length),
            truncated: page.next_offset.is_some() || found.incomplete,
            next_offset: page.next_offset,
            warnings: found.warnings,
            ..empty_answer
        }
    }
}

/// An empty text is a failure: the model would take it for the content.
fn not_empty(result: Result<ReadText, ReadFailure>) -> Result<ReadText, ReadFailure> {
    match result {
        Ok(found) if found.text.trim().is_empty() => Err(ReadFailure::of(FailureCode::Empty)),
        other => other,
    }
}

fn refuse_file(file_name: &str, failure: ReadFailure) -> PlanStep {
    PlanStep::Refuse {
        file_name: file_name.to_owned(),
        failure,
    }
}

fn decide_step(arguments: &ReadArguments, catalog: &FileCatalog, name: &str) -> PlanStep {
    let Some(entry) = find_entry(arguments.handle, catalog, name) else {
        return refuse_file("", unknown_id_failure(catalog));
    };
    let file_name = &entry.file.name;
    if !entry.file.file_type.is_document() {
        let kind = entry.file.file_type.as_str();
        let message = format!(
            "This {kind} is attached to the conversation; it is not readable as text. Look at the attachment itself."
        );
        return refuse_file(
            file_name,
            ReadFailure::with_message(FailureCode::UnsupportedType, message),
        );
    }
    if entry.unavailable {
        // This is known before any fetch, because signing failed when the context was built.
        return refuse_file(file_name, ReadFailure::of(FailureCode::Expired));
    }
    PlanStep::Read(ReadTask {
        file: entry.file.clone(),
        public_url: entry.public_url.clone(),
        range: arguments.range.clone(),
    })
}

/// Finds a file by its exact id for any kind of handle, and then by index or URL according to the handle (R-11, 16.2).
fn find_entry<'a>(
    handle: ReadHandle,
    catalog: &'a FileCatalog,
    name: &str,
) -> Option<&'a catalog::CatalogEntry> {
    let by_id = catalog.find(name);
    by_id.or_else(|| match handle {
        ReadHandle::Id => catalog.find_url(name),
        ReadHandle::Index => catalog.find_number(parse_decimal(name)?),
        ReadHandle::Url => {
            // A model copies the URL as it was shown, escaped (17.3).
            let unescaped = crate::escape::unescape_xml(name);
            catalog
                .find_url(name)
                .or_else(|| catalog.find_url(&unescaped))
        }
    })
}

/// A decimal number without sign, blanks or leading zeros.
pub(crate) fn parse_decimal(text: &str) -> Option<usize> {
    let plain = !text.starts_with('0') && text.chars().all(|digit| digit.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// The failure of an unknown id. Its message lists ids that can be read.
fn unknown_id_failure(catalog: &FileCatalog) -> ReadFailure {
    let ids = catalog.readable_ids();
    let mut message = FailureCode::UnknownId.sentence().to_owned();
    if ids.is_empty() {
        message.push_str(" None of the files can be read.");
    } else {
        // The newest files: the catalog begins with the oldest.
        let from = ids.len().saturating_sub(limits::MAX_LISTED_IDS);
        let listed: Vec<_> = ids.iter().skip(from).copied().collect();
        message.push_str(" Readable ids: ");
        message.push_str(&listed.join(", "));
        if from > 0 {
            let _ = write!(message, ", and {from} older ones");
        }
    }
    ReadFailure::with_message(FailureCode::UnknownId, message)
}
