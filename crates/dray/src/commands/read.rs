//! `dray read` and `dray classify`: documents as an agent reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_egress_fetcher::EgressFetcher;
use dray_file_resolver::FileResolver;
use dray_proto::convert::Content;
use dray_proto::v1;
use dray_reading::policy::Policy;
use dray_reading::reader::{Progress, Reader};
use dray_reading::record::{Code, Outcome, Record};
use dray_reading::request::Request;
use dray_reading::summary::{Stub, Summarizer, SummaryLimits};
use dray_reading::worker::Worker;
use dray_reading::workspace::Roots;
use dray_service::Service as _;
use dray_store::Label;
use dray_types::{Fault, FaultCode, Sha256Digest};
use serde_json::{Value, json};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{Classify, Global, Limits, Place, Read};
use crate::commands::artifact;
use crate::outcome::{Failure, note, print_line};
use crate::progress;
use crate::world::{self, World};

/// Longest that a document from elsewhere is waited for.
const FETCH: Duration = Duration::from_mins(10);

/// Reads one document and prints what an agent would get.
pub(crate) async fn run(global: &Global, read: &Read) -> Result<(), Failure> {
    let source = Source::of(&read.what, read.place.root.first().map(PathBuf::as_path));
    let folder = source.folder(global, &read.what);
    let reader = reader(&read.place, &read.limits, folder)?;
    let reader = if read.stub_summarizer {
        reader.with_summarizer(Arc::new(Stub))
    } else {
        match model(global)? {
            Some((model, limits)) => reader.with_summarizer(model).with_summary_limits(limits),
            None => reader,
        }
    };
    let request = Request {
        file_path: Some(read.what.clone()),
        summarize: read.summarize,
        focus: read.focus.clone(),
        range: read.range.clone(),
        find: read.find.clone(),
    }
    .tidied();
    let mut tasks = JoinSet::new();
    let cancel = cancelled_by_ctrl_c(&mut tasks);
    let file = match &source {
        Source::Path => None,
        Source::Url | Source::Artifact(_) => tokio::select! {
            fetched = fetch(global, read, &source) => Some(fetched?),
            () = cancel.cancelled() => return tell(global, &Record::cancelled(&read.what)),
        },
    };
    if read.markdown {
        return markdown(&reader, read, &request, file, &cancel).await;
    }
    let waiting = progress::waiting("reading", global.json);
    let told = |now: Progress| waiting.set_message(now.to_string());
    let record = match file {
        None => reader.read(&request, &cancel, &told).await,
        Some((name, file)) => {
            reader
                .read_file(&name, file, &request, &cancel, &told)
                .await
        }
    };
    waiting.finish_and_clear();
    tell(global, &record)
}

/// The whole record for scripts, the output for people. A refusal is an answer, not a failure.
fn tell(global: &Global, record: &Record) -> Result<(), Failure> {
    if global.json {
        let line = serde_json::to_string(record).map_err(|_| Fault::internal())?;
        print_line(&line);
    } else {
        print_line(record.output.trim_end_matches('\n'));
    }
    if record.outcome == Outcome::Cancelled && !global.json {
        return Err(Failure::Reported);
    }
    Ok(())
}

async fn markdown(
    reader: &Reader,
    read: &Read,
    request: &Request,
    file: Option<(String, std::fs::File)>,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let converted = match file {
        None => reader.markdown(request, cancel).await,
        Some((name, file)) => reader.markdown_file(&name, file, request, cancel).await,
    };
    match converted {
        Ok(converted) => {
            print_line(converted.text.trim_end_matches('\n'));
            Ok(())
        }
        Err(record) => Err(Fault::new(FaultCode::Unsupported, record.output)
            .detail(record.error_code.map_or("range", Code::word))
            .advice(format!("`dray classify {}` tells what it is.", read.what))
            .into()),
    }
}

