//! The chapters of the demo. Every step checks its output, so the demo fails on a wrong result.

use std::path::Path;

use bytes::Bytes;
use dray_proto::convert::ContentSource;
use dray_proto::{Event as _, v1};
use dray_types::{ByteSize, Claim, Fault, RedactedUrl, Sha256Digest};
use prost::Message as _;
use serde_json::{Value, json};

use crate::demo::files::PIXEL_PNG;
use crate::demo::public_hosts::{LARGE_FILE_BYTES, REBINDING_HOST};
use crate::demo::system::{DemoSystem, next_event};
use crate::demo::{StepReporter, agent, container, delivery, reading, tickets};
use crate::outcome::CommandFailure;

/// Runs all chapters in order. The first failure ends the demo.
pub(crate) async fn run_chapters(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter
        .chapter("Drayage demo. All services run in this process; no byte leaves this machine.");
    resolve_forms(system, reporter).await?;
    resolve_to_claim(system, reporter).await?;
    follow_redirects(system, reporter).await?;
    show_refusals(system, reporter).await?;
    resolve_by_event(system, reporter).await?;
    // The report is used below: the container gets one of the files that were sent.
    let sent = delivery::run_chapter(system, reporter).await?;
    container::run_chapter(system, reporter, Path::new(container::SOCKET_PATH), &sent).await?;
    reading::run_chapter(system, reporter).await?;
    agent::run_chapter(system, reporter).await?;
    tickets::run_chapters(system, reporter).await?;
    show_summary(system, reporter)?;
    show_hint(reporter);
    Ok(())
}

/// Prints a summary of the chapters in numbers.
fn show_summary(system: &DemoSystem, reporter: &StepReporter) -> Result<(), CommandFailure> {
    let dialled = system.outside.dialled();
    // The first chapter is only the title of the demo.
    let (chapters, facts) = (reporter.chapters.get() - 1, reporter.facts.get());
    reporter.chapter("Summary");
    reporter.line(
        "shown",
        &format!("{chapters} chapters and {facts} results, each compared with what it must be"),
    );
    let inside = inside_addresses(&dialled);
    check_claim(inside == 0, "no inside address was dialled")?;
    reporter.line(
        "outside",
        &format!(
            "{} connections through egress-fetcher, {inside} of them to an inside address",
            dialled.len()
        ),
    );
    reporter.fact(
        "summary",
        &json!({ "chapters": chapters, "results": facts, "connections": dialled.len(), "inside": inside }),
    );
    Ok(())
}

fn inside_addresses(dialled: &[std::net::IpAddr]) -> usize {
    dialled
        .iter()
        // The only public address of the simulated network; all others are internal.
        .filter(|address| address.to_string() != "93.184.215.14")
        .count()
}

async fn resolve_forms(system: &DemoSystem, reporter: &StepReporter) -> Result<(), CommandFailure> {
    reporter.chapter("1. File references in the arguments of a tool call are replaced by content.");
    system
        .dial
        .put("demo/notes.txt", "Crane 4 is back at noon.\n", "text/plain");
    system.dial.put("demo/logo.png", PIXEL_PNG, "image/png");
    let arguments = json!({
        "note": "file:text::files/demo/notes.txt",
        "logo": "file:base64::files/demo/logo.png",
        "link": "file:url::https://files.example.org/prices.csv",
        "prices": "file:text::http://files.example.org/prices.csv",
        "plain": "ordinary text stays as it is",
    });
    let resolved = resolve_arguments(system, &arguments, false).await?;
    let ContentSource::Inline(bytes) = resolved_content(&resolved)? else {
        return Err(untrue_claim_failure("the result is small"));
    };
    let after: Value =
        serde_json::from_slice(&bytes).map_err(|_| untrue_claim_failure("the result is JSON"))?;
    for (name, before) in arguments.as_object().into_iter().flatten() {
        let found = after.get(name).map(Value::to_string).unwrap_or_default();
        reporter.line(
            name,
            &format!(
                "{}  →  {}",
                before.as_str().unwrap_or_default(),
                cut_to_line(&found)
            ),
        );
    }
    check_claim(
        text_of(&after, "note") == "Crane 4 is back at noon.\n",
        "text is decoded",
    )?;
    check_claim(
        text_of(&after, "link") == "https://files.example.org/prices.csv",
        "url references are left alone",
    )?;
    check_claim(
        after.get("plain") == arguments.get("plain"),
        "ordinary text is not touched",
    )?;
    reporter.fact("resolved", &after);
    Ok(())
}

