//! `dray sandbox get`: files out of a sandbox; each directory is copied as one archive.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_presentation::name;
use dray_proto::export::{Export, ExportCalls, TreeFormat};
use dray_proto::{Call, v1};
use dray_sandbox_transfer::direct::{DirectSandbox, Received};
use dray_types::hex::hex_digits;
use dray_types::{ByteSize, Claim};
use tokio_util::sync::CancellationToken;

use super::copy::SandboxAccess;
use super::direct::{self, FetchedFile, run_until};
use super::plan::is_about_one_file;
use super::report::{CopyReport, FileReport};
use super::{
    MAX_SHOWN_CHARACTERS, WrittenFile, call_service, explain_failure, free_name_in, path_bytes,
    sandbox_ref,
};
use crate::cli::{GlobalOptions, SandboxGet};
use crate::commands::fetch::write_claim;
use crate::commands::output_sink::is_standard_output;
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_note};
use crate::progress;

/// The connection by which the sandbox is read.
enum GetSource<'a> {
    Direct(Box<DirectSandbox>),
    Served(&'a SystemConnection),
}

/// One run of the command.
struct GetRun<'a> {
    global: &'a GlobalOptions,
    source: GetSource<'a>,
    command: &'a SandboxGet,
    cancel: CancellationToken,
}

pub(super) async fn run(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    command: &SandboxGet,
) -> Result<(), CommandFailure> {
    let outcome = try_run(global, reach, command).await;
    outcome.map_err(|failure| explain_failure(failure, &command.sandbox, false))
}

async fn try_run(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    command: &SandboxGet,
) -> Result<(), CommandFailure> {
    let time = Duration::from_secs(command.transfer.timeout);
    let cancel = CancellationToken::new();
    let opened = async {
        Ok(match reach {
            SandboxAccess::Direct(config) => {
                let opened =
                    direct::open_sandbox(global, (*config).clone(), &command.sandbox).await?;
                GetSource::Direct(Box::new(opened))
            }
            SandboxAccess::Served(system) => GetSource::Served(system),
        })
    };
    let get = GetRun {
        // The opening counts towards the timeout too: an SSH host may not answer.
        source: run_until(time, &cancel, opened).await?,
        global,
        command,
        cancel,
    };
    match command.paths.as_slice() {
        [path] => {
            let fetched = run_until(time, &get.cancel, get.fetch(path)).await?;
            get.print(&fetched);
            Ok(())
        }
        paths => get.run_many(paths, time).await,
    }
}

