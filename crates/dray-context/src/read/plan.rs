//! What a call reads, decided before anything is read.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::answer::{Answer, FileAnswer, Status};
use super::arguments::{Arguments, Handle, Invalid};
use super::failure::{Code, Failure};
use super::page;
use crate::catalog::{self, Catalog};
use crate::limits;
use crate::model::AgentInputFile;

/// A call, decided. Also its JSON form, so that reading may happen elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// How files were named; the key of each answer.
    pub handle: Handle,
    /// One for each name, in order, duplicates included.
    pub entries: Vec<Entry>,
    /// The first character of each file to answer with.
    #[serde(default)]
    pub offset: usize,
    /// Characters of each file at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Characters of all files together.
    pub budget: usize,
}

/// One name of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// As it was asked for.
    pub name: String,
    /// What is to be done.
    pub step: Step,
}

/// What is to be done for one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// Read a file.
    Read(Task),
    /// Nothing: it cannot be read.
    Refuse {
        /// What the file is called, when there is one.
        #[serde(default)]
        file_name: String,
        /// Why.
        #[serde(flatten)]
        failure: Failure,
    },
}

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Which one. Its key, when it has one, is better than its URL.
    pub file: AgentInputFile,
    /// The URL that others can open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// A part of the document in its own terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
}

/// A call as it comes from elsewhere: everything that a decision needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The tool's name; absent means `read_files`.
    #[serde(default = "tool")]
    pub tool: String,
    /// What the model said: an object, or the text of one.
    pub arguments: serde_json::Value,
    /// The files of the conversation, from [`crate::Built::catalog`].
    pub catalog: Catalog,
    /// Characters of all files together; absent means what `contextTokens` leaves untouched, or
    /// [`limits::READ_BUDGET`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<usize>,
    /// Tokens of the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<usize>,
}

fn tool() -> String {
    super::TOOL.to_owned()
}

impl Call {
    /// Decides it. The error's sentence is the tool's result.
    pub fn plan(&self) -> Result<Plan, Invalid> {
        let arguments = Arguments::read(&self.tool, &self.arguments)?;
        let by_context = self.context_tokens.map(limits::untouched_chars);
        let budget = self.budget.or(by_context).unwrap_or(limits::READ_BUDGET);
        Ok(Plan::new(&arguments, &self.catalog, budget))
    }
}

/// What a reader found: all of the text, or all of the asked range of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Text {
    /// The text.
    pub text: String,
    /// What the download is called; used when the upload had no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// The reader itself left something out behind the end.
    #[serde(default)]
    pub incomplete: bool,
}

impl Text {
    /// A whole text.
    pub fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

impl Plan {
    /// Decides a call. `budget` is in characters; see [`limits::READ_BUDGET`] and [`limits::untouched_chars`].
    pub fn new(arguments: &Arguments, catalog: &Catalog, budget: usize) -> Self {
        let entries = arguments.names.iter().enumerate();
        let entries = entries.map(|(at, name)| Entry {
            name: name.clone(),
            step: if at < limits::READ_IDS {
                decide(arguments, catalog, name)
            } else {
                refuse("", Failure::of(Code::TooMany))
            },
        });
        Self {
            handle: arguments.handle,
            entries: entries.collect(),
            offset: arguments.offset,
            limit: arguments.limit,
            budget: budget.max(limits::READ_BUDGET_MIN),
        }
    }

