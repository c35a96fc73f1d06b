//! Tests of programs that are kept between the requests of a conversation.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_tool::ToolsetResult;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::support::{call, messages, named, options, streamable};
use crate::{McpOptions, McpToolset, ProgramCommand, ProgramPool, connect_set};

/// A program with the tools `pid`, which returns its process id, and `wait`, which never responds. It records every
/// start.
const SERVER_SCRIPT: &str = r#"
echo start >> starts
echo "a line for the log" >&2
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"pid","inputSchema":{"type":"object"}},{"name":"wait","inputSchema":{"type":"object"}}]}';;
    *'"name":"wait"'*) echo waits > waits; continue;;
    *'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"$$\"}]}";;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"; continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

fn program(directory: &Path, idle_timeout: Duration, max_running: usize) -> McpOptions {
    let mut options = options();
    let command = ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), SERVER_SCRIPT.to_owned()],
        cwd: Some(directory.to_owned()),
        ..ProgramCommand::default()
    };
    options.stdio.insert("local".to_owned(), command);
    options.programs = ProgramPool::new(idle_timeout, max_running);
    options
}

async fn tools_of(options: &McpOptions, conversation: &str) -> ToolsetResult {
    let options = McpOptions {
        conversation: Some(conversation.to_owned()),
        ..options.clone()
    };
    let set = streamable("stdio:local");
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    assert_eq!(messages(&built), [""; 0]);
    built
}

async fn process(built: &ToolsetResult) -> String {
    let called = call(&named(built, "s_pid"), json!({})).await;
    called.unwrap().content
}

fn starts(directory: &Path) -> usize {
    let starts = std::fs::read_to_string(directory.join("starts"));
    starts.unwrap_or_default().lines().count()
}

fn is_over(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

async fn ends(process: &str) {
    let look = async || is_over(process).then_some(());
    dray_testkit::eventually("the end of the program", look).await;
}

const ONE_HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn turns_of_one_conversation_use_one_program_that_the_first_call_starts() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 8);
    let first = tools_of(&options, "a").await;
    let pid = process(&first).await;
    drop(first);
    for _ in 0..3 {
        assert_eq!(process(&tools_of(&options, "a").await).await, pid);
    }
    assert_eq!(starts(directory.path()), 1);
    // The tools are known, so a turn without a call starts nothing.
    tools_of(&options, "b").await;
    assert_eq!(starts(directory.path()), 1);
    assert!(options.programs.is_running("a") && !options.programs.is_running("b"));
}

#[tokio::test]
async fn conversations_never_share_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 8);
    let first_process = process(&tools_of(&options, "a").await).await;
    let second_process = process(&tools_of(&options, "b").await).await;
    assert_ne!(first_process, second_process);
    assert_eq!(starts(directory.path()), 2);
}

#[tokio::test]
async fn an_idle_program_is_ended_and_the_next_call_starts_another() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), Duration::from_millis(40), 8);
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(options.programs.clone().run(stop.clone()));
    let built = tools_of(&options, "a").await;
    let pid = process(&built).await;
    ends(&pid).await;
    assert_ne!(process(&built).await, pid);
}

#[tokio::test]
async fn a_full_pool_ends_the_longest_idle_program_and_never_a_busy_one() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 1);
    let first = process(&tools_of(&options, "a").await).await;
    let busy = tools_of(&options, "b").await;
    let mut calls = JoinSet::new();
    let wait = named(&busy, "s_wait");
    calls.spawn(async move { call(&wait, json!({})).await });
    let waits = directory.path().join("waits");
    dray_testkit::eventually("the call", async || waits.exists().then_some(())).await;
    ends(&first).await;
    let refused = tools_of(&options, "c").await;
    let error = call(&named(&refused, "s_pid"), json!({}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("too many programs are running"),
        "{error}"
    );
}

#[tokio::test]
async fn all_programs_end_when_the_service_stops() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 8);
    let pid = process(&tools_of(&options, "a").await).await;
    let stop = CancellationToken::new();
    stop.cancel();
    options.programs.clone().run(stop).await;
    ends(&pid).await;
    assert!(!options.programs.is_running("a"));
}

#[tokio::test]
async fn a_program_that_was_killed_is_started_again_by_the_next_call() {
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 8);
    let built = tools_of(&options, "a").await;
    let pid = process(&built).await;
    let raw = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
    ends(&pid).await;
    let repeated = dray_testkit::eventually("another program", async || {
        let called = call(&named(&built, "s_pid"), json!({})).await;
        called.ok().map(|output| output.content)
    });
    assert_ne!(repeated.await, pid);
}

/// Keeps the fields of every event.
#[derive(Clone, Debug, Default)]
struct EventRecorder(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for EventRecorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = EventFields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct EventFields(String);

impl tracing::field::Visit for EventFields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

#[tokio::test]
async fn standard_error_of_a_program_is_logged_with_the_server_name() {
    let recorder = EventRecorder::default();
    let _default = tracing::subscriber::set_default(recorder.clone());
    let directory = tempfile::tempdir().unwrap();
    let options = program(directory.path(), ONE_HOUR, 8);
    process(&tools_of(&options, "a").await).await;
    let look = async || {
        let events = recorder.0.lock().unwrap();
        let line = events
            .iter()
            .find(|event| event.contains("a line for the log"));
        line.cloned()
    };
    let line = dray_testkit::eventually("the line", look).await;
    assert!(
        line.starts_with("INFO") && line.contains("program=\"local\""),
        "{line}"
    );
}

#[tokio::test]
async fn the_task_of_a_pool_ends_after_its_last_user_and_its_last_program() {
    let pool = ProgramPool::new(Duration::from_millis(40), 2);
    let running = pool.clone().run(CancellationToken::new());
    drop(pool);
    running.await;
}
