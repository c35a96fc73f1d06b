//! Programs that callers run in sandboxes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::Meta;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, SandboxCommandStage, SandboxCommandState, sandbox_ref};
use dray_sandbox::{
    Body, CommandEnd, CommandInput, CommandRequest, Error as SandboxError, ErrorKind, FileKind,
    Follow, SandboxCommand, SandboxPath,
};
use dray_service::{ReplyChunks, Request};
use dray_transfer_engine::Source as _;
use dray_types::{Claim, Deadline, Fault};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::command_audit::recorded_argv;
use super::command_output::OutputCollector;
use super::command_stream::{self, OutputChunks, OutputName, StreamedOutput};
use super::program_end::{EndingProgram, within_lifetime};
use super::{OpenedSandbox, SandboxTransfer, report};
use crate::command_error::CommandError;
use crate::commands::BegunCommand;
use crate::egress_proxy::ProxiedProgram;
use crate::error::Error;
use crate::store::{Owner, StoreSource};
use crate::wire;

/// Most bytes of arguments and variables together.
const MAX_COMMAND_BYTES: usize = 64 << 10;
/// Most variables.
const MAX_VARIABLES: usize = 256;
/// Time before the deadline of the reply that is reserved for ending the program and storing its output.
const REPLY_MARGIN: Duration = Duration::from_secs(3);
/// Part of this time that is left for the reply after waiting for the end of a program.
const SETTLE_MARGIN: Duration = Duration::from_secs(1);
/// Longest time for a program that was stopped at its time limit to report what it has written.
const MAX_REPORT_TIME: Duration = Duration::from_secs(5);
/// Seconds after the time limit at which the sandbox ends the program by itself.
const LIFETIME_MARGIN_SECONDS: u64 = 5;
/// Signal with which programs are killed.
const KILL_SIGNAL: u32 = 9;
/// Largest number of a signal.
const MAX_SIGNAL: u8 = 64;

/// A program that is allowed, and the limits that apply to it.
struct AllowedCommand {
    opened: OpenedSandbox,
    directory: SandboxPath,
    time: Duration,
    /// How long the program may take to report its output after it was stopped at its time limit.
    report_time: Duration,
    max_output: u64,
}

impl AllowedCommand {
    fn request(&self, body: v1::ExecSandboxRequest, input: Option<CommandInput>) -> CommandRequest {
        let variables = body.environment.into_iter();
        let max_stderr = self.opened.settings.config.commands.max_stderr.as_u64();
        CommandRequest {
            argv: body.argv,
            directory: self.directory.clone(),
            environment: variables
                .map(|variable| (variable.name, variable.value))
                .collect(),
            input,
            max_stderr_bytes: usize::try_from(max_stderr).unwrap_or(usize::MAX),
            lifetime_seconds: self.time.as_secs() + LIFETIME_MARGIN_SECONDS,
            stderr: None,
            stop: CancellationToken::new(),
        }
    }
}

/// The end of a program.
#[derive(Debug)]
enum ProgramEnd {
    /// The program ended by itself.
    Ended(CommandEnd),
    /// The program reached its time limit; with its report if it had time for one.
    TimedOut(Option<CommandEnd>),
}

impl ProgramEnd {
    const fn report(&self) -> Option<&CommandEnd> {
        match self {
            Self::Ended(end) => Some(end),
            Self::TimedOut(end) => end.as_ref(),
        }
    }
}

