//! `dray read` and `dray classify`: documents as an agent reads them.

mod classify;
mod settings;
mod spool;
mod targets;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use dray_egress_fetcher::EgressFetcher;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_reading::message::escape_path;
use dray_reading::policy::Policy;
use dray_reading::reader::{Progress, Reader};
use dray_reading::record::{Code, Outcome, Record};
use dray_reading::request::Request;
use dray_reading::worker::Worker;
use dray_reading::workspace::Roots;
use dray_service::Service as _;
use dray_store::ArtifactLabel;
use dray_types::{Fault, FaultCode, Sha256Digest};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::classify::classify_files;
use self::spool::{spool_content, spool_stdin};
use self::targets::{DocumentLocation, ReadTarget};
use self::view::{CLASSIFY_ADVICE, refusal_fault};
use crate::cli::{GlobalOptions, ReadArgs, ReadLimitArgs, ReadLocation};
use crate::commands::artifact;
use crate::context::{self, SystemConnection};
use crate::interruption::{self, CleanupHold};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::progress;

/// Longest wait for a document from a URL or from the store.
const FETCH_TIMEOUT: Duration = Duration::from_mins(10);

/// Most documents that are read at the same time; each has a worker process.
const MAX_CONCURRENT_READS: usize = 4;

/// Reads documents and prints what an agent would get, in the order of the arguments.
pub(crate) async fn run(global: &GlobalOptions, read: &ReadArgs) -> Result<(), CommandFailure> {
    let targets = targets::expand_arguments(
        &read.documents,
        read.place.root.first().map(PathBuf::as_path),
    )?;
    if targets.is_empty() {
        print_note(
            "Nothing to read: a directory stands for its regular files, without those whose names begin with a dot.",
        );
        return Ok(());
    }
    note_bad_limits(&read.limits);
    let directories = targets.iter().filter_map(|target| target.directory.clone());
    // For people, the directories of the arguments may be read too; for scripts only `--root` counts.
    let directories = directories.filter(|_| !global.json).collect();
    let reader = document_reader(&read.place, &read.limits, directories)?;
    let reader = settings::configure_reader(global, read, reader)?;
    let _hold = CleanupHold::new();
    // The set is dropped with this call, which ends the task that waits for a signal.
    let mut tasks = JoinSet::new();
    let call = ReadRun {
        global,
        read,
        reader,
        cancel: cancelled_by_signal(&mut tasks),
        several: targets.len() > 1,
    };
    // One document fails with its own fault and exit code.
    if let [only] = targets.as_slice() {
        return call.run(only).await?.print();
    }
    let mut failed = false;
    let mut reads = stream::iter(&targets)
        .map(|target| call.run(target))
        // Results come in the order of the arguments, while later files are read already.
        .buffered(MAX_CONCURRENT_READS);
    while let Some(read) = reads.next().await {
        if let Err(failure) = read.and_then(ReadOutput::print) {
            failure.report(global.json);
            failed = true;
        }
        if call.cancel.is_cancelled() {
            return Err(CommandFailure::Reported);
        }
    }
    if failed {
        Err(CommandFailure::Reported)
    } else {
        Ok(())
    }
}

/// The output for one document, and the failure with which the command then ends, if any.
struct ReadOutput {
    text: String,
    failure: Option<CommandFailure>,
}

impl ReadOutput {
    fn print(self) -> Result<(), CommandFailure> {
        if !self.text.is_empty() {
            print_line(&self.text);
        }
        self.failure.map_or(Ok(()), Err)
    }
}

/// One run of the command.
struct ReadRun<'a> {
    global: &'a GlobalOptions,
    read: &'a ReadArgs,
    reader: Reader,
    cancel: CancellationToken,
    several: bool,
}