async fn resolve_to_claim(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "2. Content that is too large for a message is replaced by a claim, with a link on request.",
    );
    let arguments = json!({ "photos": "file:base64::http://files.example.org/photos.bin" });
    let resolved = resolve_arguments(system, &arguments, true).await?;
    let ContentSource::Claim(claim) = resolved_content(&resolved)? else {
        return Err(untrue_claim_failure("the result is large"));
    };
    let stored = read_claim(system, &claim).await?;
    check_claim(
        Sha256Digest::of(&stored) == claim.artifact.sha256,
        "the stored bytes have the claimed digest",
    )?;
    let link = resolved
        .url
        .ok_or_else(|| untrue_claim_failure("a link was asked for"))?;
    // The link is shown without its signature, which would open the file for every reader of the output.
    let shown = RedactedUrl::from_text(&link.url);
    reporter.line(
        "file",
        &format!("{LARGE_FILE_BYTES} bytes from the outside world, as base64"),
    );
    reporter.line(
        "claim",
        &format!(
            "{} bytes, sha256 {}",
            claim.artifact.size, claim.artifact.sha256
        ),
    );
    reporter.line("link", &format!("{shown}?… (signed, ends by itself)"));
    reporter.line(
        "checked",
        "read back from the store, length and digest as claimed",
    );
    reporter.fact(
        "claim",
        &json!({ "size": claim.artifact.size, "sha256": claim.artifact.sha256.to_hex() }),
    );
    Ok(())
}

async fn follow_redirects(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter.chapter("3. Redirects are followed, and the policy judges every hop.");
    let reply = fetch_url(system, "http://short.example.org/p").await??;
    check_claim(reply.redirect_count == 3, "three redirects were followed")?;
    reporter.line("asked", "http://short.example.org/p");
    reporter.line(
        "followed",
        &format!("{} redirects, to {}", reply.redirect_count, reply.final_url),
    );
    reporter.line(
        "got",
        &format!("{} bytes, {}", reply.size, reply.media_type),
    );
    reporter.fact(
        "redirects",
        &json!({ "followed": reply.redirect_count, "final_url": reply.final_url }),
    );
    Ok(())
}

async fn show_refusals(system: &DemoSystem, reporter: &StepReporter) -> Result<(), CommandFailure> {
    reporter.chapter("4. No connection is opened to an internal address, in any spelling.");
    let rebinding = format!("http://{REBINDING_HOST}/");
    let attempts = [
        (
            "a redirect to the metadata service",
            "http://www.example.org/to-metadata",
            "ssrf_blocked",
        ),
        (
            "a name that turns to loopback",
            rebinding.as_str(),
            "ssrf_blocked",
        ),
        (
            "loopback as one number",
            "http://2130706433/",
            "ambiguous_host",
        ),
        (
            "loopback in plain sight",
            "http://127.0.0.1/",
            "ssrf_blocked",
        ),
    ];
    let mut audits = system.events("dray.audit.>").await?;
    for (description, url, expected) in attempts {
        let Err(fault) = fetch_url(system, url).await? else {
            return Err(untrue_claim_failure("the address is refused"));
        };
        check_claim(
            fault.detail == expected,
            "the refusal has the expected reason",
        )?;
        reporter.line("tried", &format!("{url}  ({description})"));
        reporter.line("refused", &fault.message);
        let audit = audit_of(&mut audits, expected, url).await?;
        reporter.line("audit", &audit_line(&audit));
        reporter.fact(
            "refused",
            &json!({ "url": url, "code": fault.detail, "message": fault.message }),
        );
    }
    let dialled = system.outside.dialled();
    let inside = inside_addresses(&dialled);
    check_claim(inside == 0, "no inside address was dialled")?;
    reporter.line(
        "dialled",
        &format!(
            "{} connections in this demo, {inside} of them to an inside address",
            dialled.len()
        ),
    );
    Ok(())
}

/// The audit event of an attempt: the next one with this reason and host. Other events may arrive in between.
async fn audit_of(
    audits: &mut dray_bus::EventStream,
    code: &str,
    url: &str,
) -> Result<v1::EgressAudit, CommandFailure> {
    loop {
        let audit: v1::EgressAudit = next_event(audits)
            .await?
            .decode()
            .map_err(|_| Fault::internal())?;
        if audit.code == code && (audit.url_host.is_empty() || url.contains(&audit.url_host)) {
            return Ok(audit);
        }
    }
}

fn audit_line(audit: &v1::EgressAudit) -> String {
    let hops: Vec<String> = audit
        .hops
        .iter()
        .map(|hop| {
            let answers: Vec<_> = hop
                .answers
                .iter()
                .map(|answer| format!("{} is {}", answer.address, answer.class))
                .collect();
            if answers.is_empty() {
                hop.host.clone()
            } else {
                format!("{} [{}]", hop.host, answers.join(", "))
            }
        })
        .collect();
    let hops = if audit.hops.is_empty() {
        "none".to_owned()
    } else {
        hops.join(" then ")
    };
    format!(
        "verdict={} code={} phase={} hops={hops}",
        audit.verdict, audit.code, audit.phase
    )
}

