//! Tests of the persistent shell, which serves several requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_sandbox::backend::{Follow, Read};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{FileKind, Fingerprint, Integrity, Transport};
use dray_transfer_engine::policy::Policy;
use dray_transfer_engine::{Engine, EngineOptions, GetOptions, VecSink};
use dray_types::Sha256Digest;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::fixture::{ChannelForm, ExecFixture, ToolSet, random, read};
use super::processes::{dead, line};
use crate::{Channel, Exec, ExecFiles, ExecSandbox, LocalExec, RunningCommand};

/// Counts the commands that run, and can end the output of a shell after a number of replies.
#[derive(Debug)]
pub(super) struct CountedExec {
    exec: LocalExec,
    runs: Arc<AtomicUsize>,
    /// Number of replies after which a shell dies, and whether it dies immediately (`true`) or at the next request.
    gone_after: Option<(usize, bool)>,
    ready: Arc<Mutex<ReadyScript>>,
    /// Result of [`Exec::sends_before_ready`].
    beside: bool,
}

/// The scripted result of [`Exec::ready`], and the number of its calls.
#[derive(Debug, Default)]
struct ReadyScript {
    unready: Option<ErrorKind>,
    silent: bool,
    asked: usize,
}

impl CountedExec {
    pub(super) fn new(fixture: &ExecFixture) -> Self {
        Self {
            exec: fixture.exec(),
            runs: Arc::default(),
            gone_after: None,
            ready: Arc::default(),
            beside: false,
        }
    }
}

#[async_trait]
impl Exec for CountedExec {
    fn channel(&self) -> Channel {
        self.exec.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let RunningCommand { stdout, end } = self.exec.run(argv, stdin).await?;
        let Some((after, at_once)) = self.gone_after else {
            return Ok(RunningCommand { stdout, end });
        };
        let state = (stdout, Vec::new());
        let stdout = Body::new(stream::unfold(
            state,
            move |(mut body, mut seen)| async move {
                let ends = seen.windows(6).filter(|window| *window == b" over ");
                if ends.count() >= after {
                    if !at_once {
                        // A check without waiting does not notice the end of the shell; the next wait does.
                        tokio::task::yield_now().await;
                    }
                    return None;
                }
                let chunk = body.next().await?;
                if let Ok(chunk) = &chunk {
                    seen.extend_from_slice(chunk);
                }
                Some((chunk, (body, seen)))
            },
        ));
        Ok(RunningCommand { stdout, end })
    }

    async fn ready(&self) -> Result<(), Error> {
        let (unready, silent) = {
            let mut ready = self.ready.lock().unwrap();
            ready.asked += 1;
            (ready.unready, ready.silent)
        };
        if silent {
            std::future::pending::<()>().await;
        }
        match unready {
            Some(kind) => Err(Error::new(kind, "not ready")),
            None => Ok(()),
        }
    }

    fn sends_before_ready(&self) -> bool {
        self.beside
    }
}

pub(super) fn persistent_shell(exec: CountedExec) -> (ExecFiles<CountedExec>, Arc<AtomicUsize>) {
    let runs = Arc::clone(&exec.runs);
    (ExecFiles::new(exec).with_persistent_shell(), runs)
}

#[tokio::test]
async fn one_persistent_shell_gives_the_same_results_as_many_commands() {
    for tools in [ToolSet::Dash, ToolSet::Bash, ToolSet::BusyBox] {
        for form in [ChannelForm::Pipe, ChannelForm::Shell] {
            let fixture = ExecFixture::new(tools, form);
            let (files, runs) = persistent_shell(CountedExec::new(&fixture));
            let fresh = fixture.files();
            let bytes = random(70_000);
            for name in ["plain", "it's $(here) `and` \"there\"\n", "-n"] {
                let path = fixture.file(name, &bytes);
                let metadata = files.stat(&path, Follow::Yes).await.unwrap();
                assert_eq!(metadata, fresh.stat(&path, Follow::Yes).await.unwrap());
                let print = files.fingerprint(&path).await.unwrap();
                assert_eq!(print, Fingerprint::Sha256(Sha256Digest::of(&bytes), 70_000));
                let to = path
                    .parent()
                    .join([name.as_bytes(), b"2"].concat())
                    .unwrap();
                assert!(files.rename(&path, &to, false).await.unwrap());
                let error = files.stat(&path, Follow::No).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound);
                files.remove(&to, false).await.unwrap();
            }
            for name in ["it's a $(name)", "other"] {
                fixture.file(name, b"");
            }
            let directory = fixture.path("x").parent();
            let listed = files.list(&directory, 1, 10).await.unwrap();
            assert_eq!(listed, fresh.list(&directory, 1, 10).await.unwrap());
            assert_eq!(listed.entries.len(), 2);
            fixture.sh("rm *");
            assert_eq!(runs.load(Ordering::SeqCst), 1, "{tools:?} {form:?}");
        }
    }
}