impl ReadRun<'_> {
    /// Reads one document. A refusal is an error for people, and a record for scripts.
    async fn run(&self, target: &ReadTarget) -> Result<ReadOutput, CommandFailure> {
        let read = self.read;
        let request = Request {
            file_path: Some(target.document.clone()),
            summarize: read.summary.summarize,
            focus: read.summary.focus.clone(),
            range: read.range.clone(),
            find: read.find.clone(),
            member: read.member.clone(),
            show_hidden: read.hidden,
        }
        .tidied();
        let file = if matches!(target.source, DocumentLocation::Path) {
            None
        } else {
            tokio::select! {
                fetched = fetch_document(self.global, read, target) => match fetched {
                    Ok(fetched) => Some(fetched),
                    // A refused document has a record, as a refused file has.
                    Err(CommandFailure::Fault(fault)) if self.global.json => {
                        let record = view::unfetched_record(&fault, &target.document);
                        return self.output_for(&record, &target.document);
                    }
                    Err(failure) => return Err(failure),
                },
                () = self.cancel.cancelled() => {
                    return self.output_for(&Record::cancelled(&target.document), &target.document);
                }
            }
        };
        if read.markdown {
            return self.markdown(target, &request, file).await;
        }
        let waiting = progress::spinner_with_text("reading", self.global.json || self.several);
        let report = |now: Progress| waiting.set_message(now.to_string());
        let record = match file {
            None => self.reader.read(&request, &self.cancel, &report).await,
            Some((name, file)) => {
                self.reader
                    .read_file(&name, file, &request, &self.cancel, &report)
                    .await
            }
        };
        waiting.finish_and_clear();
        self.output_for(&record, &target.document)
    }

    /// The complete record for scripts, the output for people. A document that was not read is a failure.
    fn output_for(&self, record: &Record, document: &str) -> Result<ReadOutput, CommandFailure> {
        if self.global.json {
            let mut shown = record.clone();
            shown.output = view::shown_message(&record.output);
            let text = serde_json::to_string(&shown).map_err(|_| Fault::internal())?;
            let is_read = !matches!(record.outcome, Outcome::Refuse | Outcome::Cancelled);
            let failure = (!is_read).then_some(CommandFailure::Reported);
            return Ok(ReadOutput { text, failure });
        }
        match record.outcome {
            Outcome::Refuse => Err(refusal_fault(record, document).into()),
            Outcome::Cancelled => Ok(ReadOutput {
                text: record.output.trim_end_matches('\n').to_owned(),
                failure: Some(CommandFailure::Reported),
            }),
            Outcome::Inline | Outcome::Summary | Outcome::Note | Outcome::Hint => {
                for warning in &record.warnings {
                    print_note(warning);
                }
                Ok(ReadOutput {
                    text: record.output.trim_end_matches('\n').to_owned(),
                    failure: None,
                })
            }
        }
    }

    async fn markdown(
        &self,
        target: &ReadTarget,
        request: &Request,
        file: Option<(String, std::fs::File)>,
    ) -> Result<ReadOutput, CommandFailure> {
        let converted = match file {
            None => self.reader.markdown(request, &self.cancel).await,
            Some((name, file)) => {
                self.reader
                    .markdown_file(&name, file, request, &self.cancel)
                    .await
            }
        };
        match converted {
            Ok(converted) => {
                for warning in &converted.warnings {
                    print_note(warning);
                }
                let text = converted.text.trim_end_matches('\n');
                let text = if self.several {
                    format!("==> {} <==\n\n{text}\n", escape_path(&target.document))
                } else {
                    text.to_owned()
                };
                Ok(ReadOutput {
                    text,
                    failure: None,
                })
            }
            Err(record) if record.outcome == Outcome::Refuse => {
                Err(refusal_fault(&record, &target.document).into())
            }
            Err(record) => {
                let fault = Fault::new(FaultCode::Unsupported, record.output)
                    .detail(record.error_code.map_or("range", Code::word));
                // The text of a note is the reason why the document has none.
                Err(match record.outcome {
                    Outcome::Note => fault,
                    _ => fault.advice(CLASSIFY_ADVICE),
                }
                .into())
            }
        }
    }
}

/// The reader that the command line describes.
fn document_reader(
    location: &ReadLocation,
    limits: &ReadLimitArgs,
    mut directories: Vec<PathBuf>,
) -> Result<Reader, CommandFailure> {
    let current_directory = match std::env::current_dir() {
        Ok(current_directory) => current_directory,
        // The current directory was removed; with an absolute root it is not needed.
        Err(_) if location.root.first().is_some_and(|root| root.is_absolute()) => {
            PathBuf::from("/")
        }
        Err(error) => {
            return Err(CommandFailure::local("no current directory")(error));
        }
    };
    let mut named = location
        .root
        .iter()
        .map(|root| current_directory.join(root));
    let primary = named.next();
    let mut roots = Roots::new(primary.as_deref().unwrap_or(&current_directory))
        .strict(!location.no_workspace_strict);
    for root in named {
        if let Err(error) = roots.add(&root) {
            print_note(&format!("--root {} is skipped: {error}", root.display()));
        }
    }
    // The command reads only files below a configured root; without one, it may also read the directories of the
    // arguments.
    if primary.is_none() {
        directories.dedup();
        roots = roots.with(directories);
    }
    if let Some(home) = context::home_directory() {
        roots = roots.with_home(home);
    }
    // Conversions run in this program, started again as a worker.
    let worker =
        Worker::this_executable().map_err(CommandFailure::local("cannot find this program"))?;
    let (policy, _) = read_policy(limits);
    Ok(Reader::new(policy, roots, worker))
}

