//! Tests of programs that are not well-behaved servers.

use std::path::Path;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_types::Secret;

use dray_tool::ToolsetResult;
use serde_json::json;

use super::support::{call, messages, named, options, streamable};
use crate::{McpOptions, McpToolset, ProgramCommand, connect_set};

fn shell(script: &str, directory: &Path) -> McpOptions {
    let mut options = options();
    let env = [("ONLY".to_owned(), Secret::new("this"))];
    let command = ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: env.into(),
        cwd: Some(directory.to_owned()),
    };
    options.stdio.insert("local".to_owned(), command);
    options
}

async fn build_toolset(options: &McpOptions) -> ToolsetResult {
    let set = streamable("stdio:local");
    connect_set(McpToolset::Mcp(&set), &Caller::default(), options).await
}

async fn issue(options: &McpOptions) -> String {
    messages(&build_toolset(options).await).join("; ")
}

/// The first line of a file, once it is complete.
async fn line(path: &Path) -> String {
    let look = async || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_once('\n').map(|(line, _)| line.to_owned())
    };
    dray_testkit::eventually("a line", look).await
}

/// Whether a process has ended: it is gone, or a zombie that was not reaped.
fn is_over(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test]
async fn a_program_is_ended_with_all_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell(
        "sleep 1000 & echo $! > pid; cat > /dev/null",
        directory.path(),
    );
    let pid = directory.path().join("pid");
    let grandchild = tokio::select! {
        text = issue(&options) => panic!("{text}"),
        pid = line(&pid) => pid,
    };
    let look = async || is_over(&grandchild).then_some(());
    dray_testkit::eventually("the end of the program", look).await;
}

#[tokio::test]
async fn a_program_gets_only_the_environment_of_its_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell(
        "read -r line; env | grep -v -e '^PWD=' -e '^_=' -e '^SHLVL=' > env",
        directory.path(),
    );
    assert_eq!(
        issue(&options).await,
        "MCP error for s: the connection ended before the answer came"
    );
    let env = std::fs::read_to_string(directory.path().join("env")).unwrap();
    assert_eq!(env, "ONLY=this\n");
}

#[tokio::test]
async fn an_endless_line_of_a_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell(
        "head -c 50000000 /dev/zero; cat > /dev/null",
        directory.path(),
    );
    assert_eq!(
        issue(&options).await,
        "MCP error for s: the answer is longer than 16777216 bytes"
    );
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_issue_without_its_path() {
    let mut options = options();
    let command = ProgramCommand {
        command: "/nowhere/at/all".to_owned(),
        ..ProgramCommand::default()
    };
    options.stdio.insert("local".to_owned(), command);
    assert_eq!(
        issue(&options).await,
        "MCP error for s: the server cannot be reached"
    );
}

#[tokio::test]
async fn lines_of_a_program_that_are_not_messages_have_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell("yes", directory.path());
    assert_eq!(
        issue(&options).await,
        "MCP error for s: the server does not respond as an MCP server: it sends too many messages"
    );
}

/// A program that does not read its input after the list of its tools.
const DEAF_SCRIPT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
  case "$line" in
    *'"tools/list"'*) echo $$ > pid; exec sleep 1000;;
  esac
done
"#;

#[tokio::test]
async fn a_program_that_does_not_read_a_long_message_is_ended_with_its_tools() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = shell(DEAF_SCRIPT, directory.path());
    options.discovery_timeout = Duration::from_millis(50);
    let built = build_toolset(&options).await;
    let pid = line(&directory.path().join("pid")).await;
    let tool = named(&built, "s_echo");
    // Longer than a pipe takes, so the message is never written completely.
    let arguments = json!({"text": "x".repeat(1 << 20)});
    {
        let calling = call(&tool, arguments);
        tokio::pin!(calling);
        let look = async || is_blocked_writer(&pid).then_some(());
        let blocked = dray_testkit::eventually("a full pipe", look);
        tokio::select! {
            outcome = &mut calling => panic!("{outcome:?}"),
            () = blocked => {}
        }
    }
    drop((tool, built));
    let look = async || is_over(&pid).then_some(());
    dray_testkit::eventually("the end of the program", look).await;
}

/// Whether the input of a process is full. A pipe takes 64 KiB by default.
fn is_blocked_writer(process: &str) -> bool {
    let input = std::fs::File::open(format!("/proc/{process}/fd/0"));
    input.is_ok_and(|input| rustix::io::ioctl_fionread(input).is_ok_and(|bytes| bytes >= 1 << 16))
}

