//! Cases of handles: each means one incarnation (sandbox-transfer R-1).

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::handle::Address;

use super::CaseContext;
use super::context::{chunks, new_file};
use super::expect::expect_error;

pub(super) async fn a_probe_reports_transports_and_handle(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let probe = context.sandbox.probe().await?;
    expect_true(!probe.transports.is_empty(), "no transport is offered")?;
    let path = context.path("file")?;
    for transport in context.sandbox.transports(&path) {
        expect_true(
            probe.transports.contains(&transport),
            format_args!("{} is not in the probe", transport.as_str()),
        )?;
    }
    expect_true(context.sandbox.parallel() >= 1, "no transfer may run")?;
    let handle = context.sandbox.handle();
    expect_equal("address", &handle.address, &context.fixture.address())?;
    let repeated = context.fixture.backend().resolve(&handle.address).await?;
    expect_equal("resolved again", &repeated, handle)?;
    expect_equal(
        "name",
        context.fixture.backend().name(),
        handle.address.backend.as_str(),
    )
}

pub(super) async fn a_name_without_a_sandbox_is_gone(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let existing = context.fixture.address();
    let missing = Address {
        name: format!("{}-that-never-was", existing.name),
        ..existing
    };
    let resolved = context.fixture.backend().resolve(&missing).await;
    expect_error("resolved", resolved, &[ErrorKind::SandboxGone])
}

pub(super) async fn a_replaced_sandbox_is_gone(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let path = context.put("file", b"of the old one").await?;
    let old = context.sandbox.handle().clone();
    let file = context.sandbox.stat(&path, Follow::Yes).await?;
    if !context.fixture.replace().await {
        return Err(CaseEnd::Skip("the sandbox cannot be replaced"));
    }
    let gone_kinds = [ErrorKind::SandboxGone];
    let backend = context.fixture.backend();
    expect_error(
        "opening the old handle",
        backend.open(&old).await,
        &gone_kinds,
    )?;
    // The sandbox that was opened before must not reach the new incarnation under the old name either.
    let old = &context.sandbox;
    expect_error("stat", old.stat(&path, Follow::Yes).await, &gone_kinds)?;
    expect_error("list", old.list(&path.parent(), 1, 1).await, &gone_kinds)?;
    expect_error("probe", old.probe().await, &gone_kinds)?;
    for transport in old.transports(&path) {
        let read = context.read_by(transport, &file).await;
        expect_error(transport.as_str(), read, &gone_kinds)?;
        let other = context.path("other")?;
        let written = old
            .write(new_file(transport, &other, 1), chunks(b"x"))
            .await;
        expect_error(transport.as_str(), written, &gone_kinds)?;
    }
    expect_error(
        "make",
        old.make_directory(&context.path("made")?).await,
        &gone_kinds,
    )?;
    expect_error("remove", old.remove(&path, false).await, &gone_kinds)?;
    let new = CaseContext::open(context.fixture, "replaced").await?;
    expect_true(
        new.sandbox.handle() != old.handle(),
        "the new one has the old handle",
    )?;
    let path = new.put("file", b"of the new one").await?;
    expect_bytes("new", &new.read(&path).await?, b"of the new one")
}
