//! What a file is: no bytes make it fail, the same bytes have the same type under any name, and little is read.
//!
//! The first byte chooses a name; the rest is the file.

#![no_main]

use std::io::{Cursor, Read, Seek, SeekFrom};

use dray_documents::classify::{Kind, classify, is_blank};
use libfuzzer_sys::fuzz_target;

const FILE_NAMES: [&str; 8] = [
    "a", "a.docx", "a.eml", "a.ipynb", "a.json", "a.pdf", "a.xml", "Makefile",
];

/// Bytes that may be read: the sample, the directories and the parts that decide.
const MAX_READ_BYTES: usize = 16 << 20;

struct Counted<'a>(Cursor<&'a [u8]>, usize);

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        self.1 += read;
        assert!(self.1 <= MAX_READ_BYTES, "reads without end");
        Ok(read)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, file @ ..] = bytes else {
        return;
    };
    let name = FILE_NAMES[usize::from(*choice) % FILE_NAMES.len()];
    let mut input = Counted(Cursor::new(file), 0);
    let named = classify(&mut input, name).expect("memory does not fail");
    let unnamed = classify(&mut Cursor::new(file), "").expect("memory does not fail");
    // A name chooses among texts; mail is the one text that is a document.
    let text = |kind| kind == Kind::Text;
    if text(named.kind) || text(unnamed.kind) {
        assert!(text(unnamed.kind) && (text(named.kind) || named.mime == "message/rfc822"));
    } else {
        assert_eq!(named.kind, unnamed.kind);
    }
    assert_eq!(named.hint().mime, named.mime);
    assert_eq!(
        named.encoding.is_some(),
        matches!(named.kind, Kind::Text) || named.mime == "message/rfc822"
    );
    let blank = is_blank(&mut Cursor::new(file), &named, u64::MAX).expect("memory does not fail");
    assert!(!blank || text(named.kind));
});
