//! Tests of commands on a real host.

use bytes::Bytes;
use dray_testkit::eventually;
use dray_testkit::sshd::{Sshd, SshdOptions};
use futures_util::{FutureExt as _, stream};

use super::*;
use crate::client::Client;
use crate::config::{Config, Settings};
use crate::master::Master;
use crate::mux::ControlConnection;
use crate::mux::tests::{FakeMaster, MasterStep, steps_after_opening};
use crate::sftp::{self, Pool};
use crate::target::Target;

struct ShellFixture {
    server: Sshd,
    shell: Shell,
    control: tempfile::TempDir,
}

async fn host(options: &SshdOptions) -> ShellFixture {
    let server = Sshd::start(options);
    let control = tempfile::tempdir_in("/tmp").unwrap();
    let settings = Settings::new(Config {
        control_directory: Some(control.path().join("c")),
        config_file: Some("none".into()),
        identity_file: Some(server.key()),
        ..Config::default()
    })
    .unwrap();
    let target = Target::parse(&format!("{}@127.0.0.1:{}", server.user(), server.port())).unwrap();
    let client = Client::new(Arc::new(settings), target);
    let name = client.connection_name().await.unwrap();
    let link = Arc::new(HostLink::new(client, &name));
    ShellFixture {
        server,
        shell: Shell::new(link),
        control,
    }
}

fn argv(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

async fn sh(shell: &Shell, script: &str, stdin: Option<Body>) -> Result<RunningCommand, Error> {
    shell
        .run(argv(&[b"sh", b"-c", script.as_bytes()]), stdin)
        .await
}

/// Whether a process runs whose command line contains this word.
fn is_running(word: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
    })
}

#[tokio::test]
async fn the_output_of_start_files_is_left_out_of_that_of_a_command() {
    let noise = "echo hello; printf '@@0 1 no end'; echo trouble >&2";
    let host = host(&SshdOptions::default().start_file(noise)).await;
    let script = "printf 'a\\nb\\0'; echo problem >&2; exit 3";
    let running = sh(&host.shell, script, None).await.unwrap();
    assert_eq!(running.stdout.read_all(100).await.unwrap(), b"a\nb\0");
    let exit = running.end.await.unwrap();
    assert_eq!(exit.status, 3);
    assert!(exit.stderr.ends_with("problem\n"), "{}", exit.stderr);
}

#[tokio::test]
async fn r_16_arguments_are_passed_as_they_are() {
    let host = host(&SshdOptions::default()).await;
    let every: Vec<u8> = (1..=255).collect();
    let words: [&[u8]; 7] = [
        b"",
        b"-n",
        b"$(touch x)`touch y`;&|",
        b"it's",
        b"\n",
        b"'\\''",
        &every,
    ];
    let all = [&[&b"printf"[..], b"%s|"][..], &words].concat();
    let (exit, output) = host.shell.output(argv(&all), 4096).await.unwrap();
    assert_eq!(exit.status, 0);
    assert!(
        output == [words.join(&b'|'), b"|".to_vec()].concat(),
        "{}",
        output.escape_ascii()
    );
}

#[tokio::test]
async fn bytes_pass_unchanged_in_both_directions() {
    let host = host(&SshdOptions::default()).await;
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|index| (index % 253) as u8)
        .collect();
    let body = Body::from_bytes(bytes.clone());
    let running = host.shell.run(argv(&[b"cat"]), Some(body)).await.unwrap();
    assert!(running.stdout.read_all(4_000_000).await.unwrap() == bytes);
    assert_eq!(running.end.await.unwrap().status, 0);
}

#[tokio::test]
async fn a_command_that_reads_only_part_of_its_input_succeeds() {
    let host = host(&SshdOptions::default()).await;
    let body = Body::from_bytes(vec![b'x'; 5_000_000]);
    let running = sh(&host.shell, "head -c 3; exec <&-", Some(body))
        .await
        .unwrap();
    assert_eq!(running.stdout.read_all(10).await.unwrap(), b"xxx");
    assert_eq!(running.end.await.unwrap().status, 0);
}

