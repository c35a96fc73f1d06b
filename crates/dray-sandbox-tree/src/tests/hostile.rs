//! Tests of hostile tars.

use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};

use super::{ScriptedTar, all, body, names, read, refusal, skipped};
use crate::{Limits, Members as _, Reader, SkipReason};

#[tokio::test]
async fn files_and_directories_come_out_as_they_are() {
    let tar = ScriptedTar::default()
        .member(b'5', b"./", b"")
        .member(b'5', b"./d/", b"")
        .file("./d/a", b"content")
        .member(0, b"old", b"style")
        .member(b'5', b"e", b"")
        .file("empty", b"")
        .ended();
    let (found, report) = read(&tar).await.unwrap();
    let expected = [
        ("d/", ""),
        ("d/a", "content"),
        ("old", "style"),
        ("e/", ""),
        ("empty", ""),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(found, expected);
    assert_eq!(report.count(), 0);
    let mut reader = Reader::new(body(&tar, 100), Limits::default());
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!((first.mode, first.mtime), (0o640, Some(0o7_346_545_000)));
}

#[tokio::test]
async fn links_devices_and_pipes_are_skipped_and_reported() {
    let mut tar = ScriptedTar::default();
    for (flag, name) in [
        (b'1', "hard"),
        (b'2', "soft"),
        (b'3', "char"),
        (b'4', "block"),
        (b'6', "pipe"),
        (b'7', "contiguous"),
        (b'V', "label"),
        (b'M', "rest of another volume"),
        (b'D', "dump"),
        (b'Z', "unknown"),
    ] {
        tar = tar
            .member(flag, name.as_bytes(), b"")
            .changed(157, b"/etc/passwd");
    }
    let tar = tar.file("soft/inside", b"x").ended();
    assert_eq!(names(&tar).await, ["soft/inside"]);
    let skipped = skipped(&tar).await;
    let kinds: Vec<_> = skipped.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(kinds[..2], [SkipReason::Link; 2]);
    assert_eq!(kinds[2..], [SkipReason::Special; 8]);
    assert_eq!(skipped[0].0, "hard");
}

#[tokio::test]
async fn content_of_skipped_entries_is_never_read_as_members() {
    let inner = ScriptedTar::default().file("smuggled", b"x").ended();
    let tar = ScriptedTar::default()
        .member(b'V', b"label", &inner)
        .file("../refused", &inner)
        .member(b'7', b"contiguous", &inner)
        .file("good", b"y")
        .ended();
    assert_eq!(names(&tar).await, ["good"]);
}

#[tokio::test]
async fn cve_2025_62518_the_size_of_a_pax_header_wins_over_that_of_the_header() {
    let inner = ScriptedTar::default().file("smuggled", b"evil").ended();
    let length = inner.len().to_string();
    let tar = ScriptedTar::default()
        .pax(b'x', &[("size", &length)])
        .sized(b'0', b"archive.tar", 0)
        .content(&inner)
        .file("after", b"z")
        .ended();
    let (found, _) = read(&tar).await.unwrap();
    assert_eq!(found[0], ("archive.tar".to_owned(), inner));
    assert_eq!(found[1], ("after".to_owned(), b"z".to_vec()));
    assert_eq!(found.len(), 2);
    // And in the other direction.
    let tar = ScriptedTar::default()
        .pax(b'x', &[("size", "0")])
        .sized(b'0', b"empty", 512)
        .file("next", b"n")
        .ended();
    let (found, _) = read(&tar).await.unwrap();
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["empty", "next"]);
}

