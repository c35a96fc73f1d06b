//! Writes all files of a turn before its run begins (14.2). One bad file does not fail the turn.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::context::SANDBOX_DIRECTORY;
use crate::limits;
use crate::model::AgentInputFile;
use crate::name::NameAllocator;
use crate::read::ReadFailure;

/// The files that are written into the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectionPlan {
    /// The files, each with its own path.
    pub files: Vec<FileInjection>,
    /// Directories to create first.
    pub directories: Vec<String>,
}

/// An instruction to write one file of the conversation into the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileInjection {
    /// The file to download. If it has a key, read it by its key and not by its URL.
    pub file: AgentInputFile,
    /// Absolute path of the new file in the sandbox.
    pub path: String,
    /// The path relative to the working directory, for the model.
    pub sandbox_path: String,
    /// Most bytes that may be written.
    pub max_bytes: u64,
}

/// The outcome of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectionResult {
    /// The sandbox confirmed that this many bytes were written.
    Written(u64),
    /// The file was not written.
    Failed(ReadFailure),
}

/// The outcome of writing, file by file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectionReport {
    /// Ids of the files that were written.
    pub written: BTreeSet<String>,
    /// One sentence for each file that was not written.
    pub missing: Vec<String>,
}

impl InjectionPlan {
    /// Plans this turn's files below the sandbox's working directory. `existing_names` are the names of other files in
    /// the directory; no file is overwritten.
    pub fn new<'a>(
        files: &[AgentInputFile],
        directory: &str,
        existing_names: impl IntoIterator<Item = &'a str>,
        max_bytes: Option<u64>,
    ) -> Self {
        let mut names = NameAllocator::new();
        for name in existing_names {
            // No file has an empty id, so none gets a reserved name.
            names.reserve(name, "");
        }
        let root = directory.trim_end_matches('/');
        let mut planned = Vec::new();
        for (index, file) in files.iter().enumerate() {
            let name = names.assign(&file.name, index, &file.id);
            let sandbox_path = format!("{SANDBOX_DIRECTORY}/{name}");
            // A given name is a plain segment, so this is the path that resolving would find.
            planned.push(FileInjection {
                file: file.clone(),
                path: format!("{root}/{sandbox_path}"),
                sandbox_path,
                max_bytes: max_bytes.unwrap_or(limits::MAX_FILE_BYTES),
            });
        }
        Self {
            files: planned,
            directories: vec![format!("{root}/{SANDBOX_DIRECTORY}")],
        }
    }

    /// Sums up the outcomes, in the order of the files. A missing outcome counts as a failure, and so do more
    /// bytes than allowed.
    pub fn report(&self, outcomes: &[InjectionResult]) -> InjectionReport {
        let mut report = InjectionReport::default();
        for (index, injection) in self.files.iter().enumerate() {
            let reason = match outcomes.get(index) {
                Some(InjectionResult::Written(size)) if *size <= injection.max_bytes => {
                    report.written.insert(injection.file.id.clone());
                    continue;
                }
                Some(InjectionResult::Written(_)) => ReadFailure::too_large(injection.max_bytes),
                Some(InjectionResult::Failed(failure)) => failure.clone(),
                None => ReadFailure::of(crate::read::FailureCode::Failed),
            };
            let name = &injection.file.name;
            report
                .missing
                .push(format!("{name} is not in the sandbox: {}", reason.text()));
        }
        report
    }
}
