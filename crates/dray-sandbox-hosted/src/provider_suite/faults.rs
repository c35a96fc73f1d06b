//! Cases about faults of the provider and of the network.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use dray_conformance::{CaseEnd, case_list, expect_bytes, expect_equal, expect_true};
use dray_sandbox::{Error, ErrorKind, Follow, Metadata, Sandbox, SandboxPath};
use futures_util::future::BoxFuture;

use super::{ProviderFixture, open_sandbox, path_in_sandbox, read_file, write_file};
use crate::fake_server::ProviderFault;

/// One case: an asynchronous function of a fixture that no other case uses.
type FaultCase = for<'a> fn(&'a dyn ProviderFixture) -> BoxFuture<'a, Result<(), CaseEnd>>;

/// All cases by name.
pub(super) const FAULT_CASES: &[(&str, FaultCase)] = case_list![
    cases::a_download_that_is_cut_is_never_whole,
    cases::a_clean_response_of_another_length_is_a_change,
    cases::a_sandbox_that_ends_during_a_transfer_is_gone,
    cases::a_gateway_that_gives_up_is_not_a_sandbox_that_is_gone,
    cases::refusals_have_their_kinds_and_delays,
    cases::a_key_that_is_refused_is_not_a_missing_sandbox,
    cases::r_8_an_upload_that_kept_less_is_noticed,
    cases::a_lost_response_is_not_a_success,
    cases::output_that_is_cut_is_never_a_result,
];

/// An open sandbox of a fixture.
struct OpenSandbox<'f> {
    fixture: &'f dyn ProviderFixture,
    sandbox: Arc<dyn Sandbox>,
}

impl<'f> OpenSandbox<'f> {
    async fn open(fixture: &'f dyn ProviderFixture) -> Result<Self, Error> {
        let sandbox = open_sandbox(fixture).await?;
        Ok(Self { fixture, sandbox })
    }

    fn path(&self, name: &str) -> Result<SandboxPath, Error> {
        path_in_sandbox(self.fixture, name)
    }

    /// Puts a file into the directory of the sandbox, not through the backend, and describes it.
    async fn file(&self, name: &str, content: &[u8]) -> Result<Metadata, CaseEnd> {
        fs::write(self.fixture.directory().join(name), content)?;
        Ok(self.sandbox.stat(&self.path(name)?, Follow::Yes).await?)
    }

    async fn read(&self, file: &Metadata) -> Result<Vec<u8>, Error> {
        read_file(&*self.sandbox, file, 0).await
    }

    async fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        write_file(&*self.sandbox, &self.path(name)?, content).await
    }
}

#[track_caller]
fn expect_kind<T>(
    description: &str,
    result: Result<T, Error>,
    expected: ErrorKind,
) -> Result<(), CaseEnd> {
    match result {
        Ok(_) => Err(CaseEnd::fail(format_args!(
            "{description}: no error, expected {expected}"
        ))),
        Err(error) => expect_equal(description, error.kind(), expected),
    }
}

mod cases {
    use super::{
        CaseEnd, Duration, ErrorKind, Follow, OpenSandbox, ProviderFault, ProviderFixture,
        expect_bytes, expect_equal, expect_kind, expect_true, fs,
    };

    pub(super) async fn a_download_that_is_cut_is_never_whole(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
        let file = open.file("file", &content).await?;
        fixture.inject_fault(ProviderFault::CutDownload(100_000));
        let cut = open.read(&file).await.map_err(|error| error.kind());
        expect_true(
            matches!(cut, Err(ErrorKind::Unavailable | ErrorKind::Truncated)),
            format_args!("a download that was cut: {:?}", cut.map(drop)),
        )?;
        expect_bytes("the next download", &open.read(&file).await?, &content)
    }

    pub(super) async fn a_clean_response_of_another_length_is_a_change(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        let file = open.file("file", b"0123456789").await?;
        fixture.inject_fault(ProviderFault::Instead(b"01234"));
        let changed = ErrorKind::ChangedDuringTransfer;
        expect_kind("half the file", open.read(&file).await, changed)
    }