impl SandboxTransfer {
    /// Runs one program and returns its result when it has ended.
    pub async fn exec(
        self: Arc<Self>,
        request: Request<v1::ExecSandboxRequest>,
    ) -> Result<v1::ExecSandboxReply, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let ran = self.try_exec(&meta, work_until, body, None).await;
        ran.map_err(|error| report(&meta, error))
    }

    /// Runs one program and sends its outputs while it writes them.
    pub async fn exec_stream(
        self: Arc<Self>,
        request: Request<v1::ExecSandboxStreamRequest>,
        chunks: ReplyChunks<v1::ExecSandboxEvent>,
    ) -> Result<v1::ExecSandboxEvent, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let Some(command) = body.command else {
            return Err(report(&meta, InvalidMessage::Missing("command").into()));
        };
        let ran = self
            .try_exec(&meta, work_until, command, Some(&chunks))
            .await;
        ran.map(command_stream::end_event)
            .map_err(|error| report(&meta, error))
    }

    async fn try_exec(
        &self,
        meta: &Meta,
        work_until: Deadline,
        mut body: v1::ExecSandboxRequest,
        chunks: Option<&OutputChunks>,
    ) -> Result<v1::ExecSandboxReply, Error> {
        check_size(&body)?;
        let mut audit = audit_event(meta, &body);
        let allowed = self.allow(meta, work_until, &body, &mut audit).await?;
        // The variables are added before the event, which names them.
        self.add_proxy(meta, &allowed, &mut body, &mut audit)?;
        let owner = self.owner(meta, work_until);
        let input = self.command_input(&owner, &allowed, &body).await?;
        audit.input_size = input.as_ref().map_or(0, |input| input.size);
        // The operation begins before the event and the start of the command: a repeated request must not run it again.
        let begun = self.commands.begin(&meta.tenant, &meta.operation).await?;
        let record = match self.auditor.start(meta, audit).await {
            Ok(record) => record,
            Err(error) => return Err(self.withdraw(begun, error).await),
        };
        let request = allowed.request(body, input);
        let ran = self.run_command(&owner, &allowed, request, chunks).await;
        let ran = ran.map(|reply| v1::ExecSandboxReply {
            milliseconds: record.milliseconds(),
            ..reply
        });
        record.end(ran.as_ref()).await;
        if let Err(Error::Sandbox(error) | Error::Command(CommandError::NotRun(error))) = &ran {
            let backends = &allowed.opened.settings.backends;
            backends.failed(allowed.opened.engine.handle(), error.kind());
        }
        ran.map_err(|error| CommandError::Started(Box::new(error)).into())
    }

    /// Lets an operation be repeated whose program was not started because its event was not stored.
    async fn withdraw(&self, begun: BegunCommand, error: Error) -> Error {
        let Error::Command(CommandError::Audit(fault)) = error else {
            return error;
        };
        match self.commands.withdraw(begun).await {
            Ok(()) => CommandError::Audit(fault).into(),
            Err(kept) => {
                tracing::warn!(
                    error = &kept as &dyn std::error::Error,
                    "the record of a program that was not started could not be removed"
                );
                CommandError::Unrepeatable(fault).into()
            }
        }
    }

    /// Opens the sandbox and finds the directory, if a rule allows programs there.
    async fn allow(
        &self,
        meta: &Meta,
        work_until: Deadline,
        body: &v1::ExecSandboxRequest,
        audit: &mut v1::SandboxCommandAudit,
    ) -> Result<AllowedCommand, Error> {
        // The tenant is checked before anything is opened, so that such a tenant learns nothing about sandboxes.
        if !self.settings.get().config.commands.concerns(&meta.tenant) {
            return Err(self.refuse(meta, audit).await);
        }
        let opened = self.open(meta, body.sandbox.clone()).await?;
        let settings = Arc::clone(&opened.settings);
        let rules = &settings.config.commands;
        let handle = opened.engine.handle();
        audit.handle = Some(wire::handle(handle));
        if !rules.allows(&meta.tenant, &handle.address) {
            return Err(self.refuse(meta, audit).await);
        }
        let path = match body.working_directory.as_slice() {
            [] => opened.places.working_directory.clone(),
            path => opened.path(path)?,
        };
        let found = opened
            .engine
            .stat(&opened.policy, &path, Follow::Yes)
            .await?;
        if found.kind != FileKind::Directory {
            return Err(SandboxError::new(ErrorKind::NotDirectory, "the working directory").into());
        }
        audit.working_directory = found.real_path.as_bytes().to_vec();
        let remaining_time = work_until.remaining(self.clock.now_ms());
        let time = remaining_time.saturating_sub(REPLY_MARGIN.min(remaining_time / 4));
        let time = rules.time(body.timeout_ms, time);
        let time = within_lifetime(&opened.engine, time).await?;
        let max = rules.max_output.as_u64();
        Ok(AllowedCommand {
            directory: found.real_path,
            opened,
            time,
            // The other half is for storing the output.
            report_time: MAX_REPORT_TIME.min(remaining_time.saturating_sub(time) / 2),
            max_output: match body.max_output_bytes {
                0 => max,
                requested => requested.min(max),
            },
        })
    }

    /// Adds the forward proxy to the variables of the program.
    fn add_proxy(
        &self,
        meta: &Meta,
        allowed: &AllowedCommand,
        body: &mut v1::ExecSandboxRequest,
        audit: &mut v1::SandboxCommandAudit,
    ) -> Result<(), Error> {
        let program = ProxiedProgram {
            meta,
            sandbox: &allowed.opened.engine.handle().address,
            time: allowed.time,
            clock: &self.clock,
        };
        let proxy = &allowed.opened.settings.config.egress_proxy;
        Ok(proxy.add_variables(&program, body, audit)?)
    }

    /// Records a refusal.
    async fn refuse(&self, meta: &Meta, audit: &v1::SandboxCommandAudit) -> Error {
        let stage = SandboxCommandStage::Refused;
        let recorded = self.auditor.record(meta, stage, audit).await;
        // The command is refused in any case: an event that cannot be stored is reported to the operator by the error.
        recorded
            .err()
            .unwrap_or_else(|| CommandError::Denied.into())
    }

    async fn command_input(
        &self,
        owner: &Owner,
        allowed: &AllowedCommand,
        body: &v1::ExecSandboxRequest,
    ) -> Result<Option<CommandInput>, Error> {
        let max = allowed.opened.settings.config.commands.max_input.as_u64();
        let input = match body.input_claim.clone() {
            None if body.input.is_empty() => return Ok(None),
            None => CommandInput {
                size: body.input.len() as u64,
                body: Body::from_bytes(body.input.clone()),
            },
            Some(_) if !body.input.is_empty() => {
                return Err(InvalidMessage::field(
                    "input",
                    "must be empty when `input_claim` is set",
                )
                .into());
            }
            Some(claim) => {
                let claim = Claim::try_from(claim)?;
                let size = claim.artifact.size;
                let source = StoreSource::new(&self.store, &owner.tenant, claim, owner.deadline);
                CommandInput {
                    size,
                    body: source.open(0).await?,
                }
            }
        };
        if input.size > max {
            return Err(SandboxError::too_large(input.size, max).into());
        }
        Ok(Some(input))
    }

    async fn run_command(
        &self,
        owner: &Owner,
        allowed: &AllowedCommand,
        request: CommandRequest,
        chunks: Option<&OutputChunks>,
    ) -> Result<v1::ExecSandboxReply, Error> {
        let limit = allowed.max_output;
        let stdout = OutputCollector::new(&self.store, owner, "stdout", limit);
        let mut stdout = StreamedOutput::new(stdout, OutputName::Stdout, chunks);
        let max_stderr = allowed.opened.settings.config.commands.max_stderr.as_u64();
        let stderr = OutputCollector::new(&self.store, owner, "stderr", max_stderr);
        let mut stderr = StreamedOutput::new(stderr, OutputName::Stderr, chunks);
        let sandbox = allowed.opened.engine.sandbox();
        // `ending` is created first and therefore dropped last: dropping the running program starts the kill for which
        // this waits.
        let ending = EndingProgram::new(sandbox, &self.ending_programs);
        let ended = run_to_limit(allowed, request, &mut stdout, &mut stderr).await?;
        if let Some(end) = ended.report() {
            // The collector already has the beginning of it, if chunks were received while the program ran.
            stderr.write_rest(end.stderr.clone().into()).await?;
            if end.stderr_truncated {
                stderr.set_truncated();
            }
            if end.output_truncated {
                stdout.set_truncated();
            }
        }
        let mut reply = v1::ExecSandboxReply {
            stdout: Some(stdout.finish().await?),
            stderr: Some(stderr.finish().await?),
            handle: Some(wire::handle(sandbox.handle())),
            ..v1::ExecSandboxReply::default()
        };
        set_end(&mut reply, &ended);
        // The reply with the output so far must arrive, also when the sandbox does not end the program.
        let remaining_time = owner.deadline.remaining(self.clock.now_ms());
        let time = remaining_time.saturating_sub(SETTLE_MARGIN.min(remaining_time / 4));
        ending.settle(ended.report().is_some(), time).await;
        Ok(reply)
    }
}