/// A program that exits when the first message is not `initialize`, and records every start.
const STRICT_SCRIPT: &str = r#"
echo start >> starts
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *'notifications/'*) continue;;
    *) exit 1;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn a_program_that_knows_only_initialize_begins_with_it_and_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell(STRICT_SCRIPT, directory.path());
    for starts in [2, 3] {
        assert_eq!(issue(&options).await, "");
        let noted = std::fs::read_to_string(directory.path().join("starts")).unwrap();
        assert_eq!(noted.lines().count(), starts);
    }
}

/// A program that ignores unknown requests, including the request for its versions.
const SILENT_SCRIPT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn a_program_that_ignores_the_question_for_its_versions_is_set_up_within_a_few_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = shell(SILENT_SCRIPT, directory.path());
    // `rmcp` alone waits 10 s before it continues.
    options.setup = Duration::from_secs(9);
    assert_eq!(issue(&options).await, "");
}

/// A program that speaks only 2026-07-28. Its first start is so slow that it is asked to begin with `initialize` before
/// it has named its versions.
const SLOW_SCRIPT: &str = r#"
common='"resultType":"complete","ttlMs":0,"cacheScope":"private"'
versions="{$common,\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}}}"
echo start >> starts
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"server/discover"'*) asked=$id; result=$versions
      [ "$(wc -l < starts)" -gt 1 ] || continue;;
    *'"initialize"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$asked" "$versions"
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"
      continue;;
    *'"tools/list"'*) result="{$common,\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}}]}";;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn a_program_that_names_its_versions_late_is_begun_again_without_initialize() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = shell(SLOW_SCRIPT, directory.path());
    // The second program responds within it, even on a busy machine.
    options.discovery_timeout = Duration::from_secs(5);
    assert_eq!(issue(&options).await, "");
    let noted = std::fs::read_to_string(directory.path().join("starts")).unwrap();
    assert_eq!(noted.lines().count(), 2);
}

/// A program of 2026-07-28 whose first call changes its tools, which it reports to subscribers.
const CHANGING_SCRIPT: &str = r#"
tools='[{"name":"more","inputSchema":{"type":"object"}}]'
common='"resultType":"complete","ttlMs":0,"cacheScope":"private"'
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  meta="\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$listen}"
  case "$line" in
    *'"server/discover"'*) result="{$common,\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{\"listChanged\":true}}}";;
    *'"subscriptions/listen"'*) listen=$id
      printf '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}\n' "$id"
      continue;;
    *'"tools/list"'*) result="{$common,\"tools\":$tools}";;
    *'"tools/call"'*) result='{"resultType":"complete","content":[]}'
      tools='[{"name":"more","inputSchema":{"type":"object"}},{"name":"new","inputSchema":{"type":"object"}}]'
      printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{%s}}\n' "$meta";;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn changed_tools_of_a_program_are_offered_only_in_its_conversation() {
    let directory = tempfile::tempdir().unwrap();
    let options = shell(CHANGING_SCRIPT, directory.path());
    let of = |conversation: &str| McpOptions {
        conversation: Some(conversation.to_owned()),
        ..options.clone()
    };
    let first = build_toolset(&of("a")).await;
    assert_eq!((messages(&first).len(), first.tools.len()), (0, 1));
    call(&named(&first, "s_more"), json!({})).await.unwrap();
    let look = async || (build_toolset(&of("a")).await.tools.len() == 2).then_some(());
    dray_testkit::eventually("the new tool", look).await;
    assert_eq!(build_toolset(&of("b")).await.tools.len(), 1);
}

/// A program whose response to the first call is not UTF-8, after notifications that no client asked for.
const GARBLED_SCRIPT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*)
      printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
      result='{"content":[{"type":"text","text":"fine"}]}'
      if [ ! -e garbled ]; then
        : > garbled
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":"\377"}}\n' "$id"
        continue
      fi;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn a_response_that_cannot_be_read_fails_its_call_and_the_next_call_works() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = shell(GARBLED_SCRIPT, directory.path());
    options.discovery_timeout = Duration::from_millis(50);
    let built = build_toolset(&options).await;
    let tool = named(&built, "s_echo");
    let failure = call(&tool, json!({})).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "Error calling MCP tool 'echo': the server does not respond as an MCP server: one of its messages cannot be \
         read"
    );
    assert_eq!(call(&tool, json!({})).await.unwrap().content, "fine");
}

/// A program that ignores the end of its input, and cleans up when it gets SIGTERM.
const CLEANING_SCRIPT: &str = r#"
trap 'echo done > cleaned; exit' TERM
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
sleep 1000
:
"#;

#[tokio::test]
async fn a_program_that_ignores_the_end_of_its_input_may_clean_up_before_it_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = shell(CLEANING_SCRIPT, directory.path());
    options.discovery_timeout = Duration::from_millis(50);
    let built = build_toolset(&options).await;
    assert_eq!(built.tools.len(), 1, "{:?}", built.issues);
    drop(built);
    assert_eq!(line(&directory.path().join("cleaned")).await, "done");
}
