//! `dray sandbox`: files in and out of a sandbox, by hand.

mod direct;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_content::name;
use dray_content::size::human;
use dray_proto::v1;
use dray_store::Label;
use dray_types::{ByteSize, Claim, Fault};
use serde_json::{Value, json};

use crate::cli::{Global, Sandbox};
use crate::commands::fetch::write_claim;
use crate::commands::{reach, shown, upload};
use crate::outcome::{Failure, print_line};
use crate::progress;
use crate::world::{self, World};

/// The service that is asked.
pub(crate) const SERVICE: &str = "sandbox-transfer";
/// Time for what moves no bytes.
const SHORT: Duration = Duration::from_mins(1);
/// Longest text that is shown of what a sandbox calls something.
const SHOWN: usize = 4096;

/// Does one of the commands.
pub(crate) async fn run(global: &Global, command: &Sandbox) -> Result<(), Failure> {
    reach::check(named(command))?;
    check_input(command)?;
    let reaching = reach::allowed(global, named(command));
    let copies = matches!(command, Sandbox::Get { .. } | Sandbox::Put { .. });
    if copies && let Some(config) = world::own_sandboxes(&reaching)? {
        let copied = direct::run(&reaching, config, command).await;
        return copied.map_err(|failure| explained(failure, command));
    }
    let world = match command {
        Sandbox::Get { .. } | Sandbox::Put { .. } => World::open(&reaching, &[SERVICE]).await?,
        _ => World::open_to_ask(&reaching, &[SERVICE]).await?,
    };
    let outcome = one(global, &world, command).await;
    world.close().await;
    outcome.map_err(|failure| explained(failure, command))
}