/// Runs the program to its end. At its time limit it is stopped, and killed if it does not report its end.
async fn run_to_limit(
    allowed: &AllowedCommand,
    mut request: CommandRequest,
    stdout: &mut StreamedOutput<'_>,
    stderr: &mut StreamedOutput<'_>,
) -> Result<ProgramEnd, Error> {
    let until = Instant::now() + allowed.time;
    let stop = request.stop.clone();
    let (live, mut chunks) = mpsc::channel(1);
    // Without a stream of chunks, standard error arrives at the end, which costs the sandbox less.
    request.stderr = stderr.is_streamed().then_some(live);
    let mut running = Box::pin(async {
        let sandbox = allowed.opened.engine.sandbox();
        // A channel without streams answers only when the program has ended.
        let command = sandbox
            .execute(request)
            .await
            .map_err(CommandError::NotRun)?;
        let SandboxCommand { mut output, end } = command;
        let reading = async {
            while let Some(chunk) = output.next().await {
                stdout.write(chunk?).await?;
            }
            Ok::<_, Error>(())
        };
        let reading_stderr = async {
            while let Some(chunk) = chunks.recv().await {
                stderr.write(chunk).await?;
            }
            Ok(())
        };
        tokio::try_join!(reading, reading_stderr)?;
        Ok::<_, Error>(end.await?)
    });
    if let Ok(ended) = timeout_at(until, &mut running).await {
        return ended.map(ProgramEnd::Ended);
    }
    stop.cancel();
    // The report has the standard error. Without a report, only the output so far is returned.
    let reported = timeout(allowed.report_time, &mut running).await;
    Ok(ProgramEnd::TimedOut(reported.ok().and_then(Result::ok)))
}

