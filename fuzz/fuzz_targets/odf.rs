//! Flat ODF files of all kinds: the converters neither panic nor stall and keep to their limits.

#![no_main]

mod document;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (kind, extension) in [
        ("text", "fodt"),
        ("presentation", "fodp"),
        ("spreadsheet", "fods"),
    ] {
        let mime = format!("application/vnd.oasis.opendocument.{kind}-flat-xml");
        document::check(&mime, extension, bytes);
    }
});
