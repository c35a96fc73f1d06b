//! Classification of files: no bytes make it fail, the same bytes have the same type under any name, and few bytes are
//! read.
//!
//! The first byte chooses a name; the rest is the file.

#![no_main]

use std::io::{Cursor, Read, Seek, SeekFrom};

use dray_documents::classify::{Kind, classify, is_blank};
use libfuzzer_sys::fuzz_target;

const FILE_NAMES: [&str; 8] = [
    "a", "a.docx", "a.eml", "a.ipynb", "a.json", "a.pdf", "a.xml", "Makefile",
];

/// Most bytes that one classification may read: the sample, and the directories and parts of a container.
const MAX_READ_BYTES: usize = 16 << 20;

/// Counts the bytes that are read, and fails above [`MAX_READ_BYTES`].
struct CountedInput<'a>(Cursor<&'a [u8]>, usize);

impl Read for CountedInput<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1 += read;
        assert!(self.1 <= MAX_READ_BYTES, "reads without end");
        Ok(read)
    }
}

impl Seek for CountedInput<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, file @ ..] = bytes else {
        return;
    };
    let name = FILE_NAMES[usize::from(*choice) % FILE_NAMES.len()];
    let mut input = CountedInput(Cursor::new(file), 0);
    let named = classify(&mut input, name).expect("memory does not fail");
    let unnamed = classify(&mut Cursor::new(file), "").expect("memory does not fail");
    // The name only distinguishes kinds of text. Mail is text by its bytes, but a document.
    let is_text = |kind| kind == Kind::Text;
    if is_text(named.kind) || is_text(unnamed.kind) {
        assert!(is_text(unnamed.kind) && (is_text(named.kind) || named.mime == "message/rfc822"));
    } else {
        assert_eq!(named.kind, unnamed.kind);
    }
    assert_eq!(named.hint().mime, named.mime);
    assert_eq!(
        named.encoding.is_some(),
        matches!(named.kind, Kind::Text) || named.mime == "message/rfc822"
    );
    let blank = is_blank(&mut Cursor::new(file), &named, u64::MAX).expect("memory does not fail");
    assert!(!blank || is_text(named.kind));
});
