//! `dray fetch`: one URL of the outside world under the operator's policy.

use std::path::Path;
use std::time::Duration;

use dray_presentation::name;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::ArtifactReader;
use dray_types::{Claim, Fault, Sha256Digest};
use serde_json::{Value, json};

use crate::cli::{FetchArgs, GlobalOptions};
use crate::commands::output_sink::{OutputSink, is_standard_output};
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
        revalidate: false,
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
            let mut sink = OutputSink::open(output).await?;
            sink.write(bytes).await?;
            sink.finish().await
        }
    }
}

/// Writes a stored artifact to a file, a pipe, a device or standard output. A file appears only after all of it was
/// verified.
pub(crate) async fn write_claim(
    global: &GlobalOptions,
    system: &SystemConnection,
    claim: &Claim,
    output: &Path,
) -> Result<(), CommandFailure> {
    let reader = open_claim(system, claim).await?;
    copy_claim(global, claim, reader, OutputSink::open(output).await?).await
}

/// Like [`write_claim`], for a file whose name was not chosen by the user: a link of that name is replaced.
pub(crate) async fn replace_with_claim(
    global: &GlobalOptions,
    system: &SystemConnection,
    claim: &Claim,
    output: &Path,
) -> Result<(), CommandFailure> {
    let reader = open_claim(system, claim).await?;
    copy_claim(global, claim, reader, OutputSink::replace(output)?).await
}

async fn open_claim(
    system: &SystemConnection,
    claim: &Claim,
) -> Result<ArtifactReader, CommandFailure> {
    let deadline = system.deadline(Duration::from_hours(1));
    let store = system.store()?;
    let reader = store.read(system.tenant(), claim, deadline).await;
    Ok(reader.map_err(Fault::from)?)
}

async fn copy_claim(
    global: &GlobalOptions,
    claim: &Claim,
    mut reader: ArtifactReader,
    mut sink: OutputSink,
) -> Result<(), CommandFailure> {
    let bar = progress::byte_progress_bar(Some(claim.artifact.size), global.json);
    while !sink.is_closed()
        && let Some(bytes) = reader.next().await.map_err(Fault::from)?
    {
        sink.write(&bytes).await?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    sink.finish().await
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
    // Content on standard output must not be followed by a line about it.
    if fetch.output.as_deref().is_some_and(is_standard_output) {
        return;
    }
    let verdict = allowed_json(reply);
    if global.json {
        print_line(&verdict.to_string());
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
}
