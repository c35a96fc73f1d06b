//! Classification, row by row.

mod containers;
mod hostile;
mod samples;
mod signatures;
mod texts;

use std::io::Cursor;

use super::{Class, Kind, classify};

/// The class of these bytes under that name.
fn class(bytes: &[u8], name: &str) -> Class {
    classify(&mut Cursor::new(bytes), name).unwrap()
}

/// Kind and media type.
fn classify_named(bytes: &[u8], name: &str) -> (Kind, &'static str) {
    let class = class(bytes, name);
    (class.kind, class.mime)
}
