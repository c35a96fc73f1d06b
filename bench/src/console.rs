//! The console's live page in Chromium under 10,000 events a minute: first paint, bytes of its assets, time from an
//! event's publication to its row, lost rows, and the memory of the tab. No other program is measured for comparison;
//! the aims are absolute.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use dray_bus::{Bus, Meta, NatsOptions, Topology};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, TenantId};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};

use crate::bus::noop_meter;
use crate::harness::verdict_text;
use crate::print_line;

/// Events of the measured minute.
const EVENT_COUNT: u64 = 10_000;
/// Events before the measured minute, which fill the page.
const WARMUP_COUNT: u64 = 1_000;
/// Time between two events of the measured minute.
const EVENT_INTERVAL: Duration = Duration::from_millis(6);
/// Time to live of the events.
const EVENT_TIMEOUT: Duration = Duration::from_mins(5);
/// npm package that drives Chromium.
const BROWSER_PACKAGE: &str = "playwright-core@1.64.1";
/// Target for the first paint, in milliseconds.
const MAX_PAINT_MS: f64 = 100.0;
/// Most bytes of the scripts, styles and pictures that a page loads.
const MAX_ASSET_BYTES: u64 = 150 * 1024;
/// Most growth of the tab's memory in the minute, as a ratio.
const MAX_GROWTH: f64 = 1.25;

/// The measurements of the browser, as `live.cjs` prints them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageReport {
    /// First paint of each load, in milliseconds.
    paint_ms: Vec<f64>,
    /// Bytes of everything that the page loads, before compression.
    asset_bytes: u64,
    /// Milliseconds from the publication of an event to its row, sorted.
    latency_ms: Vec<f64>,
    /// Rows that were added more than once.
    repeated: u64,
    /// Bytes of the script heap before the minute, after a collection.
    heap_before: f64,
    /// Bytes of the script heap after the minute, after a collection.
    heap_after: f64,
    /// Nodes of the document before the minute.
    nodes_before: f64,
    /// Nodes of the document after the minute.
    nodes_after: f64,
}

/// A `dray up` with a console; killed when it is dropped.
struct ConsoleProcess {
    child: Child,
    /// The pipe stays open, because a process that cannot write its messages ends.
    messages: Option<BufReader<ChildStderr>>,
    login: String,
}