/// Tells what files are by their bytes.
pub(crate) fn classify(global: &Global, classify: &Classify) -> Result<(), Failure> {
    let mut refused = false;
    for file in &classify.files {
        let folder = (!global.json).then(|| parent(file)).flatten();
        let reader = reader(&classify.place, &classify.limits, folder)?;
        let name = file.to_string_lossy().into_owned();
        let line = match reader.classify(&name) {
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
                    "{name}: {} ({}, {} bytes)",
                    class.kind.word(),
                    class.mime,
                    found.size_bytes
                )
            }
            Err(refusal) => {
                refused = true;
                if global.json {
                    json!({"file": name, "error_code": refusal.code.word(), "error": refusal.output}).to_string()
                } else {
                    format!("{name}: {}", refusal.output)
                }
            }
        };
        print_line(&line);
    }
    if refused {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// What the first argument names.
enum Source {
    Path,
    Url,
    Artifact(Sha256Digest),
}

impl Source {
    /// `primary` is the root in which a file of that name would be looked for; the current folder when there is none.
    fn of(what: &str, primary: Option<&Path>) -> Self {
        let is_url = ["http://", "https://"].iter().any(|scheme| {
            what.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        if is_url {
            return Self::Url;
        }
        let digest = what.strip_prefix("artifact:").unwrap_or(what);
        let file = primary.map_or_else(|| PathBuf::from(what), |root| root.join(what));
        match digest.parse() {
            Ok(sha256) if file.symlink_metadata().is_err() => Self::Artifact(sha256),
            _ => Self::Path,
        }
    }

    /// A folder that may be read although nobody named it: that of the file which a person points to.
    fn folder(&self, global: &Global, what: &str) -> Option<PathBuf> {
        match self {
            Self::Path if !global.json => parent(Path::new(what)),
            Self::Path | Self::Url | Self::Artifact(_) => None,
        }
    }
}

fn parent(file: &Path) -> Option<PathBuf> {
    match file.parent() {
        Some(parent) if parent.as_os_str().is_empty() => None,
        parent => parent.map(Path::to_owned),
    }
}

/// The reader that the command line describes.
fn reader(place: &Place, limits: &Limits, folder: Option<PathBuf>) -> Result<Reader, Failure> {
    let here = match std::env::current_dir() {
        Ok(here) => here,
        // It was removed; with a root it is not needed.
        Err(_) if place.root.first().is_some_and(|root| root.is_absolute()) => PathBuf::from("/"),
        Err(error) => return Err(Failure::local("there is no current folder")(error)),
    };
    let mut named = place.root.iter().map(|root| here.join(root));
    let primary = named.next();
    let mut roots =
        Roots::new(primary.as_deref().unwrap_or(&here)).strict(!place.no_workspace_strict);
    for root in named {
        if let Err(error) = roots.add(&root) {
            note(&format!("--root {} is skipped: {error}", root.display()));
        }
    }
    if primary.is_none() {
        roots = roots.with(folder);
    }
    if let Some(home) = world::home() {
        roots = roots.with_home(home);
    }
    let worker = Worker::this_executable().map_err(Failure::local("cannot find this program"))?;
    Ok(Reader::new(policy(limits), roots, worker))
}

/// The limits as they were typed; what makes no sense leaves the default and is told.
fn policy(limits: &Limits) -> Policy {
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
    for key in bad {
        note(&format!("{key} makes no sense; the default is used."));
    }
    policy
}

/// A model and its bounds.
type Model = (Arc<dyn Summarizer>, SummaryLimits);

/// The model that the configuration names for summaries.
fn model(global: &Global) -> Result<Option<Model>, Failure> {
    let loaded = world::load(&world::sources(global)?)?;
    let config: dray_file_resolver::Config = world::section(&loaded, FileResolver::NAME)?;
    let summary = &config.reading.summary;
    let model = summary
        .model()
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    Ok(model.map(|model| (model, summary.limits())))
}

/// Brings a URL or a stored file here, into a file without a name.
async fn fetch(
    global: &Global,
    read: &Read,
    source: &Source,
) -> Result<(String, std::fs::File), Failure> {
    let most = policy(&read.limits).max_file_bytes;
    let world = match source {
        Source::Artifact(_) => World::open_store(global).await?,
        Source::Path | Source::Url => World::open(global, &[EgressFetcher::NAME]).await?,
    };
    let brought = match source {
        Source::Artifact(sha256) => stored(&world, sha256, most).await,
        Source::Path | Source::Url => outside(global, &world, &read.what, most).await,
    };
    world.close().await;
    brought
}

async fn stored(
    world: &World,
    sha256: &Sha256Digest,
    most: u64,
) -> Result<(String, std::fs::File), Failure> {
    let label = Label::new("application/octet-stream", "");
    let claim = artifact::stored(world, *sha256, label).await?;
    Ok((
        sha256.to_hex(),
        spool(world, Content::Claim(claim), most).await?,
    ))
}

async fn outside(
    global: &Global,
    world: &World,
    url: &str,
    most: u64,
) -> Result<(String, std::fs::File), Failure> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        size_limit_bytes: most,
        ..v1::FetchRequest::default()
    };
    let waiting = progress::waiting("fetching", global.json);
    let reply = world.bus.call_once(&world.meta(FETCH), &request).await;
    waiting.finish_and_clear();
    let content = reply
        .map_err(Fault::from)?
        .content
        .ok_or_else(Fault::internal)?;
    let content = Content::try_from(content).map_err(|_| Fault::internal())?;
    Ok((url.to_owned(), spool(world, content, most).await?))
}

async fn spool(world: &World, content: Content, most: u64) -> Result<std::fs::File, Failure> {
    let file = tempfile::tempfile().map_err(Failure::local("no room for the document"))?;
    let mut file = tokio::fs::File::from_std(file);
    let failed = || Failure::local("no room for the document");
    match content {
        Content::Inline(bytes) => file.write_all(&bytes).await.map_err(failed())?,
        Content::Claim(claim) => {
            if claim.artifact.size > most {
                return Err(Fault::new(
                    FaultCode::TooLarge,
                    format!(
                        "The file has {} bytes, more than the limit of {most}.",
                        claim.artifact.size
                    ),
                )
                .detail("too_large")
                .advice("Raise --max-file-bytes.")
                .into());
            }
            let deadline = world.deadline(FETCH);
            let reader = world.store()?.read(world.tenant(), &claim, deadline).await;
            let mut reader = reader.map_err(Fault::from)?;
            while let Some(bytes) = reader.next().await.map_err(Fault::from)? {
                file.write_all(&bytes).await.map_err(failed())?;
            }
        }
    }
    file.flush().await.map_err(failed())?;
    file.rewind().await.map_err(failed())?;
    Ok(file.into_std().await)
}

/// Cancelled by the first Ctrl-C.
fn cancelled_by_ctrl_c(tasks: &mut JoinSet<()>) -> CancellationToken {
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    tasks.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            token.cancel();
        }
    });
    cancel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_looks_like_a_digest_is_looked_for_in_the_primary_root() {
        let folder = tempfile::tempdir().unwrap();
        let name = "ab".repeat(32);
        let source = || Source::of(&name, Some(folder.path()));
        assert!(matches!(source(), Source::Artifact(_)));
        std::fs::write(folder.path().join(&name), "words").unwrap();
        assert!(matches!(source(), Source::Path));
    }

    #[test]
    fn roots_that_do_not_exist_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            root: vec![folder.path().to_owned(), folder.path().join("none")],
            no_workspace_strict: false,
        };
        let reader = reader(&place, &Limits::default(), None).unwrap();
        assert_eq!(
            reader.roots().paths(),
            [folder.path().canonicalize().unwrap()]
        );
    }
}
