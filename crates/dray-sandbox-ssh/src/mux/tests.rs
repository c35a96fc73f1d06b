//! Tests against masters that follow the protocol or break it.

use std::io::{IoSliceMut, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use futures_util::future::join;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::*;

/// The next step of a fake master on its connection.
#[derive(Clone, Debug)]
pub(crate) enum MasterStep {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Reads one message.
    Read,
    /// Receives the descriptors of a session and writes this text to its output.
    Serve(&'static [u8]),
    /// Keeps the connection open until its peer closes it.
    Hang,
}

use MasterStep::{Hang, Read, Send, Serve};

/// A message of numbers, and a string at its end when there is one.
pub(crate) fn message(numbers: &[u32], string: Option<&[u8]>) -> MasterStep {
    let mut body: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect();
    if let Some(string) = string {
        body.extend(u32::try_from(string.len()).unwrap().to_be_bytes());
        body.extend(string);
    }
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    Send([&length[..], &body].concat())
}

/// The steps of a master up to the descriptors of a session.
pub(crate) fn accepting_steps() -> Vec<MasterStep> {
    let hello = message(&[kind::HELLO, 4], Some(b"info"));
    vec![hello, Read, Read, Serve(b"text")]
}

/// A socket that serves one connection with these steps.
#[derive(Debug)]
pub(crate) struct FakeMaster {
    pub(crate) socket: PathBuf,
    /// Kinds of the messages that arrived, when the connection has ended.
    serve_task: JoinSet<Vec<u32>>,
    _directory: tempfile::TempDir,
}

impl FakeMaster {
    pub(crate) fn start(steps: Vec<MasterStep>) -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let socket = directory.path().join("m.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut serve_task = JoinSet::new();
        serve_task.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, steps).await
        });
        Self {
            socket,
            serve_task,
            _directory: directory,
        }
    }

    /// Kinds of the messages that the master got.
    pub(crate) async fn received(mut self) -> Vec<u32> {
        self.serve_task.join_next().await.unwrap().unwrap()
    }
}

async fn serve(mut stream: UnixStream, steps: Vec<MasterStep>) -> Vec<u32> {
    let mut received = Vec::new();
    for step in steps {
        match step {
            Send(bytes) => stream.write_all(&bytes).await.unwrap(),
            Read => match Message::read(&mut stream).await.unwrap() {
                Some(message) => received.push(message.kind),
                None => break,
            },
            Serve(text) => {
                let mut descriptors = Vec::new();
                while descriptors.len() < 3 {
                    let receive = || receive_descriptor(&stream);
                    descriptors.push(stream.async_io(Interest::READABLE, receive).await.unwrap());
                }
                let mut output = std::fs::File::from(descriptors.remove(1));
                output.write_all(text).unwrap();
            }
            Hang => {
                let rest = Message::read(&mut stream).await;
                received.extend(rest.unwrap().map(|message| message.kind));
            }
        }
    }
    received
}

fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0xff; 1];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        flags,
    )?;
    assert_eq!(byte, [0]);
    let Some(RecvAncillaryMessage::ScmRights(mut descriptors)) = control.drain().next() else {
        return Err(io::Error::other("no descriptor"));
    };
    Ok(descriptors.next().unwrap())
}

/// Opens a session on a master with these steps. Returns what the session printed, and how it ended.
async fn run_session(
    steps: Vec<MasterStep>,
) -> Result<(Vec<u8>, Result<Option<i32>, Error>), MuxError> {
    let master = FakeMaster::start(steps);
    let connection = ControlConnection::connect(&master.socket).await?;
    let (output_reader, output_writer) = rustix::pipe::pipe().unwrap();
    let unused = std::fs::File::open("/dev/null").unwrap();
    let descriptors = [unused.as_fd(), output_writer.as_fd(), unused.as_fd()];
    let session = connection
        .open_session(
            RemoteProgram::Command(b"true"),
            descriptors,
            Duration::from_mins(1),
        )
        .await?;
    drop(output_writer);
    let end = session.wait().await;
    let mut output = Vec::new();
    let mut receiver = tokio::net::unix::pipe::Receiver::from_owned_fd(output_reader).unwrap();
    receiver.read_to_end(&mut output).await.unwrap();
    assert!(master.received().await.contains(&kind::NEW_SESSION));
    Ok((output, end))
}

/// The steps of a master that opens session 3, and these steps after them.
pub(crate) fn steps_after_opening(after: impl IntoIterator<Item = MasterStep>) -> Vec<MasterStep> {
    let opened = message(&[kind::SESSION_OPENED, REQUEST_ID, 3], None);
    accepting_steps()
        .into_iter()
        .chain([opened])
        .chain(after)
        .collect()
}

#[tokio::test]
async fn a_session_gets_its_output_and_its_exit_status() {
    let exit = message(&[kind::EXIT_MESSAGE, 3, 7], None);
    let no_terminal = message(&[kind::TTY_ALLOC_FAIL, 3], None);
    let (output, end) = run_session(steps_after_opening([no_terminal, exit]))
        .await
        .unwrap();
    assert_eq!((output, end.unwrap()), (b"text".to_vec(), Some(7)));
}

#[tokio::test]
async fn a_session_that_ends_without_a_status_has_none() {
    let (_, end) = run_session(steps_after_opening([])).await.unwrap();
    assert_eq!(end.unwrap(), None);
}

