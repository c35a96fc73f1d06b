//! Tests of sessions, over fake masters and local shells.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use super::*;
use crate::config::{Config, Settings};
use crate::mux::tests::{FakeMaster, MasterStep, accepting_steps, message};
use crate::target::Target;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).kill_on_drop(true);
    command
}

#[tokio::test]
async fn much_output_on_stderr_blocks_nothing_and_its_last_bytes_are_kept() {
    let script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 7";
    let (session, _, mut stdout) = Session::spawn(shell(script), false).unwrap();
    assert_eq!(stdout.read(&mut [0; 1]).await.unwrap(), 0);
    let (status, text) = session.wait().await.unwrap();
    assert_eq!(status, Some(7));
    assert!(text.len() <= STDERR_TAIL_BYTES && text.ends_with("xthe end\n"));
}

#[tokio::test]
async fn a_session_is_alive_until_its_program_ends() {
    let (mut session, stdin, mut stdout) = Session::spawn(shell("read line"), true).unwrap();
    assert!(session.is_alive());
    drop(stdin);
    assert_eq!(stdout.read(&mut [0; 1]).await.unwrap(), 0);
    dray_testkit::eventually("the end of the shell", async || {
        (!session.is_alive()).then_some(())
    })
    .await;
}

/// A client whose program notes that it was started, and a shared connection of this master.
struct StarterFixture {
    client: Client,
    master: Master,
    directory: tempfile::TempDir,
}

impl StarterFixture {
    fn new(fake: &FakeMaster) -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let program = directory.path().join("ssh");
        std::fs::write(
            &program,
            "#!/bin/sh\necho started >>\"$0.log\"\necho client\n",
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let settings = Settings::new(Config {
            control_directory: Some(directory.path().join("c")),
            program,
            ..Config::default()
        });
        let master = Master::new(directory.path(), "m");
        std::fs::hard_link(&fake.socket, master.socket()).unwrap();
        let client = Client::new(Arc::new(settings.unwrap()), Target::parse("box").unwrap());
        Self {
            client,
            master,
            directory,
        }
    }

    fn starter(&self) -> SessionStarter<'_> {
        let socket = self.master.identity().unwrap();
        SessionStarter::new(&self.client, &self.master, socket)
    }

    /// How often the client program was started.
    fn starts(&self) -> usize {
        let log = std::fs::read_to_string(self.directory.path().join("ssh.log"));
        log.unwrap_or_default().lines().count()
    }
}

const TRUE: RemoteProgram<'_> = RemoteProgram::Command(b"true");

#[tokio::test]
async fn a_client_program_opens_the_session_where_the_master_has_another_version() {
    let fake = FakeMaster::start(vec![message(&[1, 5], None), MasterStep::Hang]);
    let fixture = StarterFixture::new(&fake);
    let starter = fixture.starter();
    let (session, _, mut stdout) = starter.start(TRUE, false).await.unwrap();
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "client\n");
    assert_eq!(session.wait().await.unwrap().0, Some(0));
    assert_eq!(fixture.starts(), 1);
    // Another master took the socket: which one the program has found is unknown.
    std::fs::remove_file(fixture.master.socket()).unwrap();
    assert!(starter.has_uncertain_master());
}

#[tokio::test]
async fn no_client_program_repeats_a_request_that_the_master_may_have_carried_out() {
    let mut steps = accepting_steps();
    steps.push(MasterStep::Send(vec![0xff; 4]));
    let fake = FakeMaster::start(steps);
    let fixture = StarterFixture::new(&fake);
    let lost = fixture.starter().start(TRUE, true).await.unwrap_err();
    assert!(matches!(lost, Refusal::Lost(_)), "{lost:?}");
    assert_eq!(fixture.starts(), 0);
}

#[tokio::test]
async fn a_master_that_took_the_socket_of_another_gets_no_request() {
    let fake = FakeMaster::start(accepting_steps());
    let fixture = StarterFixture::new(&fake);
    let starter = fixture.starter();
    // A new hard link changes the time of the socket, which then counts as another socket.
    dray_testkit::eventually("another time", async || {
        let link = fixture.directory.path().join("link");
        std::fs::hard_link(fixture.master.socket(), &link).unwrap();
        std::fs::remove_file(link).unwrap();
        (fixture.master.identity() != Some(starter.socket)).then_some(())
    })
    .await;
    let error = starter.start(TRUE, true).await.unwrap_err();
    assert!(matches!(error, Refusal::NotConnected(_)), "{error:?}");
    // Only the greeting arrived.
    assert_eq!(fake.received().await, [1]);
    assert_eq!(fixture.starts(), 0);
}
