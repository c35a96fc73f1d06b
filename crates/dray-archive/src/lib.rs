//! The structure of tar archives: headers, extended headers, sparse maps and end markers, decoded and encoded without
//! I/O.
//!
//! - [`tar::Decoder`]: accepts one block after the other and returns entries. The caller reads the blocks from a stream
//!   or a file.
//! - [`tar::encode`]: everything that is before the content of an entry.
//! - [`name::safe_parts`]: whether a name stays in the directory that an archive is unpacked into (zip slip).
//!
//! ```
//! use dray_archive::tar::{self, Decoder, NewEntry, TarRules, DecodeStep};
//!
//! let entry = NewEntry { size: 2, ..NewEntry::file(b"notes/a.txt") };
//! let mut archive = tar::encode(&entry);
//! archive.extend_from_slice(b"hi");
//! archive.resize(archive.len().next_multiple_of(tar::BLOCK_BYTES), 0);
//! archive.extend_from_slice(&tar::END_BLOCKS);
//!
//! let mut decoder = Decoder::new(TarRules::Exact);
//! let DecodeStep::Entry(entry) = decoder.block(archive.first_chunk()).unwrap() else {
//!     panic!("a short name needs no extended header");
//! };
//! assert_eq!((entry.name.as_slice(), entry.size), (&b"notes/a.txt"[..], 2));
//! ```
//!
//! What it does not do: I/O, unpacking, compression. Callers limit the number of entries and bytes; this crate limits
//! only extended headers.

pub mod name;
pub mod tar;