#[tokio::test]
async fn a_command_whose_input_fails_is_killed_and_reports_the_error_of_the_input() {
    let host = host(&SshdOptions::default()).await;
    let chunks = [
        Ok(Bytes::from_static(b"half")),
        Err(Error::new(ErrorKind::Corrupted, "the source broke")),
    ];
    let body = Body::new(stream::iter(chunks));
    let running = host.shell.run(argv(&[b"cat"]), Some(body)).await.unwrap();
    let output = running.stdout.read_all(100).await;
    assert_eq!(output.unwrap_err().kind(), ErrorKind::Corrupted);
    assert_eq!(running.end.await.unwrap_err().kind(), ErrorKind::Corrupted);
}

#[tokio::test]
async fn a_command_killed_by_a_signal_has_the_exit_status_of_a_shell() {
    let host = host(&SshdOptions::default()).await;
    let running = sh(&host.shell, "kill -9 $$", None).await.unwrap();
    assert_eq!(running.stdout.read_all(10).await.unwrap(), b"");
    assert_eq!(running.end.await.unwrap().status, 137);
}

#[tokio::test]
async fn a_command_may_exit_with_the_status_that_ssh_has_for_a_broken_connection() {
    let host = host(&SshdOptions::default()).await;
    let running = sh(&host.shell, "echo begun; exit 255", None).await.unwrap();
    assert_eq!(running.stdout.read_all(10).await.unwrap(), b"begun\n");
    assert_eq!(running.end.await.unwrap().status, 255);
}

#[tokio::test]
async fn dropping_the_output_or_the_end_of_a_command_kills_its_processes() {
    let host = host(&SshdOptions::default()).await;
    for (index, word) in ["1000000.25", "1000000.5"].iter().enumerate() {
        // A grandchild that holds no pipe.
        let script = format!("echo begun; (sleep {word} >/dev/null </dev/null); true");
        let mut running = sh(&host.shell, &script, None).await.unwrap();
        assert_eq!(
            &running.stdout.next().await.unwrap().unwrap()[..],
            b"begun\n"
        );
        eventually("the command", async || is_running(word).then_some(())).await;
        if index == 0 {
            drop(running.stdout);
            assert!(running.end.await.is_err());
        } else {
            drop(running.end);
            assert!(running.stdout.read_all(10).await.is_err());
        }
        eventually("the end of the command", async || {
            (!is_running(word)).then_some(())
        })
        .await;
    }
}

/// The first login shell waits until it is killed, so that the test does not race with it; later ones begin
/// immediately.
#[tokio::test]
async fn dropping_a_command_before_it_begins_kills_its_login_shell() {
    let host = host(&SshdOptions::default()).await;
    let home = host.server.home();
    let wait = format!(
        "mkdir {} 2>/dev/null && sleep infinity",
        home.join("waits").display()
    );
    std::fs::write(home.join(".bashrc"), wait).unwrap();
    let script = format!("touch {}", home.join("ran").display());
    host.shell.link.fingerprint().await.unwrap();
    let before = host.server.processes().len();
    let waits = async {
        eventually("the login shell", async || {
            home.join("waits").exists().then_some(())
        })
        .await;
    };
    tokio::select! {
        _ = sh(&host.shell, &script, None) => panic!("the command must not begin"),
        () = waits => {}
    }
    host.shell.link.background_work().settle().await;
    eventually("the end of the login shell", async || {
        (host.server.processes().len() <= before).then_some(())
    })
    .await;
    assert!(!home.join("ran").exists());
}

