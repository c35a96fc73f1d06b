//! Servers that agents use for files and pages instead, measured in the same way: the start, the list of tools, a small
//! file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::stdio::StdioServer;
use super::{BYTES_PER_TOKEN, READ_COUNT, SMALL_FILE};
use crate::harness::{SampleSet, to_millis};
use crate::print_line;

/// Number of measured starts. Interpreters take seconds, so there are fewer starts than of `dray`.
const PEER_START_COUNT: usize = 5;
/// Packages of Python, with their versions.
const PYTHON_PACKAGES: [&str; 2] = ["mcp-server-fetch==2026.10.24", "markitdown-mcp==0.0.1a8"];
/// The package of npm, with its version.
const NPM_PACKAGE: &str = "@modelcontextprotocol/server-filesystem@2026.8.31";

/// A server, and its call that reads the small file, if it has one.
struct PeerServer {
    name: &'static str,
    command: Vec<PathBuf>,
    read: Option<Value>,
}

/// Measures each server with the directory of the small file. A server that cannot be installed is left out.
pub(super) fn run(file_directory: &Path) {
    print_line("  other servers, measured in the same way:");
    let peers = python_peers(file_directory)
        .into_iter()
        .chain([node_peer(file_directory)]);
    for peer in peers {
        let result = peer.and_then(|peer| measure(&peer));
        if let Err(error) = result {
            print_line(&format!("  not measured: {error:#}"));
        }
    }
}

fn measure(peer: &PeerServer) -> anyhow::Result<()> {
    let [program, arguments @ ..] = peer.command.as_slice() else {
        anyhow::bail!("no command");
    };
    let start_server = || StdioServer::start(Command::new(program).args(arguments));
    let mut starts = Vec::new();
    for _ in 0..PEER_START_COUNT {
        let start = Instant::now();
        start_server()?.initialize()?;
        starts.push(start.elapsed());
    }
    let mut server = start_server()?;
    server.initialize()?;
    let listed = server.request("tools/list", &json!({}))?;
    let tokens = listed["result"]["tools"].to_string().len() / BYTES_PER_TOKEN;
    let mut reads = Vec::new();
    for _ in 0..peer.read.as_ref().map_or(0, |_| READ_COUNT) {
        let start = Instant::now();
        let result = server.request("tools/call", peer.read.as_ref().unwrap_or(&Value::Null))?;
        reads.push(start.elapsed());
        anyhow::ensure!(result["result"]["isError"] != true, "{result}");
    }
    let median_ms = |name: &str, times| to_millis(SampleSet::new(name, times).median());
    let start_ms = median_ms("start", starts);
    let read = if reads.is_empty() {
        "no local files".to_owned()
    } else {
        format!("read {:>9.3} ms", median_ms("read", reads))
    };
    let name = peer.name;
    print_line(&format!(
        "  {name:<40} start {start_ms:>9.3} ms, {tokens:>6} tokens, {read}"
    ));
    Ok(())
}

/// The directory of the installed packages.
fn target_directory() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let directory = root.context("no workspace")?.join("target/bench-mcp");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn run_install(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

fn python_peers(file_directory: &Path) -> [anyhow::Result<PeerServer>; 2] {
    let programs = target_directory().and_then(|directory| {
        let environment = directory.join("python");
        if !environment.join("bin/markitdown-mcp").exists() {
            run_install(
                Command::new("python3")
                    .args(["-m", "venv"])
                    .arg(&environment),
            )?;
            let mut install = Command::new(environment.join("bin/python"));
            install.args(["-m", "pip", "install", "--quiet"]);
            run_install(install.args(PYTHON_PACKAGES))?;
        }
        Ok(environment.join("bin"))
    });
    let programs = match programs {
        Ok(programs) => programs,
        Err(error) => {
            let text = format!("{error:#}");
            return [(), ()].map(|()| Err(anyhow::anyhow!("{text}")));
        }
    };
    let uri = format!("file://{}", file_directory.join(SMALL_FILE).display());
    let read = json!({"name": "convert_to_markdown", "arguments": {"uri": uri}});
    [
        Ok(PeerServer {
            name: "mcp-server-fetch",
            command: vec![programs.join("mcp-server-fetch")],
            read: None,
        }),
        Ok(PeerServer {
            name: "markitdown-mcp",
            command: vec![programs.join("markitdown-mcp")],
            read: Some(read),
        }),
    ]
}

fn node_peer(file_directory: &Path) -> anyhow::Result<PeerServer> {
    let directory = target_directory()?;
    let script = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
    let script = directory.join(script);
    if !script.exists() {
        std::fs::write(directory.join("package.json"), "{\"private\": true}")?;
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund"]);
        run_install(install.arg(NPM_PACKAGE).current_dir(&directory))?;
    }
    let path = file_directory.join(SMALL_FILE);
    Ok(PeerServer {
        name: "server-filesystem",
        command: vec!["node".into(), script, file_directory.to_path_buf()],
        read: Some(json!({"name": "read_text_file", "arguments": {"path": path}})),
    })
}
