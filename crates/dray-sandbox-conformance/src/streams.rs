//! Cases of programs whose outputs are read while they run.

use std::sync::Arc;

use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::command::{CommandEnd, CommandRequest, SandboxCommand};
use tokio::sync::mpsc;

use super::CaseContext;
use super::commands::{CHILDREN_SCRIPT, runs_commands};

/// Bytes on standard output in the case that writes much to both outputs.
const MUCH_STDOUT_BYTES: usize = 2_000_000;
/// Bytes on standard error in the case that writes much to both outputs.
const MUCH_STDERR_BYTES: usize = 60_000;

/// A program that runs, with both outputs.
struct StreamedProgram {
    command: SandboxCommand,
    errors: mpsc::Receiver<Bytes>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl StreamedProgram {
    async fn start(
        context: &CaseContext<'_>,
        mut request: CommandRequest,
    ) -> Result<Self, CaseEnd> {
        let (sender, errors) = mpsc::channel(1);
        request.stderr = Some(sender);
        Ok(Self {
            command: context.sandbox.execute(request).await?,
            errors,
            stdout: Vec::new(),
            stderr: Vec::new(),
        })
    }

    /// Reads the next bytes of either output; false at the end of both.
    async fn read(&mut self) -> Result<bool, CaseEnd> {
        tokio::select! {
            chunk = self.command.output.next() => {
                let Some(chunk) = chunk else {
                    while let Some(chunk) = self.errors.recv().await {
                        self.stderr.extend_from_slice(&chunk);
                    }
                    return Ok(false);
                };
                self.stdout.extend_from_slice(&chunk?);
            }
            Some(chunk) = self.errors.recv() => self.stderr.extend_from_slice(&chunk),
        }
        Ok(true)
    }

    /// Reads until both outputs have at least these lengths, and checks that they equal these texts.
    async fn read_until(&mut self, stdout: &[u8], stderr: &[u8]) -> Result<(), CaseEnd> {
        while self.stdout.len() < stdout.len() || self.stderr.len() < stderr.len() {
            expect_true(self.read().await?, "the program ended before")?;
        }
        expect_bytes("output", &self.stdout, stdout)?;
        expect_bytes("stderr", &self.stderr, stderr)
    }

    /// Reads the rest.
    async fn finish(mut self) -> Result<(CommandEnd, Vec<u8>, Vec<u8>), CaseEnd> {
        while self.read().await? {}
        Ok((self.command.end.await?, self.stdout, self.stderr))
    }
}

/// Each round of the program waits for a file that the case creates only after it has read the output of the round.
pub(super) async fn output_comes_while_the_program_runs(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    context.needs(|traits| traits.live_output)?;
    let script = r#"for round in one two; do
        printf 'out \377%s' "$round"; printf 'error \376%s' "$round" >&2
        until [ -e "$round" ]; do sleep 0.05 || sleep 1; done
    done; printf last; exit 3"#;
    let mut program = StreamedProgram::start(context, context.script(script)).await?;
    program.read_until(b"out \xffone", b"error \xfeone").await?;
    context.put("one", b"").await?;
    program
        .read_until(b"out \xffoneout \xfftwo", b"error \xfeoneerror \xfetwo")
        .await?;
    context.put("two", b"").await?;
    let (end, stdout, stderr) = program.finish().await?;
    expect_equal("status", end.status, 3)?;
    expect_bytes("output", &stdout, b"out \xffoneout \xfftwolast")?;
    expect_bytes("streamed stderr", &stderr, b"error \xfeoneerror \xfetwo")?;
    expect_bytes("stderr", &end.stderr, &stderr)
}

pub(super) async fn both_outputs_come_whole_side_by_side(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    // Both programs write concurrently, in chunks that are larger and smaller than what a pipe writes atomically.
    let script = format!(
        "head -c {MUCH_STDOUT_BYTES} /dev/zero & head -c {MUCH_STDERR_BYTES} /dev/zero | tr '\\0' e >&2; wait"
    );
    let (end, stdout, stderr) = StreamedProgram::start(context, context.script(&script))
        .await?
        .finish()
        .await?;
    expect_equal("status", end.status, 0)?;
    let whole = vec![0; MUCH_STDOUT_BYTES];
    expect_true(
        stdout == whole || (end.output_truncated && whole.starts_with(&stdout)),
        format_args!("{} bytes of output, or others", stdout.len()),
    )?;
    let whole = vec![b'e'; MUCH_STDERR_BYTES];
    expect_true(
        end.stderr == whole || (end.stderr_truncated && whole.starts_with(&end.stderr)),
        format_args!("{} bytes of stderr, or others", end.stderr.len()),
    )?;
    expect_true(
        end.stderr.starts_with(&stderr),
        "the streamed stderr is not a prefix of the reported one",
    )
}

pub(super) async fn a_program_whose_reader_is_gone_ends_with_its_children(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    context.needs(|traits| traits.live_output)?;
    let script = format!("{CHILDREN_SCRIPT}; echo $$ >>pids; echo begun; wait");
    let mut program = StreamedProgram::start(context, context.script(&script)).await?;
    program.read_until(b"begun\n", b"").await?;
    drop(program);
    context.processes_end().await?;
    Arc::clone(&context.sandbox).settled().await;
    let after = context.run_script("echo usable").await?;
    expect_bytes("afterwards", &after.output, b"usable\n")
}
