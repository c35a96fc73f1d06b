//! Cases of handles: each means one incarnation (sandbox-transfer R-1).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::handle::Address;

use super::context::{new_file, pieces};
use super::report::{equal, holds, refused, same_bytes};
use super::{CaseContext, Stop};

pub(super) async fn a_probe_says_what_is_there(context: &CaseContext<'_>) -> Result<(), Stop> {
    let probe = context.sandbox.probe().await?;
    holds(!probe.transports.is_empty(), "no transport is offered")?;
    let path = context.path("file")?;
    for transport in context.sandbox.transports(&path) {
        holds(
            probe.transports.contains(&transport),
            format_args!("{} is not in the probe", transport.as_str()),
        )?;
    }
    holds(context.sandbox.parallel() >= 1, "no transfer may run")?;
    let handle = context.sandbox.handle();
    equal("address", &handle.address, &context.fixture.address())?;
    let again = context.fixture.backend().resolve(&handle.address).await?;
    equal("resolved again", &again, handle)?;
    equal(
        "name",
        context.fixture.backend().name(),
        handle.address.backend.as_str(),
    )
}

pub(super) async fn a_name_without_a_sandbox_is_gone(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    let there = context.fixture.address();
    let missing = Address {
        name: format!("{}-that-never-was", there.name),
        ..there
    };
    let resolved = context.fixture.backend().resolve(&missing).await;
    refused("resolved", resolved, &[ErrorKind::SandboxGone])
}

pub(super) async fn a_replaced_sandbox_is_gone(context: &CaseContext<'_>) -> Result<(), Stop> {
    let path = context.put("file", b"of the old one").await?;
    let old = context.sandbox.handle().clone();
    let file = context.sandbox.stat(&path, Follow::Yes).await?;
    if !context.fixture.replace().await {
        return Err(Stop::Skip("the sandbox cannot be replaced"));
    }
    let gone = [ErrorKind::SandboxGone];
    let backend = context.fixture.backend();
    refused("opening the old handle", backend.open(&old).await, &gone)?;
    // The sandbox that was opened before must not reach the new incarnation under the old name either.
    let old = &context.sandbox;
    refused("stat", old.stat(&path, Follow::Yes).await, &gone)?;
    refused("list", old.list(&path.parent(), 1, 1).await, &gone)?;
    refused("probe", old.probe().await, &gone)?;
    for transport in old.transports(&path) {
        let read = context.read_by(transport, &file).await;
        refused(transport.as_str(), read, &gone)?;
        let other = context.path("other")?;
        let written = old
            .write(new_file(transport, &other, 1), pieces(b"x"))
            .await;
        refused(transport.as_str(), written, &gone)?;
    }
    refused(
        "make",
        old.make_directory(&context.path("made")?).await,
        &gone,
    )?;
    refused("remove", old.remove(&path, false).await, &gone)?;
    let new = CaseContext::open(context.fixture, "replaced").await?;
    holds(
        new.sandbox.handle() != old.handle(),
        "the new one has the old handle",
    )?;
    let path = new.put("file", b"of the new one").await?;
    same_bytes("new", &new.read(&path).await?, b"of the new one")
}