impl ConsoleProcess {
    fn start(dray: &Path, nats: &str, home: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(dray);
        command
            .args(["up", "--nats", nats, "--console", "127.0.0.1:0"])
            .args(["--http", "127.0.0.1:0", "--chat", "127.0.0.1:0"])
            .env("HOME", home)
            .stderr(Stdio::piped());
        let mut process = Self {
            child: command.spawn()?,
            messages: None,
            login: String::new(),
        };
        let stderr = process.child.stderr.take().context("no standard error")?;
        let messages = process.messages.insert(BufReader::new(stderr));
        while process.login.is_empty() {
            let mut line = String::new();
            anyhow::ensure!(messages.read_line(&mut line)? > 0, "dray up ended");
            if let Some(rest) = line.strip_prefix("console: ") {
                let login = rest.split_whitespace().next();
                login.unwrap_or_default().clone_into(&mut process.login);
            }
        }
        Ok(process)
    }
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        // Errors are ignored, because the process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures the console of this binary.
pub(crate) async fn run(dray: &Path) -> anyhow::Result<()> {
    let nats = NatsServer::start();
    let options = NatsOptions::at(nats.url());
    let bus = Bus::connect(&options, Clock::system(), &noop_meter()).await?;
    let mismatches = bus.apply_topology(&Topology::default()).await?;
    anyhow::ensure!(mismatches.is_empty(), "{mismatches:?}");
    let home = tempfile::tempdir()?;
    let console = ConsoleProcess::start(dray, &nats.url(), home.path())?;
    let report = measure_page(&bus, &console.login, home.path()).await?;
    print_report(&report);
    Ok(())
}

/// Runs the browser, and publishes events when the browser requests them.
async fn measure_page(bus: &Bus, login: &str, home: &Path) -> anyhow::Result<PageReport> {
    let settings = json!({"login": login, "warmup": WARMUP_COUNT, "events": EVENT_COUNT});
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/live.cjs");
    let mut browser = tokio::process::Command::new("node")
        .arg(script)
        .arg(settings.to_string())
        .current_dir(browser_directory()?)
        .env("HOME", home)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stderr = browser.stderr.take().context("no standard error")?;
    let mut requests = tokio::io::BufReader::new(stderr).lines();
    let mut other = String::new();
    while let Some(line) = requests.next_line().await? {
        match line.as_str() {
            "warmup" => publish_events(bus, WARMUP_COUNT).await?,
            "events" => publish_events(bus, EVENT_COUNT).await?,
            text => other.push_str(text),
        }
    }
    let mut output = Vec::new();
    let mut stdout = browser.stdout.take().context("no standard output")?;
    stdout.read_to_end(&mut output).await?;
    anyhow::ensure!(browser.wait().await?.success(), "{other}");
    Ok(serde_json::from_slice(&output)?)
}

/// Publishes events at an even rate; the name of the tool of each event contains the time of publication.
async fn publish_events(bus: &Bus, count: u64) -> anyhow::Result<()> {
    let clock = Clock::system();
    let mut interval = tokio::time::interval(EVENT_INTERVAL);
    for _ in 0..count {
        interval.tick().await;
        let deadline = Deadline::after(clock.now_ms(), EVENT_TIMEOUT);
        let event = v1::ToolCallResolved {
            tool: format!("at-{}", clock.now_ms()),
            ..v1::ToolCallResolved::default()
        };
        bus.publish_event(&Meta::new(TenantId::default(), deadline), &event)
            .await?;
    }
    Ok(())
}

/// The directory whose `node_modules` have the package, below `target`.
fn browser_directory() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let directory = root.context("no workspace")?.join("target/node-bench");
    std::fs::create_dir_all(&directory)?;
    let installed = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .args(["--prefer-offline", "--prefix", ".", BROWSER_PACKAGE])
        .current_dir(&directory)
        .status()?;
    anyhow::ensure!(installed.success(), "npm failed");
    Ok(directory)
}

fn print_report(report: &PageReport) {
    let paint = percentile(&report.paint_ms, 50);
    print_line(&format!(
        "(s) console: first paint {paint:.0} ms, median of {} loads, aim at most {MAX_PAINT_MS:.0} ms: {}",
        report.paint_ms.len(),
        verdict_text(paint <= MAX_PAINT_MS)
    ));
    // A page that loads nothing was not measured.
    let is_small = (1..=MAX_ASSET_BYTES).contains(&report.asset_bytes);
    print_line(&format!(
        "(s) assets of a page: {} bytes, aim at most {MAX_ASSET_BYTES}: {}",
        report.asset_bytes,
        verdict_text(is_small)
    ));
    let expected = WARMUP_COUNT + EVENT_COUNT;
    let rows = u64::try_from(report.latency_ms.len()).unwrap_or(u64::MAX);
    let lost = expected.saturating_sub(rows);
    print_line(&format!(
        "(s) live page, {EVENT_COUNT} events in {:.0} s: {lost} rows lost and {} repeated, aim 0: {}",
        (EVENT_INTERVAL * u32::try_from(EVENT_COUNT).unwrap_or(u32::MAX)).as_secs_f64(),
        report.repeated,
        verdict_text(lost == 0 && report.repeated == 0)
    ));
    print_line(&format!(
        "    from publication to row: median {:.0} ms, p95 {:.0} ms, p99 {:.0} ms, longest {:.0} ms",
        percentile(&report.latency_ms, 50),
        percentile(&report.latency_ms, 95),
        percentile(&report.latency_ms, 99),
        percentile(&report.latency_ms, 100)
    ));
    let growth = report.heap_after / report.heap_before;
    let is_steady = growth <= MAX_GROWTH && report.nodes_after <= report.nodes_before * MAX_GROWTH;
    print_line(&format!(
        "    memory of the tab: {:.1} MB, then {:.1} MB; {:.0} nodes, then {:.0}; aim at most {MAX_GROWTH} times: {}",
        report.heap_before / 1e6,
        report.heap_after / 1e6,
        report.nodes_before,
        report.nodes_after,
        verdict_text(is_steady)
    ));
}

/// The value below which `percent` of the sorted values lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
