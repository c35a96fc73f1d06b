//! Messages of the multiplexing protocol, version 4: a length, a type and fields in the encoding of SSH (RFC 4251,
//! section 5).

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The version that every OpenSSH since 4.2 speaks.
pub(super) const PROTOCOL_VERSION: u32 = 4;
/// Longest message that is read. A master sends short ones; the longest carry a reason as text.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Value of the field for the escape character when a session has none.
const NO_ESCAPE_CHARACTER: u32 = 0xffff_ffff;

/// Types of messages (section 11 of `PROTOCOL.mux`).
pub(super) mod kind {
    pub(crate) const HELLO: u32 = 0x0000_0001;
    pub(crate) const NEW_SESSION: u32 = 0x1000_0002;
    pub(crate) const ALIVE_CHECK: u32 = 0x1000_0004;
    pub(crate) const PERMISSION_DENIED: u32 = 0x8000_0002;
    pub(crate) const FAILURE: u32 = 0x8000_0003;
    pub(crate) const EXIT_MESSAGE: u32 = 0x8000_0004;
    pub(crate) const ALIVE: u32 = 0x8000_0005;
    pub(crate) const SESSION_OPENED: u32 = 0x8000_0006;
    pub(crate) const TTY_ALLOC_FAIL: u32 = 0x8000_0008;
}

/// The program that a session runs on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RemoteProgram<'a> {
    /// A line for the login shell of the user, without NUL.
    Command(&'a [u8]),
    /// A subsystem of the server, such as `sftp`.
    Subsystem(&'a str),
}

/// A message from a master, without its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u32,
    fields: Bytes,
}

impl Message {
    /// Reads the next message; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for a length that no message has, and failures of the stream. A stream that ends
    /// inside a message is [`io::ErrorKind::UnexpectedEof`].
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        // The first byte is read separately, because the stream may end before it and nowhere else.
        if stream.read(length.get_mut(..1).unwrap_or_default()).await? == 0 {
            return Ok(None);
        }
        stream
            .read_exact(length.get_mut(1..).unwrap_or_default())
            .await?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        // The length is checked before the buffer is allocated, so that a false length costs no memory.
        if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
            return Err(malformed_error("a message of impossible length"));
        }
        let mut fields = vec![0; length];
        stream.read_exact(&mut fields).await?;
        let mut fields = Bytes::from(fields);
        Ok(Some(Self {
            kind: fields.get_u32(),
            fields,
        }))
    }

    /// Takes the next number of the message.
    pub(super) fn take_number(&mut self) -> io::Result<u32> {
        self.fields
            .try_get_u32()
            .map_err(|_| malformed_error("a message that ends inside a number"))
    }

    /// Takes the next string of the message.
    pub(super) fn take_string(&mut self) -> io::Result<Bytes> {
        let length = usize::try_from(self.take_number()?).unwrap_or(usize::MAX);
        if length > self.fields.len() {
            return Err(malformed_error("a string that is longer than its message"));
        }
        Ok(self.fields.split_to(length))
    }
}

fn malformed_error(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A message to a master.
pub(super) struct Request(BytesMut);

impl Request {
    fn new(kind: u32) -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_u32(kind);
        Self(bytes)
    }

    fn with_number(mut self, number: u32) -> Self {
        self.0.put_u32(number);
        self
    }

    fn with_string(mut self, string: &[u8]) -> Self {
        // Callers check the length of a command; their limit is far below that of `u32`.
        self.0
            .put_u32(u32::try_from(string.len()).unwrap_or(u32::MAX));
        self.0.put_slice(string);
        self
    }

    fn finish(self) -> Bytes {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let mut message = BytesMut::with_capacity(self.0.len() + 4);
        message.put_u32(length);
        message.put_slice(&self.0);
        message.freeze()
    }

    /// The first message of both sides.
    pub(super) fn hello() -> Bytes {
        Self::new(kind::HELLO)
            .with_number(PROTOCOL_VERSION)
            .finish()
    }

    /// Asks whether the master serves requests.
    pub(super) fn alive_check(id: u32) -> Bytes {
        Self::new(kind::ALIVE_CHECK).with_number(id).finish()
    }

    /// Asks for a session without a terminal and without forwarding. Three descriptors must follow.
    pub(super) fn new_session(id: u32, program: RemoteProgram<'_>) -> Bytes {
        let (is_subsystem, program_bytes) = match program {
            RemoteProgram::Command(line) => (0, line),
            RemoteProgram::Subsystem(name) => (1, name.as_bytes()),
        };
        Self::new(kind::NEW_SESSION)
            .with_number(id)
            // This field is reserved.
            .with_string(b"")
            // Terminal, X11 forwarding and agent forwarding.
            .with_number(0)
            .with_number(0)
            .with_number(0)
            .with_number(is_subsystem)
            .with_number(NO_ESCAPE_CHARACTER)
            // Type of the terminal.
            .with_string(b"")
            .with_string(program_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_session_has_the_fields_of_the_protocol() {
        let request = Request::new_session(7, RemoteProgram::Subsystem("sftp"));
        let fields: [&[u8]; 11] = [
            &[0, 0, 0, 44],
            &[0x10, 0, 0, 2],
            &[0, 0, 0, 7],
            &[0, 0, 0, 0],
            &[0; 12],
            &[0, 0, 0, 1],
            &[0xff; 4],
            &[0, 0, 0, 0],
            &[0, 0, 0, 4],
            b"sftp",
            b"",
        ];
        assert_eq!(request, fields.concat());
    }

    #[tokio::test]
    async fn a_message_of_impossible_length_is_refused_before_it_is_read() {
        for length in [0, 3, 16 * 1024 + 1, u32::MAX] {
            let bytes = length.to_be_bytes();
            let refused = Message::read(&mut &bytes[..]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{length}");
        }
    }

    #[tokio::test]
    async fn a_stream_may_end_only_between_messages() {
        assert_eq!(Message::read(&mut &b""[..]).await.unwrap(), None);
        let whole = Request::alive_check(5);
        for length in 1..whole.len() {
            let truncated = Message::read(&mut &whole[..length]).await.unwrap_err();
            assert_eq!(truncated.kind(), io::ErrorKind::UnexpectedEof, "{length}");
        }
        let mut message = Message::read(&mut &whole[..]).await.unwrap().unwrap();
        assert_eq!(
            (message.kind, message.take_number().unwrap()),
            (kind::ALIVE_CHECK, 5)
        );
        assert_eq!(
            message.take_number().unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn a_string_longer_than_its_message_is_refused() {
        let message = |fields: &'static [u8]| Message {
            kind: kind::FAILURE,
            fields: Bytes::from_static(fields),
        };
        assert_eq!(message(&[0, 0, 0, 1, b'x']).take_string().unwrap(), "x");
        for fields in [&[0, 0, 0, 2, b'x'][..], &[0xff; 5], &[0, 0]] {
            let refused = message(fields).take_string().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}
