//! Listings: whole, long, empty, broken.

use std::io::{Cursor, Write as _};

use crate::formats::{Converted, Hint, convert};
use crate::limits::{Damage, Failure, Limits};
use crate::markdown::Selection;

fn listed(bytes: Vec<u8>) -> Converted {
    let hint = Hint {
        mime: "application/zip".to_owned(),
        ..Hint::default()
    };
    convert(
        &mut Cursor::new(bytes),
        &hint,
        Limits::default(),
        Selection::All,
    )
}

fn zip(names: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    for name in names {
        if let Some(folder) = name.strip_suffix('/') {
            zip.add_directory(folder, options).unwrap();
        } else {
            zip.start_file(name, options).unwrap();
            zip.write_all(b"four").unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn names_and_sizes_are_listed_and_nothing_is_unpacked() {
    let names = ["notes/", "notes/a|b.txt", "../../etc/passwd"];
    let listing = listed(zip(names.map(str::to_owned)));
    assert_eq!(
        listing.markdown,
        "| name | bytes | note |\n|---|---|---|\n| notes/ |  | folder |\n| notes/a\\|b.txt | 4 |  |\n\
         | ../../etc/passwd | 4 |  |\n"
    );
    assert_eq!((listing.converter.as_str(), listing.failure), ("zip", None));
}

#[test]
fn long_archives_are_counted_and_empty_ones_say_so() {
    let listing = listed(zip((0..2500).map(|n| format!("{n}.txt"))));
    assert!(listing.markdown.contains("| 1999.txt | 4 |"));
    assert!(!listing.markdown.contains("| 2000.txt |"));
    assert!(listing.markdown.ends_with("_(500 more rows truncated)_\n"));
    assert_eq!(listed(zip([])).markdown, "_(The archive is empty)_\n");
}

#[test]
fn what_is_cut_short_is_named() {
    let whole = zip(["a.txt".to_owned()]);
    let cut = listed(whole[..whole.len() / 2].to_vec());
    assert_eq!(cut.failure, Some(Failure::Corrupt(Damage::Truncated)));
    assert_eq!(cut.markdown, "");
}