#[tokio::test]
async fn r_16_arguments_that_are_not_utf_8_are_not_interpreted() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let (files, _) = persistent_shell(CountedExec::new(&fixture));
    let path = fixture.path(b"\xff'; touch pwned; '\n$(touch pwned)");
    let error = files.stat(&path, Follow::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(fixture.sh("ls -A"), "");
}

#[tokio::test]
async fn a_state_differs_after_every_change_of_the_file() {
    for tools in [ToolSet::Dash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let files = fixture.files().with_persistent_shell();
        let path = fixture.file("f", b"first");
        let before = match files.state(&path).await {
            // The directory of the test may be on a file system without reliable times.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ToolMissing, "{error}");
                return;
            }
            Ok(before) => before,
        };
        assert_eq!((before.kind, before.size), (FileKind::File, 5));
        assert!(before.is_same(&files.state(&path).await.unwrap()));
        // Other bytes, but the same size and modification time. A program cannot set the change time back.
        fixture.sh("touch -r f old; printf other >f; touch -r old f");
        let after = files.state(&path).await.unwrap();
        assert_eq!((after.size, after.modified_ns), (5, before.modified_ns));
        assert!(!before.is_same(&after));
        fixture.sh("touch -d '2100-01-01' f");
        assert!(!files.state(&path).await.unwrap().is_settled());
    }
}

#[tokio::test]
async fn only_readable_regular_files_have_a_state() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Nobody);
    let files = fixture.files().with_persistent_shell();
    fixture.sh("mkdir d; mkfifo p; printf x >closed; chmod 600 closed; ln -s closed l");
    for (name, kind) in [
        ("d", ErrorKind::IsDirectory),
        ("p", ErrorKind::NotRegular),
        ("nothing", ErrorKind::NotFound),
        ("closed", ErrorKind::PermissionDenied),
        ("l", ErrorKind::ChangedDuringTransfer),
    ] {
        let error = files.state(&fixture.path(name)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
    let made_up = dray_sandbox::path::SandboxPath::new("/proc/self/status").unwrap();
    let error = files.state(&made_up).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn a_shell_that_died_is_replaced() {
    for at_once in [true, false] {
        let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
        let path = fixture.file("f", b"data");
        let (files, runs) = persistent_shell(CountedExec {
            gone_after: Some((2, at_once)),
            ..CountedExec::new(&fixture)
        });
        for _ in 0..6 {
            assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 4);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 3, "{at_once}");
    }
}

#[tokio::test]
async fn r_13_a_rename_whose_response_is_lost_is_not_repeated() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let path = fixture.file("f", b"data");
    let (files, runs) = persistent_shell(CountedExec {
        gone_after: Some((1, false)),
        ..CountedExec::new(&fixture)
    });
    files.stat(&path, Follow::No).await.unwrap();
    let lost = files.rename(&path, &fixture.path("g"), false).await;
    assert!(lost.is_err());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // The rename may or may not have happened; in both cases there is exactly one file.
    assert_eq!(fixture.sh("cat *"), "data");
}

