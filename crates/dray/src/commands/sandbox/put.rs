//! `dray sandbox put`: files of this machine into a sandbox.

use std::path::Path;
use std::time::Duration;

use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::Fault;

use super::copy::{self, SandboxAccess};
use super::{call_service, direct, explain_failure, path_bytes, print_placed_file, sandbox_ref};
use crate::cli::{GlobalOptions, SandboxPut};
use crate::commands::upload;
use crate::context::SystemConnection;
use crate::outcome::CommandFailure;
use crate::progress;
use crate::standard_input::read_standard_input;

pub(super) async fn run(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    command: &SandboxPut,
) -> Result<(), CommandFailure> {
    let operands = command.parse()?;
    // A single file has options that several cannot have: `--name`, and standard input.
    let one_file = matches!(operands.files, [file] if !file.is_dir());
    if !one_file {
        return copy::put_many(global, reach, command).await;
    }
    let put = match reach {
        SandboxAccess::Direct(config) => {
            direct::put_direct(global, (*config).clone(), command).await
        }
        SandboxAccess::Served(system) => put_through_store(global, system, command).await,
    };
    let put = put.map_err(|failure| explain_failure(failure, operands.sandbox, false))?;
    print_placed_file(global, &put);
    Ok(())
}

/// Puts a file through the store of a running system.
async fn put_through_store(
    global: &GlobalOptions,
    system: &SystemConnection,
    command: &SandboxPut,
) -> Result<v1::PlacedFile, CommandFailure> {
    let operands = command.parse()?;
    let file = operands.files.first().ok_or_else(Fault::internal)?;
    let claim = match &command.name {
        Some(called) if file == Path::new("-") => {
            let label = ArtifactLabel::new("application/octet-stream", called);
            upload::upload_stream(global, system, read_standard_input()?, None, label).await?
        }
        called => upload::upload_file(global, system, file, called.as_deref()).await?,
    };
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(sandbox_ref(operands.sandbox)),
        name: claim.artifact.name.clone().into_bytes(),
        claim: Some(claim.into()),
        directory: path_bytes(operands.directory),
        collision: command.collision.clone(),
        // 0 means 0644.
        mode: 0,
    };
    let waiting = progress::spinner_with_text("putting into the sandbox", global.json);
    let time = Duration::from_secs(command.transfer.timeout);
    let placed = call_service(system, time, &request).await;
    waiting.finish_and_clear();
    placed
}
