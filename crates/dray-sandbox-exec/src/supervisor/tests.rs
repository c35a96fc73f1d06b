//! Tests of the kill script in real shells, and of when it runs.

use std::collections::VecDeque;
use std::io::Read as _;
use std::process::{Command, Stdio};

use tokio::time::Instant;

use super::CommandState::{Ended, Running, Unknown, Unreported};
use super::*;

/// A system with scripted states and results, which counts the kills.
#[derive(Clone, Debug, Default)]
struct FakeControl(Arc<Mutex<FakeState>>);

#[derive(Debug, Default)]
struct FakeState {
    /// Status of each kill; the last one is repeated.
    kills: VecDeque<i32>,
    /// The reported states of the command, one after each kill; the last one is repeated.
    states: VecDeque<CommandState>,
    killed: usize,
}

impl FakeControl {
    fn new(kills: &[i32], states: &[CommandState]) -> Self {
        Self(Arc::new(Mutex::new(FakeState {
            kills: kills.iter().copied().collect(),
            states: states.iter().copied().collect(),
            killed: 0,
        })))
    }

    /// How often a dropped command is killed.
    async fn kills_of_a_dropped_command(&self) -> usize {
        let supervisor = Supervisor::new(TaskTracker::new());
        drop(supervisor.watch("7e57", self.clone()).guard());
        assert!(!supervisor.is_settled());
        supervisor.settle().await;
        assert!(supervisor.is_settled());
        self.0.lock().unwrap().killed
    }
}

fn next<T: Copy>(list: &mut VecDeque<T>) -> T {
    if list.len() > 1 {
        list.pop_front().unwrap()
    } else {
        list[0]
    }
}

