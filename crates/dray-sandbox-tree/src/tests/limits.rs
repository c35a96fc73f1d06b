//! Tests of the limits of trees.

use dray_sandbox::error::{Error, ErrorKind};

use super::{Found, ScriptedTar, all, body};
use crate::{Limits, Reader, SkipReason};

async fn within(limits: Limits, tar: ScriptedTar) -> Result<(Found, Vec<SkipReason>), Error> {
    let mut reader = Reader::new(body(&tar.ended(), 4096), limits);
    let found = all(&mut reader).await?;
    let skipped = reader.report().skipped();
    Ok((
        found,
        skipped.into_iter().map(|entry| entry.reason).collect(),
    ))
}

async fn too_large(limits: Limits, tar: ScriptedTar) -> (u64, u64) {
    let error = within(limits, tar).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    error.numbers().unwrap()
}

#[tokio::test]
async fn entries_of_any_kind_are_counted() {
    let limits = Limits {
        entries: 3,
        ..Limits::default()
    };
    let file = |tar: ScriptedTar, index: u32| tar.file(&format!("f{index}"), b"x");
    let root = ScriptedTar::default().member(b'5', b"./", b"");
    let three = (0..3).fold(root, file);
    assert_eq!(within(limits, three.clone()).await.unwrap().0.len(), 3);
    assert_eq!(too_large(limits, three.file("f4", b"")).await, (5, 3));
    let links = (0..5).fold(ScriptedTar::default(), |tar, _| {
        tar.member(b'2', b"link", b"")
    });
    assert_eq!(too_large(limits, links).await, (5, 3));
    // Directories that have no entry in the archive count, too.
    let deep = ScriptedTar::default().file("a/b/c/d", b"x");
    assert_eq!(too_large(limits, deep).await, (4, 3));
    let many = (0..9).fold(ScriptedTar::default(), |tar, _| {
        tar.pax(b'g', &[("comment", "c")])
    });
    assert_eq!(too_large(limits, many.clone()).await, (5, 3));
    assert!(within(limits, many).await.unwrap_err().counts_entries());
}

#[tokio::test]
async fn bytes_are_counted_before_they_come() {
    let limits = Limits {
        total: 1000,
        file: 600,
        ..Limits::default()
    };
    let two = ScriptedTar::default()
        .file("a", &[0; 500])
        .file("b", &[0; 500]);
    assert_eq!(within(limits, two.clone()).await.unwrap().0.len(), 2);
    assert_eq!(too_large(limits, two.file("c", b"x")).await, (1001, 1000));
    let large = ScriptedTar::default().file("a", &[0; 601]).file("b", b"x");
    let (found, skipped) = within(limits, large).await.unwrap();
    assert_eq!((found.len(), skipped), (1, vec![SkipReason::TooLarge]));
    // The declared size counts; no content follows.
    let bomb = ScriptedTar::default().sized(b'0', b"bomb", u64::MAX);
    assert_eq!(too_large(limits, bomb).await, (u64::MAX, 1000));
    let twice = ScriptedTar::default().pax(b'x', &[("size", &u64::MAX.to_string())]);
    let twice = twice.sized(b'0', b"bomb", 1);
    assert_eq!(too_large(limits, twice).await, (u64::MAX, 1000));
}

#[tokio::test]
async fn entries_below_the_depth_limit_are_skipped() {
    let limits = Limits {
        depth: 2,
        ..Limits::default()
    };
    let tar = ScriptedTar::default()
        .file("a/b", b"x")
        .file("a/b2/c", b"x")
        .file("././././d", b"x");
    let (found, skipped) = within(limits, tar).await.unwrap();
    let names: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        (names, skipped),
        (vec!["a/b".into(), "d".into()], vec![SkipReason::TooDeep])
    );
}

#[tokio::test]
async fn names_and_extended_headers_have_limits_too() {
    let limits = Limits {
        names: 50,
        ..Limits::default()
    };
    let tar = ScriptedTar::default()
        .file(&"a".repeat(30), b"")
        .file(&"b".repeat(21), b"");
    assert_eq!(too_large(limits, tar).await, (51, 50));
    let long = "x".repeat((1 << 20) + 1);
    for tar in [
        ScriptedTar::default()
            .pax(b'x', &[("comment", &long)])
            .file("a", b""),
        ScriptedTar::default()
            .member(b'L', b"l", long.as_bytes())
            .file("a", b""),
    ] {
        let error = within(Limits::default(), tar).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
