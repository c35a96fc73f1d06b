//! `dray bench`: times of whole commands on this machine, each beside the program that does the same task without
//! Drayage.
//!
//! A figure is the time of a process from its start to its end, as a person at a terminal waits for it. Both programs
//! run in turn, and the ratio is that of their medians. `cargo xtask bench` measures the parts inside, with its own
//! servers.

mod copies;
mod pair;
mod plot;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use dray_presentation::size::human_size;
use dray_types::ByteSize;
use serde_json::{Value, json};

use self::copies::{CopyPeer, CopyTask, MeasuredSandbox, control_sockets, exit_call};
use self::pair::{CallsOfRuns, PairTimes, ProgramCall, check_output, millis, time_call, time_pair};
use crate::cli::{BenchArgs, GlobalOptions};
use crate::context;
use crate::interruption::{self, CleanupHold, StagingDirectory};
use crate::outcome::{CommandFailure, print_line, print_note};

/// Rows of the same kind.
#[derive(Debug)]
struct BenchGroup {
    title: String,
    rows: Vec<BenchRow>,
}

/// A task and its times.
#[derive(Debug)]
struct BenchRow {
    name: String,
    /// The other program, as people call it.
    peer: &'static str,
    times: PairTimes,
}

/// Measures, and prints each row as soon as it is known.
pub(crate) async fn run(global: &GlobalOptions, bench: &BenchArgs) -> Result<(), CommandFailure> {
    let mut signals = interruption::listen_to_signals()?;
    // The copies in sandboxes are removed even after a signal.
    let _hold = CleanupHold::new();
    let staging = StagingDirectory::new()
        .map_err(CommandFailure::local("cannot make a temporary directory"))?;
    let mut session = BenchSession::new(global, bench, staging.path())?;
    let measured = interruption::until_signal(&mut signals, session.measure()).await;
    session.remove_copies().await;
    session.end_connections().await;
    staging.remove();
    let groups = measured?;
    if let Some(directory) = &bench.svg {
        plot::write_plots(directory, &groups)?;
    }
    let mut rows = groups.iter().flat_map(|group| &group.rows);
    if rows.any(|row| row.times.ours.is_err()) {
        return Err(CommandFailure::Reported);
    }
    Ok(())
}

/// One call of the command.
struct BenchSession<'a> {
    bench: &'a BenchArgs,
    as_json: bool,
    /// This program, which commands start.
    program: OsString,
    /// The global options, which commands of this program get too.
    options: Vec<OsString>,
    directory: &'a Path,
    /// Access to sandboxes; `None` where services of a running system have it.
    sandboxes: Option<dray_sandbox_transfer::Config>,
    /// Directories with copies: the options for the sandbox, the sandbox and the path in it.
    copies: Vec<(Vec<OsString>, String, String)>,
}

impl<'a> BenchSession<'a> {
    fn new(
        global: &GlobalOptions,
        bench: &'a BenchArgs,
        directory: &'a Path,
    ) -> Result<Self, CommandFailure> {
        let program = std::env::current_exe()
            .map_err(CommandFailure::local("cannot find this program"))?
            .into_os_string();
        Ok(Self {
            bench,
            as_json: global.json,
            program,
            options: passed_options(global),
            directory,
            sandboxes: context::own_sandboxes(global)?,
            copies: Vec::new(),
        })
    }

    async fn measure(&mut self) -> Result<Vec<BenchGroup>, CommandFailure> {
        let mut groups = Vec::new();
        let local = self.directory.join("sandbox");
        std::fs::create_dir(&local).map_err(CommandFailure::local("cannot make a directory"))?;
        let local = format!("local:{}", local.display());
        for sandbox in std::iter::once(&local).chain(&self.bench.sandboxes) {
            groups.push(self.measure_copies(sandbox, sandbox == &local).await?);
        }
        if !self.bench.urls.is_empty() {
            groups.push(self.measure_fetches().await);
        }
        if !self.bench.documents.is_empty() {
            groups.push(self.measure_readings().await);
        }
        Ok(groups)
    }

    /// Copies of each size into a sandbox and out of it.
    async fn measure_copies(
        &mut self,
        sandbox: &str,
        is_own: bool,
    ) -> Result<BenchGroup, CommandFailure> {
        let shown = if is_own { "a local directory" } else { sandbox };
        let mut group = self.begin_group(format!("Copy into and out of {shown}"));
        let config = self.sandboxes.as_ref();
        let sandbox = MeasuredSandbox::new(sandbox, config, self.directory, self.copies.len());
        let working = self.working_directory(&sandbox).await?;
        let directory = format!("{working}/dray-bench-{}", std::process::id());
        let address = sandbox.address.clone();
        let copies = (sandbox.options.clone(), address.clone(), directory.clone());
        self.copies.push(copies);
        for size in &self.bench.sizes {
            let source = self.directory.join(size.as_u64().to_string());
            write_source(&source, *size)
                .map_err(CommandFailure::local("cannot write a file to copy"))?;
            for (number, variant) in sandbox.variants.iter().enumerate() {
                let task = Rc::new(CopyTask {
                    sandbox: address.clone(),
                    variant: Rc::clone(variant),
                    directory: directory.clone(),
                    name: format!("{}-{number}", size.as_u64()),
                    source: source.clone(),
                    output: self.directory.join("output"),
                });
                self.add_copies(&mut group, &sandbox, &task, *size).await;
            }
        }
        Ok(group)
    }