#[async_trait]
impl CommandControl for FakeControl {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        assert_eq!(argv[argv.len() - 2..], ["DRAY_TRANSFER=7e57", ""]);
        let mut state = self.0.lock().unwrap();
        state.killed += 1;
        Ok(next(&mut state.kills))
    }

    async fn state(&self) -> Result<CommandState, Error> {
        Ok(next(&mut self.0.lock().unwrap().states))
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_is_killed_until_its_system_says_that_it_has_ended() {
    // paused clock
    let control = FakeControl::new(&[1, 1, 0], &[Running, Running, Ended]);
    assert_eq!(control.kills_of_a_dropped_command().await, 3);
    let immortal = FakeControl::new(&[0], &[Running]);
    assert_eq!(immortal.kills_of_a_dropped_command().await, MAX_KILLS);
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_command_that_has_ended_are_killed() {
    // paused clock
    let control = FakeControl::new(&[0], &[Ended]);
    assert_eq!(control.kills_of_a_dropped_command().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_system_without_process_lists_is_searched_until_the_command_was_found() {
    // paused clock
    let late = FakeControl::new(&[1, 0], &[Unreported]);
    assert_eq!(late.kills_of_a_dropped_command().await, 2);
    let never = FakeControl::new(&[1], &[Unreported]);
    assert_eq!(never.kills_of_a_dropped_command().await, MAX_SEARCHES);
    let unknown_at_first = FakeControl::new(&[1, 1, 0], &[Unknown, Running, Ended]);
    assert_eq!(unknown_at_first.kills_of_a_dropped_command().await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_without_a_shell_is_tried_once() {
    // paused clock
    for status in [126, 127] {
        let control = FakeControl::new(&[status], &[Running]);
        assert_eq!(control.kills_of_a_dropped_command().await, 1);
    }
}

#[tokio::test]
async fn a_command_that_ended_or_is_disarmed_is_not_killed() {
    let control = FakeControl::new(&[0], &[Unreported]);
    let supervisor = Supervisor::new(TaskTracker::new());
    let command = supervisor.watch("7e57", control);
    let mut guard = command.guard();
    guard.disarm();
    drop(guard);
    assert!(supervisor.is_settled());
    assert_eq!(command.status().unwrap_err().kind(), ErrorKind::Protocol);
    command.set_ended(3);
    drop(command.guard());
    assert!(supervisor.is_settled());
    assert_eq!(command.status().unwrap(), 3);
}

#[tokio::test]
async fn nothing_is_killed_when_the_start_failed_and_left_nothing() {
    for (state, kills) in [(Unknown, 0), (Unreported, 1), (Ended, 1)] {
        let control = FakeControl::new(&[0], &[state]);
        let supervisor = Supervisor::new(TaskTracker::new());
        let command = supervisor.watch("7e57", control.clone());
        command.set_start_failed();
        drop(command.guard());
        supervisor.settle().await;
        assert_eq!(control.0.lock().unwrap().killed, kills, "{state:?}");
    }
}

#[tokio::test]
async fn a_command_with_two_guards_is_killed_once() {
    let control = FakeControl::new(&[0], &[Unreported]);
    let supervisor = Supervisor::new(TaskTracker::new());
    let command = supervisor.watch("7e57", control.clone());
    let guards = (command.guard(), command.guard());
    drop(guards);
    supervisor.settle().await;
    assert_eq!(control.0.lock().unwrap().killed, 1);
}

#[tokio::test(start_paused = true)]
async fn settling_waits_for_every_kill_but_not_for_ever() {
    // paused clock
    let supervisor = Supervisor::new(TaskTracker::new());
    supervisor.settle().await;
    supervisor.kills.send_modify(|count| *count = 1);
    let before = Instant::now();
    supervisor.settle().await;
    assert_eq!(before.elapsed(), SETTLE_TIMEOUT);
    supervisor.kills.send_modify(|count| *count = 0);
    let before = Instant::now();
    supervisor.settle().await;
    assert_eq!(before.elapsed(), Duration::ZERO);
}

fn run_probe(shell: &[&str], mark: &str) -> i32 {
    look_for(shell, mark, "")
}

fn look_for(shell: &[&str], mark: &str, lock_limit: &str) -> i32 {
    let (program, arguments) = shell.split_first().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(["-c", KILL_SCRIPT, "sh", mark, lock_limit])
        .env("PATH", "/nonexistent");
    command.status().unwrap().code().unwrap()
}

/// The absolute path of a program of this host.
fn program(name: &str) -> String {
    let found = ["/bin", "/usr/bin"].map(|directory| format!("{directory}/{name}"));
    let found = found
        .into_iter()
        .find(|path| std::path::Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is not installed"))
}

#[test]
fn every_shell_finds_what_carries_the_mark_and_nothing_else_without_other_programs() {
    let (dash, bash, busybox) = (program("dash"), program("bash"), program("busybox"));
    for shell in [&[dash.as_str()][..], &[&bash], &[&busybox, "sh"]] {
        let mark = format!("{MARK_VARIABLE}={}", new_mark());
        let (_, value) = mark.split_once('=').unwrap();
        let mut marked = Command::new("sleep")
            .arg("600")
            .env("BEFORE", "two\nlines")
            .env(MARK_VARIABLE, value)
            .env("ZLATER", "more")
            .spawn()
            .unwrap();
        let mut other = Command::new("sleep")
            .arg("600")
            .env(MARK_VARIABLE, new_mark())
            .spawn()
            .unwrap();
        assert_eq!(run_probe(shell, &mark), 0, "{shell:?}");
        assert!(!marked.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "{shell:?}");
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(run_probe(shell, &mark), 1, "{shell:?}");
    }
}

#[test]
fn a_child_in_a_separate_session_is_found() {
    let mark = new_mark();
    let mut parent = Command::new("sh")
        .args(["-c", "setsid sleep 600 & echo on; wait"])
        .env(MARK_VARIABLE, &mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 3];
    parent.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let mark = format!("{MARK_VARIABLE}={mark}");
    assert_eq!(run_probe(&[&program("dash")], &mark), 0);
    assert!(!parent.wait().unwrap().success());
    assert_eq!(run_probe(&[&program("dash")], &mark), 1, "neither is left");
}

#[test]
fn every_shell_stops_at_a_file_that_cannot_be_read() {
    let (dash, bash, busybox) = (program("dash"), program("bash"), program("busybox"));
    // A directory: it opens, and reading fails as for the files of a process that has just ended.
    let script = concat!(
        include_str!("../script/marked.sh"),
        "dray_line=earlier\ndray_holds mark </\n"
    );
    for shell in [&[dash.as_str()][..], &[&bash], &[&busybox, "sh"]] {
        let mut command = Command::new(program("timeout"));
        command.arg("10").args(shell).args(["-c", script]);
        assert_eq!(command.status().unwrap().code(), Some(1), "{shell:?}");
    }
}

/// Starts a process without variables and in a separate session, with this limit on file locks.
fn start_unmarked_process(lock_limit: &str) -> std::process::Child {
    let script = "ulimit -x \"$0\" 2>/dev/null || ulimit -w \"$0\"; exec env -i setsid sleep 600";
    let mut command = Command::new(program("dash"));
    command.args(["-c", script, lock_limit]);
    let child = command.spawn().unwrap();
    // The last of its programs has neither variables nor another session to wait for.
    let name = format!("/proc/{}/comm", child.id());
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while std::fs::read(&name).unwrap() != b"sleep\n" {
        assert!(std::time::Instant::now() < deadline, "it does not sleep");
        std::thread::yield_now();
    }
    child
}

#[test]
fn every_shell_finds_a_process_without_variables_by_its_limit_with_and_without_other_programs() {
    let (dash, bash, busybox) = (program("dash"), program("bash"), program("busybox"));
    let limit = u64::MAX / 32 + u64::from(std::process::id());
    let [own, other] = [limit, limit + 1].map(|limit| limit.to_string());
    for shell in [
        &[dash.as_str()][..],
        &[&bash],
        &[&busybox, "sh"],
        &["/usr/bin/env", "PATH=/usr/bin:/bin", &dash],
    ] {
        let mark = format!("{MARK_VARIABLE}={}", new_mark());
        let (mut marked, mut unrelated) =
            (start_unmarked_process(&own), start_unmarked_process(&other));
        assert_eq!(run_probe(shell, &mark), 1, "{shell:?} needs the limit");
        assert_eq!(look_for(shell, &mark, &own), 0, "{shell:?}");
        // The process is dead but not waited for, and still has limits.
        assert_eq!(look_for(shell, &mark, &own), 1, "{shell:?}");
        assert!(!marked.wait().unwrap().success());
        assert!(unrelated.try_wait().unwrap().is_none(), "{shell:?}");
        unrelated.kill().unwrap();
        unrelated.wait().unwrap();
    }
}
