//! Tests of files that are made to mislead: wrong sizes, cycles, decompression bombs, damage.

use std::cell::Cell;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::rc::Rc;

use proptest::prelude::*;

use super::super::Kind::{Archive, Binary, Document};
use super::super::{classify, mime};
use super::samples::{TRANSITIONAL_RELATIONSHIP, compound, package, zip};
use super::{class, classify_named};

/// Counts the bytes that are read.
struct CountingReader {
    inner: Cursor<Vec<u8>>,
    read: Rc<Cell<usize>>,
}

impl Read for CountingReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        self.read.set(self.read.get() + read);
        Ok(read)
    }
}

impl Seek for CountingReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(to)
    }
}

fn bytes_read(bytes: Vec<u8>) -> usize {
    let read = Rc::new(Cell::new(0));
    let mut input = CountingReader {
        inner: Cursor::new(bytes),
        read: Rc::clone(&read),
    };
    classify(&mut input, "x").unwrap();
    read.get()
}

fn docx() -> Vec<u8> {
    package(
        TRANSITIONAL_RELATIONSHIP,
        "/word/document.xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
    )
}

#[test]
fn only_the_start_of_a_large_file_is_read() {
    assert_eq!(bytes_read(vec![b'a'; 5_000_000]), 64 * 1024);
    assert_eq!(
        bytes_read([b"%PDF-1.4".as_slice(), &vec![0; 5_000_000]].concat()),
        64 * 1024
    );
}

#[test]
fn only_the_directory_of_a_large_container_is_read() {
    let noise: Vec<u8> = (0..4_000_000u32)
        .map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    let bytes = zip(&[("a.bin", &noise)], &["a.bin"]);
    assert!(bytes_read(bytes) < 200_000);
}

#[test]
fn a_container_cut_short_is_known_by_its_start_and_has_a_warning() {
    let whole = docx();
    let truncated = &whole[..whole.len() - 60];
    let class = class(truncated, "x.zip");
    assert_eq!((class.kind, class.mime), (Document, mime::DOCX));
    assert!(
        class
            .warnings
            .contains(&"directory of the container damaged".to_owned())
    );
    let half = classify_named(&whole[..whole.len() / 3], "x.zip");
    assert_eq!(half, (Document, mime::DOCX), "the types were at the end");
    assert_eq!(
        classify_named(b"PK\x03\x04 and nothing more", "x.docx"),
        (Archive, mime::ZIP)
    );
}

#[test]
fn something_before_an_archive_does_not_hide_its_directory() {
    let first = zip(&[("a.txt", b"a")], &[]);
    assert_eq!(
        classify_named(&[first, docx()].concat(), "x"),
        (Document, mime::DOCX)
    );
}

#[test]
fn a_comment_that_imitates_the_end_record_is_ignored() {
    let mut bytes = docx();
    let end = bytes.len() - 2;
    bytes[end..].copy_from_slice(&22u16.to_le_bytes());
    bytes.extend_from_slice(b"a comment of 22 bytes.");
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::DOCX));
}

#[test]
fn wrong_numbers_in_headers_are_not_trusted() {
    let mut bytes = docx();
    let end = bytes.len() - 22;
    bytes[end + 8..end + 12].copy_from_slice(&[0xFE; 4]);
    assert_eq!(
        classify_named(&bytes, "x"),
        (Document, mime::DOCX),
        "the count of entries"
    );
    bytes[end + 12..end + 20].copy_from_slice(&[0xFE; 8]);
    assert_eq!(
        classify_named(&bytes, "x").1,
        mime::DOCX,
        "size and place of the directory"
    );
    let mut ole = compound(&["/Workbook"]);
    for offset in [40, 44, 68, 72] {
        ole[offset..offset + 4].copy_from_slice(&[0xEE; 4]);
    }
    assert_eq!(classify_named(&ole, "x").1, mime::XLS);
}

#[test]
fn the_decompression_of_a_part_that_decides_is_bounded() {
    let bomb = vec![b' '; 16 << 20];
    let bytes = zip(
        &[
            ("[Content_Types].xml", &bomb),
            ("word/document.xml", b"<a/>"),
        ],
        &[],
    );
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::DOCX));
}

#[test]
fn circular_chains_end() {
    let mut bytes = compound(&["/a"]);
    // The directory follows itself.
    let directory = u32::from_le_bytes(bytes[48..52].try_into().unwrap());
    let fat = u32::from_le_bytes(bytes[76..80].try_into().unwrap());
    let shift = u16::from_le_bytes(bytes[30..32].try_into().unwrap());
    let at = ((fat as usize + 1) << shift) + directory as usize * 4;
    bytes[at..at + 4].copy_from_slice(&directory.to_le_bytes());
    // In addition, an entry is its own sibling.
    let entry = ((directory as usize + 1) << shift) + 128;
    bytes[entry + 68..entry + 76].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(classify_named(&bytes, "x"), (Binary, mime::OLE));
}

#[test]
fn an_encrypted_entry_does_not_change_the_kind() {
    let mut bytes = docx();
    // Every central header gets the flag of an encrypted entry.
    let starts: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| bytes[*at..].starts_with(b"PK\x01\x02"))
        .collect();
    for start in starts {
        bytes[start + 8] |= 1;
    }
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::DOCX));
}

proptest! {
    #[test]
    fn no_bytes_make_the_classification_fail(bytes in proptest::collection::vec(any::<u8>(), 0..2000), name in ".{0,40}") {
        let class = classify(&mut Cursor::new(&bytes), &name).unwrap();
        prop_assert!(!class.mime.is_empty());
    }

    #[test]
    fn no_damage_to_a_container_makes_the_classification_fail(at in 0usize..4000, with in any::<[u8; 4]>(), cut in 0usize..4000, is_zip in any::<bool>()) {
        let mut bytes = if is_zip { docx() } else { compound(&["/Workbook", "/s/a"]) };
        let at = at % (bytes.len() - 4);
        bytes[at..at + 4].copy_from_slice(&with);
        bytes.truncate(bytes.len().max(cut + 1) - cut);
        let _ = classify(&mut Cursor::new(&bytes), "x").unwrap();
    }
}
