//! The encoding of packets (draft-ietf-secsh-filexfer-02, 3 and 5).

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use dray_sandbox::{Error, ErrorKind};

/// Packet types of version 3.
pub(super) mod kind {
    pub(in crate::sftp) const INIT: u8 = 1;
    pub(in crate::sftp) const VERSION: u8 = 2;
    pub(in crate::sftp) const OPEN: u8 = 3;
    pub(in crate::sftp) const CLOSE: u8 = 4;
    pub(in crate::sftp) const READ: u8 = 5;
    pub(in crate::sftp) const WRITE: u8 = 6;
    pub(in crate::sftp) const LSTAT: u8 = 7;
    pub(in crate::sftp) const FSTAT: u8 = 8;
    pub(in crate::sftp) const SETSTAT: u8 = 9;
    pub(in crate::sftp) const FSETSTAT: u8 = 10;
    pub(in crate::sftp) const OPENDIR: u8 = 11;
    pub(in crate::sftp) const READDIR: u8 = 12;
    pub(in crate::sftp) const REMOVE: u8 = 13;
    pub(in crate::sftp) const MKDIR: u8 = 14;
    pub(in crate::sftp) const RMDIR: u8 = 15;
    pub(in crate::sftp) const REALPATH: u8 = 16;
    pub(in crate::sftp) const RENAME: u8 = 18;
    pub(in crate::sftp) const READLINK: u8 = 19;
    pub(in crate::sftp) const STATUS: u8 = 101;
    pub(in crate::sftp) const HANDLE: u8 = 102;
    pub(in crate::sftp) const DATA: u8 = 103;
    pub(in crate::sftp) const NAME: u8 = 104;
    pub(in crate::sftp) const ATTRS: u8 = 105;
    pub(in crate::sftp) const EXTENDED: u8 = 200;
    pub(in crate::sftp) const EXTENDED_REPLY: u8 = 201;
}

/// Status codes of version 3 (draft-ietf-secsh-filexfer-02, 7).
pub(super) mod status {
    pub(in crate::sftp) const OK: u32 = 0;
    pub(in crate::sftp) const EOF: u32 = 1;
    pub(in crate::sftp) const NO_SUCH_FILE: u32 = 2;
    pub(in crate::sftp) const PERMISSION_DENIED: u32 = 3;
    pub(in crate::sftp) const FAILURE: u32 = 4;
    pub(in crate::sftp) const BAD_MESSAGE: u32 = 5;
    pub(in crate::sftp) const NO_CONNECTION: u32 = 6;
    pub(in crate::sftp) const CONNECTION_LOST: u32 = 7;
    pub(in crate::sftp) const UNSUPPORTED: u32 = 8;
}

/// Flags of OPEN (draft-ietf-secsh-filexfer-02, 6.3).
pub(super) mod open {
    pub(in crate::sftp) const READ: u32 = 1;
    pub(in crate::sftp) const WRITE: u32 = 2;
    pub(in crate::sftp) const CREATE: u32 = 8;
    pub(in crate::sftp) const EXCLUSIVE: u32 = 32;
}

/// The error for a response that breaks the protocol.
pub(super) fn protocol_error(reason: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("sftp: {reason}"))
}

/// A packet under way to the server; its length is filled in by [`Packet::finish`].
#[derive(Debug)]
pub(super) struct Packet(BytesMut);

impl Packet {
    /// Begins a packet of this type.
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = BytesMut::with_capacity(256);
        // A placeholder: the length is known only at the end.
        bytes.put_u32(0);
        bytes.put_u8(kind);
        Self(bytes)
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.put_u32(value);
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.put_u64(value);
        self
    }

    pub(super) fn string(mut self, value: &[u8]) -> Self {
        self.0.put_u32(length(value.len()));
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn finish(self) -> BytesMut {
        self.finish_before(0)
    }

    /// Ends with a string of `size` bytes that is sent on its own.
    pub(super) fn before_string(self, size: usize) -> BytesMut {
        self.u32(length(size)).finish_before(size)
    }

    fn finish_before(mut self, more: usize) -> BytesMut {
        let size = length(self.0.len() - 4 + more);
        if let Some(field) = self.0.get_mut(..4) {
            field.copy_from_slice(&size.to_be_bytes());
        }
        self.0
    }
}

/// A length as the wire has it; everything that is sent is far below 4 GiB.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads the fields of a response, and checks each length against the bytes that are left.
#[derive(Clone, Debug)]
pub(super) struct FieldReader(Bytes);

impl FieldReader {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.0
            .try_get_u32()
            .map_err(|_| protocol_error("a number is cut off"))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.0
            .try_get_u64()
            .map_err(|_| protocol_error("a number is cut off"))
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Error> {
        let size = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if size > self.0.len() {
            return Err(protocol_error("a string is longer than its packet"));
        }
        Ok(self.0.split_to(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_carry_their_length() {
        let packet = Packet::new(kind::LSTAT).u32(7).string(b"\xff/").finish();
        assert_eq!(
            &packet[..],
            [0, 0, 0, 11, kind::LSTAT, 0, 0, 0, 7, 0, 0, 0, 2, 0xff, b'/']
        );
    }

    #[test]
    fn fields_that_are_cut_off_or_have_a_wrong_length_are_refused() {
        for (bytes, read) in [
            (vec![0, 0, 0], 4),
            (vec![0; 7], 8),
            (vec![0, 0, 0, 5, b'a'], 0),
            (vec![0xff, 0xff, 0xff, 0xff, b'a'], 0),
        ] {
            let mut fields = FieldReader::new(bytes.into());
            let refused = match read {
                4 => fields.u32().map(drop),
                8 => fields.u64().map(drop),
                _ => fields.string().map(drop),
            };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
