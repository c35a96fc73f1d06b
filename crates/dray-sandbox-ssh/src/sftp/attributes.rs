//! File attributes of SFTP version 3.

use dray_sandbox::{Error, FileKind};

use super::wire::{FieldReader, protocol_error};

const ATTR_SIZE: u32 = 1;
const ATTR_UIDGID: u32 = 2;
const ATTR_PERMISSIONS: u32 = 4;
const ATTR_ACMODTIME: u32 = 8;
const ATTR_EXTENDED: u32 = 0x8000_0000;

/// Most extended attributes that are skipped; a response with more is refused.
const MAX_EXTENDED_ATTRIBUTES: u32 = 64;

/// Attributes of version 3. A field that the server leaves out is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) permissions: Option<u32>,
    /// Seconds since the epoch of the last change.
    pub(super) modified: Option<u32>,
}

impl Attributes {
    pub(super) fn parse(fields: &mut FieldReader) -> Result<Self, Error> {
        let flags = fields.u32()?;
        let mut attributes = Self::default();
        if flags & ATTR_SIZE != 0 {
            attributes.size = Some(fields.u64()?);
        }
        if flags & ATTR_UIDGID != 0 {
            attributes.owner = Some((fields.u32()?, fields.u32()?));
        }
        if flags & ATTR_PERMISSIONS != 0 {
            attributes.permissions = Some(fields.u32()?);
        }
        if flags & ATTR_ACMODTIME != 0 {
            let _accessed = fields.u32()?;
            attributes.modified = Some(fields.u32()?);
        }
        if flags & ATTR_EXTENDED != 0 {
            let count = fields.u32()?;
            if count > MAX_EXTENDED_ATTRIBUTES {
                return Err(protocol_error("too many extended attributes"));
            }
            // Pairs of a type and its data; none that OpenSSH sends is used here.
            for _ in 0..count * 2 {
                fields.string()?;
            }
        }
        Ok(attributes)
    }

    /// Kind by the type bits; [`FileKind::Other`], which is never read, without type bits.
    pub(super) fn kind(&self) -> FileKind {
        FileKind::from_st_mode(self.permissions.unwrap_or(0))
    }

    pub(super) fn mode(&self) -> u32 {
        self.permissions.unwrap_or(0) & 0o7777
    }

    /// Nanoseconds since the epoch, with a precision of a second: version 3 has no more.
    pub(super) fn mtime_ns(&self) -> Option<i128> {
        self.modified
            .map(|seconds| i128::from(seconds) * 1_000_000_000)
    }

    /// The flags for attributes that set only permissions.
    pub(super) const fn only_permissions() -> u32 {
        ATTR_PERMISSIONS
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};
    use dray_sandbox::ErrorKind;

    use super::*;

    #[test]
    fn only_the_fields_that_the_flags_announce_are_read() {
        let mut bytes = BytesMut::new();
        bytes.put_u32(ATTR_SIZE | ATTR_PERMISSIONS | ATTR_ACMODTIME | ATTR_EXTENDED);
        bytes.put_u64(5);
        bytes.put_u32(0o104_755);
        bytes.put_u32(1);
        bytes.put_u32(2);
        bytes.put_u32(1);
        bytes.put_slice(&[0, 0, 0, 1, b'n', 0, 0, 0, 0]);
        let mut fields = FieldReader::new(bytes.freeze());
        let found = Attributes::parse(&mut fields).unwrap();
        assert!(fields.is_empty());
        assert_eq!(found.size, Some(5));
        assert_eq!(found.owner, None);
        assert_eq!((found.kind(), found.mode()), (FileKind::File, 0o4755));
        assert_eq!(found.mtime_ns(), Some(2_000_000_000));
    }

    #[test]
    fn a_kind_that_is_not_reported_is_never_a_regular_file() {
        assert_eq!(Attributes::default().kind(), FileKind::Other);
    }

    #[test]
    fn extended_attributes_without_end_are_refused() {
        let mut bytes = BytesMut::new();
        bytes.put_u32(ATTR_EXTENDED);
        bytes.put_u32(u32::MAX);
        let refused = Attributes::parse(&mut FieldReader::new(bytes.freeze())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Protocol);
    }
}