#[tokio::test]
async fn content_of_an_entry_that_has_none_is_refused_because_readers_differ() {
    for flag in *b"123456" {
        let tar = ScriptedTar::default().member(flag, b"x", &[0; 512]).ended();
        assert_eq!(refusal(&tar).await, ErrorKind::Protocol, "{flag}");
        let tar = ScriptedTar::default()
            .pax(b'x', &[("size", "512")])
            .member(flag, b"x", b"")
            .ended();
        assert_eq!(refusal(&tar).await, ErrorKind::Protocol, "{flag}");
    }
    let tar = ScriptedTar::default()
        .member(b'0', b"file/", b"content")
        .ended();
    assert_eq!(
        skipped(&tar).await,
        [("file/".to_owned(), SkipReason::Name)]
    );
    let tar = ScriptedTar::default()
        .member(b'0', b"directory/", b"")
        .ended();
    assert_eq!(names(&tar).await, ["directory/"]);
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_skipped_at_any_position() {
    let evil = ["/etc/passwd", "../up", "a/../../up", "a//b", "C:\\x"];
    let mut tar = ScriptedTar::default();
    for name in evil {
        tar = tar
            .file(name, b"x")
            .pax(b'x', &[("path", name)])
            .file("innocent", b"x")
            .member(b'L', b"././@LongLink", name.as_bytes())
            .file("innocent", b"x");
    }
    let tar = tar.member(b'5', b"../", b"").file("good", b"y").ended();
    assert_eq!(names(&tar).await, ["good"]);
    let skipped = skipped(&tar).await;
    assert_eq!(skipped.len(), 3 * evil.len() + 1);
    assert!(
        skipped
            .iter()
            .all(|(_, reason)| *reason == SkipReason::Name)
    );
}

#[tokio::test]
async fn a_prefix_is_part_of_the_name_in_posix_headers_only() {
    let tar = ScriptedTar::default()
        .sized(b'0', b"name", 0)
        .changed(345, b"../..")
        .sized(b'0', b"name", 0)
        .changed(345, b"deep")
        .sized(b'0', b"gnu", 0)
        .changed(345, b"times")
        .changed(257, b"ustar  \0")
        .ended();
    assert_eq!(names(&tar).await, ["deep/name", "gnu"]);
    assert_eq!(
        skipped(&tar).await,
        [("../../name".to_owned(), SkipReason::Name)]
    );
}

#[tokio::test]
async fn the_name_of_a_pax_header_wins_over_gnu_and_both_over_the_header() {
    let tar = ScriptedTar::default()
        .member(b'K', b"././@LongLink", b"some/link\0")
        .member(b'L', b"././@LongLink", b"gnu\0rest")
        .pax(b'x', &[("path", "pax"), ("mtime", "5.9")])
        .file("header", b"1")
        .member(b'L', b"././@LongLink", b"gnu")
        .file("header", b"2")
        .file("header", b"3")
        .ended();
    assert_eq!(names(&tar).await, ["pax", "gnu", "header"]);
    let mut reader = Reader::new(body(&tar, 512), Limits::default());
    assert_eq!(reader.next().await.unwrap().unwrap().mtime, Some(5));
}

#[tokio::test]
async fn files_with_holes_are_skipped_with_their_maps() {
    let map = |more: u8| {
        let mut block = vec![1; 512];
        block[504] = more;
        block
    };
    let tar = ScriptedTar::default()
        .sized(b'S', b"sparse", 5)
        .changed(257, b"ustar  \0")
        .changed(482, &[1])
        .content(&[map(1), map(0)].concat())
        .content(b"holes")
        .pax(b'x', &[("GNU.sparse.major", "1"), ("GNU.sparse.name", "s")])
        .file("GNUSparseFile.0/s", b"1\n0\n")
        .file("good", b"x")
        .ended();
    assert_eq!(names(&tar).await, ["good"]);
    let reasons: Vec<_> = skipped(&tar)
        .await
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, [SkipReason::Sparse; 2]);
}

#[tokio::test]
async fn global_headers_change_neither_names_nor_sizes() {
    let tar = ScriptedTar::default()
        .pax(b'g', &[("comment", "of git archive")])
        .pax(b'g', &[("path", "everything")])
        .file("own", b"x")
        .ended();
    assert_eq!(names(&tar).await, ["own"]);
    let expected = [("everything".to_owned(), SkipReason::GlobalHeader)];
    assert_eq!(skipped(&tar).await, expected);
    let tar = ScriptedTar::default()
        .pax(b'g', &[("size", "0")])
        .file("a", b"x");
    assert_eq!(refusal(&tar.ended()).await, ErrorKind::Protocol);
}

#[tokio::test]
async fn headers_that_can_be_read_in_two_ways_are_refused() {
    let good = ScriptedTar::default().file("a", b"x");
    let twice = good.clone().pax(b'x', &[("path", "b")]);
    let twice = twice.pax(b'x', &[("path", "c")]).file("d", b"");
    let long = good.clone().member(b'L', b"l", b"b");
    let long = long.member(b'L', b"l", b"c").file("d", b"");
    let between = good.clone().pax(b'x', &[("path", "b")]);
    let between = between.pax(b'g', &[("comment", "c")]).file("d", b"");
    let dangling = good.clone().pax(b'x', &[("path", "b")]);
    let malformed = good
        .clone()
        .member(b'x', b"p", b"99 path=b\n")
        .file("d", b"");
    let mut sum = good.clone().file("b", b"");
    let at = sum.0.len() - 512;
    sum.0[at] = b'c';
    let negative = good.clone().sized(b'0', b"b", 0).changed(124, &[0xff; 12]);
    let huge = good.clone().sized(b'0', b"b", 0);
    let huge = huge.changed(124, b"\x80\0\0\x01\0\0\0\0\0\0\0\0");
    let mut lone = good;
    lone.0.resize(lone.0.len() + 512, 0);
    let lone = lone.file("b", b"after one block of zeros");
    for tar in [
        twice, long, between, dangling, malformed, sum, negative, huge, lone,
    ] {
        assert_eq!(refusal(&tar.ended()).await, ErrorKind::Protocol);
    }
}