/// Standard input has no name of its own.
fn check_input(command: &Sandbox) -> Result<(), Failure> {
    match command {
        Sandbox::Put { file, name, .. } if file == Path::new("-") && name.is_none() => {
            let text = "standard input has no name: add --name NAME";
            Err(Failure::Usage(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// A failure in the words of whoever typed the name of a sandbox.
fn explained(failure: Failure, command: &Sandbox) -> Failure {
    let Failure::Fault(fault) = failure else {
        return failure;
    };
    let sandbox = name::shown(named(command), 200);
    let (message, advice) = match fault.detail.as_str() {
        "sandbox_gone" => (
            format!("There is no sandbox {sandbox} here."),
            "Check its name; it may have been removed.",
        ),
        "no_backend" => (
            format!("The kind of the sandbox {sandbox} is not set up here."),
            "`dray config show` has the kinds that are, in `sandbox-transfer.kinds`.",
        ),
        "unavailable" => (
            format!("The sandbox {sandbox} cannot be reached right now."),
            "Check that what runs it (an engine, a host) is up and that this user may use it.",
        ),
        "is_directory" if matches!(command, Sandbox::Rm { .. }) => (
            fault.message.clone(),
            "Add --recursive to remove it with what is in it.",
        ),
        _ => return fault.into(),
    };
    Fault { message, ..fault }.advice(advice).into()
}

/// The sandbox that a command is about.
fn named(command: &Sandbox) -> &str {
    let (Sandbox::Probe { sandbox }
    | Sandbox::Stat { sandbox, .. }
    | Sandbox::Ls { sandbox, .. }
    | Sandbox::Get { sandbox, .. }
    | Sandbox::Put { sandbox, .. }
    | Sandbox::Rm { sandbox, .. }) = command;
    sandbox
}

async fn one(global: &Global, world: &World, command: &Sandbox) -> Result<(), Failure> {
    match command {
        Sandbox::Probe { sandbox } => probe(global, world, sandbox).await,
        Sandbox::Stat {
            sandbox,
            path,
            follow,
        } => {
            let request = v1::StatSandboxRequest {
                sandbox: Some(address(sandbox)),
                path: raw(path),
                follow: *follow,
            };
            let entry = ask(world, SHORT, &request).await?;
            show(global, &entry_json(&entry), &entry_line(&entry));
            Ok(())
        }
        Sandbox::Ls {
            sandbox,
            path,
            depth,
            limit,
        } => {
            let request = v1::ListSandboxRequest {
                sandbox: Some(address(sandbox)),
                path: raw(path),
                depth: *depth,
                limit: *limit,
            };
            list(global, &ask(world, SHORT, &request).await?);
            Ok(())
        }
        Sandbox::Get { .. } => get(global, world, command).await,
        Sandbox::Put { .. } => put(global, world, command).await,
        Sandbox::Rm {
            sandbox,
            path,
            recursive,
        } => {
            let request = v1::RemoveSandboxPathRequest {
                sandbox: Some(address(sandbox)),
                path: raw(path),
                recursive: *recursive,
            };
            ask(world, SHORT, &request).await?;
            show(global, &json!({ "removed": true }), "removed");
            Ok(())
        }
    }
}

async fn ask<C: dray_proto::Call>(
    world: &World,
    time: Duration,
    request: &C,
) -> Result<C::Reply, Failure> {
    let reply = world.bus.call(&world.meta(time), request).await;
    Ok(reply.map_err(Fault::from)?)
}

/// A sandbox by the name that was typed.
pub(crate) fn address(sandbox: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Address(reach::absolute(sandbox))),
    }
}

/// A path as bytes, as the sandbox has it.
pub(crate) fn raw(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// A path for people.
pub(crate) fn plain(path: &[u8]) -> String {
    name::shown(path, SHOWN)
}

fn show(global: &Global, document: &Value, line: &str) {
    if global.json {
        print_line(&document.to_string());
    } else {
        print_line(line);
    }
}

async fn probe(global: &Global, world: &World, sandbox: &str) -> Result<(), Failure> {
    let request = v1::ProbeSandboxRequest {
        sandbox: Some(address(sandbox)),
    };
    let probe = ask(world, SHORT, &request).await?;
    let handle = probe.handle.unwrap_or_default();
    let (home, directory) = (plain(&probe.home), plain(&probe.working_directory));
    let document = json!({
        "backend": handle.backend,
        "name": handle.name,
        "incarnation": handle.incarnation,
        "home": home,
        "working_directory": directory,
        "uid": probe.uid,
        "gid": probe.gid,
        "free": probe.free,
        "transports": probe.transports,
        "tools": probe.tools,
        "life_ms": probe.life_ms,
    });
    let free = probe.free.map_or_else(|| "unknown".to_owned(), human);
    let lines = format!(
        "{}:{} ({})\n  user {}:{}, home {home}, working directory {directory}\n  free {free}, transports {}, tools {}",
        name::shown(&handle.backend, SHOWN),
        name::shown(&handle.name, SHOWN),
        name::shown(&handle.incarnation, SHOWN),
        probe.uid,
        probe.gid,
        probe.transports.join(", "),
        probe.tools.join(", "),
    );
    show(global, &document, &lines);
    Ok(())
}

fn list(global: &Global, listing: &v1::ListSandboxReply) {
    if global.json {
        let entries: Vec<_> = listing.entries.iter().map(entry_json).collect();
        print_line(&json!({ "entries": entries, "truncated": listing.truncated }).to_string());
        return;
    }
    for entry in &listing.entries {
        print_line(&entry_line(entry));
    }
    if listing.truncated {
        crate::outcome::note("There is more; raise --limit to see it.");
    }
}

fn entry_json(entry: &v1::SandboxEntry) -> Value {
    json!({
        "path": plain(&entry.path),
        "real_path": plain(&entry.real_path),
        "kind": entry.kind,
        "size": entry.size,
        "mode": format!("{:04o}", entry.mode),
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime_ns": entry.mtime_ns,
        "link_target": entry.link_target.as_deref().map(plain),
        "sha256": hex(&entry.sha256),
    })
}

fn entry_line(entry: &v1::SandboxEntry) -> String {
    let time = entry
        .mtime_ns
        .and_then(|mtime| u64::try_from(mtime / 1_000_000).ok())
        .map_or_else(|| "-".to_owned(), shown::time);
    let target = entry
        .link_target
        .as_deref()
        .map(|target| format!(" -> {}", plain(target)))
        .unwrap_or_default();
    format!(
        "{:<8} {:04o} {:>12}  {time}  {}{target}",
        entry.kind,
        entry.mode,
        entry.size,
        plain(&entry.path)
    )
}

/// Lower-case hexadecimal digits; empty for nothing.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn get(global: &Global, world: &World, command: &Sandbox) -> Result<(), Failure> {
    let Sandbox::Get {
        sandbox,
        path,
        output,
        size_limit,
        tar,
        timeout,
    } = command
    else {
        return Ok(());
    };
    let time = Duration::from_secs(*timeout);
    let stat = v1::StatSandboxRequest {
        sandbox: Some(address(sandbox)),
        path: raw(path),
        follow: true,
    };
    let waiting = progress::waiting("fetching from the sandbox", global.json);
    let entry = ask(world, time, &stat).await?;
    let max_bytes = size_limit.map_or(0, ByteSize::as_u64);
    let (claim, receipt) = if entry.kind == "dir" {
        let request = v1::GetSandboxTreeRequest {
            sandbox: Some(address(sandbox)),
            path: raw(path),
            format: if *tar { "tar" } else { "zip" }.to_owned(),
            max_bytes,
        };
        let tree = ask(world, time, &request).await?;
        for skipped in &tree.skipped {
            crate::outcome::note(&format!("left out: {}", name::shown(skipped, SHOWN)));
        }
        (tree.claim, tree.receipt)
    } else {
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(address(sandbox)),
            path: raw(path),
            max_bytes,
        };
        let file = ask(world, time, &request).await?;
        (file.claim, file.receipt)
    };
    waiting.finish_and_clear();
    let claim = Claim::try_from(claim.ok_or_else(Fault::internal)?).map_err(Fault::from)?;
    let output = match output {
        Some(output) => output.clone(),
        None => free_name(&claim.artifact.name),
    };
    write_claim(global, world, &claim, &output).await?;
    if output != Path::new("-") {
        let sha256 = claim.artifact.sha256.to_hex();
        let size = claim.artifact.size;
        written(global, &output, size, &sha256, receipt.as_ref());
    }
    Ok(())
}

/// A name in the current directory that nothing has yet.
fn free_name(wanted: &str) -> PathBuf {
    let clean = name::clean(wanted.as_bytes());
    std::iter::once(clean.clone())
        .chain((2..=9999).map(|number| name::cli_numbered(&clean, number)))
        .map(PathBuf::from)
        .find(|candidate| std::fs::symlink_metadata(candidate).is_err())
        .unwrap_or_else(|| PathBuf::from(clean))
}

fn written(
    global: &Global,
    output: &Path,
    size: u64,
    sha256: &str,
    receipt: Option<&v1::TransferReceipt>,
) {
    let document = json!({
        "written_to": output.to_string_lossy(),
        "size": size,
        "sha256": sha256,
        "receipt": receipt.map(receipt_json),
    });
    let proof = receipt.map(receipt_line).unwrap_or_default();
    let line = format!(
        "{}  {}  {}{proof}",
        name::shown(output.as_os_str().as_encoded_bytes(), SHOWN),
        human(size),
        sha256.get(..16).unwrap_or_default(),
    );
    show(global, &document, &line);
}

/// A receipt for scripts.
pub(crate) fn receipt_json(receipt: &v1::TransferReceipt) -> Value {
    json!({
        "operation": receipt.operation,
        "transport": receipt.transport,
        "attempts": receipt.attempts,
        "skipped": receipt.skipped,
        "bytes": receipt.bytes,
        "sha256": hex(&receipt.sha256),
        "integrity": receipt.integrity,
        "atomic": receipt.atomic,
        "resumed": receipt.resumed,
        "milliseconds": receipt.milliseconds,
        "error": receipt.error,
    })
}

/// A receipt for people, to be put after something.
pub(crate) fn receipt_line(receipt: &v1::TransferReceipt) -> String {
    let tries = match receipt.attempts {
        0 | 1 => String::new(),
        more => format!(", {more} tries"),
    };
    let resumed = if receipt.resumed { ", resumed" } else { "" };
    format!(
        "  ({} in {} ms, integrity {}{tries}{resumed})",
        receipt.transport, receipt.milliseconds, receipt.integrity
    )
}

async fn put(global: &Global, world: &World, command: &Sandbox) -> Result<(), Failure> {
    let Sandbox::Put {
        file,
        sandbox,
        directory,
        name: called,
        collision,
        timeout,
    } = command
    else {
        return Ok(());
    };
    let claim = match called {
        Some(called) if file == Path::new("-") => {
            let label = Label::new("application/octet-stream", called);
            upload::stream(global, world, tokio::io::stdin(), None, label).await?
        }
        _ => upload::file(global, world, file, called.as_deref()).await?,
    };
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(address(sandbox)),
        name: claim.artifact.name.clone().into_bytes(),
        claim: Some(claim.into()),
        directory: raw(directory),
        collision: collision.clone(),
        mode: 0,
    };
    let waiting = progress::waiting("putting into the sandbox", global.json);
    let placed = ask(world, Duration::from_secs(*timeout), &request).await?;
    waiting.finish_and_clear();
    self::placed(global, &placed);
    Ok(())
}

/// Says where a file is now.
fn placed(global: &Global, placed: &v1::PlacedFile) {
    let path = plain(&placed.path);
    let document = json!({
        "path": path,
        "size": placed.size,
        "sha256": hex(&placed.sha256),
        "renamed": placed.renamed,
        "existed": placed.existed,
        "receipt": placed.receipt.as_ref().map(receipt_json),
    });
    let how = if placed.existed {
        "  (was there already)".to_owned()
    } else {
        placed
            .receipt
            .as_ref()
            .map(receipt_line)
            .unwrap_or_default()
    };
    show(
        global,
        &document,
        &format!("{path}  {}{how}", human(placed.size)),
    );
}

#[cfg(test)]
mod tests {
    use dray_types::FaultCode;

    use super::*;

    fn probe(sandbox: &str) -> Sandbox {
        Sandbox::Probe {
            sandbox: sandbox.to_owned(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_typed_sandbox_is_said_with_its_name() {
        for detail in ["sandbox_gone", "no_backend", "unavailable"] {
            let fault = Fault::new(FaultCode::Unavailable, "m").detail(detail);
            let said = explained(fault.into(), &probe("docker:w\u{1b}eb")).to_string();
            assert!(said.contains(" docker:w?eb "), "{said}");
        }
    }

    #[test]
    fn other_faults_are_left_alone() {
        let fault = Fault::new(FaultCode::NotFound, "There is no such file in the sandbox.");
        let said = explained(
            fault.clone().detail("not_found").into(),
            &probe("docker:web"),
        );
        assert_eq!(said.to_string(), fault.message);
    }
}
