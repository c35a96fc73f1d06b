//! Tests of ZIPs with other programs.

use dray_sandbox::error::ErrorKind;

use super::archives::{run, there};
use super::{GivenMembers, ScriptedTar, body, directory, file};
use crate::zip::zip_with;
use crate::{Limits, Member, Reader, SkipReason, zip};

/// Prints what Python sees: name, mode, time, sizes, flags and content of each member.
const LIST_SCRIPT: &str = "\
import sys, zipfile, zlib
with zipfile.ZipFile('a.zip') as z:
    assert z.testzip() is None
    for i in z.infolist():
        c = z.read(i)
        assert len(c) == i.file_size
        assert i.create_system == 3 and i.flag_bits & 0x800
        print(ascii(i.filename), oct(i.external_attr >> 16), i.date_time, len(c), zlib.crc32(c), i.is_dir())
";

/// The output of Python and `unzip` for a ZIP.
fn listing_of(zip: &[u8]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.zip"), zip).unwrap();
    if there("unzip") {
        run("unzip", &["-qt", "a.zip"], directory.path());
    }
    let shown = run("python3", &["-c", LIST_SCRIPT], directory.path());
    let shown = String::from_utf8(shown).unwrap();
    shown.lines().map(str::to_owned).collect()
}

fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..size).map(step).collect()
}

fn members() -> Vec<(Member, Vec<u8>)> {
    vec![
        directory("d"),
        file("d/small", b"small"),
        file("d/empty", b""),
        file("text", "a line of text\n".repeat(20_000).as_bytes()),
        file("noise", &noise(300_000)),
        file("d\u{e9}j\u{e0} vu \u{1f980}.txt", b"text"),
        file(b"caf\xe9", b"not text"),
        file("back\\slash", b"b"),
    ]
}

async fn zip_files(large: u64) -> Vec<u8> {
    let body = zip_with(GivenMembers::new(members()), large);
    body.read_all(1 << 20).await.unwrap()
}

#[tokio::test]
async fn zips_are_read_by_other_programs() {
    let zip = zip_files(u64::MAX).await;
    let shown = listing_of(&zip);
    let time = "(2001, 9, 9, 1, 46, 40)";
    assert_eq!(shown[0], format!("'d/' 0o40755 {time} 0 0 True"));
    assert!(shown[1].starts_with(&format!("'d/small' 0o100640 {time} 5 ")));
    assert_eq!(shown[2], format!("'d/empty' 0o100640 {time} 0 0 False"));
    assert!(shown[3].starts_with("'text' "));
    assert!(shown[5].starts_with("'d\\xe9j\\xe0 vu \\U0001f980.txt' "));
    assert!(shown[6].starts_with("'caf%E9' "));
    assert!(shown[7].starts_with("'back_slash' "));
    // The text was compressed, the noise was not.
    assert!(zip.len() < 300_000 + 20_000, "{}", zip.len());
}

#[tokio::test]
async fn zips_with_64_bit_sizes_list_the_same_members() {
    let narrow = listing_of(&zip_files(u64::MAX).await);
    for large in [0, 5, 100_000] {
        assert_eq!(listing_of(&zip_files(large).await), narrow, "{large}");
    }
}

#[tokio::test]
async fn a_zip_has_more_members_than_16_bits_can_count() {
    let many = (0..70_000).map(|index| file(format!("{index}"), b""));
    let zip = zip(GivenMembers::new(many))
        .read_all(32 << 20)
        .await
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.zip"), zip).unwrap();
    let script = "import zipfile;print(len(zipfile.ZipFile('a.zip').namelist()))";
    assert_eq!(
        run("python3", &["-c", script], directory.path()),
        b"70000\n"
    );
}

#[tokio::test]
async fn an_empty_tree_is_an_empty_zip() {
    let zip = zip(GivenMembers::new([])).read_all(1000).await.unwrap();
    assert_eq!(zip.len(), 22);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.zip"), zip).unwrap();
    run("python3", &["-c", LIST_SCRIPT], directory.path());
}

#[tokio::test]
async fn skipped_entries_are_listed_in_a_file_with_a_free_name() {
    let tar = ScriptedTar::default()
        .file("a", b"x")
        .member(b'2', b"link", b"")
        .file("_SKIPPED.txt", b"taken")
        .file("/etc/passwd", b"")
        .ended();
    let reader = Reader::new(body(&tar, 512), Limits::default());
    let zip = zip(reader).read_all(1 << 20).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.zip"), zip).unwrap();
    let script =
        "import zipfile;z=zipfile.ZipFile('a.zip');print(z.namelist(), z.read('_skipped_2.txt'))";
    let said = run("python3", &["-c", script], directory.path());
    assert_eq!(
        String::from_utf8(said).unwrap(),
        "['a', '_SKIPPED.txt', '_skipped_2.txt'] b'link: a link\\r\\n/etc/passwd: its name cannot be used\\r\\n'\n"
    );
}

#[tokio::test]
async fn names_for_windows_stay_inside() {
    let tar = ScriptedTar::default()
        .file("..\\..\\up", b"x")
        .file("\\\\host\\share", b"y")
        .ended();
    let reader = Reader::new(body(&tar, 512), Limits::default());
    let zip = zip(reader).read_all(1 << 20).await.unwrap();
    let shown = listing_of(&zip);
    assert!(shown[0].starts_with("'.._.._up' "), "{shown:?}");
    assert!(shown[1].starts_with("'__host_share' "), "{shown:?}");
}

#[tokio::test]
async fn a_zip_of_a_broken_tree_is_broken() {
    let tar = ScriptedTar::default()
        .file("a", b"x")
        .file("b", &vec![1; 90_000])
        .0;
    for cut in [tar.len(), tar.len() - 50_000] {
        let reader = Reader::new(body(&tar[..cut], 512), Limits::default());
        let mut zip = zip(reader);
        let mut made = Vec::new();
        let error = loop {
            match zip.next().await.unwrap() {
                Ok(chunk) => made.extend_from_slice(&chunk),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert!(!made.windows(4).any(|window| window == b"PK\x05\x06"));
    }
}

#[tokio::test]
async fn r_12_no_chunk_is_large_for_a_large_file() {
    let tar = ScriptedTar::default()
        .file("large", &noise(20 << 20))
        .ended();
    let limits = Limits::default();
    let mut zip = zip(Reader::new(body(&tar, 256 << 10), limits));
    let mut largest = 0;
    while let Some(chunk) = zip.next().await {
        largest = largest.max(chunk.unwrap().len());
    }
    assert!(largest <= 512 << 10, "{largest}");
}

#[test]
fn every_reason_has_words_of_its_own() {
    let all = [
        SkipReason::Link,
        SkipReason::Special,
        SkipReason::Sparse,
        SkipReason::Name,
        SkipReason::TooDeep,
        SkipReason::TooLarge,
        SkipReason::Denied,
        SkipReason::Unreadable,
        SkipReason::GlobalHeader,
        SkipReason::AfterEnd,
    ];
    let words: std::collections::BTreeSet<_> = all.iter().map(|reason| reason.as_str()).collect();
    let sentences: std::collections::BTreeSet<_> =
        all.iter().map(|reason| reason.sentence()).collect();
    assert_eq!((words.len(), sentences.len()), (all.len(), all.len()));
}
