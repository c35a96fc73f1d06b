//! Tests of connections that callers share (sandbox-transfer 5.3).

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use dray_sandbox::{Backend as _, ErrorKind, Fingerprint, Follow, Integrity, Transport};
use dray_sandbox_ssh::{Config, SshBackend};
use dray_testkit::eventually;
use dray_testkit::sshd::{SftpOffer, SshdOptions};
use dray_transfer_engine::{Engine, EngineOptions, GetOptions, Policy, VecSink};
use tokio_util::sync::CancellationToken;

use crate::{SshFixture, begin_read, kind, open, read};

fn sockets(host: &SshFixture) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(host.control()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .collect()
}

/// Process ids of the masters of a host.
fn masters(host: &SshFixture) -> Vec<i32> {
    let control = host.control();
    let name = control.to_str().unwrap().as_bytes();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let ours = line.windows(name.len()).any(|part| part == name);
            (ours && line.windows(4).any(|part| part == b"\0-M\0")).then_some(id)
        })
        .collect()
}

fn kill_masters(host: &SshFixture) {
    let masters = masters(host);
    assert!(!masters.is_empty());
    for id in masters {
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
}

#[tokio::test]
async fn all_callers_share_one_connection() {
    let host = SshFixture::start(&SshdOptions::default());
    let path = host.make("file", "text");
    for _ in 0..2 {
        // A new backend, as in another process.
        let backend = host.backend();
        let sandbox = open(&backend, &host.address()).await;
        assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    }
    assert_eq!(host.logins(), 1);
    let mode = std::fs::metadata(host.control())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700);
    let [socket] = &sockets(&host)[..] else {
        panic!("{:?}", sockets(&host));
    };
    let name = socket.file_stem().unwrap().to_str().unwrap();
    assert!(name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

#[tokio::test]
async fn backends_that_connect_concurrently_make_one_connection() {
    let host = SshFixture::start(&SshdOptions::default());
    let (one, other) = (host.backend(), host.backend());
    let address = host.address();
    let (one, other) = tokio::join!(one.resolve(&address), other.resolve(&address));
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(host.logins(), 1);
}

#[tokio::test]
async fn a_stale_socket_is_removed() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("file", "text");
    kill_masters(&host);
    eventually("the end of the connection", async || {
        host.server.processes().is_empty().then_some(())
    })
    .await;
    assert_eq!(sockets(&host).len(), 1, "the socket is still there");
    // An idle channel may notice the end of its connection only when it is used.
    let content = eventually("a new connection", async || {
        match read(&*sandbox, &path).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => None,
            content => Some(content.unwrap()),
        }
    })
    .await;
    assert_eq!(content, b"text");
    assert_eq!(host.logins(), 2);
}

#[tokio::test]
async fn a_master_killed_in_the_middle_is_unavailable_and_the_next_call_connects_again() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let bytes = vec![7; 64 << 20];
    let path = host.make("large", &bytes);
    for transport in [Transport::Sftp, Transport::ExecRaw] {
        let mut body = begin_read(&*sandbox, &path, transport).await.unwrap();
        body.next().await.unwrap().unwrap();
        kill_masters(&host);
        let broken = body.read_all(256 << 20).await;
        assert_eq!(
            kind(broken),
            ErrorKind::Unavailable,
            "{}",
            transport.as_str()
        );
        // An idle channel may notice the end of its connection only when it is used, which is also `unavailable`.
        let mut repeated =
            dray_testkit::eventually("a new connection", async || {
                match begin_read(&*sandbox, &path, transport).await {
                    Ok(body) => Some(body),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        None
                    }
                }
            })
            .await;
        repeated.next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_full_connection_is_followed_by_another_one() {
    let host = SshFixture::start(&SshdOptions::default().line("MaxSessions 2"));
    let sandbox = host.open().await;
    let path = host.make("file", vec![1; 8 << 20]);
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let transport = sandbox.transports(&path)[0];
        let mut body = begin_read(&*sandbox, &path, transport).await.unwrap();
        body.next().await.unwrap().unwrap();
        bodies.push(body);
    }
    for body in bodies {
        assert!(body.read_all(8 << 20).await.is_ok());
    }
    assert!((3..=4).contains(&host.logins()), "{}", host.logins());
}

