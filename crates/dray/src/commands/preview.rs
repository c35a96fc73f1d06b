//! `dray preview`: links through which people look at files straight from their sandbox.

use std::path::Path;
use std::time::Duration;

use dray_proto::v1::{self, sandbox_ref::Sandbox};
use serde_json::{Value, json};

use crate::cli::{
    GlobalOptions, PreviewCommand, PreviewCreate, PreviewManageCommand, PreviewOwner,
};
use crate::commands::mcp::termination;
use crate::commands::{reach, sandbox};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Longest wait for sandbox-transfer, which may start a connection to the sandbox.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs one of the commands.
pub(crate) async fn run(
    global: &GlobalOptions,
    command: &PreviewCommand,
) -> Result<(), CommandFailure> {
    let Some(manage) = &command.manage else {
        return create(global, &command.create).await;
    };
    let system = SystemConnection::open_bus(global).await?;
    let outcome = run_manage(global, &system, manage).await;
    system.close().await;
    outcome
}

async fn run_manage(
    global: &GlobalOptions,
    system: &SystemConnection,
    command: &PreviewManageCommand,
) -> Result<(), CommandFailure> {
    match command {
        PreviewManageCommand::List(owner) => {
            let request = v1::ListPreviewsRequest {
                sandbox: owner_reference(owner),
                ..v1::ListPreviewsRequest::default()
            };
            let reply = system.call(&system.meta(CALL_TIMEOUT), &request).await?;
            show_list(global, &reply.previews);
        }
        PreviewManageCommand::Revoke { preview, owner } => {
            let request = v1::RevokePreviewRequest {
                sandbox: owner_reference(owner),
                preview_id: preview.clone(),
            };
            let revoked = system.call(&system.meta(CALL_TIMEOUT), &request).await?;
            if global.json {
                print_line(&preview_json(&revoked).to_string());
            } else {
                print_line(&format!("ended: {}", revoked.preview_id));
            }
        }
    }
    Ok(())
}

/// Makes a link. Without a running system this process shows the preview, until a signal ends it.
async fn create(global: &GlobalOptions, create: &PreviewCreate) -> Result<(), CommandFailure> {
    let directory = create.place.as_deref().unwrap_or(Path::new("."));
    let (address, path) = sandbox::operand_parts(directory);
    let reference = match (&create.session, address) {
        (Some(session), None) => Sandbox::Session(session.clone()),
        (None, Some(address)) => {
            reach::check_address(&address)?;
            Sandbox::Address(reach::absolute_address(&address))
        }
        (Some(_), Some(_)) => return Err(usage("name the sandbox or --session, not both")),
        (None, None) => {
            return Err(usage(
                "name the sandbox, as in docker:web:/workspace/site, or add --session ID",
            ));
        }
    };
    let reaching = match &reference {
        Sandbox::Address(address) => reach::allow_local_sandbox(global, address),
        Sandbox::Session(_) => global.clone(),
    };
    let system = SystemConnection::open_previews(&reaching, create.listen).await?;
    let request = v1::CreatePreviewRequest {
        sandbox: Some(v1::SandboxRef {
            sandbox: Some(reference),
        }),
        path,
        lifetime_seconds: create.expires.unwrap_or(0),
        ..v1::CreatePreviewRequest::default()
    };
    let created = system.call(&system.meta(CALL_TIMEOUT), &request).await;
    let outcome = match created {
        Ok(created) => {
            show_created(global, &created);
            if system.config().is_some() {
                print_note("this command shows it: end it with Ctrl-C");
                termination().await
            } else {
                Ok(())
            }
        }
        Err(failure) => Err(failure),
    };
    system.close().await;
    outcome
}

fn usage(text: &str) -> CommandFailure {
    CommandFailure::Usage(text.to_owned())
}

fn owner_reference(owner: &PreviewOwner) -> Option<v1::SandboxRef> {
    let sandbox = match (&owner.session, &owner.sandbox) {
        (Some(session), _) => Sandbox::Session(session.clone()),
        (None, Some(sandbox)) => Sandbox::Address(reach::absolute_address(sandbox)),
        (None, None) => return None,
    };
    Some(v1::SandboxRef {
        sandbox: Some(sandbox),
    })
}

fn show_created(global: &GlobalOptions, created: &v1::CreatedPreview) {
    let preview = created.preview.clone().unwrap_or_default();
    if global.json {
        let mut line = preview_json(&preview);
        if let Some(members) = line.as_object_mut() {
            members.insert("url".to_owned(), created.url.clone().into());
        }
        print_line(&line.to_string());
        return;
    }
    print_line(&created.url);
    let minutes = preview.expires_at_ms.saturating_sub(preview.created_at_ms) / 60_000;
    print_note(&format!(
        "preview {}: anyone with this link can view {} for {minutes} min",
        preview.preview_id,
        sandbox::path_text(&preview.directory),
    ));
}

fn show_list(global: &GlobalOptions, previews: &[v1::Preview]) {
    for preview in previews {
        if global.json {
            print_line(&preview_json(preview).to_string());
        } else {
            let opened = if preview.opened_at_ms > 0 {
                "opened"
            } else {
                "not opened"
            };
            let path = [preview.directory.as_slice(), b"/", &preview.file].concat();
            print_line(&format!(
                "{}  {opened}  {}",
                preview.preview_id,
                sandbox::path_text(&path)
            ));
        }
    }
    if previews.is_empty() && !global.json {
        print_note("no preview is open");
    }
}

fn preview_json(preview: &v1::Preview) -> Value {
    json!({
        "preview_id": preview.preview_id,
        "session": preview.session,
        "directory": String::from_utf8_lossy(&preview.directory),
        "file": String::from_utf8_lossy(&preview.file),
        "created_at_ms": preview.created_at_ms,
        "expires_at_ms": preview.expires_at_ms,
        "opened_at_ms": preview.opened_at_ms,
    })
}
