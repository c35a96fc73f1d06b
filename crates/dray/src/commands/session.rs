//! `dray session`: binds a session to a sandbox and a chat, and shows bindings.

use std::path::Path;
use std::time::Duration;

use dray_presentation::name;
use dray_proto::v1;
use serde_json::{Value, json};

use crate::cli::{GlobalOptions, SessionCommand};
use crate::commands::{deliver, receipts, sandbox};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Timeout of calls that move no content.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout for putting uploads into a sandbox.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(10);

/// Runs one of the commands. Sessions exist on a running system only.
pub(crate) async fn run(
    global: &GlobalOptions,
    command: &SessionCommand,
) -> Result<(), CommandFailure> {
    check_binding(command)?;
    let system = SystemConnection::open_bus(global).await?;
    let outcome = run_command(global, &system, command).await;
    system.close().await;
    outcome
}

/// Refuses a request that names nothing to bind.
fn check_binding(command: &SessionCommand) -> Result<(), CommandFailure> {
    let SessionCommand::Bind {
        sandbox,
        chat,
        working_directory,
        uploads_directory,
        roots,
        ..
    } = command
    else {
        return Ok(());
    };
    let directories = [working_directory, uploads_directory];
    let names_directory = !roots.is_empty()
        || directories
            .iter()
            .any(|directory| !directory.as_os_str().is_empty());
    if sandbox.is_empty() && chat.is_none() && !names_directory {
        return Err(CommandFailure::Usage(
            "name what to bind: --sandbox SANDBOX, --chat TARGET, or both".to_owned(),
        ));
    }
    Ok(())
}

async fn run_command(
    global: &GlobalOptions,
    system: &SystemConnection,
    command: &SessionCommand,
) -> Result<(), CommandFailure> {
    match command {
        SessionCommand::Bind {
            session,
            sandbox,
            chat,
            working_directory,
            uploads_directory,
            roots,
        } => {
            let request = v1::BindSessionRequest {
                session: session.clone(),
                sandbox: sandbox.clone(),
                chat: chat
                    .as_deref()
                    // The address is checked here, so that a mistake is a usage error.
                    .map(deliver::parse_chat_target)
                    .transpose()?,
                working_directory: sandbox::path_bytes(working_directory),
                uploads_directory: sandbox::path_bytes(uploads_directory),
                roots: roots
                    .iter()
                    .map(|root| sandbox::path_bytes(Path::new(root)))
                    .collect(),
            };
            show_session(global, &call_service(system, CALL_TIMEOUT, &request).await?);
        }
        SessionCommand::Show { session } => {
            let request = v1::ShowSessionRequest {
                session: session.clone(),
            };
            show_session(global, &call_service(system, CALL_TIMEOUT, &request).await?);
        }
        SessionCommand::Unbind {
            session,
            sandbox_only,
        } => {
            let request = v1::UnbindSessionRequest {
                session: session.clone(),
                sandbox_only: *sandbox_only,
            };
            show_unbound(
                global,
                call_service(system, CALL_TIMEOUT, &request).await?.found,
            );
        }
        SessionCommand::Uploads { session, all } => {
            let request = settle_request(session, *all);
            let reply = call_service(system, UPLOAD_TIMEOUT, &request).await?;
            show_uploads(global, &reply);
        }
    }
    Ok(())
}

fn settle_request(session: &str, all: bool) -> v1::SettleUploadsRequest {
    v1::SettleUploadsRequest {
        session: session.to_owned(),
        all,
        // The command only shows uploads: the agent has not learned of them.
        acknowledges: true,
        acknowledged: Vec::new(),
    }
}

async fn call_service<C: dray_proto::Call>(
    system: &SystemConnection,
    time: Duration,
    request: &C,
) -> Result<C::Reply, CommandFailure> {
    system.call(&system.meta(time), request).await
}

/// Prints whether the session had bindings to delete.
fn show_unbound(global: &GlobalOptions, found: bool) {
    if global.json {
        print_line(&json!({ "found": found }).to_string());
    } else {
        print_line(if found {
            "forgotten"
        } else {
            "there was nothing to forget"
        });
    }
}

fn show_session(global: &GlobalOptions, session: &v1::Session) {
    let handle = session.sandbox.clone();
    let bound =
        handle.map(|handle| format!("{}:{}@{}", handle.backend, handle.name, handle.incarnation));
    let chat = session.chat.clone().map(receipts::target_text);
    let directory = sandbox::path_text(&session.working_directory);
    let uploads = sandbox::path_text(&session.uploads_directory);
    if global.json {
        let roots: Vec<_> = session
            .roots
            .iter()
            .map(|root| sandbox::path_text(root))
            .collect();
        let document: Value = json!({
            "session": session.session,
            "sandbox": bound,
            "chat": chat,
            "working_directory": directory,
            "uploads_directory": uploads,
            "roots": roots,
            "changed_at_ms": session.changed_at_ms,
        });
        print_line(&document.to_string());
        return;
    }
    let unbound = || "none".to_owned();
    let or = |given: String, usual: &str| {
        if given.is_empty() {
            usual.to_owned()
        } else {
            given
        }
    };
    let directory = or(directory, "that of the sandbox");
    let uploads = or(uploads, "`uploads` in it");
    print_line(&format!(
        "{}\n  sandbox {}\n  chat {}\n  working directory {directory}, uploads to {uploads}",
        name::shown_text(&session.session, 128),
        bound.map_or_else(unbound, |bound| name::shown_text(bound, 300)),
        chat.unwrap_or_else(unbound),
    ));
}

fn show_uploads(global: &GlobalOptions, reply: &v1::SettleUploadsReply) {
    for upload in &reply.uploads {
        if global.json {
            let document = json!({
                "state": upload.state,
                "name": upload.name,
                "path": sandbox::path_text(&upload.path),
                "path_base64": sandbox::exact_path(&upload.path),
                "context_line": upload.context_line,
                "reason": upload.reason,
                "receipt": upload.receipt.as_ref().map(sandbox::receipt_json),
            });
            print_line(&document.to_string());
        } else {
            print_line(&name::shown_text(&upload.context_line, 1000));
        }
    }
    if reply.waiting {
        print_note("Some uploads wait: the session has no sandbox, or it cannot be reached.");
    }
}
