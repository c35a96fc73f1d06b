//! `dray fetch`: one URL of the outside world under the operator's policy.

use std::path::Path;
use std::time::Duration;

use dray_presentation::name;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{Claim, Fault, Sha256Digest};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::cli::{FetchArgs, GlobalOptions};
use crate::commands::{policy, shown};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line};
use crate::progress;

/// Longest value in the output for people, in characters.
const MAX_VALUE_CHARACTERS: usize = 8192;

/// Fetches, writes the content according to the options, and prints the verdict.
pub(crate) async fn run(global: &GlobalOptions, fetch: &FetchArgs) -> Result<(), CommandFailure> {
    let request = v1::FetchRequest {
        url: fetch.url.clone(),
        app_policy: policy::read_policy(fetch.app_policy.as_deref())?,
        size_limit_bytes: fetch.size_limit.map_or(0, dray_types::ByteSize::as_u64),
        tool_timeout_ms: fetch.timeout.unwrap_or_default().saturating_mul(1_000),
        sink: v1::Sink::Unspecified.into(),
    };
    let system = SystemConnection::open(global, &["egress-fetcher"]).await?;
    let outcome = fetch_reply(global, fetch, &system, &request).await;
    system.close().await;
    match outcome {
        Ok(reply) => {
            print_verdict(global, fetch, &reply);
            Ok(())
        }
        // A refusal is a result for scripts, with its own format.
        Err(CommandFailure::Fault(fault)) if global.json => {
            print_line(&denied_json(&fault).to_string());
            Err(CommandFailure::Reported)
        }
        Err(failure) => Err(failure),
    }
}

/// Longest time that an operator can allow a fetch, for commands without a timeout.
const MAX_TIMEOUT: Duration = Duration::from_mins(5);
/// Time of a call in addition to that of the fetch, for request and response.
const CALL_MARGIN: Duration = Duration::from_secs(5);

async fn fetch_reply(
    global: &GlobalOptions,
    fetch: &FetchArgs,
    system: &SystemConnection,
    request: &v1::FetchRequest,
) -> Result<v1::FetchReply, CommandFailure> {
    let timeout = fetch.timeout.map_or(MAX_TIMEOUT, Duration::from_secs);
    let meta = system.meta(timeout + CALL_MARGIN);
    let waiting = progress::spinner_with_text("fetching", global.json);
    // The call is not repeated, because a refusal of the policy is a decision.
    let reply = system.call_once(&meta, request).await;
    waiting.finish_and_clear();
    let reply = reply?;
    if let Some(output) = &fetch.output {
        let content = reply.content.clone().ok_or_else(Fault::internal)?;
        let content = ContentSource::try_from(content).map_err(|_| Fault::internal())?;
        write_content(global, system, &content, output).await?;
    }
    Ok(reply)
}

/// Writes content to a file or to standard output, and verifies it meanwhile.
async fn write_content(
    global: &GlobalOptions,
    system: &SystemConnection,
    content: &ContentSource,
    output: &Path,
) -> Result<(), CommandFailure> {
    match content {
        ContentSource::Claim(claim) => write_claim(global, system, claim, output).await,
        ContentSource::Inline(bytes) => {
            let mut sink = OutputSink::create(output)?;
            sink.write(bytes).await?;
            sink.finish().await
        }
    }
}

