//! Tests with tars of other programs, and with other programs that read our tars.

use std::path::Path;
use std::process::Command;

use super::{Found, GivenMembers, body, directory, file, read};
use crate::writer::header;
use crate::{Limits, Owner, Reader, SkipReason, tar};

pub(super) fn run(program: &str, arguments: &[&str], directory: &Path) -> Vec<u8> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("TZ", "UTC0")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    output.stdout
}

/// Whether a program is installed; some are not on every machine.
pub(super) fn there(program: &str) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}

/// A directory with entries that programs write into tars in different ways.
fn sample_tree() -> tempfile::TempDir {
    let zoo = tempfile::tempdir().unwrap();
    let long = "l".repeat(120);
    let deep = format!("{long}/{long}/{long}");
    std::fs::create_dir_all(zoo.path().join(&deep)).unwrap();
    let script = format!(
        "printf small > small; : > empty; head -c 70000 /dev/zero > zeros; printf deep > {deep}/file; \
         printf x > {}; printf 'caf' > \"$(printf 'caf\\351')\"; printf nl > 'new\nline'; \
         ln -s small link; ln small hard; mkfifo pipe; truncate -s 1M holes; printf end >> holes",
        "n".repeat(255)
    );
    run("sh", &["-c", &script], zoo.path());
    zoo
}

#[tokio::test]
async fn every_format_of_gnu_tar_is_read() {
    let zoo = sample_tree();
    let mut expected: Option<Found> = None;
    for format in ["gnu", "oldgnu", "pax", "posix"] {
        let format = format!("--format={format}");
        let tar = run(
            "tar",
            &["-cf", "-", "--sort=name", &format, "-C", ".", "."],
            zoo.path(),
        );
        let (mut found, report) = read(&tar).await.unwrap();
        found.sort();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"caf\\xe9") && names.contains(&"new\\nline"));
        assert!(names.contains(&"n".repeat(255).as_str()));
        let deep = found
            .iter()
            .find(|(name, _)| name.ends_with("/file"))
            .unwrap();
        assert_eq!((deep.0.len(), deep.1.as_slice()), (367, b"deep".as_slice()));
        let holes = found.iter().find(|(name, _)| name == "holes").unwrap();
        assert_eq!(holes.1.len(), (1 << 20) + 3);
        let mut reasons: Vec<_> = report
            .skipped()
            .into_iter()
            .map(|entry| entry.reason)
            .collect();
        reasons.sort();
        // One of the two hard links is written as a file.
        assert_eq!(
            reasons,
            [SkipReason::Link, SkipReason::Link, SkipReason::Special]
        );
        assert_eq!(*expected.get_or_insert_with(|| found.clone()), found);
    }
}

#[tokio::test]
async fn sparse_files_of_gnu_tar_are_skipped_without_losing_the_rest() {
    let zoo = sample_tree();
    for format in ["gnu", "posix"] {
        for version in ["0.0", "0.1", "1.0"] {
            let (format, version) = (
                format!("--format={format}"),
                format!("--sparse-version={version}"),
            );
            let arguments = ["-Scf", "-", &version, &format, "holes", "small"];
            let tar = run("tar", &arguments, zoo.path());
            let (found, report) = read(&tar).await.unwrap();
            assert_eq!(found, [("small".to_owned(), b"small".to_vec())]);
            assert_eq!(report.skipped()[0].reason, SkipReason::Sparse);
        }
    }
}

#[tokio::test]
async fn tars_of_python_and_busybox_are_read() {
    let zoo = sample_tree();
    let script = "import sys,tarfile\n\
        for f in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):\n    \
        t = tarfile.open('../%d.tar' % f, 'w', format=f); t.add('small'); t.add('empty'); t.close()";
    let inside = zoo.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("small"), "small").unwrap();
    std::fs::write(inside.join("empty"), "").unwrap();
    run("python3", &["-c", script], &inside);
    let expected = [("small", "small"), ("empty", "")];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    for format in 0..3 {
        let tar = std::fs::read(zoo.path().join(format!("{format}.tar"))).unwrap();
        assert_eq!(read(&tar).await.unwrap().0, expected);
    }
    if there("busybox") {
        let tar = run("busybox", &["tar", "-cf", "-", "small", "empty"], &inside);
        assert_eq!(read(&tar).await.unwrap().0, expected);
        let tar = run("busybox", &["tar", "-cf", "-", "."], zoo.path());
        let (found, _) = read(&tar).await.unwrap();
        assert!(found.iter().any(|(name, _)| name.len() == 367));
    }
}

