//! `dray sandbox`: copies files into and out of a sandbox, and lists them.

mod copy;
mod direct;
mod end;
mod exec;
mod get;
mod listing;
mod operands;
mod plan;
mod put;
mod receipt;
mod report;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_proto::v1;
use dray_types::Fault;
use dray_types::hex::hex_digits;
use serde_json::{Value, json};

use self::copy::SandboxAccess;
use self::listing::{entry_json, entry_line};
pub(crate) use self::receipt::{content_remark, receipt_json, receipt_line};
use crate::cli::{GlobalOptions, SandboxCommand, TransferOptions};
use crate::commands::reach;
use crate::context::{self, SystemConnection};
use crate::outcome::{CommandFailure, print_line};

/// Name of the service that a running system has for sandboxes.
pub(crate) const SANDBOX_SERVICE: &str = "sandbox-transfer";
/// Timeout of calls that move no content.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest shown text of a name or path from a sandbox, in characters.
const MAX_SHOWN_CHARACTERS: usize = 4096;

/// Runs one of the commands. Copies open the sandboxes in this process where no running system is named.
pub(crate) async fn run(
    global: &GlobalOptions,
    command: &SandboxCommand,
) -> Result<(), CommandFailure> {
    // All addresses are checked before anything is opened.
    let sandboxes = operands::named_sandboxes(command)?;
    for sandbox in &sandboxes {
        reach::check_address(sandbox)?;
    }
    // A directory that is named as a sandbox may be used without being configured.
    let reaching = reach::allow_local_sandboxes(global, sandboxes.iter().map(String::as_str));
    let copies = matches!(
        command,
        SandboxCommand::Get(_) | SandboxCommand::Put(_) | SandboxCommand::Cp(_)
    );
    if copies && let Some(config) = context::own_sandboxes(&reaching)? {
        // The future is boxed, because it is far larger than those of the other commands.
        return Box::pin(run_copy(
            &reaching,
            &SandboxAccess::Direct(&config),
            command,
        ))
        .await;
    }
    if copies {
        let system = SystemConnection::open(&reaching, &[SANDBOX_SERVICE]).await?;
        let outcome = Box::pin(run_copy(
            &reaching,
            &SandboxAccess::Served(&system),
            command,
        ))
        .await;
        // The system is closed after a failure too, because a service that runs here must stop in order.
        system.close().await;
        return outcome;
    }
    if let SandboxCommand::Exec(exec) = command {
        let allowing = exec::allow_commands(&reaching, &sandboxes);
        let services = [SANDBOX_SERVICE];
        // Only input may have to be stored.
        let system = match exec.input {
            Some(_) => SystemConnection::open(&allowing, &services).await?,
            None => SystemConnection::open_to_ask(&allowing, &services).await?,
        };
        let outcome = exec::run(&reaching, &system, exec).await;
        // The system is closed after a failure too: the program ends before the service that runs here.
        system.close().await;
        return outcome;
    }
    let system = SystemConnection::open_to_ask(&reaching, &[SANDBOX_SERVICE]).await?;
    let outcome = run_command(global, &system, command).await;
    system.close().await;
    let sandbox = sandboxes.first().map_or("", String::as_str);
    let removes = matches!(command, SandboxCommand::Rm { .. });
    outcome.map_err(|failure| explain_failure(failure, sandbox, removes))
}

/// Splits `KIND:NAME:PATH` into the address and the path; without an address the operand is a path alone.
pub(crate) fn operand_parts(typed: &Path) -> (Option<String>, Vec<u8>) {
    let operand = operands::CopyOperand::parse(typed);
    (operand.sandbox, operand.path)
}

async fn run_copy(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    command: &SandboxCommand,
) -> Result<(), CommandFailure> {
    let options = match command {
        SandboxCommand::Get(get) => get.transfer,
        SandboxCommand::Put(put) => put.transfer,
        SandboxCommand::Cp(cp) => cp.transfer,
        _ => return Err(Fault::internal().into()),
    };
    check_resume(matches!(reach, SandboxAccess::Served(_)), options)?;
    match command {
        SandboxCommand::Get(get) => get::run(global, reach, get).await,
        SandboxCommand::Put(put) => put::run(global, reach, put).await,
        SandboxCommand::Cp(cp) => copy::copy_operands(global, reach, cp).await,
        _ => Err(Fault::internal().into()),
    }
}

/// Refuses `--resume` with a running system, which does not keep an interrupted copy for this command.
fn check_resume(is_served: bool, options: TransferOptions) -> Result<(), CommandFailure> {
    if is_served && options.resume {
        let text = "--resume is for copies without a running system: leave out --nats";
        return Err(CommandFailure::Usage(text.to_owned()));
    }
    Ok(())
}

/// Beginning of messages that say why a sandbox cannot be reached.
const UNREACHABLE_PREFIX: &str = "The sandbox cannot be reached:";

