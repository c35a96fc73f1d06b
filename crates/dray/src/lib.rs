//! `dray`: all services in one binary, and the commands around them.
//!
//! The services themselves are libraries. This crate reads the command line (`cli`), connects a command with a bus and
//! a store (`context`), runs it (`commands`, `demo`), and turns its result into output and an exit code (`outcome`). Its
//! public API is the program alone: scripts use `--json` and the exit codes of `dray --help`.
//!
//! It is a library because cargo compiles a library while the services below it are still being optimised; a program
//! begins only when they are finished.

use std::future::{Future, ready};
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser as _;

mod bus_failure;
mod cli;
mod commands;
mod console_section;
mod context;
mod demo;
mod interruption;
mod json_log;
mod outcome;
mod progress;
mod standard_input;

use cli::{Cli, DrayCommand, SandboxCommand};
use outcome::CommandFailure;

/// Runs the command line of this process, and returns the exit code that `dray --help` lists.
///
/// Reads the arguments of the process. A process that was started as the worker of a conversion converts instead.
pub fn run_program() -> ExitCode {
    // A conversion runs in this executable, started again as a worker. Checked before the arguments are parsed, because
    // a worker does not use these arguments.
    if let Some(code) = dray_reading::worker::child(std::env::args_os()) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_arguments(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            CommandFailure::local("cannot start")(error).report(cli.global.json);
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        let command = command_future(&cli);
        match &cli.command {
            DrayCommand::Chat(_) => interruption::run_until_terminated(command).await,
            own if handles_signals(own) => command.await,
            _ => interruption::run_command(command, cli.global.json).await,
        }
    });
    // A client of `dray mcp` may stop reading standard output, so that a write there blocks.
    let may_block = matches!(cli.command, DrayCommand::Mcp(_));
    let was_interrupted = matches!(ended, Err(CommandFailure::Interrupted(_)));
    let logs_failure = ended.is_err() && !cli.global.json && json_log::is_wanted(&cli);
    let code = match ended {
        Err(failure) if logs_failure => {
            failure.log_json();
            failure.exit_code()
        }
        ended => finish_command(ended, cli.global.json),
    };
    if was_interrupted || may_block {
        // Without the timeout this could wait forever, for example for a network file system that does not respond.
        runtime.shutdown_timeout(interruption::TASK_TIMEOUT);
    } else {
        drop(runtime);
    }
    interruption::remove_directories();
    code
}

/// Whether a command reacts to SIGINT and SIGTERM itself.
fn handles_signals(command: &DrayCommand) -> bool {
    matches!(
        command,
        DrayCommand::Up(_)
            | DrayCommand::Console(_)
            | DrayCommand::Mcp(_)
            | DrayCommand::Preview(_)
            | DrayCommand::Ticket(_)
            | DrayCommand::Sandbox(SandboxCommand::Exec(_))
    )
}

/// Prints help, the version, or what is wrong with the arguments; for scripts also as a fault.
fn report_arguments(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        return match printed {
            Err(failure) if failure.kind() != std::io::ErrorKind::BrokenPipe => {
                let failure = CommandFailure::local("cannot write to standard output")(failure);
                finish_command(Err(failure), false)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    // The arguments could not be parsed, so the flag is looked for as it was typed.
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if !words.any(|word| word == "--json") {
        return ExitCode::from(2);
    }
    finish_command(
        Err(CommandFailure::Usage(cli::argument_problem(error))),
        true,
    )
}

/// Reports how the command ended, and returns its exit code.
fn finish_command(ended: Result<(), CommandFailure>, as_json: bool) -> ExitCode {
    let code = match ended {
        Ok(()) => None,
        Err(failure) => {
            failure.report(as_json);
            Some(failure.exit_code())
        }
    };
    // The output is checked after the report, which is written to standard output with --json.
    let is_incomplete = outcome::report_output_failure();
    match code {
        Some(code) => code,
        None if is_incomplete => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}

type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<(), CommandFailure>> + 'a>>;

/// The future of one command. Each future is boxed where it is made. The runtime and the other commands see a pointer,
/// so every command is compiled once and no future has the size of the largest.
fn command_future(cli: &Cli) -> CommandFuture<'_> {
    let global = &cli.global;
    match &cli.command {
        DrayCommand::Demo => Box::pin(demo::run(global)),
        DrayCommand::Up(up) => Box::pin(commands::up::run(global, up)),
        DrayCommand::Console(console) => Box::pin(commands::console::run(global, console)),
        DrayCommand::Chat(chat) => Box::pin(commands::chat::run(global, chat)),
        DrayCommand::Mcp(mcp) => Box::pin(commands::mcp::run(global, mcp)),
        DrayCommand::Resolve(resolve) => Box::pin(commands::resolve::run(global, resolve)),
        DrayCommand::Fetch(fetch) => Box::pin(commands::fetch::run(global, fetch)),
        DrayCommand::Policy(policy) => Box::pin(commands::policy_explain::run(global, policy)),
        DrayCommand::Egress(egress) => Box::pin(commands::egress::run(global, egress)),
        DrayCommand::Read(read) => Box::pin(commands::read::run(global, read)),
        DrayCommand::Classify(classify) => {
            Box::pin(commands::read::classify_files(global, classify))
        }
        DrayCommand::Send(send) => Box::pin(commands::deliver::send_from_sandbox(global, send)),
        DrayCommand::Deliver(deliver) => {
            Box::pin(commands::deliver::deliver_local_files(global, deliver))
        }
        DrayCommand::Receipts(receipts) => Box::pin(commands::receipts::run(global, receipts)),
        DrayCommand::Resend(resend) => Box::pin(commands::deliver::resend_delivery(global, resend)),
        DrayCommand::Sandbox(sandbox) => Box::pin(commands::sandbox::run(global, sandbox)),
        DrayCommand::Session(session) => Box::pin(commands::session::run(global, session)),
        DrayCommand::Artifact(artifact) => Box::pin(commands::artifact::run(global, artifact)),
        DrayCommand::Preview(preview) => Box::pin(commands::preview::run(global, preview)),
        DrayCommand::Ticket(ticket) => Box::pin(commands::ticket::run(global, ticket)),
        DrayCommand::Topology(topology) => Box::pin(commands::topology::run(global, topology)),
        DrayCommand::Events(events) => Box::pin(commands::events::run(global, events)),
        DrayCommand::Dlq(dlq) => Box::pin(commands::dlq::run(global, dlq)),
        DrayCommand::Config(config) => Box::pin(ready(commands::config::run(global, config))),
        DrayCommand::Bench(bench) => Box::pin(commands::bench::run(global, bench)),
        DrayCommand::Doctor(doctor) => Box::pin(commands::doctor::run(global, doctor)),
        DrayCommand::Healthcheck(healthcheck) => {
            Box::pin(commands::healthcheck::run(global, healthcheck))
        }
        DrayCommand::Completions { shell } => {
            commands::manual::print_completions(*shell);
            Box::pin(ready(Ok(())))
        }
        DrayCommand::Man { directory } => Box::pin(ready(commands::manual::write_pages(directory))),
        DrayCommand::Reference { page, publisher } => {
            Box::pin(ready(commands::reference::run(page, publisher.as_deref())))
        }
    }
}
