//! Cases of publishing by renaming (sandbox-transfer R-13).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use futures_util::future::join;

use super::report::{equal, holds, refused, same_bytes};
use super::{Stop, World};

pub(super) async fn a_file_is_renamed(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.rename)?;
    let (from, to) = (world.put("from", b"moved").await?, world.path("to")?);
    for replace in [false, true] {
        world.sandbox.rename(&from, &to, replace).await?;
        same_bytes("moved", &world.read(&to).await?, b"moved")?;
        let gone = world.sandbox.stat(&from, Follow::No).await;
        refused("the old name", gone, &[ErrorKind::NotFound])?;
        world.sandbox.rename(&to, &from, replace).await?;
        let missing = world.sandbox.rename(&to, &from, replace).await;
        refused(
            "renaming what is missing",
            missing,
            &[ErrorKind::NotFound, ErrorKind::Exists],
        )?;
        same_bytes("kept", &world.read(&from).await?, b"moved")?;
    }
    Ok(())
}

pub(super) async fn an_existing_target_is_kept(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.rename)?;
    let from = world.put("from", b"new").await?;
    let to = world.put("to", b"old").await?;
    let renamed = world.sandbox.rename(&from, &to, false).await;
    refused("over a file", renamed, &[ErrorKind::Exists])?;
    same_bytes("target", &world.read(&to).await?, b"old")?;
    same_bytes("source", &world.read(&from).await?, b"new")?;
    let directory = world.path("directory")?;
    world.sandbox.make_directory(&directory).await?;
    for replace in [false, true] {
        let renamed = world.sandbox.rename(&from, &directory, replace).await;
        refused(
            "over a directory",
            renamed,
            &[ErrorKind::Exists, ErrorKind::IsDirectory],
        )?;
        same_bytes("source", &world.read(&from).await?, b"new")?;
        let inside = world.sandbox.list(&directory, 1, 10).await?;
        equal("inside the directory", inside.entries, vec![])?;
    }
    Ok(())
}

pub(super) async fn a_target_is_replaced_when_told(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.rename)?;
    let from = world.put("from", b"new").await?;
    let to = world.put("to", b"old and longer").await?;
    world.sandbox.rename(&from, &to, true).await?;
    same_bytes("target", &world.read(&to).await?, b"new")?;
    let gone = world.sandbox.stat(&from, Follow::No).await;
    refused("the old name", gone, &[ErrorKind::NotFound])
}

pub(super) async fn one_of_two_renames_wins(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.rename)?;
    // Several rounds, since a race that is lost only sometimes may pass once.
    for round in 0..5 {
        let one = world.put(format!("one-{round}"), b"one").await?;
        let two = world.put(format!("two-{round}"), b"two").await?;
        let to = world.path(format!("to-{round}"))?;
        let (first, second) = join(
            world.sandbox.rename(&one, &to, false),
            world.sandbox.rename(&two, &to, false),
        )
        .await;
        holds(first.is_ok() != second.is_ok(), "not exactly one won")?;
        let (bytes, loser, left) = if first.is_ok() {
            (b"one", second, two)
        } else {
            (b"two", first, one)
        };
        refused("the loser", loser, &[ErrorKind::Exists])?;
        same_bytes("the winner", &world.read(&to).await?, bytes)?;
        holds(
            world.sandbox.stat(&left, Follow::No).await.is_ok(),
            "the file of the loser is lost",
        )?;
    }
    Ok(())
}