#[tokio::test]
async fn a_kill_command_that_is_given_up_is_not_killed_itself() {
    let host = host(&SshdOptions::default()).await;
    let waits = host.server.home().join("waits");
    let wait = format!("mkdir {} && exec sleep infinity", waits.display());
    std::fs::write(host.server.home().join(".bashrc"), wait).unwrap();
    host.shell.link.fingerprint().await.unwrap();
    let mut group = ProcessGroup::new(host.shell.clone(), "nonce".to_owned());
    let begun = eventually("the login shell", async || waits.exists().then_some(()));
    tokio::select! {
        () = group.kill() => panic!("the kill command must wait"),
        () = begun => {}
    }
    group.set_ended();
    let settled = host.shell.link.background_work().settle().now_or_never();
    assert!(settled.is_some(), "another kill began");
}

/// A shell, and a shared connection whose master opens one session and never ends it.
struct HangingFixture {
    shell: Shell,
    client: Client,
    master: Master,
    _fake: FakeMaster,
    _directory: tempfile::TempDir,
}

impl HangingFixture {
    fn new() -> Self {
        let fake = FakeMaster::start(steps_after_opening([MasterStep::Hang]));
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let settings = Settings::new(Config {
            control_directory: Some(directory.path().join("c")),
            program: "false".into(),
            ..Config::default()
        })
        .unwrap();
        let client = Client::new(Arc::new(settings), Target::parse("box").unwrap());
        let master = Master::new(directory.path(), "m");
        std::fs::hard_link(&fake.socket, master.socket()).unwrap();
        let shell = Shell::new(Arc::new(HostLink::new(client.clone(), "0123456789abcdef")));
        Self {
            shell,
            client,
            master,
            _fake: fake,
            _directory: directory,
        }
    }

    fn starter(&self) -> SessionStarter<'_> {
        let socket = self.master.identity().unwrap();
        SessionStarter::new(&self.client, &self.master, socket)
    }

    /// Whether a kill began that has not ended.
    fn is_killing(&self) -> bool {
        let settled = self.shell.link.background_work().settle().now_or_never();
        settled.is_none()
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_session_does_not_end_is_killed_though_its_output_ended() {
    let fixture = HangingFixture::new();
    let request = ChannelRequest {
        shell: fixture.shell.clone(),
        line: b"true".to_vec(),
        nonce: "nonce".to_owned(),
        input: CommandInput::None,
    };
    let Err(Refusal::Final(error)) = StartedCommand::new(&fixture.starter(), &request).await else {
        panic!("the command must not begin");
    };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(fixture.is_killing());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_closes_its_output_and_runs_on_is_killed() {
    let fixture = HangingFixture::new();
    let starter = fixture.starter();
    let program = RemoteProgram::Command(b"true");
    let (session, _, stdout) = starter.start(program, false).await.unwrap();
    let group = ProcessGroup::new(fixture.shell.clone(), "nonce".to_owned());
    let running = RemoteJob::new(group, session).into_running_command(stdout, Bytes::new());
    let failed = running.stdout.read_all(10).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Timeout);
    assert!(fixture.is_killing());
    let failed = running.end.await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Timeout);
}

#[test]
fn a_command_does_not_begin_when_its_first_line_has_no_reader() {
    let home = tempfile::tempdir().unwrap();
    for read in [true, false] {
        let ran = home.path().join("ran");
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = read.then_some(reader);
        let status = std::process::Command::new("sh")
            .args(["-c", START_SCRIPT, "sh", "nonce", "touch"])
            .arg(&ran)
            .stdout(writer)
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        drop(reader);
        assert_eq!(status.success(), read);
        assert_eq!(ran.exists(), read);
        let _ = std::fs::remove_file(&ran);
    }
}

#[tokio::test]
async fn a_command_on_a_broken_connection_never_counts_as_ended() {
    let host = host(&SshdOptions::default()).await;
    let mut running = sh(&host.shell, "echo begun; exec sleep 1000000.75", None)
        .await
        .unwrap();
    assert_eq!(
        &running.stdout.next().await.unwrap().unwrap()[..],
        b"begun\n"
    );
    host.server.cut();
    let broken = running.stdout.next().await.unwrap().unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::Unavailable);
    assert_eq!(
        running.end.await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    // The next command connects again.
    let (exit, _) = host.shell.output(argv(&[b"true"]), 10).await.unwrap();
    assert_eq!(exit.status, 0);
}