/// Rewrites a failure for the user who typed the name of a sandbox. Other failures are returned unchanged.
fn explain_failure(failure: CommandFailure, sandbox: &str, removes: bool) -> CommandFailure {
    let CommandFailure::Fault(fault) = failure else {
        return failure;
    };
    // Its advice says that a later command can continue, which must not be lost.
    if direct::is_kept(&CommandFailure::Fault(fault.clone())) {
        return fault.into();
    }
    let sandbox = name::shown_text(sandbox, 200);
    let (message, advice) = match fault.detail.as_str() {
        "sandbox_gone" => (
            format!("The sandbox {sandbox} does not exist here."),
            "Check its name; it may have been removed.",
        ),
        "no_backend" => (
            format!("The kind of the sandbox {sandbox} is not set up here."),
            "`dray config show` has the kinds that are, in `sandbox-transfer.kinds`.",
        ),
        // The fault says why, and what to do.
        "unavailable" if fault.message.starts_with(UNREACHABLE_PREFIX) => {
            let cause = fault
                .message
                .strip_prefix(UNREACHABLE_PREFIX)
                .unwrap_or_default();
            let message = format!("The sandbox {sandbox} cannot be reached:{cause}");
            return Fault { message, ..fault }.into();
        }
        "unavailable" => (
            format!("The sandbox {sandbox} cannot be reached right now."),
            "Check that what runs it (an engine, a host) is up and that this user may use it.",
        ),
        "tool_missing" => (
            format!("The sandbox {sandbox} lacks a program that this needs, or runs no commands."),
            "Check that a login there runs commands, for a host with `ssh HOST true`; `dray sandbox probe` shows what \
             was found.",
        ),
        "deadline" | "timeout" => (
            format!("The sandbox {sandbox} did not respond in time."),
            "Check that its shell responds, for a host with `ssh HOST true`; a slow transfer gets more time with \
             --timeout.",
        ),
        "is_directory" if removes => (
            fault.message.clone(),
            "Add --recursive to remove it with what is in it.",
        ),
        _ => return fault.into(),
    };
    Fault { message, ..fault }.advice(advice).into()
}

async fn run_command(
    global: &GlobalOptions,
    system: &SystemConnection,
    command: &SandboxCommand,
) -> Result<(), CommandFailure> {
    match command {
        SandboxCommand::Probe { sandbox } => probe_sandbox(global, system, sandbox).await,
        SandboxCommand::Stat {
            sandbox,
            path,
            follow,
        } => {
            let request = v1::StatSandboxRequest {
                sandbox: Some(sandbox_ref(sandbox)),
                path: path_bytes(path),
                follow: *follow,
                ..v1::StatSandboxRequest::default()
            };
            let entry = call_service(system, CALL_TIMEOUT, &request).await?;
            show_result(global, &entry_json(&entry), &entry_line(&entry));
            Ok(())
        }
        SandboxCommand::Ls {
            sandbox,
            path,
            depth,
            limit,
        } => {
            let request = v1::ListSandboxRequest {
                sandbox: Some(sandbox_ref(sandbox)),
                path: path_bytes(path),
                depth: *depth,
                limit: *limit,
                offset: 0,
            };
            listing::print_listing(global, &listing::list_parts(system, request).await?);
            Ok(())
        }
        SandboxCommand::Get(_)
        | SandboxCommand::Put(_)
        | SandboxCommand::Cp(_)
        | SandboxCommand::Exec(_) => {
            // `run` has handled copies and programs before this call.
            Err(Fault::internal().into())
        }
        SandboxCommand::Rm {
            sandbox,
            path,
            recursive,
        } => {
            let request = v1::RemoveSandboxPathRequest {
                sandbox: Some(sandbox_ref(sandbox)),
                path: path_bytes(path),
                recursive: *recursive,
            };
            call_service(system, CALL_TIMEOUT, &request).await?;
            show_result(global, &json!({ "removed": true }), "removed");
            Ok(())
        }
    }
}

async fn call_service<C: dray_proto::Call>(
    system: &SystemConnection,
    time: Duration,
    request: &C,
) -> Result<C::Reply, CommandFailure> {
    system.call(&system.meta(time), request).await
}

/// A sandbox by the name that was typed, with the absolute path of a directory.
pub(crate) fn sandbox_ref(sandbox: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Address(reach::absolute_address(
            sandbox,
        ))),
    }
}

/// A path as bytes: paths in a sandbox need not be UTF-8.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// A path for people, with control characters escaped.
pub(crate) fn path_text(path: &[u8]) -> String {
    name::shown_text(path, MAX_SHOWN_CHARACTERS)
}

/// A path for scripts: its bytes in Base64 where the text does not show them as they are, `null` otherwise. Several
/// names can have the same text.
fn exact_path(path: &[u8]) -> Option<String> {
    (path_text(path).as_bytes() != path).then(|| STANDARD.encode(path))
}

fn show_result(global: &GlobalOptions, document: &Value, line: &str) {
    if global.json {
        print_line(&document.to_string());
    } else {
        print_line(line);
    }
}