/// Writes a stored artifact to a file or to standard output. A file appears only after all of it was verified.
pub(crate) async fn write_claim(
    global: &GlobalOptions,
    system: &SystemConnection,
    claim: &Claim,
    output: &Path,
) -> Result<(), CommandFailure> {
    let deadline = system.deadline(Duration::from_hours(1));
    let mut reader = system
        .store()?
        .read(system.tenant(), claim, deadline)
        .await
        .map_err(Fault::from)?;
    let bar = progress::byte_progress_bar(Some(claim.artifact.size), global.json);
    let mut sink = OutputSink::create(output)?;
    while let Some(bytes) = reader.next().await.map_err(Fault::from)? {
        sink.write(&bytes).await?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    sink.finish().await
}

/// Destination of content: standard output, or a file that gets its name when it is complete.
enum OutputSink {
    Stdout(tokio::io::Stdout),
    File {
        file: tokio::fs::File,
        temporary: tempfile::TempPath,
        target: std::path::PathBuf,
    },
}

impl OutputSink {
    fn create(output: &Path) -> Result<Self, CommandFailure> {
        if output == Path::new("-") {
            return Ok(Self::Stdout(tokio::io::stdout()));
        }
        // The draft is in the same directory, so that it can be renamed into place.
        let directory = match output.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let failed = || format!("cannot write {}", output.display());
        let named = tempfile::Builder::new()
            .prefix(".dray-")
            .tempfile_in(directory)
            .map_err(CommandFailure::local(failed()))?;
        let (file, temporary) = named.into_parts();
        Ok(Self::File {
            file: tokio::fs::File::from_std(file),
            temporary,
            target: output.to_path_buf(),
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        match self {
            Self::Stdout(out) => out
                .write_all(bytes)
                .await
                .map_err(CommandFailure::local("cannot write to standard output")),
            Self::File { file, target, .. } => {
                file.write_all(bytes)
                    .await
                    .map_err(CommandFailure::local(format!(
                        "cannot write {}",
                        target.display()
                    )))
            }
        }
    }

    async fn finish(self) -> Result<(), CommandFailure> {
        match self {
            Self::Stdout(mut out) => out
                .flush()
                .await
                .map_err(CommandFailure::local("cannot write to standard output")),
            Self::File {
                mut file,
                temporary,
                target,
            } => {
                let failed = || format!("cannot write {}", target.display());
                file.flush()
                    .await
                    .map_err(CommandFailure::local(failed()))?;
                // The file is synced before the rename: after a crash the name must not lead to a file without content.
                file.sync_all()
                    .await
                    .map_err(CommandFailure::local(failed()))?;
                temporary
                    .persist(&target)
                    .map_err(|error| CommandFailure::local(failed())(error.error))
            }
        }
    }
}

fn allowed_json(reply: &v1::FetchReply) -> Value {
    let sha256 = Sha256Digest::try_from(reply.sha256.as_slice())
        .map(Sha256Digest::to_hex)
        .unwrap_or_default();
    json!({
        "verdict": "allow",
        "code": Value::Null,
        "message": "fetched",
        "size": reply.size,
        "sha256": sha256,
        "media_type": reply.media_type,
        "name": reply.name,
        "sniffed_media_type": reply.sniffed_media_type,
        "final_url": reply.final_url,
        "redirect_count": reply.redirect_count,
        "length_verified": reply.length_verified,
        "http_status": reply.http_status,
    })
}

fn denied_json(fault: &Fault) -> Value {
    let code = if fault.detail.is_empty() {
        fault.code.as_str()
    } else {
        &fault.detail
    };
    json!({
        "verdict": "deny",
        "code": code,
        "message": fault.message,
        "size": Value::Null,
        "sha256": Value::Null,
        "media_type": Value::Null,
        "name": Value::Null,
        "fault": crate::outcome::fault_json(fault),
    })
}

fn print_verdict(global: &GlobalOptions, fetch: &FetchArgs, reply: &v1::FetchReply) {
    let verdict = allowed_json(reply);
    if global.json {
        print_line(&verdict.to_string());
        return;
    }
    // Content on standard output must not be followed by a line about it.
    if fetch.output.as_deref() == Some(Path::new("-")) {
        return;
    }
    let text = |field: &str| {
        verdict
            .get(field)
            .and_then(Value::as_str)
            .map(|text| name::shown_text(text, MAX_VALUE_CHARACTERS))
            .unwrap_or_default()
    };
    print_line(&format!(
        "fetched {} ({} bytes)",
        text("final_url"),
        reply.size
    ));
    print_line(&format!("  sha256      {}", text("sha256")));
    print_line(&format!("  media type  {} (declared)", text("media_type")));
    if !reply.name.is_empty() {
        print_line(&format!(
            "  name        {}",
            name::shown_text(&reply.name, MAX_VALUE_CHARACTERS)
        ));
    }
    match &fetch.output {
        Some(output) => print_line(&format!("  written to  {}", shown::path_line(output))),
        None => print_line("  Give -o FILE to keep the content as a file."),
    }
}

#[cfg(test)]
mod tests {
    use dray_types::FaultCode;

    use super::*;

    #[test]
    fn a_refusal_names_the_precise_code() {
        let fault = Fault::new(FaultCode::Denied, "No.").detail("ssrf_blocked");
        let line = denied_json(&fault);
        assert_eq!(
            (line["verdict"].as_str(), line["code"].as_str()),
            (Some("deny"), Some("ssrf_blocked"))
        );
    }

    #[tokio::test]
    async fn an_unfinished_file_never_appears() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("out");
        let mut sink = OutputSink::create(&target).unwrap();
        sink.write(b"half").await.unwrap();
        drop(sink);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

        let mut sink = OutputSink::create(&target).unwrap();
        sink.write(b"whole").await.unwrap();
        sink.finish().await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");
    }
}