    /// A row for the copies of one file into the sandbox, and a row for those out of it.
    async fn add_copies(
        &self,
        group: &mut BenchGroup,
        sandbox: &MeasuredSandbox,
        task: &Rc<CopyTask>,
        size: ByteSize,
    ) {
        let peer = task.variant.peer.as_ref();
        let suffix = task.variant.suffix;
        let name = |way: &str| format!("{way}, {}{suffix}", human_size(size.as_u64()));
        let (put, get) = (Rc::clone(task), Rc::clone(task));
        let ours = self.calls(&sandbox.options, move |run| put.our_put(run));
        let theirs = task_calls(task, CopyTask::their_put);
        self.add_row(group, name("in"), peer, &ours, theirs.as_ref())
            .await;
        let ours = self.calls(&sandbox.options, move |_| get.our_get());
        let theirs = task_calls(task, |task, peer, _| task.their_get(peer));
        self.add_row(group, name("out"), peer, &ours, theirs.as_ref())
            .await;
    }

    async fn measure_fetches(&self) -> BenchGroup {
        let mut group = self.begin_group("Fetch URLs".to_owned());
        for url in &self.bench.urls {
            let output = self.directory.join("output").into_os_string();
            let (ours_url, ours_output) = (url.clone(), output.clone());
            let ours = self.calls(&[], move |_| {
                let fetch = ["fetch".into(), ours_url.clone().into()];
                fetch
                    .into_iter()
                    .chain(["-o".into(), ours_output.clone()])
                    .collect()
            });
            let peer = CopyPeer::plain("curl", &["curl", "-sSfL", "-o"]);
            let (curl, url_text) = (peer.clone(), url.clone());
            let theirs: CallsOfRuns =
                Box::new(move |_| curl.call([output.clone(), url_text.clone().into()]));
            self.add_row(&mut group, url.clone(), Some(&peer), &ours, Some(&theirs))
                .await;
        }
        group
    }

    async fn measure_readings(&self) -> BenchGroup {
        let mut group = self.begin_group("Read documents".to_owned());
        for document in &self.bench.documents {
            let path = document.clone().into_os_string();
            let ours = self.calls(&[], {
                let path = path.clone();
                move |_| reading_words(&path)
            });
            let peer = CopyPeer::plain("markitdown", &["markitdown"]);
            let program = peer.clone();
            let theirs: CallsOfRuns = Box::new(move |_| program.call([path.clone()]));
            let name = document.display().to_string();
            if let Err(reason) = check_output(&ours(0)).await {
                // Time without a text would not be the time of the same task.
                self.push_row(&mut group, name, Some(&peer), PairTimes::failed(reason));
                continue;
            }
            self.add_row(&mut group, name, Some(&peer), &ours, Some(&theirs))
                .await;
        }
        group
    }

    /// Calls of this program with the passed options and with further ones.
    fn calls(
        &self,
        further: &[OsString],
        arguments: impl Fn(u32) -> Vec<OsString> + 'static,
    ) -> CallsOfRuns {
        let (program, options) = (
            self.program.clone(),
            [self.options.as_slice(), further].concat(),
        );
        Box::new(move |run| ProgramCall {
            program: program.clone(),
            arguments: options.iter().cloned().chain(arguments(run)).collect(),
        })
    }

    fn begin_group(&self, title: String) -> BenchGroup {
        if !self.as_json {
            print_line(&title);
        }
        BenchGroup {
            title,
            rows: Vec::new(),
        }
    }

    async fn add_row(
        &self,
        group: &mut BenchGroup,
        name: String,
        peer: Option<&CopyPeer>,
        ours: &CallsOfRuns,
        theirs: Option<&CallsOfRuns>,
    ) {
        let times = time_pair(self.bench.runs, ours, theirs).await;
        self.push_row(group, name, peer, times);
    }

    /// Prints a row and adds it to its group.
    fn push_row(
        &self,
        group: &mut BenchGroup,
        name: String,
        peer: Option<&CopyPeer>,
        times: PairTimes,
    ) {
        let row = BenchRow {
            name,
            peer: peer.map_or("", |peer| peer.name),
            times,
        };
        let line = if self.as_json {
            row.to_json(&group.title).to_string()
        } else {
            row.to_text()
        };
        print_line(&line);
        group.rows.push(row);
    }

