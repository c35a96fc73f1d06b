//! `cargo xtask bench`: compares this product with the programs that a user would use instead, in one run, as ratios.
//!
//! | name | ours | compared with |
//! |---|---|---|
//! | `bus` | a call over NATS, and over gRPC | a bare `async-nats` request and reply of the same size |
//! | `fetch` | `Fetch` over the in-process bus into the store | `curl -o` from the same server |
//! | `resolve` | base64 references resolved into the store | reading, hashing and encoding the same bytes in memory |
//! | `transfer` | files out of and into a container and over SSH, through the service into the store; `send_file` to a fake platform; the first byte of a preview; 100 concurrently; peak memory | `docker cp`, `docker exec cat`, `scp`, `docker cp` and `curl -F` |
//! | `sandbox` | `dray sandbox get` and `put` as commands: 1 KiB, 25 and 250 MB, containers and hosts, both kinds of proof; processor time and memory | `docker cp`, `scp` with a new and with a shared connection |
//! | `start` | `dray read` of ten bytes | `dray --version` |
//! | `reading` | a context, a new document and a cached one over gRPC | absolute aims |
//! | `documents` | every document of the corpus to Markdown: time, peak memory, words and cells that arrive | `markitdown`, and reference extractions by `pdftotext` and Python's libraries |
//! | `orchestrator` | chats through the orchestrator, with and without a tool; 1, 50 and 200 concurrently; memory of each, with NATS | the model asked directly, and a relay of `aiohttp` and `openai` |
//! | `mcp` | `dray mcp`: start to the first response, `read` of ten bytes, `list` over HTTP, tokens of the list of tools | absolute aims; `mcp-server-fetch`, `markitdown-mcp` and `server-filesystem` |
//! | `console` | the live page in Chromium under 10,000 events a minute: first paint, time to a row, lost rows, memory of the tab | absolute aims |
//! | `proxy` | tunnels, new connections and requests through the forward proxy of `dray up`; memory of idle and busy tunnels | `socat`, Squid and Smokescreen; an absolute aim for memory |
//! | `memory` | peak memory while 1 GiB is fetched into the store | the same process before |
//! | `build` | a first release build of `dray` and one after a change in `egress-fetcher`; size of the program | absolute aims |
//!
//! Both sides run in turn on the same machine, so the ratios are comparable between machines and the times are
//! not. Both need the other programs, and root for the Docker Engine.
//!
//! A missed target is printed and does not fail a build. Tests check behaviour.

use std::process::ExitCode;

use clap::Parser;

mod bus;
mod commands;
mod console;
mod documents;
mod fetch;
mod fixture;
mod harness;
#[expect(
    clippy::indexing_slicing,
    reason = "a missing member of a JSON value reads as null"
)]
mod mcp;
mod memory;
mod orchestrator;
mod proxy;
mod reading;
mod resolve;
mod transfer;

/// Measures and prints times, ratios and whether each target was met. A missed target does not change the exit code.
#[derive(Parser)]
struct BenchArgs {
    /// Benches to run: bus, fetch, resolve, transfer, sandbox, start, reading, documents, orchestrator, mcp, console,
    /// proxy, memory, build. Without a name, all benches run.
    names: Vec<String>,
    /// Parts of `transfer` to measure: docker, ssh, exec, delivery, crowd, memory, preview. Default: all parts.
    #[arg(long, value_parser = transfer::PART_NAMES)]
    part: Vec<String>,
    /// The `dray` that `sandbox`, `start`, `reading`, `mcp`, `console` and `proxy` measure; one is built in release
    /// without it.
    #[arg(long, value_parser = absolute_path)]
    binary: Option<std::path::PathBuf>,
    /// The program Smokescreen, with which `proxy` compares new connections; without it this comparison is left out.
    #[arg(long)]
    smokescreen: Option<std::path::PathBuf>,
    /// Measures small sizes in `proxy`, to check that the bench works. The numbers are not meaningful.
    #[arg(long)]
    small: bool,
    /// Fetches into the store in a separate process; used by `memory`.
    #[arg(long, hide = true)]
    fetch_once: Option<u64>,
    /// Measures the memory of chats in a separate process; used by `orchestrator`.
    #[arg(long, hide = true)]
    measure_chat_memory: bool,
    /// Moves one file in a separate process; used by `transfer`.
    #[arg(long, hide = true)]
    transfer_once: Option<String>,
    /// Serves the target of `proxy` on this address, in a separate network namespace.
    #[arg(long, hide = true)]
    proxy_target: Option<std::net::Ipv4Addr>,
}

