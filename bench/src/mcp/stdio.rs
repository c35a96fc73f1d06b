//! A server of MCP on its standard streams.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The server process. It is killed when this is dropped.
pub(super) struct StdioServer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl StdioServer {
    /// Starts the command as a server on its standard streams.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let input = process.stdin.take().context("no standard input")?;
        let output = process.stdout.take().context("no standard output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    /// Sends a request and waits for its response; notifications in between are skipped.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            anyhow::ensure!(
                self.output.read_line(&mut line)? > 0,
                "the server ended before it responded to {method}"
            );
            let message: Value = serde_json::from_str(&line)
                .with_context(|| format!("the server wrote no message: {line}"))?;
            if message["id"] == 1 {
                return Ok(message);
            }
        }
    }

    /// Begins a session of 2025-11-25.
    pub(super) fn initialize(&mut self) -> anyhow::Result<()> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        });
        self.request("initialize", &params)?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.input, "{message}")?;
        self.input.flush()?;
        Ok(())
    }
}

impl Drop for StdioServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
