//! Programs whose outputs the caller reads while they run.

use dray_bus::CallError;
use dray_proto::v1::exec_sandbox_event::Event;
use dray_proto::v1::{SandboxCommandStage, SandboxCommandState};
use dray_testkit::eventually;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::commands::{ALLOW_ACME, CHILDREN_SCRIPT, audit, audits, processes_end, script};
use super::*;

/// A program that runs.
struct RunningStream {
    calling: JoinSet<Result<v1::ExecSandboxEvent, CallError>>,
    events: mpsc::Receiver<v1::ExecSandboxEvent>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl RunningStream {
    fn start(fixture: &TransferFixture, command: v1::ExecSandboxRequest) -> Self {
        let (sender, events) = mpsc::channel(1);
        let (bus, meta) = (fixture.bus.clone(), fixture.meta("acme"));
        let request = v1::ExecSandboxStreamRequest {
            command: Some(command),
        };
        let mut calling = JoinSet::new();
        calling.spawn(async move { bus.call_streaming(&meta, &request, sender).await });
        Self {
            calling,
            events,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    /// Reads the next chunk; false at the end.
    async fn read(&mut self) -> bool {
        let Some(event) = self.events.recv().await else {
            return false;
        };
        let (all, chunk) = match event.event.unwrap() {
            Event::Stdout(chunk) => (&mut self.stdout, chunk),
            Event::Stderr(chunk) => (&mut self.stderr, chunk),
            Event::End(_) => panic!("the end must come as the reply and not as an event"),
        };
        assert!(!chunk.is_empty() && chunk.len() <= 32 << 10);
        all.extend(chunk);
        true
    }

    async fn end(mut self) -> (Result<v1::ExecSandboxReply, Fault>, Vec<u8>, Vec<u8>) {
        while self.read().await {}
        let ended = self.calling.join_next().await.unwrap().unwrap();
        let ended = ended
            .map_err(Fault::from)
            .map(|last| match last.event.unwrap() {
                Event::End(reply) => reply,
                other => panic!("{other:?} is not the end"),
            });
        (ended, self.stdout, self.stderr)
    }
}

#[tokio::test]
async fn outputs_arrive_while_the_program_waits_for_their_reader() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let waits = "printf 'out\\377'; printf 'err\\376' >&2; until [ -e read ]; do sleep 0.02; done; \
                 printf done; exit 3";
    let mut events = audits(&fixture).await;
    let mut program = RunningStream::start(&fixture, script(&sandbox, waits));
    while program.stdout.len() < 4 || program.stderr.len() < 4 {
        assert!(program.read().await, "the program has ended before");
    }
    assert_eq!(program.stdout, b"out\xff");
    assert_eq!(program.stderr, b"err\xfe");
    std::fs::write(path.join("read"), b"").unwrap();
    let (ended, stdout, stderr) = program.end().await;
    let reply = ended.unwrap();
    assert_eq!(
        (reply.state(), reply.exit_code),
        (SandboxCommandState::Exited, 3)
    );
    assert_eq!(stdout, b"out\xffdone");
    assert_eq!(stderr, b"err\xfe");
    // The end is what `Exec` replies.
    assert_eq!(reply.stdout.unwrap().head, stdout);
    assert_eq!(reply.stderr.unwrap().head, stderr);
    let stages = [events.next().await.unwrap(), events.next().await.unwrap()];
    let [started, ended] = stages.map(|event| audit(&event));
    assert_eq!(started.stage(), SandboxCommandStage::Started);
    assert_eq!((ended.stdout_size, ended.stderr_size), (8, 4));
    fixture.end().await;
}

#[tokio::test]
async fn a_stream_holds_what_the_limits_keep_and_no_more() {
    let limits = ("sandbox-transfer.commands.max_output", "300KiB");
    let errors = ("sandbox-transfer.commands.max_stderr", "10KiB");
    let fixture = TransferFixture::with(&[ALLOW_ACME, limits, errors]).await;
    let (_, sandbox) = fixture.sandbox("open");
    let much = "head -c 1000000 /dev/zero; head -c 50000 /dev/zero >&2; exit 5";
    let (ended, stdout, stderr) = RunningStream::start(&fixture, script(&sandbox, much))
        .end()
        .await;
    let reply = ended.unwrap();
    assert_eq!(reply.exit_code, 5);
    let (out, err) = (reply.stdout.unwrap(), reply.stderr.unwrap());
    assert_eq!((out.size, out.truncated), (300 << 10, true));
    assert_eq!((err.size, err.truncated), (10 << 10, true));
    assert_eq!(stdout, vec![0; 300 << 10]);
    assert_eq!(stderr, vec![0; 10 << 10]);
    assert_eq!(fixture.read(out.claim.unwrap()).await, stdout);
    fixture.end().await;
}

#[tokio::test]
async fn a_streamed_program_needs_a_rule_and_runs_once() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (_, closed) = fixture.sandbox("closed");
    let (refused, stdout, _) = RunningStream::start(&fixture, script(&closed, "echo ran"))
        .end()
        .await;
    assert_eq!(refused.unwrap_err().detail, "command_denied");
    assert!(stdout.is_empty());
    let (path, open) = fixture.sandbox("open");
    let request = script(&open, "echo ran >>log");
    let meta = fixture.meta("acme");
    let (sender, _events) = mpsc::channel(8);
    let streamed = v1::ExecSandboxStreamRequest {
        command: Some(request.clone()),
    };
    let first = fixture.bus.call_streaming(&meta, &streamed, sender.clone());
    first.await.unwrap();
    let repeated = fixture.bus.call_streaming(&meta, &streamed, sender).await;
    assert_eq!(
        Fault::from(repeated.unwrap_err()).detail,
        "command_repeated"
    );
    // The record is that of `Exec` too.
    let plain = fixture.bus.call(&meta, &request).await.unwrap_err();
    assert_eq!(Fault::from(plain).detail, "command_repeated");
    assert_eq!(std::fs::read_to_string(path.join("log")).unwrap(), "ran\n");
    let (none, ..) = RunningStream::start(&fixture, script(&open, "exit 0"))
        .end()
        .await;
    assert!(none.is_ok());
    let empty = v1::ExecSandboxStreamRequest::default();
    let (sender, _events) = mpsc::channel(1);
    let empty = fixture
        .bus
        .call_streaming(&fixture.meta("acme"), &empty, sender)
        .await;
    assert_eq!(
        Fault::from(empty.unwrap_err()).code,
        dray_types::FaultCode::InvalidArgument
    );
    fixture.end().await;
}

#[tokio::test]
async fn a_program_ends_with_its_stream() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let mut events = audits(&fixture).await;
    let mut program = RunningStream::start(&fixture, script(&sandbox, CHILDREN_SCRIPT));
    while program.stdout != b"begun\n" {
        assert!(program.read().await);
    }
    eventually("the children", async || {
        path.join("pids").exists().then_some(())
    })
    .await;
    drop(program);
    processes_end(&path).await;
    let stages = [events.next().await.unwrap(), events.next().await.unwrap()];
    let [_, ended] = stages.map(|event| audit(&event));
    assert_eq!(ended.state(), SandboxCommandState::Cancelled);
    fixture.end().await;
}

#[tokio::test]
async fn a_reader_that_reads_nothing_stops_the_program_until_its_time_limit() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let endless = "echo $$ >pids; while :; do head -c 100000 /dev/zero; done";
    let mut request = script(&sandbox, endless);
    request.timeout_ms = 1500;
    let program = RunningStream::start(&fixture, request);
    eventually("the program", async || {
        path.join("pids").exists().then_some(())
    })
    .await;
    processes_end(&path).await;
    let (ended, stdout, _) = program.end().await;
    let reply = ended.unwrap();
    assert_eq!(reply.state(), SandboxCommandState::TimedOut);
    assert_eq!(reply.stdout.unwrap().size, stdout.len() as u64);
    fixture.end().await;
}
