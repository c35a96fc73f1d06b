//! Tests of reading one file of an archive.

use super::samples::{encrypted, gzip, tar_entry, tar_of, xz_sample, zip_of, zstandard};
use super::{list_archive, member_of};
use crate::classify::Kind;
use crate::limits::Failure;

#[test]
fn a_file_of_a_zip_is_converted_by_its_detected_type() {
    let zip = zip_of(&[
        ("docs/table.csv", b"a,b\n1,2\n"),
        ("page.html", b"<!doctype html><h1>Title</h1>"),
    ]);
    let table = member_of("a.zip", &zip, "docs/table.csv");
    assert_eq!(table.markdown, "| a | b |\n|---|---|\n| 1 | 2 |\n");
    let member = table.member.unwrap();
    assert_eq!(
        (member.mime.as_str(), member.kind, member.bytes),
        ("text/csv", Kind::Text, 8)
    );
    assert_eq!(table.converter, "csv");
    assert_eq!(member_of("a.zip", &zip, "page.html").markdown, "# Title\n");
}

#[test]
fn a_file_of_every_kind_of_tar_is_converted() {
    let tar = tar_of(&[
        tar_entry("./docs/a.txt", b'0', "", b"words out of xz\n"),
        tar_entry("./docs/b.txt", b'0', "", b"others"),
    ]);
    for (name, packed) in [
        ("a.tar", tar.clone()),
        ("a.tar.gz", gzip(&tar)),
        ("a.tar.zst", zstandard(&tar)),
        ("a.tar.xz", xz_sample()),
    ] {
        let read = member_of(name, &packed, "docs/a.txt");
        assert_eq!(read.markdown, "words out of xz\n", "{name}");
        assert_eq!(
            member_of(name, &packed, "docs/c.txt").failure,
            Some(Failure::NoMember),
            "{name}"
        );
    }
}

#[test]
fn the_last_of_several_equal_names_is_read_as_after_unpacking() {
    let tar = tar_of(&[
        tar_entry("a.txt", b'0', "", b"old"),
        tar_entry("a.txt", b'0', "", b"new"),
        tar_entry("./a.txt", b'0', "", b"another name"),
    ]);
    assert_eq!(member_of("a.tar", &tar, "a.txt").markdown, "new\n");
}

#[test]
fn a_name_is_found_as_the_listing_shows_it() {
    let zip = zip_of(&[
        ("a\u{202e}b.txt", b"turned"),
        ("x|y.txt", b"barred"),
        ("x\\|y.txt", b"slashed"),
    ]);
    assert_eq!(
        member_of("a.zip", &zip, "a\\u{202e}b.txt").markdown,
        "turned\n"
    );
    assert_eq!(member_of("a.zip", &zip, "x|y.txt").markdown, "barred\n");
    assert_eq!(member_of("a.zip", &zip, "x\\|y.txt").markdown, "slashed\n");
    let only = zip_of(&[("x|y.txt", b"barred")]);
    assert_eq!(member_of("a.zip", &only, "x\\|y.txt").markdown, "barred\n");
}

#[test]
fn directories_links_and_names_that_lead_outside_are_listed_only() {
    let zip = zip_of(&[("d/", b""), ("../../etc/passwd", b"words of the archive")]);
    assert_eq!(
        member_of("a.zip", &zip, "d/").failure,
        Some(Failure::NoMember)
    );
    assert_eq!(
        member_of("a.zip", &zip, "../../etc/passwd").markdown,
        "words of the archive\n"
    );
    let tar = tar_of(&[tar_entry("l", b'2', "/etc/passwd", b"")]);
    assert_eq!(
        member_of("a.tar", &tar, "l").failure,
        Some(Failure::NoMember)
    );
}

#[test]
fn an_encrypted_file_needs_a_password() {
    let zip = encrypted(zip_of(&[("secret.txt", b"words")]));
    let read = member_of("a.zip", &zip, "secret.txt");
    assert_eq!(
        (read.failure, read.markdown.as_str()),
        (Some(Failure::Encrypted), "")
    );
}

#[test]
fn an_archive_within_an_archive_is_only_listed() {
    let inner = zip_of(&[("deep.txt", b"words")]);
    let outer = zip_of(&[("inner.zip", &inner), ("log.gz", &gzip(b"words"))]);
    let listing = member_of("a.zip", &outer, "inner.zip");
    assert!(listing.markdown.contains("| deep.txt | file | 5 |"));
    assert!(
        listing
            .markdown
            .contains("an archive within an archive is only listed")
    );
    assert_eq!(listing.member.unwrap().kind, Kind::Archive);
    let packed = member_of("a.zip", &outer, "log.gz");
    assert!(
        packed
            .markdown
            .contains("| (the compressed file) | file | 5 |"),
        "{}",
        packed.markdown
    );
}

#[test]
fn a_compressed_file_is_read_as_the_file_inside_it() {
    for (name, packed) in [
        ("table.csv.gz", gzip(b"a,b\n1,2\n")),
        ("table.csv.zst", zstandard(b"a,b\n1,2\n")),
    ] {
        let read = list_archive(name, &packed);
        assert_eq!(read.markdown, "| a | b |\n|---|---|\n| 1 | 2 |\n", "{name}");
        assert_eq!(read.member.unwrap().mime, "text/csv", "{name}");
    }
    let several = [gzip(b"one "), gzip(b"two")].concat();
    assert_eq!(list_archive("a.txt.gz", &several).markdown, "one two\n");
    let frames = [
        zstandard(b"one "),
        b"\x50\x2A\x4D\x18\x03\0\0\0abc".to_vec(),
        zstandard(b"two"),
    ]
    .concat();
    assert_eq!(list_archive("a.txt.zst", &frames).markdown, "one two\n");
}
