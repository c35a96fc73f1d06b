//! The multiplexing protocol of OpenSSH (`PROTOCOL.mux`), as a client: sessions on a shared connection without an `ssh`
//! process for each.
//!
//! The master gets three descriptors for each session and moves all bytes itself; the control socket carries only the
//! request and the exit status. Closing the socket ends the session, as ending an `ssh` client does.
//!
//! What it does not do: terminals, forwarding, and variables of the environment.

mod wire;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

pub(crate) use self::wire::RemoteProgram;
use self::wire::{Message, PROTOCOL_VERSION, Request, kind};

/// Time for a master, which is a process of this machine, to respond to requests that do not need the host.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect to a master whose queue of connections is full.
const CONNECT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// Request id of the only request on a control connection.
const REQUEST_ID: u32 = 1;
/// Most characters of a master's reason that an error repeats.
const MAX_REASON_CHARACTERS: usize = 200;
/// The reason of a master when the host refuses another session: `MaxSessions`, or no memory.
const REFUSED_BY_HOST: &[u8] = b"Session open refused";

/// The reason why a session did not open.
#[derive(Debug)]
pub(crate) enum MuxError {
    /// No master serves the socket, or it does not respond. No session was requested.
    NoMaster(Error),
    /// The master speaks another version or refuses requests of this kind. No session was opened, so an `ssh` client
    /// program may try.
    Unsupported(Error),
    /// The host refuses another session on this connection.
    Full(Error),
    /// Another attempt would fail in the same way. No session was opened.
    Refused(Error),
    /// This process cannot connect. Whether a master serves the socket is unknown; no session was requested.
    Unreachable(Error),
    /// The connection to the master was lost after the request; the session may have begun.
    Uncertain(Error),
}

/// A connection to a master that has exchanged versions.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    stream: UnixStream,
}

impl ControlConnection {
    /// Connects to the master that listens at `socket`.
    pub(crate) async fn connect(socket: &Path) -> Result<Self, MuxError> {
        let connecting = async {
            let stream = connect_to_listener(socket).await.map_err(connect_error)?;
            check_owner(&stream, rustix::process::geteuid().as_raw())?;
            let mut connection = Self { stream };
            connection.exchange_versions().await?;
            Ok(connection)
        };
        timeout(RESPONSE_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err(MuxError::NoMaster(master_stalled())))
    }

    async fn exchange_versions(&mut self) -> Result<(), MuxError> {
        let sent = self.stream.write_all(&Request::hello()).await;
        sent.map_err(|error| MuxError::NoMaster(unavailable("the master hung up", error)))?;
        let mut message = match Message::read(&mut self.stream).await {
            Ok(Some(message)) => message,
            Ok(None) => return Err(MuxError::NoMaster(master_hung_up())),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(MuxError::Unsupported(malformed_message(error)));
            }
            Err(error) => return Err(MuxError::NoMaster(unavailable("the master hung up", error))),
        };
        let version = message.take_number().ok();
        // Extensions may follow the version; none is used here.
        if message.kind != kind::HELLO || version != Some(PROTOCOL_VERSION) {
            return Err(MuxError::Unsupported(Error::new(
                ErrorKind::Protocol,
                "the master speaks another version of the multiplexing protocol",
            )));
        }
        Ok(())
    }

    /// Checks that the master serves requests. Returns the process id that it reports.
    pub(crate) async fn check_alive(mut self) -> Result<u32, MuxError> {
        let checking = async {
            let request = Request::alive_check(REQUEST_ID);
            self.stream.write_all(&request).await?;
            Message::read(&mut self.stream).await
        };
        match timeout(RESPONSE_TIMEOUT, checking).await {
            Ok(Ok(Some(message))) => process_id(message).ok_or_else(|| {
                MuxError::Unsupported(Error::new(
                    ErrorKind::Protocol,
                    "the master does not report whether it is alive",
                ))
            }),
            Ok(Ok(None)) => Err(MuxError::NoMaster(master_hung_up())),
            Ok(Err(error)) => Err(MuxError::NoMaster(unavailable("the master hung up", error))),
            Err(_) => Err(MuxError::NoMaster(master_stalled())),
        }
    }

    /// Opens a session whose standard input, output and error are `descriptors`. The master duplicates them. Waits for
    /// the host for at most `limit`.
    pub(crate) async fn open_session(
        mut self,
        program: RemoteProgram<'_>,
        descriptors: [BorrowedFd<'_>; 3],
        limit: Duration,
    ) -> Result<MuxSession, MuxError> {
        let opening = async {
            let request = Request::new_session(REQUEST_ID, program);
            // A master acts only on a whole request with all descriptors, so no session was opened when sending fails.
            let sent = self.send_request(&request, descriptors).await;
            sent.map_err(|error| MuxError::NoMaster(unavailable("the master hung up", error)))?;
            let lost = |error| MuxError::Uncertain(unavailable("the master hung up", error));
            match Message::read(&mut self.stream).await.map_err(lost)? {
                Some(message) => opened_session_id(message),
                None => Err(MuxError::Uncertain(master_hung_up())),
            }
        };
        let id = timeout(limit, opening)
            .await
            .unwrap_or_else(|_| Err(MuxError::Uncertain(master_stalled())))?;
        Ok(MuxSession {
            stream: self.stream,
            id,
        })
    }

    async fn send_request(
        &mut self,
        request: &[u8],
        descriptors: [BorrowedFd<'_>; 3],
    ) -> io::Result<()> {
        self.stream.write_all(request).await?;
        // One message for each descriptor: a master reads one byte with one descriptor, three times.
        for descriptor in descriptors {
            let send = || send_descriptor(&self.stream, descriptor);
            self.stream.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }
}

/// Connects to a socket, and waits while the queue of its listener is full.
async fn connect_to_listener(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            // Only a socket with a listener has a queue; connecting to it does not wait by itself.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sleep(CONNECT_RETRY_DELAY).await;
            }
            connected => return connected,
        }
    }
}