    /// What is to be read, in the order in which [`Plan::assemble`] wants the results. A file that was asked for twice
    /// is here twice.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.entries.iter().filter_map(|entry| match &entry.step {
            Step::Read(task) => Some(task),
            Step::Refuse { .. } => None,
        })
    }

    /// Reads one after the other.
    pub fn run(&self, read: impl FnMut(&Task) -> Result<Text, Failure>) -> Answer {
        self.assemble(self.tasks().map(read).collect())
    }

    /// Puts results, in the order of the tasks, into the order of the request. A result that is missing is a failure of
    /// that file alone.
    pub fn assemble(&self, results: Vec<Result<Text, Failure>>) -> Answer {
        let results: Vec<_> = results.into_iter().map(not_empty).collect();
        let limit = self.limit.unwrap_or(usize::MAX);
        let wanted: Vec<_> = self
            .tasks()
            .enumerate()
            .map(|(at, _)| match results.get(at) {
                Some(Ok(found)) => found
                    .text
                    .chars()
                    .count()
                    .saturating_sub(self.offset)
                    .min(limit),
                _ => 0,
            })
            .collect();
        let mut shares = page::share(self.budget, &wanted).into_iter();
        let mut results = results.into_iter();
        let files = self.entries.iter().map(|entry| {
            let blank = FileAnswer::of(self.handle, &entry.name);
            match &entry.step {
                Step::Refuse { file_name, failure } => blank.failed(file_name, failure),
                Step::Read(task) => {
                    let result = results.next();
                    let result = result.unwrap_or_else(|| Err(Failure::of(Code::Failed)));
                    let share = shares.next().unwrap_or(0);
                    self.answer(blank, task, result, share)
                }
            }
        });
        Answer {
            files: files.collect(),
        }
    }

    fn answer(
        &self,
        blank: FileAnswer,
        task: &Task,
        result: Result<Text, Failure>,
        share: usize,
    ) -> FileAnswer {
        let name = &task.file.name;
        let found = match result {
            Ok(found) => found,
            Err(failure) => return blank.failed(name, &failure),
        };
        let Some(page) = page::cut(&found.text, self.offset, share) else {
            let length = found.text.chars().count();
            let message = format!(
                "{} It has {length} characters.",
                Code::OutOfRange.sentence()
            );
            return blank.failed(name, &Failure::saying(Code::OutOfRange, message));
        };
        let own = Some(name.clone()).filter(|name| !name.is_empty());
        FileAnswer {
            file_name: own.or(found.file_name).unwrap_or_default(),
            content: page.text.to_owned(),
            status: Status::Ok,
            offset: Some(page.offset),
            length: Some(page.length),
            truncated: page.next_offset.is_some() || found.incomplete,
            next_offset: page.next_offset,
            ..blank
        }
    }
}

/// A text of nothing is a failure that says so.
fn not_empty(result: Result<Text, Failure>) -> Result<Text, Failure> {
    match result {
        Ok(found) if found.text.trim().is_empty() => Err(Failure::of(Code::Empty)),
        other => other,
    }
}

fn refuse(file_name: &str, failure: Failure) -> Step {
    Step::Refuse {
        file_name: file_name.to_owned(),
        failure,
    }
}

fn decide(arguments: &Arguments, catalog: &Catalog, name: &str) -> Step {
    let Some(entry) = find(arguments.handle, catalog, name) else {
        return refuse("", unknown(catalog));
    };
    let file_name = &entry.file.name;
    if !entry.file.file_type.is_document() {
        let kind = entry.file.file_type.as_str();
        let message = format!(
            "This {kind} is attached to the conversation; it is not readable as text. Look at the attachment itself."
        );
        return refuse(file_name, Failure::saying(Code::UnsupportedType, message));
    }
    if entry.unavailable {
        return refuse(file_name, Failure::of(Code::Expired));
    }
    Step::Read(Task {
        file: entry.file.clone(),
        public_url: entry.public_url.clone(),
        range: arguments.range.clone(),
    })
}

/// The exact id first, in every way of naming; then what that way means (R-11, 16.2).
fn find<'a>(handle: Handle, catalog: &'a Catalog, name: &str) -> Option<&'a catalog::Entry> {
    let by_id = catalog.find(name);
    by_id.or_else(|| match handle {
        Handle::Id => catalog.find_url(name),
        Handle::Index => catalog.find_number(decimal(name)?),
        Handle::Url => {
            let unescaped = crate::escape::unescape(name);
            catalog
                .find_url(name)
                .or_else(|| catalog.find_url(&unescaped))
        }
    })
}

/// A decimal number without sign, blanks or leading zeros.
pub(crate) fn decimal(text: &str) -> Option<usize> {
    let plain = !text.starts_with('0') && text.chars().all(|digit| digit.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// An unknown id names the ids that exist.
fn unknown(catalog: &Catalog) -> Failure {
    let ids = catalog.readable_ids();
    let mut message = Code::UnknownId.sentence().to_owned();
    if ids.is_empty() {
        message.push_str(" There are no readable files.");
    } else {
        let from = ids.len().saturating_sub(limits::LISTED_IDS);
        let listed: Vec<_> = ids.iter().skip(from).copied().collect();
        message.push_str(" Readable ids: ");
        message.push_str(&listed.join(", "));
        if from > 0 {
            let _ = write!(message, ", and {from} older ones");
        }
    }
    Failure::saying(Code::UnknownId, message)
}
