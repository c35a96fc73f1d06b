//! Tests of listings.

use super::samples::{
    encrypted, gzip, pax, sign, tar_entry, tar_header, tar_of, xz_sample, zip_of, zstandard,
};
use super::{list_archive, member_of};
use crate::limits::{Damage, Failure};

#[test]
fn zip_entries_are_listed_with_type_size_and_time_and_nothing_is_unpacked() {
    let zip = zip_of(&[
        ("notes/", b""),
        ("notes/a|b.txt", b"four"),
        ("../../etc/passwd", b"x"),
    ]);
    let listing = list_archive("a.zip", &zip);
    assert_eq!(
        listing.markdown,
        "| path | type | bytes | modified | note |\n|---|---|---|---|---|\n\
         | notes/ | directory |  | 2031-03-14 09:30:00 |  |\n\
         | notes/a\\|b.txt | file | 4 | 2031-03-14 09:30:00 |  |\n\
         | ../../etc/passwd | file | 1 | 2031-03-14 09:30:00 | path leads out of the archive |\n\n\
         _(2 files, 1 directory; 5 bytes unpacked, by the archive's own account; to read a file, pass its path as member)_\n"
    );
    assert_eq!((listing.converter.as_str(), listing.failure), ("zip", None));
}

/// A ZIP archive with two files of the same name, which the library does not write.
fn zip_with_repeated_name() -> Vec<u8> {
    let mut zip = zip_of(&[
        ("one.txt", b"first"),
        ("b.txt", b"b"),
        ("two.txt", b"the second"),
    ]);
    for at in 0..zip.len() - 7 {
        if zip[at..].starts_with(b"two.txt") {
            zip[at..at + 3].copy_from_slice(b"one");
        }
    }
    zip
}

#[test]
fn files_of_the_same_name_are_all_listed_and_the_last_one_is_read() {
    let zip = zip_with_repeated_name();
    let listing = list_archive("a.zip", &zip);
    assert_eq!(
        listing.markdown,
        "| path | type | bytes | modified | note |\n|---|---|---|---|---|\n\
         | one.txt | file | 5 | 2031-03-14 09:30:00 |  |\n\
         | one.txt | file | 10 | 2031-03-14 09:30:00 | name repeated; the last one is read |\n\
         | b.txt | file | 1 | 2031-03-14 09:30:00 |  |\n\n\
         _(3 files; 16 bytes unpacked, by the archive's own account; to read a file, pass its path as member)_\n"
    );
    assert_eq!(member_of("a.zip", &zip, "one.txt").markdown, "the second\n");
    let tar = tar_of(&[
        tar_entry("a.txt", b'0', "", b"old"),
        tar_entry("a.txt", b'0', "", b"newer"),
    ]);
    let listing = list_archive("a.tar", &tar).markdown;
    assert!(
        listing.contains(
            "| a.txt | file | 5 | 2023-11-14 22:13:20 | name repeated; the last one is read |"
        ),
        "{listing}"
    );
}

#[test]
fn the_listing_of_a_long_archive_is_cut_and_an_empty_archive_has_a_note() {
    let names: Vec<String> = (0..2500).map(|number| format!("{number}.txt")).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), &b"four"[..]))
        .collect();
    let listing = list_archive("a.zip", &zip_of(&files));
    assert!(listing.markdown.contains("| 1999.txt | file | 4 |"));
    assert!(!listing.markdown.contains("| 2000.txt |"));
    assert!(listing.markdown.contains("_(500 more rows truncated)_\n"));
    assert!(
        listing
            .markdown
            .contains("_(2500 files; 10000 bytes unpacked")
    );
    assert_eq!(
        list_archive("a.zip", &zip_of(&[])).markdown,
        "_(The archive is empty)_\n"
    );
}

#[test]
fn encrypted_entries_have_a_note() {
    let listing = list_archive("a.zip", &encrypted(zip_of(&[("secret.txt", b"words")])));
    assert!(
        listing
            .markdown
            .contains("| secret.txt | file | 5 | 2031-03-14 09:30:00 | encrypted |")
    );
    assert_eq!(listing.failure, None);
}

#[test]
fn a_zip_that_is_cut_short_is_reported_as_truncated() {
    let whole = zip_of(&[("a.txt", b"four")]);
    let truncated = list_archive("a.zip", &whole[..whole.len() / 2]);
    assert_eq!(truncated.failure, Some(Failure::Corrupt(Damage::Truncated)));
    assert_eq!(truncated.markdown, "");
}

