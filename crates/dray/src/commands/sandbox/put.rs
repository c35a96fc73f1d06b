//! `dray sandbox put`: files of this machine into a sandbox.

use std::path::Path;
use std::time::Duration;

use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::Fault;

use super::copy::{self, SandboxAccess};
use super::{address, ask, direct, explained, placed, raw};
use crate::cli::{GlobalOptions, SandboxPut};
use crate::commands::upload;
use crate::outcome::CommandFailure;
use crate::progress;
use crate::world::SystemConnection;

pub(super) async fn run(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    command: &SandboxPut,
) -> Result<(), CommandFailure> {
    let operands = command.parse()?;
    let one_file = matches!(operands.files, [file] if !file.is_dir());
    if !one_file {
        return copy::put(global, reach, command).await;
    }
    let put = match reach {
        SandboxAccess::Direct(config) => direct::put(global, (*config).clone(), command).await,
        SandboxAccess::Served(world) => serve(global, world, command).await,
    };
    let put = put.map_err(|failure| explained(failure, operands.sandbox, false))?;
    placed(global, &put);
    Ok(())
}

/// Through the store of a running system.
async fn serve(
    global: &GlobalOptions,
    world: &SystemConnection,
    command: &SandboxPut,
) -> Result<v1::PlacedFile, CommandFailure> {
    let operands = command.parse()?;
    let file = operands.files.first().ok_or_else(Fault::internal)?;
    let claim = match &command.name {
        Some(called) if file == Path::new("-") => {
            let label = ArtifactLabel::new("application/octet-stream", called);
            upload::stream(global, world, tokio::io::stdin(), None, label).await?
        }
        called => upload::file(global, world, file, called.as_deref()).await?,
    };
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(address(operands.sandbox)),
        name: claim.artifact.name.clone().into_bytes(),
        claim: Some(claim.into()),
        directory: raw(operands.directory),
        collision: command.collision.clone(),
        mode: 0,
    };
    let waiting = progress::waiting("putting into the sandbox", global.json);
    let time = Duration::from_secs(command.transfer.timeout);
    let placed = ask(world, time, &request).await;
    waiting.finish_and_clear();
    placed
}