fn members() -> Vec<(crate::Member, Vec<u8>)> {
    let long = |letter: &str, length| letter.repeat(length);
    vec![
        directory("d"),
        file("d/small", b"small"),
        file("d/empty", b""),
        file("block", &[7; 512]),
        file("large", &[9; 200_000]),
        file(b"caf\xe9", b"not text"),
        file("new\nline", b"n"),
        file("-rf", b"dash"),
        file(long("n", 99), b"99"),
        file(long("n", 100), b"100"),
        file(long("n", 101), b"101"),
        file(long("m", 255), b"255"),
        directory(long("d", 100)),
        file(format!("{}/{}", long("p", 150), long("q", 100)), b"prefix"),
        file(
            format!("{}/{}", long("r", 150), long("s", 101)),
            b"no prefix",
        ),
        file(format!("{0}/{0}/{0}", long("t", 170)), b"511"),
        file(format!("{0}/{0}/{0}", "\u{e9}".repeat(127)), b"text"),
    ]
}

async fn write_archive() -> Vec<u8> {
    let body = tar(
        GivenMembers::new(members()),
        Owner {
            uid: 1000,
            gid: 5_000_000,
        },
    );
    body.read_all(1 << 20).await.unwrap()
}

#[tokio::test]
async fn our_tars_are_unpacked_by_others_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    let tar = write_archive().await;
    let mut unpackers = vec![("tar", vec!["--no-same-owner", "-xf", "../a.tar"])];
    if there("busybox") {
        unpackers.push(("busybox", vec!["tar", "-xof", "../a.tar"]));
    }
    let python = "import sys,tarfile\nt=tarfile.open('../a.tar')\n\
        assert {m.uid for m in t} == {1000} and {m.gid for m in t} == {5000000}\n\
        t.extractall(numeric_owner=False, filter='data')";
    unpackers.push(("python3", vec!["-c", python]));
    for (program, arguments) in unpackers {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.tar"), &tar).unwrap();
        let inside = directory.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        run(program, &arguments, &inside);
        for (member, content) in members() {
            let path = inside.join(std::ffi::OsStr::from_bytes(&member.name));
            let what = format!("{program}: {}", member.name.escape_ascii());
            let seen = std::fs::metadata(&path).expect(&what);
            if seen.is_file() {
                assert_eq!(std::fs::read(&path).unwrap(), content, "{what}");
                assert_eq!(seen.permissions().mode() & 0o777, 0o640, "{what}");
            }
            assert_eq!(
                seen.len() > 0 && seen.is_file(),
                !content.is_empty(),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn our_tars_come_back_through_our_reader() {
    let tar = write_archive().await;
    assert!(tar.len().is_multiple_of(512));
    let (found, report) = read(&tar).await.unwrap();
    assert_eq!(report.count(), 0);
    let expected: Vec<_> = members().into_iter().map(|(_, content)| content).collect();
    let found: Vec<_> = found.into_iter().map(|(_, content)| content).collect();
    assert_eq!(found, expected);
    // Reading this tar and writing it again gives the same bytes.
    let reader = Reader::new(body(&tar, 3000), Limits::default());
    let owner = Owner {
        uid: 1000,
        gid: 5_000_000,
    };
    let repeated = super::super::tar(reader, owner).read_all(1 << 20).await;
    assert!(repeated.unwrap() == tar);
}

#[test]
fn sizes_that_octal_digits_cannot_express_are_binary() {
    let (mut member, _) = file("huge", b"");
    member.size = 9 << 30;
    let block = header(&member, Owner::default());
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("header"), &block).unwrap();
    let script = "import tarfile;print(tarfile.TarInfo.frombuf(open('header','rb').read(),'utf8','strict').size)";
    let size = run("python3", &["-c", script], directory.path());
    assert_eq!(size, b"9663676416\n");
}

#[tokio::test]
async fn a_member_that_is_not_as_long_as_announced_fails_the_tar() {
    use dray_sandbox::error::ErrorKind;
    for (size, kind) in [
        (4, ErrorKind::ChangedDuringTransfer),
        (6, ErrorKind::Truncated),
    ] {
        let (mut member, content) = file("a", b"12345");
        member.size = size;
        let body = tar(GivenMembers::new([(member, content)]), Owner::default());
        let error = body.read_all(1 << 20).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}
