//! `dray classify`: file types from content.

use std::path::Path;

use dray_presentation::name::shown_text;
use dray_reading::reader::Classified;
use dray_reading::record::Refusal;
use serde_json::json;

use super::spool::spool_stdin;
use super::{document_reader, note_bad_limits, read_policy, targets, view};
use crate::cli::{ClassifyArgs, GlobalOptions};
use crate::outcome::{CommandFailure, print_line};

/// Longest name of a file in the output, in characters.
const MAX_NAME_CHARACTERS: usize = 4096;

/// The argument that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Detects file types from content, one line for each file.
pub(crate) async fn classify_files(
    global: &GlobalOptions,
    classify: &ClassifyArgs,
) -> Result<(), CommandFailure> {
    note_bad_limits(&classify.limits);
    let is_stdin = |file: &&std::path::PathBuf| file.as_path() == Path::new(STANDARD_INPUT);
    if classify.files.iter().filter(is_stdin).count() > 1 {
        return Err(targets::repeated_stdin());
    }
    let mut refused = false;
    for file in &classify.files {
        let directory = (!global.json)
            .then(|| targets::parent_directory(file))
            .flatten();
        // A reader for each file, because each file may add its own directory.
        let reader = document_reader(
            &classify.place,
            &classify.limits,
            directory.into_iter().collect(),
        )?;
        let name = file.to_string_lossy().into_owned();
        let found = if name == STANDARD_INPUT {
            let (policy, _) = read_policy(&classify.limits);
            let input = spool_stdin(policy.max_file_bytes).await?;
            let failed = CommandFailure::local("standard input could not be copied for the reader");
            let size = input.metadata().map_err(failed)?.len();
            reader.classify_file(&name, input, size)
        } else {
            reader.classify(&name)
        };
        refused |= found.is_err();
        print_line(&describe(global, &name, found));
    }
    if refused {
        Err(CommandFailure::Reported)
    } else {
        Ok(())
    }
}

fn describe(global: &GlobalOptions, name: &str, found: Result<Classified, Refusal>) -> String {
    let shown = shown_text(name, MAX_NAME_CHARACTERS);
    match found {
        Ok(found) if global.json => json!({
            "file": name,
            "kind": found.class.kind.word(),
            "mime": found.class.mime,
            "encoding": found.class.encoding,
            "encrypted": found.class.encrypted,
            "size_bytes": found.size_bytes,
            "warnings": found.class.warnings,
        })
        .to_string(),
        Ok(found) => {
            let class = found.class;
            format!(
                "{shown}: {} ({}, {} bytes)",
                class.kind.word(),
                class.mime,
                found.size_bytes
            )
        }
        Err(refusal) => {
            let error = view::shown_message(&refusal.output);
            if global.json {
                json!({"file": name, "error_code": refusal.code.word(), "error": error}).to_string()
            } else {
                format!("{shown}: {error}")
            }
        }
    }
}
