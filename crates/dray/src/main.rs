//! `dray`: all services in one binary, and the commands around them.

use std::process::ExitCode;

use clap::Parser as _;

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
    match runtime.block_on(run(&cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(cli.global.json);
            failure.exit_code()
        }
    }
}

async fn run(cli: &Cli) -> Result<(), Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo => demo::run(global).await,
        Command::Up(up) => commands::up::run(global, up).await,
        Command::Chat(chat) => commands::chat::run(global, chat).await,
        Command::Resolve(resolve) => commands::resolve::run(global, resolve).await,
        Command::Fetch(fetch) => commands::fetch::run(global, fetch).await,
        Command::Read(read) => commands::read::run(global, read).await,
        Command::Classify(classify) => commands::read::classify(global, classify),
        Command::Send(send) => commands::deliver::send(global, send).await,
        Command::Deliver(deliver) => commands::deliver::deliver(global, deliver).await,
        Command::Receipts(receipts) => commands::receipts::run(global, receipts).await,
        Command::Resend(resend) => commands::deliver::resend(global, resend).await,
        Command::Sandbox(sandbox) => commands::sandbox::run(global, sandbox).await,
        Command::Session(session) => commands::session::run(global, session).await,
        Command::Artifact(artifact) => commands::artifact::run(global, artifact).await,
        Command::Topology(topology) => commands::topology::run(global, topology).await,
        Command::Events(events) => commands::events::run(global, events).await,
        Command::Dlq(dlq) => commands::dlq::run(global, dlq).await,
        Command::Config(config) => commands::config::run(global, config),
        Command::Healthcheck(healthcheck) => commands::healthcheck::run(global, healthcheck).await,
        Command::Reference { page } => commands::reference::run(page),
    }
}