#[tokio::test]
async fn no_change_is_requested_from_a_sandbox_that_is_not_ready() {
    for beside in [false, true] {
        let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
        let path = fixture.file("f", b"data");
        let exec = CountedExec {
            beside,
            ..CountedExec::new(&fixture)
        };
        let ready = Arc::clone(&exec.ready);
        let (files, runs) = persistent_shell(exec);
        files.stat(&path, Follow::No).await.unwrap();
        ready.lock().unwrap().unready = Some(ErrorKind::SandboxPaused);
        let renamed = files.rename(&path, &fixture.path("g"), false).await;
        assert_eq!(renamed.unwrap_err().kind(), ErrorKind::SandboxPaused);
        assert_eq!(fixture.sh("ls"), "f\n");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn only_requests_without_effect_are_sent_while_readiness_is_checked() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let path = fixture.file("f", b"data");
    let exec = CountedExec {
        beside: true,
        ..CountedExec::new(&fixture)
    };
    let ready = Arc::clone(&exec.ready);
    let (files, _) = persistent_shell(exec);
    files.stat(&path, Follow::No).await.unwrap();
    ready.lock().unwrap().silent = true;
    assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 4);
    files.fingerprint(&path).await.unwrap();
    let before = ready.lock().unwrap().asked;
    let to = fixture.path("g");
    let renaming = files.rename(&path, &to, false);
    let asked = async {
        while ready.lock().unwrap().asked == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        renamed = renaming => panic!("{renamed:?}"),
        () = asked => {}
    }
    assert_eq!(fixture.sh("ls"), "f\n");
}

#[tokio::test]
async fn a_file_is_read_through_the_persistent_shell() {
    for tools in [ToolSet::Dash, ToolSet::Bash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let (files, runs) = persistent_shell(CountedExec::new(&fixture));
        for size in [0, 1, 63, 64, 4095, 4096, 70_000, 3 << 20] {
            let bytes = random(size);
            let path = fixture.file("f", &bytes);
            let read = read(&files, &path, Transport::ExecRaw).await.unwrap();
            assert!(read == bytes, "{tools:?} {size}");
            let metadata = files.stat(&path, Follow::No).await.unwrap();
            assert_eq!(metadata.size, size as u64);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{tools:?}");
    }
}

#[tokio::test]
async fn the_digest_of_a_file_is_computed_while_it_is_read() {
    for tools in [ToolSet::Dash, ToolSet::Bash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let (files, runs) = persistent_shell(CountedExec::new(&fixture));
        for size in [0, 70_000, 9 << 20] {
            let bytes = random(size);
            let path = fixture.file("f", &bytes);
            let file = files.stat(&path, Follow::Yes).await.unwrap();
            let order = Read {
                transport: Transport::ExecRaw,
                file: &file,
                offset: 0,
            };
            assert!(files.reads_with_digest(&order));
            let (body, mut digest) = files.read_with_digest(order).await.unwrap();
            assert!(body.read_all(16 << 20).await.unwrap() == bytes);
            let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), size as u64);
            assert_eq!(digest.try_recv(), Ok(expected), "{tools:?} {size}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{tools:?}");
    }
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
        .with(&["cat", "head", "stat", "readlink"]);
    let (files, _) = persistent_shell(CountedExec::new(&fixture));
    let path = fixture.file("f", b"data");
    let file = files.stat(&path, Follow::Yes).await.unwrap();
    let order = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let (body, mut digest) = files.read_with_digest(order).await.unwrap();
    assert_eq!(body.read_all(10).await.unwrap(), b"data");
    assert!(
        digest.try_recv().is_err(),
        "no tool of this set computes a digest"
    );
}

