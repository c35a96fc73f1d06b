//! `dray sandbox put`: files of this machine into a sandbox.

use std::path::Path;
use std::time::Duration;

use dray_proto::v1;
use dray_store::Label;
use dray_types::Fault;

use super::copy::{self, Reach};
use super::{address, ask, direct, explained, placed, raw};
use crate::cli::{Global, SandboxPut};
use crate::commands::upload;
use crate::outcome::Failure;
use crate::progress;
use crate::world::World;

pub(super) async fn run(
    global: &Global,
    reach: &Reach<'_>,
    command: &SandboxPut,
) -> Result<(), Failure> {
    let operands = command.parse()?;
    let one_file = matches!(operands.files, [file] if !file.is_dir());
    if !one_file {
        return copy::put(global, reach, command).await;
    }
    let put = match reach {
        Reach::Direct(config) => direct::put(global, (*config).clone(), command).await,
        Reach::Served(world) => serve(global, world, command).await,
    };
    let put = put.map_err(|failure| explained(failure, operands.sandbox, false))?;
    placed(global, &put);
    Ok(())
}

/// Through the store of a running system.
async fn serve(
    global: &Global,
    world: &World,
    command: &SandboxPut,
) -> Result<v1::PlacedFile, Failure> {
    let operands = command.parse()?;
    let file = operands.files.first().ok_or_else(Fault::internal)?;
    let claim = match &command.name {
        Some(called) if file == Path::new("-") => {
            let label = Label::new("application/octet-stream", called);
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
