//! Tests of decompression bombs, wrong lengths and random bytes: each one ends within its limits with a reason.

use proptest::prelude::*;

use super::samples::{gzip, pax, tar_entry, tar_header, tar_of, xz_sample, zip_of, zstandard};
use super::{list_archive, member_of, read_within};
use crate::limits::{Damage, Failure, Limit, Limits};

#[test]
fn a_file_that_is_packed_too_tightly_is_listed_with_a_note_and_not_unpacked() {
    let zip = zip_of(&[("zeros.txt", &vec![b'0'; 8 << 20])]);
    assert!(
        list_archive("a.zip", &zip)
            .markdown
            .contains("| packed too tightly to be read |")
    );
    let read = member_of("a.zip", &zip, "zeros.txt");
    assert_eq!(read.failure, Some(Failure::Stopped(Limit::Ratio)));
}

#[test]
fn a_bomb_in_a_stream_stops_at_the_ratio_and_keeps_the_listing() {
    let tar = tar_of(&[
        tar_entry("first.txt", b'0', "", b"words"),
        tar_entry("zeros.txt", b'0', "", &vec![b'0'; 16 << 20]),
        tar_entry("last.txt", b'0', "", b"words"),
    ]);
    for (name, packed) in [("a.tar.gz", gzip(&tar)), ("a.tar.zst", zstandard(&tar))] {
        let listing = list_archive(name, &packed);
        assert_eq!(listing.stopped, Some(Limit::Ratio), "{name}");
        assert!(listing.markdown.contains("| first.txt |"), "{name}");
        assert!(!listing.markdown.contains("| last.txt |"), "{name}");
    }
    let file = gzip(&vec![b'0'; 64 << 20]);
    assert_eq!(
        list_archive("zeros.txt.gz", &file).failure,
        Some(Failure::Stopped(Limit::Ratio))
    );
}

#[test]
fn sizes_and_numbers_of_entries_are_bounded() {
    let tar = tar_of(&[tar_entry("a.txt", b'0', "", b"123456789")]);
    let small = Limits {
        max_member_bytes: 8,
        ..Limits::default()
    };
    let size = Some(Failure::Stopped(Limit::Size));
    assert_eq!(
        read_within("a.tar", &tar, Some("a.txt"), small.clone()).failure,
        size
    );
    let zip = zip_of(&[("a.txt", b"123456789")]);
    assert_eq!(
        read_within("a.zip", &zip, Some("a.txt"), small.clone()).failure,
        size
    );
    assert_eq!(
        read_within("a.txt.gz", &gzip(b"123456789"), None, small).failure,
        size
    );
    let entries: Vec<Vec<u8>> = (0..50)
        .map(|number| tar_entry(&number.to_string(), b'0', "", b""))
        .collect();
    let few = Limits {
        max_elements: 20,
        ..Limits::default()
    };
    let listing = read_within("a.tar", &tar_of(&entries), None, few);
    assert_eq!(listing.stopped, Some(Limit::Element));
    assert!(
        listing.markdown.contains("| 19 | file |"),
        "{}",
        listing.markdown
    );
}

#[test]
fn false_lengths_are_damage() {
    let lying = [tar_header(b"a.txt", b'0', "", 1 << 40), vec![b'x'; 512]].concat();
    let listing = list_archive("a.tar", &lying);
    assert_eq!(listing.failure, Some(Failure::Corrupt(Damage::Truncated)));
    assert!(listing.markdown.contains("| a.txt |"));
    let long = [tar_header(b"x", b'L', "", 1 << 33), vec![b'x'; 512]].concat();
    assert_eq!(
        list_archive("a.tar", &long).failure,
        Some(Failure::Corrupt(Damage::Structure))
    );
    let huge = tar_of(&[
        pax(&[("size", "18446744073709551615")]),
        tar_entry("a", b'0', "", b"1"),
    ]);
    assert_eq!(
        list_archive("a.tar", &huge).failure,
        Some(Failure::Corrupt(Damage::Structure))
    );
    let mut zip = zip_of(&[("a.txt", &b"word ".repeat(100))]);
    let directory = (0..zip.len())
        .find(|at| zip[*at..].starts_with(b"PK\x01\x02"))
        .unwrap();
    zip[directory + 24..directory + 28].copy_from_slice(&10u32.to_le_bytes());
    assert_eq!(
        member_of("a.zip", &zip, "a.txt").failure,
        Some(Failure::Corrupt(Damage::Compression))
    );
}

#[test]
fn truncated_streams_are_reported() {
    let tar = tar_of(&[tar_entry("a.txt", b'0', "", &b"some words ".repeat(4000))]);
    for (name, packed) in [
        ("a.tar.gz", gzip(&tar)),
        ("a.tar.xz", xz_sample()),
        ("a.tar.zst", zstandard(&tar)),
    ] {
        let truncated = list_archive(name, &packed[..packed.len() * 2 / 3]);
        assert_eq!(
            truncated.failure,
            Some(Failure::Corrupt(Damage::Truncated)),
            "{name}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any content of an archive, reading terminates and returns text.
    #[test]
    fn damaged_archives_never_panic(at in 0usize..4096, value: u8, cut in 0usize..4096, choice in 0usize..5) {
        let tar = tar_of(&[
            pax(&[("path", "a.txt")]),
            tar_entry("a", b'0', "", b"words"),
            tar_entry("l", b'2', "to", b""),
        ]);
        let (name, mut bytes) = [
            ("a.tar", tar.clone()),
            ("a.tar.gz", gzip(&tar)),
            ("a.tar.xz", xz_sample()),
            ("a.tar.zst", zstandard(&tar)),
            ("a.zip", zip_of(&[("a.txt", b"words"), ("d/", b"")])),
        ][choice].clone();
        let at = 8 + at % (bytes.len() - 8);
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut % (bytes.len() / 2));
        let _ = list_archive(name, &bytes);
        let _ = member_of(name, &bytes, "a.txt");
    }
}
