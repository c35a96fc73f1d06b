//! Cases of handles: each means one incarnation (sandbox-transfer R-1).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::handle::Address;

use super::report::{equal, holds, refused, same_bytes};
use super::world::{new_file, pieces};
use super::{Stop, World};

pub(super) async fn a_probe_says_what_is_there(world: &World<'_>) -> Result<(), Stop> {
    let probe = world.sandbox.probe().await?;
    holds(!probe.transports.is_empty(), "no transport is offered")?;
    let path = world.path("file")?;
    for transport in world.sandbox.transports(&path) {
        holds(
            probe.transports.contains(&transport),
            format_args!("{} is not in the probe", transport.as_str()),
        )?;
    }
    holds(world.sandbox.parallel() >= 1, "no transfer may run")?;
    let handle = world.sandbox.handle();
    equal("address", &handle.address, &world.fixture.address())?;
    let again = world.fixture.backend().resolve(&handle.address).await?;
    equal("resolved again", &again, handle)?;
    equal(
        "name",
        world.fixture.backend().name(),
        handle.address.backend.as_str(),
    )
}

pub(super) async fn a_name_without_a_sandbox_is_gone(world: &World<'_>) -> Result<(), Stop> {
    let there = world.fixture.address();
    let missing = Address {
        name: format!("{}-that-never-was", there.name),
        ..there
    };
    let resolved = world.fixture.backend().resolve(&missing).await;
    refused("resolved", resolved, &[ErrorKind::SandboxGone])
}

pub(super) async fn a_replaced_sandbox_is_gone(world: &World<'_>) -> Result<(), Stop> {
    let path = world.put("file", b"of the old one").await?;
    let old = world.sandbox.handle().clone();
    let file = world.sandbox.stat(&path, Follow::Yes).await?;
    if !world.fixture.replace().await {
        return Err(Stop::Skip("the sandbox cannot be replaced"));
    }
    let gone = [ErrorKind::SandboxGone];
    let backend = world.fixture.backend();
    refused("opening the old handle", backend.open(&old).await, &gone)?;
    // The sandbox that was opened before, too: it must not reach the new incarnation under the old name.
    let old = &world.sandbox;
    refused("stat", old.stat(&path, Follow::Yes).await, &gone)?;
    refused("list", old.list(&path.parent(), 1, 1).await, &gone)?;
    refused("probe", old.probe().await, &gone)?;
    for transport in old.transports(&path) {
        let read = world.read_by(transport, &file).await;
        refused(transport.as_str(), read, &gone)?;
        let other = world.path("other")?;
        let written = old
            .write(new_file(transport, &other, 1), pieces(b"x"))
            .await;
        refused(transport.as_str(), written, &gone)?;
    }
    refused(
        "make",
        old.make_directory(&world.path("made")?).await,
        &gone,
    )?;
    refused("remove", old.remove(&path, false).await, &gone)?;
    let new = World::open(world.fixture, "replaced").await?;
    holds(
        new.sandbox.handle() != old.handle(),
        "the new one has the old handle",
    )?;
    let path = new.put("file", b"of the new one").await?;
    same_bytes("new", &new.read(&path).await?, b"of the new one")
}
