//! `dray sandbox exec`: runs one program in a sandbox.

use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::Meta;
use dray_proto::v1::{self, SandboxCommandState};
use dray_proto::v1::{exec_sandbox_event::Event, sandbox_ref::Sandbox};
use dray_proto::{MAX_INLINE_BYTES, NamedCode as _};
use dray_store::ArtifactLabel;
use dray_types::hex::hex_digits;
use dray_types::{ByteSize, Fault, whole_millis};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::{explain_failure, path_bytes, sandbox_ref};
use crate::cli::{GlobalOptions, SandboxExec};
use crate::commands::{reach, upload};
use crate::context::SystemConnection;
use crate::interruption;
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::standard_input::read_standard_input;

/// Time beyond that of the program, for opening the sandbox and for its output.
const CALL_MARGIN: Duration = Duration::from_secs(30);

pub(super) async fn run(
    global: &GlobalOptions,
    system: &SystemConnection,
    exec: &SandboxExec,
) -> Result<(), CommandFailure> {
    let outcome = try_run(global, system, exec).await;
    outcome.map_err(|failure| explain_failure(failure, &exec.sandbox, false))
}

async fn try_run(
    global: &GlobalOptions,
    system: &SystemConnection,
    exec: &SandboxExec,
) -> Result<(), CommandFailure> {
    let time = Duration::from_secs(exec.timeout);
    let mut request = v1::ExecSandboxRequest {
        sandbox: Some(target(&exec.sandbox)),
        argv: exec
            .argv
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        working_directory: exec
            .directory
            .as_deref()
            .map(path_bytes)
            .unwrap_or_default(),
        environment: exec
            .environment
            .iter()
            .map(|assignment| variable(assignment))
            .collect::<Result<_, _>>()?,
        timeout_ms: whole_millis(time),
        max_output_bytes: exec.output_limit.map_or(0, ByteSize::as_u64),
        ..v1::ExecSandboxRequest::default()
    };
    if let Some(input) = &exec.input {
        set_input(global, system, input, &mut request).await?;
    }
    let meta = system.meta(time + CALL_MARGIN);
    // The handler is installed before the call: a signal that comes as soon as the program runs must find the handler.
    let mut signals = interruption::listen_to_signals()?;
    let reply = tokio::select! {
        reply = run_program(global, system, &meta, request) => reply?,
        // The service is notified of the dropped call and ends the program.
        status = signals.next() => return Err(CommandFailure::Interrupted(status)),
    };
    if global.json {
        print_line(&reply_json(&reply).to_string());
    } else {
        print_limits(&reply);
    }
    match reply.state() {
        SandboxCommandState::Exited if reply.exit_code == 0 => Ok(()),
        SandboxCommandState::TimedOut => {
            if !global.json {
                print_note("the program was killed at its time limit (--timeout)");
            }
            Err(CommandFailure::Program(TIMEOUT_STATUS))
        }
        _ => Err(CommandFailure::Program(
            u8::try_from(reply.exit_code).unwrap_or(1),
        )),
    }
}

/// Lets a service of this process run programs in the sandboxes that its user names. A running system has separate
/// rules, which this does not change.
pub(super) fn allow_commands(global: &GlobalOptions, sandboxes: &[String]) -> GlobalOptions {
    let mut global = global.clone();
    if !sandboxes.is_empty() {
        let named: Vec<_> = sandboxes
            .iter()
            .map(|sandbox| reach::absolute_address(sandbox))
            .collect();
        let rules = json!([{ "tenants": [global.tenant_name()], "sandboxes": named }]);
        let rule = format!("sandbox-transfer.commands.allow={rules}");
        // The rule comes first, so that a `--set` of the user comes later and counts.
        global.overrides.insert(0, rule);
    }
    global
}

/// Exit status for a program that was killed at its time limit, as `timeout` of the GNU core utilities has it.
const TIMEOUT_STATUS: u8 = 124;

/// Exit status for a program whose reader has ended, as shells report SIGPIPE.
const CLOSED_PIPE_STATUS: u8 = 141;

/// The sandbox of an address, or of the session of this id.
fn target(sandbox: &str) -> v1::SandboxRef {
    if reach::check_address(sandbox).is_ok() {
        return sandbox_ref(sandbox);
    }
    v1::SandboxRef {
        sandbox: Some(Sandbox::Session(sandbox.to_owned())),
    }
}

fn variable(typed: &str) -> Result<v1::EnvironmentVariable, CommandFailure> {
    let (name, value) = typed
        .split_once('=')
        .ok_or_else(|| CommandFailure::Usage("a variable is written NAME=VALUE".to_owned()))?;
    Ok(v1::EnvironmentVariable {
        name: name.to_owned(),
        value: value.as_bytes().to_vec(),
    })
}

