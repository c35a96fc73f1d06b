//! `dray`: all services in one binary, and the commands around them.

use std::future::{Future, ready};
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser as _;

mod bus_failure;
mod cli;
mod commands;
mod demo;
mod outcome;
mod progress;
mod world;

use cli::{Cli, Command};
use outcome::Failure;

fn main() -> ExitCode {
    // A conversion runs in this executable, started again.
    if let Some(code) = dray_reading::worker::child(std::env::args_os()) {
        return code;
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            Failure::local("cannot start")(error).report(cli.global.json);
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command(&cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(cli.global.json);
            failure.exit_code()
        }
    }
}

type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// The future of one command. Each is boxed where it is made: the runtime and the other commands see a pointer, so
/// that every command is compiled once and no future has the size of the largest.
fn command(cli: &Cli) -> CommandFuture<'_> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo => Box::pin(demo::run(global)),
        Command::Up(up) => Box::pin(commands::up::run(global, up)),
        Command::Chat(chat) => Box::pin(commands::chat::run(global, chat)),
        Command::Resolve(resolve) => Box::pin(commands::resolve::run(global, resolve)),
        Command::Fetch(fetch) => Box::pin(commands::fetch::run(global, fetch)),
        Command::Read(read) => Box::pin(commands::read::run(global, read)),
        Command::Classify(classify) => Box::pin(ready(commands::read::classify(global, classify))),
        Command::Send(send) => Box::pin(commands::deliver::send(global, send)),
        Command::Deliver(deliver) => Box::pin(commands::deliver::deliver(global, deliver)),
        Command::Receipts(receipts) => Box::pin(commands::receipts::run(global, receipts)),
        Command::Resend(resend) => Box::pin(commands::deliver::resend(global, resend)),
        Command::Sandbox(sandbox) => Box::pin(commands::sandbox::run(global, sandbox)),
        Command::Session(session) => Box::pin(commands::session::run(global, session)),
        Command::Artifact(artifact) => Box::pin(commands::artifact::run(global, artifact)),
        Command::Topology(topology) => Box::pin(commands::topology::run(global, topology)),
        Command::Events(events) => Box::pin(commands::events::run(global, events)),
        Command::Dlq(dlq) => Box::pin(commands::dlq::run(global, dlq)),
        Command::Config(config) => Box::pin(ready(commands::config::run(global, config))),
        Command::Healthcheck(healthcheck) => {
            Box::pin(commands::healthcheck::run(global, healthcheck))
        }
        Command::Completions { shell } => {
            commands::manual::print_completions(*shell);
            Box::pin(ready(Ok(())))
        }
        Command::Man { directory } => Box::pin(ready(commands::manual::write_pages(directory))),
        Command::Reference { page } => Box::pin(ready(commands::reference::run(page))),
    }
}
