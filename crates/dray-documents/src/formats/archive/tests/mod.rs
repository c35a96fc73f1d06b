//! Tests of archives: listings, single members, and the limits for hostile archives.

mod hostile;
mod listing;
mod member;
mod samples;

use std::io::Cursor;

use crate::classify::classify;
use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::Limits;
use crate::markdown::Selection;

/// Converts a file as the reader does, by its detected type.
fn read_within(name: &str, bytes: &[u8], member: Option<&str>, limits: Limits) -> Converted {
    let mut input = Cursor::new(bytes);
    let class = classify(&mut input, name).unwrap();
    let hint = ConversionHint {
        member: member.map(str::to_owned),
        ..class.hint()
    };
    convert(&mut input, &hint, limits, Selection::All)
}

fn list_archive(name: &str, bytes: &[u8]) -> Converted {
    read_within(name, bytes, None, Limits::default())
}

fn member_of(name: &str, bytes: &[u8], member: &str) -> Converted {
    read_within(name, bytes, Some(member), Limits::default())
}