    /// The directory of a sandbox into which files without a path go.
    async fn working_directory(&self, sandbox: &MeasuredSandbox) -> Result<String, CommandFailure> {
        let address = sandbox.address.as_str();
        let output = tokio::process::Command::new(&self.program)
            .args(&self.options)
            .args(&sandbox.options)
            .args(["sandbox", "probe", address, "--json"])
            .kill_on_drop(true)
            .output()
            .await
            .map_err(CommandFailure::local("cannot start this program"))?;
        let probe: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let text = |path| probe.pointer(path).and_then(Value::as_str);
        if let Some(directory) = text("/working_directory") {
            return Ok(directory.trim_end_matches('/').to_owned());
        }
        let reason = text("/fault/message").unwrap_or("it cannot be examined");
        Err(CommandFailure::Usage(format!(
            "sandbox {address}: {reason}"
        )))
    }

    /// Removes the copies. A failure is only reported: a sandbox that does not work may have no copies.
    async fn remove_copies(&mut self) {
        for (options, sandbox, directory) in std::mem::take(&mut self.copies) {
            let words = ["sandbox", "rm", "--recursive", &sandbox, &directory].map(OsString::from);
            let options = self.options.iter().chain(&options).cloned();
            let removal = ProgramCall {
                program: self.program.clone(),
                arguments: options.chain(words).collect(),
            };
            if let Err(error) = time_call(&removal).await {
                print_note(&format!("{directory} may be left in {sandbox}: {error}"));
            }
        }
    }

    /// Ends the shared connections of both programs, which would stay open without use.
    async fn end_connections(&self) {
        let Some(config) = &self.sandboxes else {
            return;
        };
        for socket in control_sockets(self.directory) {
            // A connection that has ended by itself left its socket, so that this fails.
            drop(time_call(&exit_call(&config.ssh.program, &socket)).await);
        }
    }
}

impl BenchRow {
    fn to_text(&self) -> String {
        let part = |name: &str, times: &Result<pair::RunTimes, String>| match times {
            Ok(times) => format!("{name} {:>10}", time_text(times.median())),
            Err(error) => error.clone(),
        };
        let mut text = format!("  {:<24} {}", self.name, part("dray", &self.times.ours));
        if let Some(peer) = &self.times.peer {
            text.push_str("   ");
            text.push_str(&part(self.peer, peer));
        }
        if let Some(ratio) = self.times.ratio() {
            // Writing to a string cannot fail.
            let _ = write!(text, "   ratio {ratio:.2}");
        }
        text
    }

    fn to_json(&self, group: &str) -> Value {
        let times = |times: &Result<pair::RunTimes, String>| match times {
            Ok(times) => times.to_json(),
            Err(error) => json!({ "error": error }),
        };
        let peer = self.times.peer.as_ref().map(times);
        json!({
            "group": group,
            "name": self.name,
            "dray_ms": times(&self.times.ours),
            "peer": peer.as_ref().map(|_| self.peer),
            "peer_ms": peer,
            "ratio": self.times.ratio(),
        })
    }
}

/// Arguments that read a document completely. Without `--markdown` a long document becomes an excerpt, or a summary by
/// a model.
fn reading_words(document: &OsStr) -> Vec<OsString> {
    let words = ["read", "--markdown", "--"].into_iter().map(OsString::from);
    words.chain([document.to_owned()]).collect()
}

/// Calls of the other program for a task; `None` without one.
fn task_calls(
    task: &Rc<CopyTask>,
    call: impl Fn(&CopyTask, &CopyPeer, u32) -> ProgramCall + 'static,
) -> Option<CallsOfRuns> {
    let (task, peer) = (Rc::clone(task), task.variant.peer.clone()?);
    Some(Box::new(move |run| call(&task, &peer, run)))
}

/// A time for people, in milliseconds or seconds.
fn time_text(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} ms", millis(time))
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// The global options, as this program's own commands get them.
fn passed_options(global: &GlobalOptions) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| options.extend([name.into(), value]);
    if let Some(config) = &global.config {
        add("--config", config.into());
    }
    for value in &global.overrides {
        add("--set", value.into());
    }
    if let Some(nats) = &global.nats {
        add("--nats", nats.into());
    }
    if let Some(s3) = &global.s3 {
        add("--s3", s3.into());
    }
    if let Some(state) = &global.state {
        add("--state", state.into());
    }
    if let Some(tenant) = &global.tenant {
        add("--tenant", tenant.into());
    }
    options
}

/// Writes a file whose bytes do not compress, since some ways of copying would profit from that.
fn write_source(path: &Path, size: ByteSize) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut remaining = size.as_u64();
    while remaining > 0 {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let count =
            usize::try_from(remaining).map_or(word.len(), |remaining| remaining.min(word.len()));
        std::io::Write::write_all(&mut file, word.get(..count).unwrap_or_default())?;
        remaining -= count as u64;
    }
    std::io::Write::flush(&mut file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_completely_as_by_the_other_program() {
        let words = reading_words(OsStr::new("-report.pdf"));
        assert_eq!(words, ["read", "--markdown", "--", "-report.pdf"]);
    }
}