/// Prints one note for each flag with an impossible value.
fn note_bad_limits(limits: &ReadLimitArgs) {
    let (_, flags) = read_policy(limits);
    for flag in flags {
        print_note(&format!(
            "{flag}: this value is not possible; the default is used."
        ));
    }
}

/// The policy from the limits on the command line, and the flags with impossible values, whose defaults are used
/// (read-attachment 6).
fn read_policy(limits: &ReadLimitArgs) -> (Policy, Vec<String>) {
    let typed = [
        ("max_file_bytes", &limits.max_file_bytes),
        ("inline_text_budget_bytes", &limits.inline_budget),
        ("convert_max_elements", &limits.convert_max_elements),
        (
            "convert_max_decompressed_bytes",
            &limits.convert_max_decompressed_bytes,
        ),
        (
            "convert_wall_clock_seconds",
            &limits.convert_wall_clock_seconds,
        ),
        (
            "convert_max_inflated_bytes",
            &limits.convert_max_inflated_bytes,
        ),
        ("convert_max_entries", &limits.convert_max_entries),
        ("convert_max_depth", &limits.convert_max_depth),
        ("convert_memory_bytes", &limits.convert_memory_bytes),
    ];
    let mut keys = serde_json::Map::new();
    for (key, typed) in typed {
        if let Some(text) = typed {
            keys.insert(
                key.to_owned(),
                serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            );
        }
    }
    if let Some(kinds) = &limits.allow_kinds {
        let kinds: Vec<&str> = kinds
            .split(',')
            .map(str::trim)
            .filter(|kind| !kind.is_empty())
            .collect();
        keys.insert("allow_kinds".to_owned(), json!(kinds));
    }
    let (policy, bad) = Policy::from_value(&Value::Object(keys));
    let flag_of = |key: &String| {
        let key = key.rsplit('.').next().unwrap_or(key);
        format!("--{}", key.replace('_', "-"))
    };
    (policy, bad.iter().map(flag_of).collect())
}

/// Fetches a URL or a stored file into a file without a name. Returns it with the name to show.
async fn fetch_document(
    global: &GlobalOptions,
    read: &ReadArgs,
    target: &ReadTarget,
) -> Result<(String, std::fs::File), CommandFailure> {
    let (policy, _) = read_policy(&read.limits);
    let max_bytes = policy.max_file_bytes;
    let system = match target.source {
        DocumentLocation::StandardInput => {
            return Ok(("stdin".to_owned(), spool_stdin(max_bytes).await?));
        }
        DocumentLocation::Artifact(_) => SystemConnection::open_store(global).await?,
        _ => SystemConnection::open(global, &[EgressFetcher::NAME]).await?,
    };
    let document = match &target.source {
        DocumentLocation::Artifact(sha256) => stored_document(&system, sha256, max_bytes).await,
        _ => external_document(global, &system, &target.document, max_bytes).await,
    };
    system.close().await;
    document
}

async fn stored_document(
    system: &SystemConnection,
    sha256: &Sha256Digest,
    max_bytes: u64,
) -> Result<(String, std::fs::File), CommandFailure> {
    let label = ArtifactLabel::new("application/octet-stream", "");
    let claim = artifact::stored_claim(system, *sha256, label).await?;
    Ok((
        sha256.to_hex(),
        spool_content(system, ContentSource::Claim(claim), max_bytes).await?,
    ))
}

async fn external_document(
    global: &GlobalOptions,
    system: &SystemConnection,
    url: &str,
    max_bytes: u64,
) -> Result<(String, std::fs::File), CommandFailure> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        size_limit_bytes: max_bytes,
        ..v1::FetchRequest::default()
    };
    let waiting = progress::spinner_with_text("fetching", global.json);
    // The call is not repeated, because a refusal of the policy is a decision.
    let reply = system
        .call_once(&system.meta(FETCH_TIMEOUT), &request)
        .await;
    waiting.finish_and_clear();
    let content = reply?.content.ok_or_else(Fault::internal)?;
    let content = ContentSource::try_from(content).map_err(|_| Fault::internal())?;
    Ok((
        url.to_owned(),
        spool_content(system, content, max_bytes).await?,
    ))
}

/// A token that the first signal to stop cancels.
fn cancelled_by_signal(tasks: &mut JoinSet<()>) -> CancellationToken {
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    tasks.spawn(async move {
        if let Ok(mut signals) = interruption::listen_to_signals() {
            signals.next().await;
            token.cancel();
        }
    });
    cancel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_that_do_not_exist_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let location = ReadLocation {
            root: vec![directory.path().to_owned(), directory.path().join("none")],
            no_workspace_strict: false,
        };
        let reader = document_reader(&location, &ReadLimitArgs::default(), Vec::new()).unwrap();
        assert_eq!(
            reader.roots().paths(),
            [directory.path().canonicalize().unwrap()]
        );
    }
}
