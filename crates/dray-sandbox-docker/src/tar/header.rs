//! One header block (POSIX ustar, pax, and the base-256 numbers of GNU).

use dray_sandbox::{Error, ErrorKind};

use super::BLOCK;

/// A header block.
pub(crate) type Block = [u8; BLOCK];

const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID_FIELD: (usize, usize) = (116, 8);
const SIZE_FIELD: (usize, usize) = (124, 12);
const MTIME_FIELD: (usize, usize) = (136, 12);
const CHECKSUM_FIELD: (usize, usize) = (148, 8);
const KIND_OFFSET: usize = 156;
const LINK_FIELD: (usize, usize) = (157, 100);
const MAGIC_FIELD: (usize, usize) = (257, 8);
const PREFIX_FIELD: (usize, usize) = (345, 155);

/// Largest number that eleven octal digits hold.
const LARGEST_OCTAL: u64 = 0o77_777_777_777;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// Records for the next entry.
    Pax,
    /// Records for all entries that follow.
    GlobalPax,
    /// The name of the next entry, as GNU has it.
    GnuName,
    /// The link target of the next entry, as GNU has it.
    GnuLink,
    Other(u8),
}

impl Kind {
    const fn of(byte: u8) -> Self {
        match byte {
            b'0' | 0 => Self::File,
            b'1' => Self::HardLink,
            b'2' => Self::Symlink,
            b'3' => Self::CharDevice,
            b'4' => Self::BlockDevice,
            b'5' => Self::Directory,
            b'6' => Self::Fifo,
            b'x' => Self::Pax,
            b'g' => Self::GlobalPax,
            b'L' => Self::GnuName,
            b'K' => Self::GnuLink,
            other => Self::Other(other),
        }
    }

    /// Whether data follows the header.
    pub(crate) const fn has_data(self) -> bool {
        !matches!(
            self,
            Self::HardLink
                | Self::Symlink
                | Self::CharDevice
                | Self::BlockDevice
                | Self::Directory
                | Self::Fifo
        )
    }
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// Bytes of data that follow.
    pub(crate) size: u64,
    /// The 12 low mode bits.
    pub(crate) mode: u32,
    /// Seconds since the epoch.
    pub(crate) mtime: i64,
    pub(crate) link: Vec<u8>,
}

impl Header {
    /// Reads a block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when it is not a header.
    pub(crate) fn parse(block: &Block) -> Result<Self, Error> {
        if number(block, CHECKSUM_FIELD)? != u64::from(checksum(block)) {
            return Err(wrong("the checksum of a header is wrong"));
        }
        let kind = Kind::of(block[KIND_OFFSET]);
        let mut name = Vec::new();
        if field(block, MAGIC_FIELD).starts_with(b"ustar\0") {
            name.extend_from_slice(text(block, PREFIX_FIELD));
            if !name.is_empty() {
                name.push(b'/');
            }
        }
        name.extend_from_slice(text(block, NAME));
        Ok(Self {
            name,
            kind,
            size: if kind.has_data() {
                number(block, SIZE_FIELD)?
            } else {
                0
            },
            mode: u32::try_from(number(block, MODE)? & 0o7777).unwrap_or(0),
            mtime: i64::try_from(number(block, MTIME_FIELD).unwrap_or(0)).unwrap_or(0),
            link: text(block, LINK_FIELD).to_vec(),
        })
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

fn field(block: &Block, (start, length): (usize, usize)) -> &[u8] {
    block.get(start..start + length).unwrap_or_default()
}

/// Up to the first NUL.
fn text(block: &Block, place: (usize, usize)) -> &[u8] {
    let field = field(block, place);
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits, or base-256 when the first bit is set.
fn number(block: &Block, place: (usize, usize)) -> Result<u64, Error> {
    let field = field(block, place);
    match field.split_first() {
        Some((first, rest)) if *first == 0x80 => rest.iter().try_fold(0_u64, |sum, byte| {
            let shifted = sum.checked_mul(256);
            shifted
                .map(|shifted| shifted | u64::from(*byte))
                .ok_or_else(|| wrong("a number of a header is too large"))
        }),
        Some((first, _)) if *first & 0x80 != 0 => Err(wrong("a number of a header is too large")),
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Result<u64, Error> {
    let digits = field
        .iter()
        .copied()
        .skip_while(|byte| *byte == b' ')
        .take_while(|byte| *byte != 0 && *byte != b' ');
    digits
        .into_iter()
        .try_fold(0_u64, |sum, digit| match digit {
            b'0'..=b'7' => Ok((sum << 3) | u64::from(digit - b'0')),
            _ => Err(wrong("a number of a header has no digits")),
        })
}

/// Sum of all bytes, those of the sum itself taken as blanks.
fn checksum(block: &Block) -> u32 {
    let all: u32 = block.iter().copied().map(u32::from).sum();
    let own: u32 = field(block, CHECKSUM_FIELD)
        .iter()
        .copied()
        .map(u32::from)
        .sum();
    all - own + 8 * u32::from(b' ')
}

fn put(block: &mut Block, (start, length): (usize, usize), bytes: &[u8]) {
    let places = block.iter_mut().skip(start).take(length);
    places.zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// Octal where it fits, base-256 where not.
fn put_number(block: &mut Block, place: (usize, usize), value: u64) {
    let digits = place.1 - 1;
    let text = format!("{value:0digits$o}\0");
    if text.len() == place.1 {
        put(block, place, text.as_bytes());
        return;
    }
    let mut bytes = vec![0; place.1.saturating_sub(8)];
    bytes.extend_from_slice(&value.to_be_bytes());
    let extra = bytes.len().saturating_sub(place.1);
    bytes.drain(..extra);
    if let Some(first) = bytes.first_mut() {
        *first |= 0x80;
    }
    put(block, place, &bytes);
}

fn seal(block: &mut Block) {
    let sum = format!("{:06o}\0 ", checksum(block));
    put(block, CHECKSUM_FIELD, sum.as_bytes());
}

fn header(name: &[u8], kind: u8, size: u64, mode: u32, owner: (u32, u32), mtime: u64) -> Block {
    let mut block = [0; BLOCK];
    put(&mut block, NAME, name);
    put_number(&mut block, MODE, mode.into());
    put_number(&mut block, SIZE_FIELD, size);
    put_number(&mut block, MTIME_FIELD, mtime.min(LARGEST_OCTAL));
    block[KIND_OFFSET] = kind;
    put(&mut block, MAGIC_FIELD, b"ustar\x0000");
    put_number(&mut block, UID, owner.0.into());
    put_number(&mut block, GID_FIELD, owner.1.into());
    seal(&mut block);
    block
}

/// Everything that stands before the data of one regular file. `mtime` is in seconds since the epoch.
pub(crate) fn file(name: &[u8], size: u64, mode: u32, owner: (u32, u32), mtime: u64) -> Vec<u8> {
    let mut records = Vec::new();
    if name.len() > NAME.1 {
        record(&mut records, "path", name);
    }
    if size > LARGEST_OCTAL {
        record(&mut records, "size", size.to_string().as_bytes());
    }
    let mut blocks = Vec::new();
    if !records.is_empty() {
        let size = records.len() as u64;
        blocks.extend_from_slice(&header(b"pax", b'x', size, 0o644, owner, mtime));
        blocks.append(&mut records);
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    }
    let size = if size > LARGEST_OCTAL { 0 } else { size };
    let short = name.get(..NAME.1).unwrap_or(name);
    blocks.extend_from_slice(&header(short, b'0', size, mode, owner, mtime));
    blocks
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}
