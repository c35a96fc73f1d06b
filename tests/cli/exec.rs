//! Tests of `dray sandbox exec`: streams, exit codes, and which processes remain when the command ends early.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dray_testkit::eventually;

use super::{CliHome, line, started_by};

/// A script that writes the process ids of itself and of a child in another session.
const CHILDREN_SCRIPT: &str =
    "setsid sleep 300 & echo $! >pids.new; echo $$ >>pids.new; mv pids.new pids; wait";

/// A home with one sandbox.
struct ExecFixture {
    home: CliHome,
    sandbox: PathBuf,
}

impl ExecFixture {
    fn new() -> Self {
        let home = CliHome::new();
        let sandbox = home.0.path().join("box");
        std::fs::create_dir(&sandbox).unwrap();
        Self { home, sandbox }
    }

    fn exec(&self, options: &[&str], argv: &[&str]) -> Command {
        let mut command = self.home.dray(&["sandbox", "exec"]);
        let address = format!("local:{}", self.sandbox.display());
        command.arg(address).args(options).arg("--").args(argv);
        command
    }

    /// Starts [`CHILDREN_SCRIPT`] and waits until its processes run. Returns the command and their process ids.
    async fn start_children(&self, options: &[&str]) -> (Child, Vec<String>) {
        let dray = self.exec(options, &["sh", "-c", CHILDREN_SCRIPT]);
        // The tests may run under `nohup`, whose ignored signal a command keeps.
        let mut command = started_by(&["env", "--default-signal=HUP"], &dray);
        // If the command waited for the program's own end during its shutdown, the test would time out.
        command.env("DRAY_SHUTDOWN__GRACE", "1h");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let pids = self.sandbox.join("pids");
        eventually("the program", async || pids.exists().then_some(())).await;
        let pids = std::fs::read_to_string(pids).unwrap();
        (child.unwrap(), pids.lines().map(str::to_owned).collect())
    }
}

fn has_ended(pid: &str) -> bool {
    let stat = Path::new("/proc").join(pid).join("stat");
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

async fn wait_until_ended(pids: &[String]) {
    for pid in pids {
        eventually("the end of a process", async || {
            has_ended(pid).then_some(())
        })
        .await;
    }
}

#[test]
fn a_program_gets_its_input_and_variables_and_returns_its_output_and_status() {
    let fixture = ExecFixture::new();
    let options = ["--input", "-", "--env", "NAME=a b", "--directory", "."];
    let script = "cat; printf '%s|' \"$NAME\" \"$1\" \"$HOME\"; echo wrong >&2; exit 7";
    let mut command = fixture.exec(&options, &["sh", "-c", script, "sh", "two\nlines"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = [b"\0\xff".repeat(100_000), b"end ".to_vec()].concat();
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let home = fixture.sandbox.canonicalize().unwrap();
    let expected = format!("a b|two\nlines|{}|", home.display());
    assert!(output.stdout == [input, expected.into_bytes()].concat());
    assert_eq!(output.stderr, b"wrong\n");
}

/// The program waits for files that this test creates after it has read the output so far.
#[test]
fn output_appears_while_the_program_runs() {
    let fixture = ExecFixture::new();
    let script = "echo first; until [ -e one ]; do sleep 0.02; done; echo second >&2; \
                  until [ -e two ]; do sleep 0.02; done; printf third";
    let mut child = fixture
        .exec(&[], &["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    assert_eq!(text, "first\n");
    std::fs::write(fixture.sandbox.join("one"), "").unwrap();
    text.clear();
    stderr.read_line(&mut text).unwrap();
    assert_eq!(text, "second\n");
    std::fs::write(fixture.sandbox.join("two"), "").unwrap();
    text.clear();
    stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, "third");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_program_ends_with_the_reader_of_its_output() {
    let fixture = ExecFixture::new();
    let mut child = fixture
        .exec(&[], &["sh", "-c", "while :; do echo line; done"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 5]).unwrap();
    drop(output);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141), "{ended:?}");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(!errors.contains("cannot write"), "{errors}");
}

#[test]
fn json_output_is_one_document() {
    let fixture = ExecFixture::new();
    let output = fixture
        .exec(&["--json"], &["sh", "-c", "echo out; kill -9 $$"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(137));
    let document = line(&output);
    assert_eq!(document["state"], "signaled");
    assert_eq!(document["signal"], 9);
    assert_eq!(document["stdout"]["head"], "out\n");
}

#[test]
fn a_program_that_is_not_found_is_a_failure_with_a_code() {
    let fixture = ExecFixture::new();
    let output = fixture.exec(&[], &["no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("program_not_found"), "{text}");
    let usage = fixture
        .exec(&["--env", "NAME"], &["true"])
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[tokio::test]
async fn a_program_ends_at_its_time_limit_with_its_children() {
    let fixture = ExecFixture::new();
    let (mut child, pids) = fixture.start_children(&["--timeout", "2"]).await;
    wait_until_ended(&pids).await;
    assert_eq!(child.wait().unwrap().code(), Some(124));
}

/// Sends a signal to the command as soon as its program runs; when the command has ended, no process of the program may
/// run.
async fn check_end_by(signal: &str, code: i32) {
    let fixture = ExecFixture::new();
    let (mut child, pids) = fixture.start_children(&[]).await;
    let kill_status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(kill_status.unwrap().success());
    let status = eventually("the end of the command", async || child.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(code), "{status}");
    // The command ends only after both processes.
    for pid in &pids {
        assert!(has_ended(pid), "{pid} runs");
    }
}

#[tokio::test]
async fn a_program_ends_when_its_command_is_interrupted() {
    check_end_by("-INT", 130).await;
}

#[tokio::test]
async fn a_program_ends_when_its_command_is_terminated() {
    check_end_by("-TERM", 143).await;
}

#[tokio::test]
async fn a_program_ends_when_the_terminal_of_its_command_is_closed() {
    check_end_by("-HUP", 129).await;
}

#[tokio::test]
async fn a_program_ends_by_itself_when_the_service_was_killed() {
    let fixture = ExecFixture::new();
    let (mut child, pids) = fixture.start_children(&["--timeout", "1"]).await;
    // No process of the service can end the program now; the supervisor beside it ends it after its time limit.
    child.kill().unwrap();
    wait_until_ended(&pids).await;
    child.wait().unwrap();
}