async fn probe_sandbox(
    global: &GlobalOptions,
    system: &SystemConnection,
    sandbox: &str,
) -> Result<(), CommandFailure> {
    let request = v1::ProbeSandboxRequest {
        sandbox: Some(sandbox_ref(sandbox)),
    };
    let probe = call_service(system, CALL_TIMEOUT, &request).await?;
    let handle = probe.handle.unwrap_or_default();
    let (home, directory) = (path_text(&probe.home), path_text(&probe.working_directory));
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
    let free = probe.free.map_or_else(|| "unknown".to_owned(), human_size);
    let lines = format!(
        "{}:{} ({})\n  user {}:{}, home {home}, working directory {directory}\n  free {free}, transports {}, tools {}",
        name::shown_text(&handle.backend, MAX_SHOWN_CHARACTERS),
        name::shown_text(&handle.name, MAX_SHOWN_CHARACTERS),
        name::shown_text(&handle.incarnation, MAX_SHOWN_CHARACTERS),
        probe.uid,
        probe.gid,
        probe.transports.join(", "),
        probe.tools.join(", "),
    );
    show_result(global, &document, &lines);
    Ok(())
}

/// A path in a directory of this machine that does not exist yet. The current directory is the empty path.
fn free_name_in(directory: &Path, wanted: &[u8]) -> PathBuf {
    let numbered = (2..=9999).map(|number| {
        let wanted = String::from_utf8_lossy(wanted);
        directory.join(name::cli_numbered(&wanted, number))
    });
    let wanted = directory.join(OsStr::from_bytes(wanted));
    std::iter::once(wanted.clone())
        .chain(numbered)
        // Does not follow links, so that the name of a dangling link also counts as used.
        .find(|candidate| std::fs::symlink_metadata(candidate).is_err())
        .unwrap_or(wanted)
}

/// A file that was written on this machine.
struct WrittenFile<'a> {
    output: &'a Path,
    size: u64,
    sha256: &'a str,
    /// Entries of a directory that are not in the file, one line each.
    skipped: &'a [String],
    receipt: &'a v1::TransferReceipt,
}

impl WrittenFile<'_> {
    fn print(&self, global: &GlobalOptions) {
        let document = json!({
            "written_to": self.output.to_string_lossy(),
            "size": self.size,
            "sha256": self.sha256,
            "skipped": self.skipped,
            "receipt": receipt_json(self.receipt),
        });
        let name = self.output.as_os_str().as_encoded_bytes();
        let line = format!(
            "{}  {}  {}{}",
            name::shown_text(name, MAX_SHOWN_CHARACTERS),
            human_size(self.size),
            self.sha256.get(..16).unwrap_or_default(),
            receipt_line(self.receipt)
        );
        show_result(global, &document, &line);
    }
}

/// Prints where a file is now.
fn print_placed_file(global: &GlobalOptions, placed: &v1::PlacedFile) {
    let path = path_text(&placed.path);
    let document = json!({
        "path": path,
        "path_base64": exact_path(&placed.path),
        "size": placed.size,
        "sha256": hex_digits(&placed.sha256),
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
    show_result(
        global,
        &document,
        &format!("{path}  {}{how}", human_size(placed.size)),
    );
}

#[cfg(test)]
mod tests {
    use dray_types::FaultCode;

    use super::*;

    #[test]
    fn a_copy_through_a_running_system_cannot_be_continued() {
        let options = |resume| TransferOptions {
            resume,
            timeout: 600,
        };
        assert!(check_resume(true, options(false)).is_ok());
        assert!(check_resume(false, options(true)).is_ok());
        let refused = check_resume(true, options(true)).unwrap_err();
        assert!(matches!(refused, CommandFailure::Usage(text) if text.contains("--nats")));
    }

    #[test]
    fn errors_of_a_typed_sandbox_contain_its_name() {
        for detail in ["sandbox_gone", "no_backend", "unavailable"] {
            let fault = Fault::new(FaultCode::Unavailable, "m").detail(detail);
            let message = explain_failure(fault.into(), "docker:w\u{1b}eb", false).to_string();
            assert!(message.contains(" docker:w?eb "), "{message}");
        }
    }

    #[test]
    fn a_host_that_runs_no_commands_or_hangs_is_named_with_what_to_check() {
        for (detail, said) in [
            ("tool_missing", "runs no commands"),
            ("deadline", "did not respond in time"),
            ("timeout", "did not respond in time"),
        ] {
            let fault = Fault::new(FaultCode::Unavailable, "text").detail(detail);
            let CommandFailure::Fault(fault) = explain_failure(fault.into(), "ssh:host", false)
            else {
                panic!("{detail} is a fault");
            };
            assert!(fault.message.contains("sandbox ssh:host"), "{fault:?}");
            assert!(fault.message.contains(said), "{fault:?}");
            assert!(fault.advice.contains("`ssh HOST true`"), "{fault:?}");
        }
    }

    #[test]
    fn other_faults_are_not_changed() {
        let fault = Fault::new(
            FaultCode::NotFound,
            "The file does not exist in the sandbox.",
        );
        let message = explain_failure(
            fault.clone().detail("not_found").into(),
            "docker:web",
            false,
        );
        assert_eq!(message.to_string(), fault.message);
    }
}