#[tokio::test]
async fn a_shell_ends_when_its_file_is_not_read_to_the_end() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe)
        .with_fake("dd", "echo $PPID >../shell; exec /bin/dd \"$@\"");
    let path = fixture.file("f", &random(3 << 20));
    let (files, runs) = persistent_shell(CountedExec::new(&fixture));
    let file = files.stat(&path, Follow::Yes).await.unwrap();
    let order = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let mut body = files.read(order).await.unwrap();
    body.next().await.unwrap().unwrap();
    let shell = line(&fixture.root.path().join("shell")).await;
    drop(body);
    dead(&shell).await;
    assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 3 << 20);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_shell_ends_when_the_caller_drops_its_request() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake(
        "sha256sum",
        "echo $$ >>../pids; echo $PPID >>../pids; exec sleep 4721",
    );
    let path = fixture.file("f", b"data");
    let (files, runs) = persistent_shell(CountedExec::new(&fixture));
    let pids = fixture.root.path().join("pids");
    {
        let asked = files.fingerprint(&path);
        let seen = async {
            loop {
                let text = line(&pids).await;
                if text.lines().count() == 2 {
                    return text;
                }
            }
        };
        tokio::select! {
            answered = asked => panic!("{answered:?}"),
            _ = seen => {}
        }
    }
    for pid in line(&pids).await.lines() {
        dead(pid).await;
    }
    assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 4);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_shell_ends_when_its_owner_is_dropped() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake(
        "readlink",
        "echo $PPID >../shell; exec /bin/readlink \"$@\"",
    );
    let path = fixture.file("f", b"data");
    let files = fixture.files().with_persistent_shell();
    files.stat(&path, Follow::Yes).await.unwrap();
    let shell = line(&fixture.root.path().join("shell")).await;
    drop(files);
    dead(&shell).await;
}

#[tokio::test]
async fn concurrent_requests_use_separate_shells() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let bytes = random(10_000);
    let path = fixture.file("f", &bytes);
    let (files, runs) = persistent_shell(CountedExec::new(&fixture));
    let asked = (0..8).map(|_| files.fingerprint(&path));
    let digest = Sha256Digest::of(&bytes);
    for print in futures_util::future::join_all(asked).await {
        assert_eq!(print.unwrap(), Fingerprint::Sha256(digest, 10_000));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 8);
    files.stat(&path, Follow::No).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 8, "an existing shell was used");
    assert!(read(&files, &path, Transport::ExecRaw).await.unwrap() == bytes);
}

#[tokio::test]
async fn a_channel_that_delays_output_has_no_persistent_shell() {
    for form in [ChannelForm::Narrow, ChannelForm::Text, ChannelForm::Ranges] {
        let fixture = ExecFixture::new(ToolSet::Dash, form);
        let path = fixture.file("f", b"data");
        let (files, runs) = persistent_shell(CountedExec::new(&fixture));
        for _ in 0..2 {
            assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 4);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{form:?}");
    }
}

#[tokio::test]
async fn a_get_uses_the_running_shell_for_all_requests() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let bytes = random(3 << 20);
    let path = fixture.file("f", &bytes);
    fixture.sh("touch -d '2001-01-01' f");
    let exec = CountedExec::new(&fixture);
    let runs = Arc::clone(&exec.runs);
    let handle = Handle {
        address: "exec:here".parse().unwrap(),
        incarnation: "1".to_owned(),
    };
    let sandbox = ExecSandbox::new(handle, exec).with_persistent_shell();
    // The change time cannot be set, so the test waits until it is two seconds old. Only a local disk reports a state.
    let told = loop {
        match sandbox.files().state(&path).await {
            Ok(state) if !state.is_settled() => {}
            state => break state.is_ok(),
        }
    };
    runs.store(0, Ordering::SeqCst);
    let engine = Engine::new(Arc::new(sandbox), EngineOptions::default());
    let policy = Policy::beneath([path.parent()]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 1 << 30,
    };
    let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
    let result = engine.get(&path, &options, &mut sink, &(), &cancel).await;
    let receipt = result.unwrap().receipt;
    assert!(sink.into_bytes().unwrap() == bytes);
    if told {
        assert_eq!(receipt.integrity, Some(Integrity::Sha256Beside));
    }
    // No new command ran: the bytes came through the shell that already ran.
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_state_is_reported_without_the_program_date() {
    for applets in [&["stat", "date"][..], &["stat"]] {
        let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(applets);
        let path = fixture.file("f", b"abc");
        let state = match fixture.files().state(&path).await {
            // The directory of the test is not on a local disk.
            Err(error) if error.kind() == ErrorKind::ToolMissing => return,
            state => state.unwrap(),
        };
        let now = std::fs::metadata(fixture.work().join("f")).unwrap();
        let written = std::os::unix::fs::MetadataExt::ctime(&now);
        assert!((written..written + 600).contains(&state.now_s), "{state:?}");
    }
}