fn set_end(reply: &mut v1::ExecSandboxReply, ended: &ProgramEnd) {
    let (state, status, signal) = match ended {
        ProgramEnd::TimedOut(_) => (
            SandboxCommandState::TimedOut,
            128 + KILL_SIGNAL,
            KILL_SIGNAL,
        ),
        ProgramEnd::Ended(CommandEnd { status, .. }) => match status.checked_sub(128) {
            Some(signal @ 1..=MAX_SIGNAL) => {
                let status = u32::from(*status);
                (SandboxCommandState::Signaled, status, signal.into())
            }
            _ => (SandboxCommandState::Exited, u32::from(*status), 0),
        },
    };
    reply.set_state(state);
    reply.exit_code = status;
    reply.signal = signal;
}

/// The audit event of a request, without the fields that are known only later.
fn audit_event(meta: &Meta, body: &v1::ExecSandboxRequest) -> v1::SandboxCommandAudit {
    let (argv, argv_truncated) = recorded_argv(&body.argv);
    let named = body
        .sandbox
        .as_ref()
        .and_then(|named| named.sandbox.as_ref());
    v1::SandboxCommandAudit {
        operation_id: meta.operation.to_string(),
        session: match named {
            Some(sandbox_ref::Sandbox::Session(session)) => session.clone(),
            _ => String::new(),
        },
        argv,
        argv_truncated,
        environment_names: body
            .environment
            .iter()
            .map(|variable| variable.name.clone())
            .collect(),
        ..v1::SandboxCommandAudit::default()
    }
}

fn check_size(body: &v1::ExecSandboxRequest) -> Result<(), Error> {
    if body.argv.is_empty() {
        return Err(InvalidMessage::Missing("argv").into());
    }
    if body.environment.len() > MAX_VARIABLES {
        let reason = format!("must have at most {MAX_VARIABLES} variables");
        return Err(InvalidMessage::field("environment", reason).into());
    }
    let variables = body.environment.iter();
    let mut names = HashSet::new();
    if !variables
        .clone()
        .all(|variable| names.insert(variable.name.as_str()))
    {
        return Err(InvalidMessage::field("environment", "must not have a name twice").into());
    }
    let argv_bytes: usize = body.argv.iter().map(|word| word.len() + 1).sum();
    let size = argv_bytes
        + variables
            .map(|variable| variable.name.len() + variable.value.len() + 2)
            .sum::<usize>();
    if size > MAX_COMMAND_BYTES {
        let error = SandboxError::too_large(size as u64, MAX_COMMAND_BYTES as u64);
        return Err(CommandError::NotRun(error).into());
    }
    if body.input.len() > dray_proto::MAX_INLINE_BYTES {
        return Err(
            InvalidMessage::field("input", "is too large: store it and set `input_claim`").into(),
        );
    }
    Ok(())
}
