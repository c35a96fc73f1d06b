//! Cases of previews: ranges of files for people, each of one state of the file, without a copy.

use std::ops::Range;
use std::sync::Arc;

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;
use dray_transfer_engine::policy::{ContentAction, Policy};
use dray_transfer_engine::{Engine, EngineOptions, PinnedPath};

use super::CaseContext;
use super::context::random;
use super::expect::expect_error;

/// Larger than the files that are read completely before a view returns them.
const LARGE_FILE_BYTES: usize = (1 << 20) + 200_000;

/// An engine on the sandbox of the case, with a policy that allows its directory.
struct ViewCase {
    engine: Arc<Engine>,
    policy: Policy,
}

impl ViewCase {
    fn new(context: &CaseContext<'_>) -> Self {
        let sandbox = Arc::clone(&context.sandbox);
        // Random bytes may look like a token.
        let policy = Policy::beneath([context.directory.clone()]);
        Self {
            engine: Arc::new(Engine::new(sandbox, EngineOptions::default())),
            policy: policy.with_content(ContentAction::Warn),
        }
    }

    async fn pin(&self, path: &SandboxPath) -> Result<PinnedPath, Error> {
        self.engine.pin(&self.policy, path).await
    }

    async fn read(&self, pinned: &PinnedPath, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let body = self.engine.read_pinned(&self.policy, pinned, range).await?;
        body.read_all(2 * LARGE_FILE_BYTES).await
    }
}

pub(super) async fn a_range_is_that_part_of_the_file(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let views = ViewCase::new(context);
    for size in [0, 1000, LARGE_FILE_BYTES] {
        let bytes = random(size);
        let path = context.put(format!("viewed {size}"), &bytes).await?;
        let pinned = views.pin(&path).await?;
        expect_equal("a second pin", &views.pin(&path).await?, &pinned)?;
        for range in [0..size, 0..size.min(10), size / 2..size, size / 3..size / 2] {
            let byte_range = range.start as u64..range.end as u64;
            let found = views.read(&pinned, byte_range).await?;
            let part = bytes.get(range.clone()).unwrap_or_default();
            expect_bytes(&format!("{range:?} of {size}"), &found, part)?;
        }
    }
    Ok(())
}

pub(super) async fn a_view_of_a_file_that_changed_breaks_off(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let views = ViewCase::new(context);
    for size in [1000, LARGE_FILE_BYTES] {
        let name = format!("changed-{size}");
        let path = context.put(&name, &random(size)).await?;
        let pinned = views.pin(&path).await?;
        context.sh(&format!("printf more >> {name}")).await?;
        let read = views.read(&pinned, 0..size as u64).await;
        let kinds = [ErrorKind::ChangedDuringTransfer, ErrorKind::Truncated];
        expect_error("a file that grew", read, &kinds)?;
        let now = views.pin(&path).await?;
        let before = pinned.state_tag(&views.engine);
        expect_true(
            before != now.state_tag(&views.engine),
            "another state has the same tag",
        )?;
    }
    Ok(())
}

pub(super) async fn a_link_that_leads_out_is_not_viewed(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    let views = ViewCase::new(context);
    let script = "mkdir in; printf x > in/f; ln -s in/f good; ln -s /etc/hosts bad; ln -s / up; ln -s in down";
    context.sh(script).await?;
    for name in ["good", "down/f"] {
        let path =
            SandboxPath::new([context.directory.as_bytes(), b"/", name.as_bytes()].concat())?;
        let pinned = views.pin(&path).await?;
        expect_bytes(name, &views.read(&pinned, 0..1).await?, b"x")?;
    }
    for name in ["bad", "up/etc/hosts"] {
        let path =
            SandboxPath::new([context.directory.as_bytes(), b"/", name.as_bytes()].concat())?;
        // In a view with the directory as its root, the link leads to a path that does not exist.
        let kinds = [
            ErrorKind::OutsideRoot,
            ErrorKind::DeniedPath,
            ErrorKind::NotFound,
        ];
        expect_error(name, views.pin(&path).await, &kinds)?;
    }
    // An entry that was a file at `stat` is a link when it is read.
    let path = context.path("f")?;
    context.sh("printf y > f").await?;
    let pinned = views.pin(&path).await?;
    context.sh("rm f; ln -s /etc/hosts f").await?;
    expect_true(
        views.read(&pinned, 0..1).await.is_err(),
        "the link was followed",
    )
}
