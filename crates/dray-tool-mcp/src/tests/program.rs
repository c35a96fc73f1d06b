//! Programs that are no good servers.

use std::path::Path;

use dray_agent::caller::Caller;
use dray_types::Secret;

use super::support::{messages, options, streamable};
use crate::{McpOptions, McpToolset, ProgramCommand, connect_set};

fn shell(script: &str, folder: &Path) -> McpOptions {
    let mut options = options();
    let env = [("ONLY".to_owned(), Secret::new("this"))];
    let command = ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: env.into(),
        cwd: Some(folder.to_owned()),
    };
    options.stdio.insert("local".to_owned(), command);
    options
}

async fn issue(options: &McpOptions) -> String {
    let set = streamable("stdio:local");
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), options).await;
    messages(&built).join("; ")
}

/// The first line of a file, once it is complete.
async fn line(path: &Path) -> String {
    let look = async || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_once('\n').map(|(line, _)| line.to_owned())
    };
    dray_testkit::eventually("a line", look).await
}

/// Whether a process does nothing any more: it is gone, or a zombie that nobody waited for.
fn is_over(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test]
async fn a_program_is_ended_with_all_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let options = shell("sleep 1000 & echo $! > pid; cat > /dev/null", folder.path());
    let pid = folder.path().join("pid");
    let grandchild = tokio::select! {
        text = issue(&options) => panic!("{text}"),
        pid = line(&pid) => pid,
    };
    let look = async || is_over(&grandchild).then_some(());
    dray_testkit::eventually("the end of the program", look).await;
}

#[tokio::test]
async fn a_program_sees_the_environment_of_its_configuration_alone() {
    let folder = tempfile::tempdir().unwrap();
    let options = shell(
        "read -r line; env | grep -v -e '^PWD=' -e '^_=' -e '^SHLVL=' > env",
        folder.path(),
    );
    assert_eq!(
        issue(&options).await,
        "MCP error for s: the connection ended before the answer came"
    );
    let env = std::fs::read_to_string(folder.path().join("env")).unwrap();
    assert_eq!(env, "ONLY=this\n");
}

#[tokio::test]
async fn an_endless_line_of_a_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = shell("head -c 50000000 /dev/zero; cat > /dev/null", folder.path());
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