    pub(super) async fn a_sandbox_that_ends_during_a_transfer_is_gone(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        let file = open.file("file", &vec![7; 300_000]).await?;
        fixture.inject_fault(ProviderFault::DieDuringDownload(1000));
        let gone_kind = ErrorKind::SandboxGone;
        expect_kind("during the download", open.read(&file).await, gone_kind)?;
        expect_kind("after the download", open.read(&file).await, gone_kind)?;
        fixture.restart_sandbox();
        let open = OpenSandbox::open(fixture).await?;
        fixture.inject_fault(ProviderFault::DieDuringUpload);
        let written = open.write("new", &vec![7; 300_000]).await;
        expect_kind("during the upload", written, gone_kind)
    }

    pub(super) async fn a_gateway_that_gives_up_is_not_a_sandbox_that_is_gone(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        let file = open.file("file", b"here").await?;
        fixture.inject_fault(ProviderFault::Refuse(
            fixture.files_prefix(),
            502,
            "upstream request timeout",
        ));
        let refused = open.read(&file).await;
        expect_kind("status 502", refused, ErrorKind::Unavailable)?;
        expect_bytes("the next download", &open.read(&file).await?, b"here")
    }

    pub(super) async fn refusals_have_their_kinds_and_delays(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        let file = open.file("file", b"here").await?;
        let delay = Duration::from_secs(17);
        fixture.inject_fault(ProviderFault::RateLimit(delay));
        let Err(limited) = open.read(&file).await else {
            return Err(CaseEnd::fail("no error, expected a rate limit"));
        };
        expect_equal("kind", limited.kind(), ErrorKind::RateLimited)?;
        expect_equal("delay", limited.retry_after(), Some(delay))?;
        for (status, message, expected) in [
            (507, "not enough disk space available", ErrorKind::NoSpace),
            (401, "invalid signature", ErrorKind::Auth),
            (406, "no acceptable encoding found", ErrorKind::Protocol),
            (413, "too large", ErrorKind::Protocol),
        ] {
            let prefix = fixture.files_prefix();
            fixture.inject_fault(ProviderFault::Refuse(prefix, status, message));
            let written = open.write("new", b"x").await;
            expect_kind(&status.to_string(), written, expected)?;
            // The name was reserved before the upload, and the caller removes what it reserved.
            fs::remove_file(fixture.directory().join("new"))?;
        }
        expect_equal("pending faults", fixture.pending_faults(), Vec::new())
    }

    pub(super) async fn a_key_that_is_refused_is_not_a_missing_sandbox(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        for key in ["", "another-key"] {
            let backend = fixture.backend_with_key(key);
            let resolved = backend.resolve(&fixture.address()).await;
            expect_kind(key, resolved, ErrorKind::Auth)?;
        }
        Ok(())
    }

    pub(super) async fn r_8_an_upload_that_kept_less_is_noticed(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        fixture.inject_fault(ProviderFault::KeepOnly(999));
        let written = open.write("new", &[7; 1000]).await;
        expect_kind("999 of 1000 bytes", written, ErrorKind::Truncated)
    }

    pub(super) async fn a_lost_response_is_not_a_success(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        fixture.inject_fault(ProviderFault::LoseResponse);
        let written = open.write("new", b"x").await;
        expect_kind("a lost response", written, ErrorKind::Unavailable)
    }

    pub(super) async fn output_that_is_cut_is_never_a_result(
        fixture: &dyn ProviderFixture,
    ) -> Result<(), CaseEnd> {
        let open = OpenSandbox::open(fixture).await?;
        for kept in [0, 3, 40] {
            fixture.inject_fault(ProviderFault::CutOutput(kept));
            let stat = open.sandbox.stat(&open.path("")?, Follow::Yes).await;
            let description = format!("output of {kept} bytes");
            expect_kind(&description, stat, ErrorKind::Unavailable)?;
        }
        Ok(())
    }
}