#[test]
fn tar_entries_are_listed_with_links_and_devices() {
    let tar = tar_of(&[
        tar_entry("docs/", b'5', "", b""),
        tar_entry("docs/a.txt", b'0', "", b"words"),
        tar_entry("docs/b.txt", b'2', "../../etc/passwd", b""),
        tar_entry("docs/c.txt", b'1', "docs/a.txt", b""),
        tar_entry("dev/null", b'3', "", b""),
    ]);
    let listing = list_archive("a.tar", &tar);
    let time = "2023-11-14 22:13:20";
    assert_eq!(
        listing.markdown,
        format!(
            "| path | type | bytes | modified | note |\n|---|---|---|---|---|\n\
             | docs/ | directory |  | {time} |  |\n| docs/a.txt | file | 5 | {time} |  |\n\
             | docs/b.txt | symbolic link |  | {time} | to ../../etc/passwd |\n\
             | docs/c.txt | hard link |  | {time} | to docs/a.txt |\n| dev/null | other | 0 | {time} |  |\n\n\
             _(1 file, 1 directory, 3 other entries; 5 bytes unpacked, by the archive's own account; \
             to read a file, pass its path as member)_\n"
        )
    );
    assert_eq!((listing.converter.as_str(), listing.failure), ("tar", None));
}

#[test]
fn every_compression_of_a_tar_archive_is_listed() {
    let tar = tar_of(&[tar_entry("docs/a.txt", b'0', "", b"words out of xz\n")]);
    for (name, packed, converter) in [
        ("a.tar.gz", gzip(&tar), "gzip"),
        ("a.tgz", gzip(&tar), "gzip"),
        ("a.tar.zst", zstandard(&tar), "zstd"),
        ("a.tar.xz", xz_sample(), "xz"),
    ] {
        let listing = list_archive(name, &packed);
        assert!(
            listing
                .markdown
                .contains("| docs/a.txt | file | 16 | 2023-11-14 22:13:20 |"),
            "{name}"
        );
        assert_eq!(
            (listing.converter.as_str(), listing.failure),
            (converter, None),
            "{name}"
        );
    }
}

#[test]
fn long_names_of_both_kinds_are_read() {
    let long = format!("{}/end.txt", "d/".repeat(200));
    let gnu = [format!("{long}\0").into_bytes()].concat();
    let tar = tar_of(&[
        tar_entry("././@LongLink", b'L', "", &gnu),
        tar_entry("short", b'0', "", b"1"),
        pax(&[("path", "größe.txt"), ("mtime", "1.5"), ("size", "2")]),
        tar_entry("gr", b'0', "", b"22"),
    ]);
    let listing = list_archive("a.tar", &tar);
    assert!(listing.markdown.contains(&format!("| {long} | file | 1 |")));
    assert!(
        listing
            .markdown
            .contains("| größe.txt | file | 2 | 1970-01-01 00:00:01 |")
    );
}

#[test]
fn names_that_hide_or_turn_text_around_are_shown_escaped() {
    let tar = tar_of(&[
        tar_entry("a\u{202e}txt.exe", b'0', "", b"1"),
        [tar_header(b"caf\xe9\n.txt", b'0', "", 1), vec![b'2'; 512]].concat(),
    ]);
    let listing = list_archive("a.tar", &tar);
    assert!(
        listing.markdown.contains("| a\\\\u{202e}txt.exe | file |"),
        "{}",
        listing.markdown
    );
    assert!(
        listing
            .markdown
            .contains("| caf\\\\xe9\\\\u{a}.txt | file |"),
        "{}",
        listing.markdown
    );
}

#[test]
fn binary_sizes_are_read_and_sparse_files_are_not_files() {
    let mut binary = tar_header(b"big", b'0', "", 0);
    binary[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    let tar = tar_of(&[
        [sign(binary), vec![b'x'; 512]].concat(),
        pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.name", "disk.img"),
            ("GNU.sparse.realsize", "4096"),
        ]),
        tar_entry("GNUSparseFile.0/disk.img", b'0', "", b"1\n0\n0\n"),
    ]);
    let listing = list_archive("a.tar", &tar);
    assert!(
        listing.markdown.contains("| big | file | 512 |"),
        "{}",
        listing.markdown
    );
    assert!(
        listing.markdown.contains("| disk.img | other | 4096 |"),
        "{}",
        listing.markdown
    );
}
