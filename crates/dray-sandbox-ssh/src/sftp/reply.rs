//! Responses of the server.

use bytes::Bytes;
use dray_sandbox::{Error, ErrorKind};

use super::attributes::Attributes;
use super::wire::{FieldReader, kind, protocol_error, status};

/// Longest handle (draft-ietf-secsh-filexfer-02, 6.2).
const MAX_HANDLE_BYTES: usize = 256;

/// A name with its attributes.
#[derive(Clone, Debug)]
pub(super) struct NamedEntry {
    pub(super) name: Bytes,
    pub(super) attributes: Attributes,
}

/// A response to one request; which variants are valid depends on the request.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Status(u32, String),
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<NamedEntry>),
    Attributes(Attributes),
    Extended(FieldReader),
}

impl Reply {
    /// Reads a response of this type; its id was read before.
    pub(super) fn parse(kind: u8, mut fields: FieldReader) -> Result<Self, Error> {
        Ok(match kind {
            kind::STATUS => {
                let code = fields.u32()?;
                // Servers of older versions leave the text out.
                let text = if fields.is_empty() {
                    Bytes::new()
                } else {
                    fields.string()?
                };
                Reply::Status(code, text.escape_ascii().to_string())
            }
            kind::HANDLE => {
                let handle = fields.string()?;
                if handle.len() > MAX_HANDLE_BYTES {
                    return Err(protocol_error("a handle over 256 bytes"));
                }
                Reply::Handle(handle)
            }
            kind::DATA => Reply::Data(fields.string()?),
            kind::NAME => {
                let count = fields.u32()?;
                // The announced capacity is not reserved: the host chooses the count, but each name must really be in
                // the packet.
                let mut names = Vec::new();
                for _ in 0..count {
                    let name = fields.string()?;
                    // A line in the style of `ls -l`, for people and without a fixed form.
                    let _long_name = fields.string()?;
                    let attributes = Attributes::parse(&mut fields)?;
                    names.push(NamedEntry { name, attributes });
                }
                Reply::Names(names)
            }
            kind::ATTRS => Reply::Attributes(Attributes::parse(&mut fields)?),
            kind::EXTENDED_REPLY => Reply::Extended(fields),
            _ => return Err(protocol_error("a response of unknown type")),
        })
    }

    /// Fails unless the response is a status of success.
    pub(super) fn done(self) -> Result<(), Error> {
        match self {
            Self::Status(status::OK, _) => Ok(()),
            other => Err(other.failure()),
        }
    }

    pub(super) fn handle(self) -> Result<Bytes, Error> {
        match self {
            Self::Handle(handle) => Ok(handle),
            other => Err(other.failure()),
        }
    }

    pub(super) fn attributes(self) -> Result<Attributes, Error> {
        match self {
            Self::Attributes(attributes) => Ok(attributes),
            other => Err(other.failure()),
        }
    }

    /// The only name of a response.
    pub(super) fn name(self) -> Result<Bytes, Error> {
        match self {
            Self::Names(names) => match <[NamedEntry; 1]>::try_from(names) {
                Ok([name]) => Ok(name.name),
                Err(_) => Err(protocol_error("expected exactly one name")),
            },
            other => Err(other.failure()),
        }
    }

    /// The status code, if the response is a status.
    pub(super) const fn code(&self) -> Option<u32> {
        match self {
            Self::Status(code, _) => Some(*code),
            _ => None,
        }
    }

    /// The failure that an unexpected response stands for.
    pub(super) fn failure(self) -> Error {
        let Self::Status(code, text) = self else {
            return protocol_error("a response of the wrong type");
        };
        let kind = match code {
            status::EOF => ErrorKind::Truncated,
            status::NO_SUCH_FILE => ErrorKind::NotFound,
            status::PERMISSION_DENIED => ErrorKind::PermissionDenied,
            // OpenSSH uses this code for names that are too long and for other invalid arguments.
            status::BAD_MESSAGE => ErrorKind::InvalidName,
            status::FAILURE | status::NO_CONNECTION | status::CONNECTION_LOST => {
                ErrorKind::Unavailable
            }
            status::UNSUPPORTED => ErrorKind::ToolMissing,
            _ => ErrorKind::Protocol,
        };
        Error::new(kind, format!("sftp status {code}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_of_a_host_make_the_parser_panic(
            kind in prop_oneof![100_u8..=106, Just(201), any::<u8>()],
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Reply::Names(names)) = Reply::parse(kind, FieldReader::new(bytes.into())) {
                prop_assert!(names.len() < 200);
            }
        }
    }

    #[test]
    fn status_codes_become_kinds() {
        for (code, kind) in [
            (status::EOF, ErrorKind::Truncated),
            (status::NO_SUCH_FILE, ErrorKind::NotFound),
            (status::PERMISSION_DENIED, ErrorKind::PermissionDenied),
            (status::FAILURE, ErrorKind::Unavailable),
            (status::BAD_MESSAGE, ErrorKind::InvalidName),
            (status::NO_CONNECTION, ErrorKind::Unavailable),
            (status::CONNECTION_LOST, ErrorKind::Unavailable),
            (status::UNSUPPORTED, ErrorKind::ToolMissing),
            (999, ErrorKind::Protocol),
        ] {
            let failure = Reply::Status(code, "text".to_owned()).done().unwrap_err();
            assert_eq!(failure.kind(), kind, "{code}");
        }
    }
}