#[tokio::test]
async fn a_host_without_a_shell_is_missing_a_tool() {
    let host = host(&SshdOptions::default().without_shell()).await;
    for stdin in [None, Some(Body::from_bytes("never read"))] {
        let refused = sh(&host.shell, "true", stdin).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ToolMissing, "{refused}");
    }
}

#[tokio::test]
async fn a_command_that_is_too_long_or_has_nul_is_refused_before_it_is_sent() {
    let host = host(&SshdOptions::default()).await;
    let long = host
        .shell
        .run(argv(&[b"echo", &vec![b'x'; MAX_COMMAND_BYTES]]), None)
        .await;
    assert_eq!(long.unwrap_err().kind(), ErrorKind::TooLarge);
    let nul = host.shell.run(argv(&[b"echo", b"a\0b"]), None).await;
    assert_eq!(nul.unwrap_err().kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn r_2_an_sftp_server_that_hangs_in_a_fifo_is_released() {
    let host = host(&SshdOptions::default()).await;
    let path = host.server.home().join("pipe");
    let exit_status = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .unwrap();
    assert!(exit_status.success());
    let path = dray_sandbox::SandboxPath::new(path.to_str().unwrap()).unwrap();
    let pool = Pool::new(Arc::clone(&host.shell.link));
    drop(pool.lease().await.unwrap());
    let before = host.server.processes().len();
    sftp::tests::open_and_give_up(pool.lease().await.unwrap(), &path).await;
    assert_eq!(host.server.processes().len(), before, "the server hangs");
    sftp::release(&mut pool.lease().await.unwrap(), &path)
        .await
        .unwrap();
    pool.clear();
    eventually("the end of the servers", async || {
        (host.server.processes().len() < before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_message_of_an_ssh_client_on_the_host_does_not_repeat_a_command() {
    let host = host(&SshdOptions::default()).await;
    let runs = host.server.home().join("runs");
    let forward = format!(
        "echo run >>{}; echo 'mux_client_request_session: read from master failed' >&2; exit 255",
        runs.display()
    );
    std::fs::write(host.server.home().join(".bashrc"), forward).unwrap();
    let lost = sh(&host.shell, "true", None).await;
    // The runs are counted before the background work begins, which kills a command that may run.
    let count = std::fs::read_to_string(&runs).unwrap().lines().count();
    assert_eq!(
        (lost.err().map(|error| error.kind()), count),
        (Some(ErrorKind::Unavailable), 1)
    );
}

#[tokio::test]
async fn a_command_whose_start_is_uncertain_is_not_run_a_second_time() {
    let kill = "if [ -e ~/master ]; then kill -9 $(cat ~/master); rm ~/master; fi";
    let host = host(&SshdOptions::default().start_file(kill)).await;
    host.shell.link.fingerprint().await.unwrap();
    let sockets = std::fs::read_dir(host.control.path().join("c")).unwrap();
    let mut sockets = sockets.map(|entry| entry.unwrap().path());
    let socket = sockets.find(|path| path.extension().is_some_and(|end| end == "sock"));
    let connection = ControlConnection::connect(&socket.unwrap()).await.unwrap();
    let master = connection.check_alive().await.unwrap();
    let home = host.server.home();
    // The start files of the command end the master, after it has passed the command on.
    std::fs::write(home.join("master"), master.to_string()).unwrap();
    let runs = home.join("runs");
    let script = format!("echo run >>{}", runs.display());
    let lost = sh(&host.shell, &script, None).await;
    assert_eq!(
        lost.err().map(|error| error.kind()),
        Some(ErrorKind::Unavailable)
    );
    let count = std::fs::read_to_string(&runs)
        .unwrap_or_default()
        .lines()
        .count();
    assert!(count <= 1, "{count} runs");
    // The next command connects again.
    let (exit, _) = host.shell.output(argv(&[b"true"]), 10).await.unwrap();
    assert_eq!(exit.status, 0);
}