/// Classifies why connecting failed. Only two errors show that the socket has no listener.
fn connect_error(error: io::Error) -> MuxError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            MuxError::NoMaster(unavailable("no master listens", error))
        }
        _ => MuxError::Unreachable(unavailable("the master cannot be reached", error)),
    }
}

/// Returns the process id of a response to the check, or `None` for any other message.
fn process_id(mut message: Message) -> Option<u32> {
    if message.kind != kind::ALIVE || message.take_number().ok()? != REQUEST_ID {
        return None;
    }
    message.take_number().ok()
}

/// Returns the id of the opened session, from the response to the request.
fn opened_session_id(mut message: Message) -> Result<u32, MuxError> {
    let uncertain = |error| MuxError::Uncertain(malformed_message(error));
    let id = message.take_number().map_err(uncertain)?;
    if id != REQUEST_ID {
        return Err(MuxError::Uncertain(Error::new(
            ErrorKind::Protocol,
            "the master responds to another request",
        )));
    }
    let reason = match message.kind {
        kind::SESSION_OPENED => return message.take_number().map_err(uncertain),
        kind::FAILURE | kind::PERMISSION_DENIED => message.take_string().map_err(uncertain)?,
        _ => {
            return Err(MuxError::Uncertain(Error::new(
                ErrorKind::Protocol,
                "the master responds with another message",
            )));
        }
    };
    let text = String::from_utf8_lossy(&reason);
    let text: String = text.chars().take(MAX_REASON_CHARACTERS).collect();
    let refused = |kind| {
        Error::new(
            kind,
            format!("the master refuses a session: {}", text.escape_debug()),
        )
    };
    Err(match message.kind {
        kind::PERMISSION_DENIED => MuxError::Refused(refused(ErrorKind::Auth)),
        _ if reason.starts_with(REFUSED_BY_HOST) => MuxError::Full(refused(ErrorKind::Unavailable)),
        _ => MuxError::Unsupported(refused(ErrorKind::Unavailable)),
    })
}

/// Refuses a master of another user: it would get the descriptors, and with them the content of files.
fn check_owner(stream: &UnixStream, user: u32) -> Result<(), MuxError> {
    let owner = stream
        .peer_cred()
        .map_err(|error| MuxError::NoMaster(unavailable("the master has no owner", error)))?;
    if owner.uid() == user {
        return Ok(());
    }
    Err(MuxError::Refused(Error::new(
        ErrorKind::Auth,
        "the master of the shared connection belongs to another user",
    )))
}

fn send_descriptor(stream: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    // Stream sockets carry descriptors only with a byte.
    let byte = [IoSlice::new(b"\0")];
    rustix::net::sendmsg(stream, &byte, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// An open session. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct MuxSession {
    stream: UnixStream,
    id: u32,
}

impl MuxSession {
    /// Whether the session still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0; 1];
        // Anything to read is the exit status or the end: a master sends nothing else.
        rustix::net::recv(&self.stream, &mut byte, flags)
            .is_err_and(|error| error == rustix::io::Errno::AGAIN)
    }

    /// Waits for the end of the session. Returns its exit status, or `None` when it ended without one: a signal killed
    /// the program, or the connection broke.
    pub(crate) async fn wait(mut self) -> Result<Option<i32>, Error> {
        let mut status = None;
        loop {
            let mut message = match Message::read(&mut self.stream).await {
                Ok(Some(message)) => message,
                // The socket is read to its end: closing it earlier could lose output that the master still holds.
                Ok(None) => return Ok(status),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(malformed_message(error));
                }
                // A master that is killed may reset the connection.
                Err(_) => return Ok(None),
            };
            let session = message.take_number().map_err(malformed_message)?;
            match message.kind {
                kind::EXIT_MESSAGE if session == self.id && status.is_none() => {
                    let number = message.take_number().map_err(malformed_message)?;
                    status = Some(i32::try_from(number).unwrap_or(i32::MAX));
                }
                kind::TTY_ALLOC_FAIL if session == self.id => {}
                _ => {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        "the master sent a message that belongs to no request",
                    ));
                }
            }
        }
    }
}

fn unavailable(description: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, description).caused_by(error)
}

fn master_hung_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the master hung up")
}

fn master_stalled() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the master of the shared connection does not respond",
    )
}

fn malformed_message(error: io::Error) -> Error {
    Error::new(ErrorKind::Protocol, "the master sent a malformed message").caused_by(error)
}

#[cfg(test)]
pub(crate) mod tests;