impl BenchArgs {
    /// Whether a bench was named, or none was.
    fn selects(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|selected| selected == name)
    }
}

/// The absolute path, because a program in another directory, such as a worker of the reader, uses it too.
fn absolute_path(path: &str) -> std::io::Result<std::path::PathBuf> {
    std::path::absolute(path)
}

const BENCH_NAMES: [&str; 14] = [
    "bus",
    "fetch",
    "resolve",
    "transfer",
    "sandbox",
    "start",
    "reading",
    "documents",
    "orchestrator",
    "mcp",
    "console",
    "proxy",
    "memory",
    "build",
];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = BenchArgs::parse();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the part of a measurement that needs a separate process. `None` if the arguments name no such part.
async fn run_part(arguments: &BenchArgs) -> Option<anyhow::Result<()>> {
    // The program starts itself with these arguments, so that the measured process has no other memory.
    if let Some(size) = arguments.fetch_once {
        return Some(memory::fetch_once(size).await);
    }
    if arguments.measure_chat_memory {
        return Some(orchestrator::measure_chat_memory().await);
    }
    if let Some(order) = &arguments.transfer_once {
        return Some(transfer::memory::transfer_once(order).await);
    }
    let address = arguments.proxy_target?;
    Some(proxy::target::serve(address).await)
}

async fn run(arguments: &BenchArgs) -> anyhow::Result<()> {
    if let Some(result) = run_part(arguments).await {
        return result;
    }
    if let Some(unknown) = arguments
        .names
        .iter()
        .find(|name| !BENCH_NAMES.contains(&name.as_str()))
    {
        anyhow::bail!(
            "unknown measurement `{unknown}`; the measurements are {}",
            BENCH_NAMES.join(", ")
        );
    }
    if arguments.selects("bus") {
        bus::run().await?;
    }
    if arguments.selects("fetch") {
        fetch::run().await?;
    }
    if arguments.selects("resolve") {
        resolve::run().await?;
    }
    if arguments.selects("transfer") {
        transfer::run(&arguments.part).await?;
    }
    if arguments.selects("documents") {
        documents::run()?;
    }
    if arguments.selects("orchestrator") {
        orchestrator::run().await?;
    }
    run_program_benches(arguments).await?;
    if arguments.selects("memory") {
        memory::run().await?;
    }
    if arguments.selects("build") {
        commands::measure_build()?;
    }
    Ok(())
}

/// Runs the benches of the program `dray`.
async fn run_program_benches(arguments: &BenchArgs) -> anyhow::Result<()> {
    let binary = arguments.binary.as_deref();
    if arguments.selects("sandbox") {
        commands::measure_sandbox_commands(binary)?;
    }
    if arguments.selects("start") {
        commands::measure_start(binary)?;
    }
    if arguments.selects("reading") {
        reading::run(&commands::built_binary(binary)?).await?;
    }
    if arguments.selects("mcp") {
        commands::measure_mcp(binary)?;
    }
    if arguments.selects("console") {
        console::run(&commands::built_binary(binary)?).await?;
    }
    if arguments.selects("proxy") {
        let dray = commands::built_binary(binary)?;
        proxy::run(&dray, arguments.smokescreen.as_deref(), arguments.small).await?;
    }
    Ok(())
}

/// Prints one line of the report.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this program is for"
)]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}