async fn resolve_by_event(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "5. A tool call that is published as work is resolved, and its result is an event.",
    );
    let mut events = system.events("dray.event.toolcall.>").await?;
    let meta = system.meta();
    let arguments = json!({ "body": "file:text::files/demo/notes.txt" }).to_string();
    let work = v1::ToolCallRequested {
        tool_call_id: "call-1".to_owned(),
        tool: "send_mail".to_owned(),
        arguments: Some(ContentSource::Inline(Bytes::from(arguments.clone())).into()),
        options: None,
    };
    system
        .bus()
        .publish_work(&meta, &work)
        .await
        .map_err(|_| Fault::internal())?;
    reporter.line(
        "in",
        &format!(
            "dray.work.toolcall.v1.resolve.{}  {arguments}",
            system.tenant().token()
        ),
    );
    let observed = next_event(&mut events).await?;
    check_claim(
        observed
            .subject
            .contains(v1::ToolCallResolved::PAST_PARTICIPLE),
        "the answer is a resolved event",
    )?;
    let answer =
        v1::ToolCallResolved::decode(observed.payload.clone()).map_err(|_| Fault::internal())?;
    check_claim(
        answer.operation_id == meta.operation.as_str(),
        "the answer belongs to the request",
    )?;
    let resolved = answer
        .resolved
        .ok_or_else(|| untrue_claim_failure("the event holds the arguments"))?;
    let ContentSource::Inline(bytes) = resolved_content(&resolved)? else {
        return Err(untrue_claim_failure("the arguments are small"));
    };
    let text = String::from_utf8_lossy(&bytes);
    reporter.line("out", &format!("{}  {text}", observed.subject));
    reporter.fact(
        "event",
        &json!({ "subject": observed.subject, "arguments": text }),
    );
    Ok(())
}

fn show_hint(reporter: &StepReporter) {
    reporter.chapter("Next:");
    reporter.line(
        "",
        "dray up                                     run all services on this machine",
    );
    reporter.line(
        "",
        "EXTERNAL_URL_FETCH_ENABLED=true dray fetch https://… --json",
    );
    reporter.line(
        "",
        "dray resolve --arguments '{\"page\": \"file:text::https://…\"}'",
    );
    reporter.line(
        "",
        "dray send /srv/box/report.pdf --from local:/srv/box --to telegram:CHAT",
    );
    reporter.line(
        "",
        "dray up --manifests DIR --model-url URL     agents for any model; then: dray chat",
    );
    reporter.line(
        "",
        "docker compose up                           NATS, MinIO and one container per service",
    );
}

async fn resolve_arguments(
    system: &DemoSystem,
    arguments: &Value,
    presign: bool,
) -> Result<v1::ResolvedArguments, CommandFailure> {
    let request = v1::ResolveRequest {
        arguments: Some(ContentSource::Inline(Bytes::from(arguments.to_string())).into()),
        options: None,
        credentials: Some(DemoSystem::credentials()),
        tool: "demo".to_owned(),
        presign,
    };
    let reply = system
        .bus()
        .call(&system.meta(), &request)
        .await
        .map_err(Fault::from)?;
    match reply.outcome {
        Some(v1::resolve_reply::Outcome::Resolved(resolved)) => Ok(resolved),
        Some(v1::resolve_reply::Outcome::Invalid(invalid)) => Err(invalid
            .fault
            .map_or_else(Fault::internal, Fault::from)
            .into()),
        None => Err(Fault::internal().into()),
    }
}

async fn fetch_url(
    system: &DemoSystem,
    url: &str,
) -> Result<Result<v1::FetchReply, Fault>, CommandFailure> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    };
    Ok(system
        .bus()
        // The call is not repeated: a refusal is final, and a second request would be counted too.
        .call_once(&system.meta(), &request)
        .await
        .map_err(Fault::from))
}

fn resolved_content(resolved: &v1::ResolvedArguments) -> Result<ContentSource, CommandFailure> {
    let content = resolved
        .arguments
        .clone()
        .ok_or_else(|| untrue_claim_failure("the reply holds the arguments"))?;
    ContentSource::try_from(content).map_err(|_| untrue_claim_failure("the reply is well-formed"))
}

async fn read_claim(system: &DemoSystem, claim: &Claim) -> Result<Bytes, CommandFailure> {
    let reader = system
        .store()
        .read(system.tenant(), claim, system.deadline())
        .await
        .map_err(Fault::from)?;
    Ok(reader
        .read_all(ByteSize::mib(16))
        .await
        .map_err(Fault::from)?)
}

/// Fails unless `holds`. The message of the failure contains the claim.
pub(crate) fn check_claim(holds: bool, claim: &str) -> Result<(), CommandFailure> {
    if holds {
        Ok(())
    } else {
        Err(untrue_claim_failure(claim))
    }
}

/// The failure for a claim of the demo that does not hold, which is a bug.
pub(crate) fn untrue_claim_failure(claim: &str) -> CommandFailure {
    CommandFailure::Fault(Fault::new(
        dray_types::FaultCode::Internal,
        format!("The demo expected that {claim}."),
    ))
}

/// A text member of a JSON object; empty when it is missing.
fn text_of<'value>(object: &'value Value, name: &str) -> &'value str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Cuts a value so that it fits on one line of a terminal.
fn cut_to_line(text: &str) -> String {
    if text.chars().count() <= 60 {
        return text.to_owned();
    }
    let head: String = text.chars().take(57).collect();
    format!("{head}… ({} characters)", text.chars().count())
}