#[tokio::test]
async fn a_host_whose_connections_are_all_full_is_unavailable_until_a_channel_closes() {
    let host = SshFixture::start(&SshdOptions::default().line("MaxSessions 1"));
    let backend = SshBackend::new(Config {
        connections: 1,
        ..host.config()
    })
    .unwrap();
    let sandbox = open(&backend, &host.address()).await;
    let path = host.make("file", vec![1; 8 << 20]);
    let transport = sandbox.transports(&path)[0];
    let mut body = begin_read(&*sandbox, &path, transport).await.unwrap();
    body.next().await.unwrap().unwrap();
    let full = sandbox.stat(&path, Follow::Yes).await;
    assert_eq!(kind(full), ErrorKind::Unavailable);
    drop(body);
    eventually("a free channel", async || {
        sandbox.stat(&path, Follow::Yes).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_transfer_that_is_dropped_leaves_nothing_running() {
    for options in [
        SshdOptions::default(),
        SshdOptions::default().sftp(SftpOffer::None),
    ] {
        let host = SshFixture::start(&options);
        let sandbox = host.open().await;
        let path = host.make("large", vec![7; 64 << 20]);
        for transport in sandbox.transports(&path) {
            let mut body = begin_read(&*sandbox, &path, transport).await.unwrap();
            body.next().await.unwrap().unwrap();
            drop(body);
            eventually("the end of the transfer", async || {
                transfer_processes(&host, transport)
                    .is_empty()
                    .then_some(())
            })
            .await;
        }
    }
}

/// Writes the kind of each client to a file, and runs `ssh`.
const COUNTING_SSH: &str = r#"#!/bin/sh
d=${0%/*} kind=session
for word; do
  case $word in -G) kind=configuration ;; -M | -O) kind=master ;; esac
done
echo "$kind" >>"$d/started"
exec ssh "$@"
"#;

/// Lets the first shell and the first SFTP server wait for each other, where both start through the login shell.
const MEETING_SCRIPT: &str = r"case $BASH_EXECUTION_STRING in
  *sftp-server*) if mkdir ~/first-sftp 2>/dev/null; then : >~/meeting; fi ;;
  *) if mkdir ~/first-shell 2>/dev/null; then : <~/meeting; fi ;;
esac";

#[tokio::test]
async fn a_small_transfer_over_a_shared_connection_opens_its_sessions_concurrently_without_clients()
{
    let host = SshFixture::start(&SshdOptions::default().sftp(SftpOffer::Program));
    let path = host.make("file", [7; 1024]);
    host.backend().resolve(&host.address()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ssh");
    std::fs::write(&program, COUNTING_SSH).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let home = host.server.home();
    let meeting = home.join("meeting");
    let exit_status = std::process::Command::new("mkfifo").arg(meeting).status();
    assert!(exit_status.unwrap().success());
    std::fs::write(home.join(".bashrc"), MEETING_SCRIPT).unwrap();
    let backend = SshBackend::new(Config {
        program,
        ..host.config()
    })
    .unwrap();
    let address = host.address();
    let opening = backend.open_address(&address);
    // If the sessions were opened one after the other, the first would wait for the second until its time limit of a
    // minute.
    let sandbox = tokio::time::timeout(Duration::from_secs(30), opening).await;
    let engine = Engine::new(sandbox.unwrap().unwrap(), EngineOptions::default());
    let policy = Policy::beneath([host.root()]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 1024,
    };
    let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
    let result = engine.get(&path, &options, &mut sink, &(), &cancel).await;
    assert!(result.unwrap().receipt.integrity >= Some(Integrity::Sha256Beside));
    assert_eq!(sink.into_bytes().unwrap(), [7; 1024]);
    drop(engine);
    // An idle shell ends through its input: no client is started to kill it.
    eventually("the end of the channels", async || {
        let lines = command_lines(&host);
        lines
            .iter()
            .all(|line| line.contains("@notty"))
            .then_some(())
    })
    .await;
    let started = std::fs::read_to_string(directory.path().join("started")).unwrap();
    assert_eq!(started, "configuration\n");
    for first in ["first-sftp", "first-shell"] {
        assert!(home.join(first).exists(), "{first}");
    }
}

/// Waits in `ssh -G` until the start files of the host have begun to run.
const WAITING_SSH: &str = r#"#!/bin/sh
for word; do
  case $word in -G) : <"${0%/*}/meeting" ;; esac
done
exec ssh "$@"
"#;

#[tokio::test]
async fn a_host_is_examined_while_its_configuration_is_read() {
    let host = SshFixture::start(&SshdOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ssh");
    let backend = || {
        let program = program.clone();
        SshBackend::new(Config {
            program,
            ..host.config()
        })
        .unwrap()
    };
    std::fs::write(&program, "#!/bin/sh\nexec ssh \"$@\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let first = backend().resolve(&host.address()).await.unwrap();
    let meeting = directory.path().join("meeting");
    let exit_status = std::process::Command::new("mkfifo").arg(&meeting).status();
    assert!(exit_status.unwrap().success());
    std::fs::write(&program, WAITING_SSH).unwrap();
    let start = format!(": >{}", meeting.display());
    std::fs::write(host.server.home().join(".bashrc"), start).unwrap();
    let (backend, address) = (backend(), host.address());
    // If both ran one after the other, `ssh -G` would wait until its time limit.
    let second = tokio::time::timeout(Duration::from_mins(1), backend.resolve(&address)).await;
    assert_eq!(second.unwrap().unwrap(), first);
    assert_eq!(host.logins(), 1);
}

#[tokio::test]
async fn r_1_a_remembered_connection_is_not_used_after_its_name_changed() {
    let host = SshFixture::start(&SshdOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let backend = || {
        SshBackend::new(Config {
            config_file: Some(file.clone()),
            ..host.config()
        })
        .unwrap()
    };
    std::fs::write(&file, "").unwrap();
    backend().resolve(&host.address()).await.unwrap();
    let first = sockets(&host).pop().unwrap();
    // The configuration leads to the same address by another route, while the remembered connection is open.
    std::fs::write(&file, "BindAddress 127.0.0.1\n").unwrap();
    backend().resolve(&host.address()).await.unwrap();
    assert_eq!((host.logins(), sockets(&host).len()), (2, 2));
    // The remembered connection is the second one now. No connection is made under its name for the first route.
    std::fs::remove_file(&first).unwrap();
    kill_masters(&host);
    let second = sockets(&host).pop().unwrap();
    std::fs::write(&file, "").unwrap();
    backend().resolve(&host.address()).await.unwrap();
    assert_eq!(host.logins(), 3);
    assert!(first.exists());
    assert!(std::os::unix::net::UnixStream::connect(&second).is_err());
}

#[tokio::test]
async fn an_idle_shell_is_closed_for_sftp_when_a_host_allows_one_channel() {
    let host = SshFixture::start(&SshdOptions::default().line("MaxSessions 1"));
    let backend = SshBackend::new(Config {
        connections: 1,
        ..host.config()
    })
    .unwrap();
    let path = host.make("file", "text");
    let sandbox = backend.open_address(&host.address()).await.unwrap();
    for _ in 0..2 {
        let found = sandbox.fingerprint(&path).await.unwrap();
        assert!(matches!(found, Fingerprint::Sha256(_, 4)), "{found:?}");
        assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    }
    assert_eq!(host.logins(), 1);
}

/// Processes of the server that belong to a transfer: all but the connection itself, the idle channel and the idle
/// shell.
fn transfer_processes(host: &SshFixture, transport: Transport) -> Vec<String> {
    let connection_mark = if transport == Transport::Sftp {
        "@notty"
    } else {
        "sshd: "
    };
    // The shell that waits for requests.
    let is_idle = |line: &str| line.starts_with("sh\0-s\0");
    let mut lines = command_lines(host);
    lines.retain(|line| !line.contains(connection_mark) && !is_idle(line));
    lines
}

/// Command lines of the server's processes.
fn command_lines(host: &SshFixture) -> Vec<String> {
    let lines = host.server.processes().into_iter().map(|id| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).into_owned()
    });
    lines.filter(|line| !line.is_empty()).collect()
}
