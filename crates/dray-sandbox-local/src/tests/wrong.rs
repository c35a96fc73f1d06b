//! Tests that the conformance suite detects wrong backends. Each wrong result here occurred with a real backend.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Backend, Follow, Read, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::Error;
use dray_sandbox::handle::{Address, Handle};
use dray_sandbox::metadata::{Fingerprint, Listing, Metadata, Probe, Transport};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_conformance::{CONFORMANCE_CASES, Fixture, run_cases};
use futures_util::StreamExt as _;

use super::{DirectoryFixture, NEW_KERNEL};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedLie {
    /// A stream that ends early is reported as complete.
    ShortRead,
    /// A write accepts another number of bytes than announced.
    AnySize,
    /// A write or a rename replaces an existing file.
    Replaces,
    /// Links are followed although the request is about the link itself.
    FollowsLinks,
    /// Listings are in the order of the kernel and not sorted.
    Unordered,
    /// The digest of other bytes is returned.
    OtherDigest,
    /// A handle identifies the current entry with the name instead of the incarnation.
    AnyIncarnation,
}

#[derive(Debug)]
struct LyingBody<T: ?Sized> {
    lie: ReportedLie,
    inner: Arc<T>,
}

#[derive(Debug)]
struct WrongPlace {
    lie: ReportedLie,
    place: DirectoryFixture,
}

#[async_trait]
impl Fixture for WrongPlace {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(LyingBody {
            lie: self.lie,
            inner: self.place.backend(),
        })
    }

    fn address(&self) -> Address {
        self.place.address()
    }

    fn workspace(&self) -> SandboxPath {
        self.place.workspace()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        self.place.sh(directory, script).await
    }

    async fn replace(&self) -> bool {
        self.place.replace().await
    }
}

#[async_trait]
impl Backend for LyingBody<dyn Backend> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        self.inner.resolve(address).await
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let handle = match self.lie {
            ReportedLie::AnyIncarnation => &self.inner.resolve(&handle.address).await?,
            _ => handle,
        };
        let inner = self.inner.open(handle).await?;
        let lie = self.lie;
        Ok(Arc::new(LyingBody { lie, inner }))
    }
}

#[async_trait]
impl Sandbox for LyingBody<dyn Sandbox> {
    fn handle(&self) -> &Handle {
        self.inner.handle()
    }

    async fn probe(&self) -> Result<Probe, Error> {
        self.inner.probe().await
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let follow = match self.lie {
            ReportedLie::FollowsLinks => Follow::Yes,
            _ => follow,
        };
        self.inner.stat(path, follow).await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        let mut listing = self.inner.list(path, depth, limit).await?;
        if self.lie == ReportedLie::Unordered {
            listing.entries.reverse();
        }
        Ok(listing)
    }

    fn transports(&self, path: &SandboxPath) -> Vec<Transport> {
        self.inner.transports(path)
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        let body = self.inner.read(read).await?;
        Ok(match self.lie {
            ReportedLie::ShortRead => Body::new(body.take_while(|chunk| {
                let good = chunk.is_ok();
                async move { good }
            })),
            _ => body,
        })
    }

    async fn write(&self, write: Write<'_>, mut body: Body) -> Result<(), Error> {
        if self.lie != ReportedLie::AnySize {
            return self.inner.write(write, body).await;
        }
        let mut bytes = Vec::new();
        while let Some(Ok(chunk)) = body.next().await {
            bytes.extend_from_slice(&chunk);
        }
        let size = bytes.len() as u64;
        let write = Write { size, ..write };
        self.inner.write(write, Body::from_bytes(bytes)).await
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        match self.inner.fingerprint(path).await? {
            Fingerprint::Sha256(_, size) if self.lie == ReportedLie::OtherDigest => {
                Ok(Fingerprint::Cksum(7, size))
            }
            right => Ok(right),
        }
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        let replace = replace || self.lie == ReportedLie::Replaces;
        self.inner.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.inner.make_directory(path).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.inner.remove(path, recursive).await
    }
}

#[tokio::test]
async fn every_wrong_result_of_a_backend_is_detected() {
    for (lie, case) in [
        (
            ReportedLie::ShortRead,
            "a_file_that_shrinks_is_never_read_short_without_an_error",
        ),
        (ReportedLie::AnySize, "a_short_body_is_a_failure"),
        (ReportedLie::AnySize, "a_long_body_is_a_failure"),
        (ReportedLie::AnySize, "a_body_that_breaks_is_a_failure"),
        (ReportedLie::Replaces, "an_existing_target_is_kept"),
        (ReportedLie::Replaces, "one_of_two_renames_wins"),
        (
            ReportedLie::FollowsLinks,
            "links_are_distinguished_and_followed",
        ),
        (
            ReportedLie::FollowsLinks,
            "a_link_to_nowhere_is_a_link_and_not_found",
        ),
        (ReportedLie::Unordered, "a_listing_has_everything_in_order"),
        (ReportedLie::OtherDigest, "digests_are_those_of_the_bytes"),
        (ReportedLie::AnyIncarnation, "a_replaced_sandbox_is_gone"),
    ] {
        let fixture = WrongPlace {
            lie,
            place: DirectoryFixture::new(NEW_KERNEL),
        };
        let cases: Vec<_> = CONFORMANCE_CASES
            .iter()
            .filter(|(name, _)| *name == case)
            .copied()
            .collect();
        assert_eq!(cases.len(), 1, "{case}");
        let failures = run_cases(&fixture, &cases).await;
        let failures = failures.expect_err(&format!("{lie:?} passes {case}"));
        assert_eq!(failures.0[0].0, case);
        assert!(failures.to_string().contains(".rs:"), "{failures}");
    }
}