#[tokio::test]
async fn a_message_about_another_session_or_a_second_exit_status_is_refused() {
    let exit = message(&[kind::EXIT_MESSAGE, 3, 7], None);
    for after in [
        vec![message(&[kind::EXIT_MESSAGE, 4, 7], None)],
        vec![exit.clone(), exit],
        vec![message(&[kind::EXIT_MESSAGE, 3], None)],
        vec![message(&[kind::ALIVE, 3], None)],
        vec![Send(vec![0xff; 8])],
    ] {
        let (_, end) = run_session(steps_after_opening(after.clone()))
            .await
            .unwrap();
        assert_eq!(end.unwrap_err().kind(), ErrorKind::Protocol, "{after:?}");
    }
}

#[tokio::test]
async fn a_master_that_does_not_speak_the_protocol_is_unsupported() {
    for first in [
        Send(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        message(&[kind::HELLO, 5], None),
        message(&[kind::HELLO], None),
        message(&[kind::ALIVE, 4], None),
        Send(vec![0; 16]),
    ] {
        let refused = run_session(vec![first.clone(), Hang]).await.unwrap_err();
        assert!(
            matches!(refused, MuxError::Unsupported(_)),
            "{first:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_master_that_hangs_up_before_the_request_counts_as_none() {
    for steps in [vec![], vec![Send(vec![0, 0])]] {
        let refused = run_session(steps).await.unwrap_err();
        assert!(matches!(refused, MuxError::NoMaster(_)), "{refused:?}");
    }
    let no_socket = ControlConnection::connect(Path::new("/nonexistent/m.sock")).await;
    assert!(matches!(no_socket.unwrap_err(), MuxError::NoMaster(_)));
}

#[tokio::test]
async fn after_the_request_only_a_refusal_shows_that_no_session_began() {
    let session_with_reply = |reply| {
        let mut steps = accepting_steps();
        steps.push(reply);
        run_session(steps)
    };
    let failure = |reason: &'static [u8]| message(&[kind::FAILURE, REQUEST_ID], Some(reason));
    let full = session_with_reply(failure(b"Session open refused by peer"))
        .await
        .unwrap_err();
    assert!(matches!(full, MuxError::Full(_)), "{full:?}");
    let unsupported = session_with_reply(failure(b"Multiple sessions not supported"))
        .await
        .unwrap_err();
    assert!(
        matches!(unsupported, MuxError::Unsupported(_)),
        "{unsupported:?}"
    );
    let denied = message(&[kind::PERMISSION_DENIED, REQUEST_ID], Some(b"\x1b[2Jno"));
    let denied = session_with_reply(denied).await.unwrap_err();
    let MuxError::Refused(error) = denied else {
        panic!("{denied:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(!error.context().contains('\x1b'));
    for unclear in [
        message(&[kind::SESSION_OPENED, REQUEST_ID + 1, 3], None),
        message(&[kind::SESSION_OPENED, REQUEST_ID], None),
        message(&[kind::ALIVE, REQUEST_ID, 1], None),
        message(&[kind::FAILURE, REQUEST_ID, 1 << 31], None),
        Send(vec![0xff; 4]),
        Send(vec![0, 0, 0, 8, 1]),
        Send(Vec::new()),
    ] {
        let error = session_with_reply(unclear.clone()).await.unwrap_err();
        assert!(
            matches!(error, MuxError::Uncertain(_)),
            "{unclear:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_master_with_a_full_queue_is_waited_for() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let socket = directory.path().join("m.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // Linux takes one connection more than the queue has room for.
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&socket).await.unwrap();
    let full = UnixStream::connect(&socket).await.unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let serving = async {
        drop(listener.accept().await.unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, vec![message(&[kind::HELLO, 4], None), Read]).await
    };
    // The first future is polled first, so it finds the queue full.
    let (connected, received) = join(ControlConnection::connect(&socket), serving).await;
    connected.unwrap();
    assert_eq!(received, [kind::HELLO]);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_stalls_is_given_up() {
    let silent = run_session(vec![Hang]).await.unwrap_err();
    assert!(matches!(silent, MuxError::NoMaster(_)), "{silent:?}");
    let mut steps = accepting_steps();
    steps.push(Hang);
    let stalled = run_session(steps).await.unwrap_err();
    assert!(matches!(stalled, MuxError::Uncertain(_)), "{stalled:?}");
    let hello = message(&[kind::HELLO, 4], None);
    let master = FakeMaster::start(vec![hello, Read, Read, Hang]);
    let connection = ControlConnection::connect(&master.socket).await.unwrap();
    let stopped = connection.check_alive().await.unwrap_err();
    assert!(matches!(stopped, MuxError::NoMaster(_)), "{stopped:?}");
}

#[tokio::test]
async fn a_session_is_alive_until_its_exit_status_arrives() {
    let hello = message(&[kind::HELLO, 4], None);
    let alive = message(&[kind::ALIVE, REQUEST_ID, 17], None);
    let master = FakeMaster::start(vec![hello, Read, Read, alive]);
    let connection = ControlConnection::connect(&master.socket).await.unwrap();
    assert_eq!(connection.check_alive().await.unwrap(), 17);
    assert_eq!(master.received().await, [kind::HELLO, kind::ALIVE_CHECK]);

    let (client, mut master) = UnixStream::pair().unwrap();
    let session = MuxSession {
        stream: client,
        id: 3,
    };
    assert!(session.is_alive());
    master.write_all(&[0]).await.unwrap();
    assert!(!session.is_alive());
}

#[tokio::test]
async fn a_master_of_another_user_gets_no_request() {
    let (stream, _peer) = UnixStream::pair().unwrap();
    let user = rustix::process::geteuid().as_raw();
    check_owner(&stream, user).unwrap();
    let refused = check_owner(&stream, user + 1).unwrap_err();
    assert!(matches!(refused, MuxError::Refused(_)), "{refused:?}");
}
