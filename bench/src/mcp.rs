//! (q) `dray mcp` as a client sees it: the start, a small document, the size of the list of tools, calls per second.
//!
//! These have absolute targets. Servers that do a part of the same work are measured for comparison.

mod peers;
mod stdio;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use self::stdio::StdioServer;
use crate::harness::{SampleSet, to_millis, verdict_text};
use crate::print_line;

/// Number of starts that are measured.
const START_COUNT: usize = 21;
/// Number of reads that are measured.
const READ_COUNT: usize = 200;
/// Concurrent connections over HTTP.
const CONNECTION_COUNT: usize = 8;
/// Calls that one connection makes in sequence.
const CALLS_PER_CONNECTION: usize = 250;
/// The file of ten bytes that is read.
const SMALL_FILE: &str = "note.txt";
/// Bytes per token in estimates, as in docs/mcp-server.md.
const BYTES_PER_TOKEN: usize = 3;
/// Target for the time from the start to the first response, in milliseconds.
const MAX_START_MS: f64 = 30.0;
/// Target for a read of ten bytes, in milliseconds.
const MAX_READ_MS: f64 = 5.0;
/// Target for the estimated tokens of the list of tools.
const MAX_LIST_TOKENS: usize = 3_000;
/// Target for the calls per second over HTTP.
const MIN_CALLS_PER_SECOND: f64 = 1_000.0;

/// Measures the server with a directory of one small file.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join(SMALL_FILE), "ten bytes\n")?;
    print_line("(q) the MCP server");
    measure_stdio(dray, directory.path())?;
    measure_http(dray, directory.path())?;
    peers::run(directory.path());
    Ok(())
}

fn stdio_server(dray: &Path, directory: &Path) -> anyhow::Result<StdioServer> {
    StdioServer::start(Command::new(dray).args(["mcp", "--root"]).arg(directory))
}

fn measure_stdio(dray: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut starts = Vec::new();
    for _ in 0..START_COUNT {
        let start = Instant::now();
        let mut server = stdio_server(dray, directory)?;
        server.request("server/discover", &with_meta(json!({})))?;
        starts.push(start.elapsed());
    }
    report_time("start to the first response", starts, MAX_START_MS);
    let mut server = stdio_server(dray, directory)?;
    let listed = server.request("tools/list", &with_meta(json!({})))?;
    let tokens = listed["result"]["tools"].to_string().len() / BYTES_PER_TOKEN;
    let verdict = verdict_text(tokens <= MAX_LIST_TOKENS);
    print_line(&format!(
        "  {:<40} {tokens:>9} tokens, aim at most {MAX_LIST_TOKENS}: {verdict}",
        "the list of tools"
    ));
    let mut reads = Vec::new();
    let call = with_meta(json!({"name": "read", "arguments": {"path": SMALL_FILE}}));
    // This call is not counted, because the first conversion starts a process.
    server.request("tools/call", &call)?;
    for _ in 0..READ_COUNT {
        let start = Instant::now();
        let result = server.request("tools/call", &call)?;
        reads.push(start.elapsed());
        anyhow::ensure!(result["result"]["isError"] == false, "{result}");
    }
    report_time("read of ten bytes", reads, MAX_READ_MS);
    Ok(())
}

fn report_time(name: &str, times: Vec<Duration>, target_ms: f64) {
    let median_ms = to_millis(SampleSet::new(name, times).median());
    let verdict = verdict_text(median_ms <= target_ms);
    print_line(&format!(
        "  {name:<40} {median_ms:>9.3} ms, aim at most {target_ms}: {verdict}"
    ));
}

/// The parameters of a request of 2026-07-28.
fn with_meta(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

/// A server over HTTP. It is killed when this is dropped.
struct HttpServer(Child);

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure_http(dray: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut process = Command::new(dray)
        .args(["mcp", "--http", "127.0.0.1:0", "--root"])
        .arg(directory)
        .stderr(Stdio::piped())
        .spawn()?;
    let errors = process.stderr.take().context("no standard error")?;
    let _server = HttpServer(process);
    let mut line = String::new();
    let mut errors = BufReader::new(errors);
    errors.read_line(&mut line)?;
    let address = line.trim().trim_start_matches("MCP: http://");
    let address = address.trim_end_matches("/mcp").to_owned();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CONNECTION_COUNT)
            .map(|_| scope.spawn(|| call_repeatedly(&address)))
            .collect();
        for caller in callers {
            caller
                .join()
                .map_err(|_| anyhow::anyhow!("a caller panicked"))??;
        }
        anyhow::Ok(())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand calls")]
    let calls = (CONNECTION_COUNT * CALLS_PER_CONNECTION) as f64;
    let rate = calls / start.elapsed().as_secs_f64();
    let verdict = verdict_text(rate >= MIN_CALLS_PER_SECOND);
    print_line(&format!(
        "  {:<40} {rate:>9.0} calls/s, aim at least {MIN_CALLS_PER_SECOND}: {verdict}",
        "`list` over HTTP, 8 connections"
    ));
    Ok(())
}

/// Calls `list` repeatedly on one connection.
fn call_repeatedly(address: &str) -> anyhow::Result<()> {
    let params = with_meta(json!({"name": "list", "arguments": {}}));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let body = body.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: list\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for _ in 0..CALLS_PER_CONNECTION {
        stream.write_all(request.as_bytes())?;
        let response = read_response(&mut reader)?;
        anyhow::ensure!(response.contains(SMALL_FILE), "{response}");
    }
    Ok(())
}

/// The body of one response, with a declared length or in chunks.
fn read_response(reader: &mut BufReader<TcpStream>) -> anyhow::Result<String> {
    let mut length = None;
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.parse()?);
        }
    }
    let mut body = Vec::new();
    if let Some(length) = length {
        reader.take(length).read_to_end(&mut body)?;
        return Ok(String::from_utf8(body)?);
    }
    loop {
        let size = u64::from_str_radix(&read_line(reader)?, 16)?;
        reader.take(size).read_to_end(&mut body)?;
        read_line(reader)?;
        if size == 0 {
            return Ok(String::from_utf8(body)?);
        }
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> anyhow::Result<String> {
    let mut line = String::new();
    anyhow::ensure!(
        reader.read_line(&mut line)? > 0,
        "the server closed the connection"
    );
    Ok(line.trim_end().to_owned())
}