impl GetRun<'_> {
    async fn fetch(&self, path: &Path) -> Result<FetchedFile, CommandFailure> {
        match &self.source {
            GetSource::Direct(sandbox) => {
                direct::get_direct(self.global, sandbox, path, self.command, &self.cancel).await
            }
            GetSource::Served(system) => self.fetch_served(system, path).await,
        }
    }

    fn print(&self, fetched: &FetchedFile) {
        let FetchedFile { output, received } = fetched;
        let skipped = received.skipped.iter();
        let skipped: Vec<_> = skipped
            .map(|line| name::shown_text(line, MAX_SHOWN_CHARACTERS))
            .collect();
        for line in skipped.iter().filter(|_| !self.global.json) {
            print_note(&format!("left out: {line}"));
        }
        // Content on standard output must not be followed by a line about it.
        if let Some(output) = output {
            let (size, sha256) = (received.size, hex_digits(&received.sha256));
            let file = WrittenFile {
                output,
                size,
                sha256: &sha256,
                skipped: &skipped,
                receipt: &received.receipt,
            };
            file.print(self.global);
        }
    }

    /// Fetches several paths into one directory. A path that fails does not prevent the others.
    async fn run_many(&self, paths: &[PathBuf], time: Duration) -> Result<(), CommandFailure> {
        if let Some(output) = self
            .command
            .output
            .as_deref()
            .filter(|output| !output.is_dir())
        {
            return Err(CommandFailure::Usage(format!(
                "{} is not a directory, and several paths need one",
                output.display()
            )));
        }
        let mut report = CopyReport::default();
        let fetching = async {
            let mut stopped = false;
            for path in paths {
                if stopped || self.cancel.is_cancelled() {
                    report.not_tried(path_bytes(path));
                    continue;
                }
                match self.fetch(path).await {
                    Ok(fetched) => self.note(&mut report, path, fetched),
                    Err(failure) => {
                        // After a failure such as that of a deleted sandbox, the next path would fail in the same way.
                        stopped = !is_about_one_file(&failure);
                        let failure = explain_failure(failure, &self.command.sandbox, false);
                        report.failed(self.global, path_bytes(path), failure);
                    }
                }
            }
            Ok(())
        };
        let outcome = run_until(time, &self.cancel, fetching).await;
        report.finish(self.global, outcome.err())
    }

    fn note(&self, report: &mut CopyReport, path: &Path, fetched: FetchedFile) {
        let FetchedFile { output, received } = fetched;
        report.skipped(self.global, received.skipped);
        let file = FileReport {
            from: path_bytes(path),
            to: output.as_deref().map(path_bytes).unwrap_or_default(),
            size: received.size,
            sha256: received.sha256,
            renamed: false,
            existed: false,
            receipt: Some(received.receipt),
            read_receipt: None,
        };
        report.arrived(self.global, file);
    }

    /// Fetches a path through the store of a running system.
    async fn fetch_served(
        &self,
        system: &SystemConnection,
        path: &Path,
    ) -> Result<FetchedFile, CommandFailure> {
        let waiting = progress::spinner_with_text("fetching from the sandbox", self.global.json);
        let stored = self.store(system, path).await;
        waiting.finish_and_clear();
        let (claim, received) = stored?;
        // The name comes from the sandbox, so it must not lead out of the directory.
        let called = || name::clean_name(&claim.artifact.name);
        let output = match self.command.output.as_deref() {
            Some(output) if output.is_dir() => free_name_in(output, called().as_bytes()),
            Some(output) => output.to_path_buf(),
            None => free_name_in(Path::new(""), called().as_bytes()),
        };
        write_claim(self.global, system, &claim, &output).await?;
        Ok(FetchedFile {
            output: (!is_standard_output(&output)).then_some(output),
            received,
        })
    }

    async fn store(
        &self,
        system: &SystemConnection,
        path: &Path,
    ) -> Result<(Claim, Received), CommandFailure> {
        let export = Export {
            sandbox: sandbox_ref(&self.command.sandbox),
            path: path_bytes(path),
            format: if self.command.tar {
                TreeFormat::Tar
            } else {
                TreeFormat::Zip
            },
            max_bytes: self.command.size_limit.map_or(0, ByteSize::as_u64),
        };
        let calls = ServedExport {
            system,
            time: Duration::from_secs(self.command.transfer.timeout),
        };
        let (_, exported) = export.run(&calls).await?;
        let received = Received {
            size: exported.claim.artifact.size,
            sha256: exported.claim.artifact.sha256.as_bytes().to_vec(),
            receipt: exported.receipt,
            skipped: exported.skipped,
        };
        Ok((exported.claim, received))
    }
}

/// Calls of an export through a running system.
struct ServedExport<'a> {
    system: &'a SystemConnection,
    time: Duration,
}

impl ExportCalls for ServedExport<'_> {
    type Error = CommandFailure;

    async fn stat(
        &self,
        request: &v1::StatSandboxRequest,
    ) -> Result<v1::SandboxEntry, CommandFailure> {
        call_service(self.system, self.time, request).await
    }

    async fn copy<C: Call>(
        &self,
        _entry: &v1::SandboxEntry,
        request: &C,
    ) -> Result<C::Reply, CommandFailure> {
        call_service(self.system, self.time, request).await
    }
}