#[tokio::test]
async fn r_5_an_archive_that_ends_early_is_truncated_wherever_it_is_cut() {
    let tar = ScriptedTar::default()
        .pax(b'x', &[("path", "long name")])
        .file("a", &[7; 700])
        .file("b", b"x");
    let whole = tar.0.len();
    let tar = tar.ended();
    for cut in (0..=whole).step_by(64).chain([1, 511, 513, whole - 1]) {
        let cut = &tar[..cut];
        assert_eq!(refusal(cut).await, ErrorKind::Truncated, "{}", cut.len());
    }
    for enough in [whole + 512, whole + 1024] {
        read(&tar[..enough]).await.unwrap();
    }
    assert_eq!(refusal(b"").await, ErrorKind::Truncated);
}

#[tokio::test]
async fn bytes_after_the_end_are_reported_and_not_read() {
    let mut tar = ScriptedTar::default().file("a", b"x").ended();
    tar.resize(tar.len() + 8192, 0);
    assert_eq!(skipped(&tar).await, []);
    tar.extend(ScriptedTar::default().file("second", b"y").ended());
    assert_eq!(names(&tar).await, ["a"]);
    let reasons: Vec<_> = skipped(&tar)
        .await
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, [SkipReason::AfterEnd]);
}

#[tokio::test]
async fn a_source_that_fails_fails_the_tree_even_after_the_end() {
    let tar = ScriptedTar::default().file("a", &[1; 2000]).ended();
    for cut in [0, 100, 512, 1000, tar.len()] {
        let chunks = [
            Ok(tar[..cut].to_vec().into()),
            Err(Error::new(ErrorKind::SandboxGone, "the sandbox died")),
        ];
        let body = Body::new(futures_util::stream::iter(chunks));
        let mut reader = Reader::new(body, Limits::default());
        let error = all(&mut reader).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SandboxGone, "{cut}");
        assert!(reader.next().await.is_err(), "{cut}");
    }
}

#[tokio::test]
async fn a_member_may_be_left_half_read() {
    let tar = ScriptedTar::default()
        .file("a", &[1; 5000])
        .file("b", b"whole")
        .ended();
    let mut reader = Reader::new(body(&tar, 700), Limits::default());
    reader.next().await.unwrap().unwrap();
    reader.next_chunk().await.unwrap().unwrap();
    let rest = all(&mut reader).await.unwrap();
    assert_eq!(rest, [("b".to_owned(), b"whole".to_vec())]);
    assert!(reader.next().await.unwrap().is_none());
    assert!(reader.next_chunk().await.unwrap().is_none());
}

#[tokio::test]
async fn equal_names_are_numbered_and_never_overwritten() {
    let tar = ScriptedTar::default()
        .file("Readme.md", b"1")
        .file("Readme.md", b"2")
        .file("README.MD", b"3")
        .member(b'5', b"dir", b"")
        .member(b'5', b"dir/", b"")
        .file("DIR/x", b"4")
        .file("dir", b"5")
        .ended();
    let expected = [
        "Readme.md",
        "Readme_2.md",
        "README_3.MD",
        "dir/",
        "DIR_2/x",
        "dir_3",
    ];
    assert_eq!(names(&tar).await, expected);
}

#[tokio::test]
async fn names_that_are_not_text_stay_as_they_are() {
    let tar = ScriptedTar::default()
        .member(b'0', b"caf\xe9\n", b"x")
        .pax(b'x', &[("path", "new\nline=odd")])
        .file("a", b"y")
        .ended();
    assert_eq!(names(&tar).await, ["caf\\xe9\\n", "new\\nline=odd"]);
}

#[tokio::test]
async fn the_filter_gets_the_name_in_the_archive() {
    let tar = ScriptedTar::default()
        .file("./.env", b"SECRET=1")
        .file("a/.env", b"SECRET=2")
        .file("a/b", b"x")
        .ended();
    let filter = |name: &[u8]| !name.ends_with(b".env");
    let mut reader = Reader::new(body(&tar, 512), Limits::default()).filtered(Box::new(filter));
    let found = all(&mut reader).await.unwrap();
    assert_eq!(found, [("a/b".to_owned(), b"x".to_vec())]);
    let text = reader.report().text();
    assert_eq!(
        text,
        "./.env: may hold credentials or system data\r\na/.env: may hold credentials or system data\r\n"
    );
}

#[tokio::test]
async fn a_report_is_text_for_any_names() {
    let mut tar = ScriptedTar::default().member(b'2', b"a\n\x1b[31m\xff\xe2\x80\xae", b"");
    for index in 0..1200 {
        tar = tar.member(b'2', format!("link-{index}").as_bytes(), b"");
    }
    let (_, report) = read(&tar.ended()).await.unwrap();
    let text = report.text();
    assert!(text.starts_with("a\\u{a}\\u{1b}[31m\\xff\\u{202e}: a link\r\n"));
    assert!(text.ends_with("... and 201 more\r\n"));
    assert_eq!(report.count(), 1201);
}
