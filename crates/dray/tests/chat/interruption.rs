//! Ctrl-C.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Child;

use super::agent::{AnswerScript, AnswerStep, FakeAgent, delta, says};
use super::process::{dray, file};

/// Longest wait for anything.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, future).await.unwrap()
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
}

fn silent() -> AnswerScript {
    // The line end lets a reader of whole lines see that the answer has begun.
    AnswerScript::Stream(vec![
        delta(&json!({"content": "begun\n"})),
        AnswerStep::Silence,
    ])
}

async fn left(agent: &FakeAgent, count: usize) {
    dray_testkit::eventually("the closed connection", async || {
        (agent.state().left == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_first_stops_the_answer_and_the_message_can_be_asked_again() {
    let agent = FakeAgent::start(vec![silent(), AnswerScript::Stream(says("whole"))]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let arguments = ["--url", &url, "--conversation", "talk.json"];
    let mut child = dray(home.path(), &arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"hi\n").await.unwrap();
    assert_eq!(
        soon(lines.next_line()).await.unwrap().as_deref(),
        Some("begun")
    );
    interrupt(&child);
    left(&agent, 1).await;
    stdin.write_all(b"/retry\n").await.unwrap();
    assert_eq!(
        soon(lines.next_line()).await.unwrap().as_deref(),
        Some("whole")
    );
    drop(stdin);
    // A line failed without a terminal.
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(1));
    let asked = agent.asked();
    assert_eq!((asked.len(), &asked[0].body), (2, &asked[1].body));
    assert_eq!(
        file(&home.path().join("talk.json")),
        json!({"version": 1, "messages": [
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "whole"},
        ]})
    );
}

#[tokio::test]
async fn a_second_interrupt_or_one_between_questions_ends_the_chat() {
    let agent = FakeAgent::start(vec![silent(), silent()]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let mut child = dray(home.path(), &["--url", &url]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"one\ntwo\nthree\n").await.unwrap();
    for count in [1, 2] {
        assert_eq!(
            soon(lines.next_line()).await.unwrap().as_deref(),
            Some("begun")
        );
        interrupt(&child);
        left(&agent, count).await;
    }
    // Standard input is still open.
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(1));
    assert_eq!(agent.asked().len(), 2);
    drop(stdin);

    agent.state().scripts = [AnswerScript::Stream(says("whole"))].into();
    let mut child = dray(home.path(), &["--url", &url]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"one\n").await.unwrap();
    assert_eq!(
        soon(lines.next_line()).await.unwrap().as_deref(),
        Some("whole")
    );
    interrupt(&child);
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(1));
}

#[tokio::test]
async fn one_message_alone_is_stopped_with_its_connection() {
    let agent = FakeAgent::start(vec![silent()]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let arguments = ["hi", "--url", &url, "--conversation", "talk.json"];
    let mut child = dray(home.path(), &arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(
        soon(lines.next_line()).await.unwrap().as_deref(),
        Some("begun")
    );
    interrupt(&child);
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(1));
    left(&agent, 1).await;
    let conversation = file(&home.path().join("talk.json"));
    assert_eq!(conversation["unanswered"]["content"], "hi");
}