/// Reads the input. Input that is too long for a request is stored, and the request carries its claim.
async fn set_input(
    global: &GlobalOptions,
    system: &SystemConnection,
    input: &Path,
    request: &mut v1::ExecSandboxRequest,
) -> Result<(), CommandFailure> {
    let failed = || format!("cannot read {}", input.display());
    let mut reader: Box<dyn tokio::io::AsyncRead + Send + Unpin> = if input == Path::new("-") {
        Box::new(read_standard_input()?)
    } else {
        let file = tokio::fs::File::open(input).await;
        Box::new(file.map_err(CommandFailure::local(failed()))?)
    };
    let mut head = Vec::new();
    let mut first = (&mut reader).take(MAX_INLINE_BYTES as u64 + 1);
    let read = first.read_to_end(&mut head).await;
    read.map_err(CommandFailure::local(failed()))?;
    if head.len() <= MAX_INLINE_BYTES {
        request.input = head;
        return Ok(());
    }
    let head = Bytes::from(head);
    let whole = std::io::Cursor::new(head).chain(reader);
    let label = ArtifactLabel::new("application/octet-stream", "stdin");
    let claim = upload::upload_stream(global, system, whole, None, label).await?;
    request.input_claim = Some(claim.into());
    Ok(())
}

/// Runs the program. For people its outputs appear while it writes them; the object of `--json` has them all.
async fn run_program(
    global: &GlobalOptions,
    system: &SystemConnection,
    meta: &Meta,
    command: v1::ExecSandboxRequest,
) -> Result<v1::ExecSandboxReply, CommandFailure> {
    if global.json {
        return system.call_once(meta, &command).await;
    }
    let request = v1::ExecSandboxStreamRequest {
        command: Some(command),
    };
    let (sender, mut events) = mpsc::channel(1);
    let printing = async {
        while let Some(event) = events.recv().await {
            print_event(event)?;
        }
        Ok(())
    };
    // An output that cannot be written drops the call, which ends the program as a closed pipe would.
    let (last, ()) = tokio::try_join!(system.call_streaming(meta, &request, sender), printing)?;
    match last.event {
        Some(Event::End(reply)) => Ok(reply),
        _ => Err(Fault::internal().into()),
    }
}

/// Writes a part of an output to that of this process.
fn print_event(event: v1::ExecSandboxEvent) -> Result<(), CommandFailure> {
    match event.event {
        Some(Event::Stdout(bytes)) => {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(&bytes).and_then(|()| out.flush());
            written.map_err(output_failure)
        }
        Some(Event::Stderr(bytes)) => {
            // The user closed stderr and does not want its text.
            let _ = std::io::stderr().lock().write_all(&bytes);
            Ok(())
        }
        Some(Event::End(_)) | None => Ok(()),
    }
}

/// The failure of an output that cannot be written. A reader that has ended is its wish (`… | head`), so nothing is said.
fn output_failure(error: std::io::Error) -> CommandFailure {
    match error.kind() {
        ErrorKind::BrokenPipe => CommandFailure::Program(CLOSED_PIPE_STATUS),
        _ => CommandFailure::local("cannot write the output")(error),
    }
}

fn print_limits(reply: &v1::ExecSandboxReply) {
    for (name, output) in [("output", &reply.stdout), ("error", &reply.stderr)] {
        if output.as_ref().is_some_and(|output| output.truncated) {
            print_note(&format!("standard {name} was cut at its limit"));
        }
    }
}

fn reply_json(reply: &v1::ExecSandboxReply) -> Value {
    json!({
        "state": reply.state().name(),
        "exit_code": reply.exit_code,
        "signal": reply.signal,
        "milliseconds": reply.milliseconds,
        "stdout": output_json(reply.stdout.as_ref()),
        "stderr": output_json(reply.stderr.as_ref()),
    })
}

/// One output for scripts: as text if it is UTF-8, and the stored artifact if the output exceeds the head.
fn output_json(output: Option<&v1::CommandOutput>) -> Value {
    let output = output.cloned().unwrap_or_default();
    let artifact = output.claim.and_then(|claim| claim.artifact);
    json!({
        "head": String::from_utf8_lossy(&output.head),
        "is_text": str::from_utf8(&output.head).is_ok(),
        "size": output.size,
        "truncated": output.truncated,
        "sha256": artifact.map(|artifact| hex_digits(&artifact.sha256)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_a_colon_is_a_session() {
        let session = |typed: &str| matches!(target(typed).sandbox, Some(Sandbox::Session(_)));
        assert!(session("chat-7") && session("Chat:7"));
        assert!(!session("docker:web"));
    }

    #[test]
    fn a_variable_has_a_name_and_a_value() {
        let found = variable("A=b=c").unwrap();
        assert_eq!(
            (found.name.as_str(), found.value.as_slice()),
            ("A", b"b=c".as_slice())
        );
        assert!(variable("A").is_err());
    }
}
