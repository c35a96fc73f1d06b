//! Tests of systems that lack certain programs or options (sandbox-transfer 11.2).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{FileKind, Fingerprint, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;

use super::fixture::{ChannelForm, ExecFixture, ToolSet, body, random, read, write};

const ALL_TOOL_SETS: [ToolSet; 3] = [ToolSet::Dash, ToolSet::Bash, ToolSet::BusyBox];

#[tokio::test]
async fn a_probe_reports_user_directory_and_tools() {
    for tools in ALL_TOOL_SETS {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let probe = fixture.files().probe().await.unwrap();
        assert_eq!(probe.uid, rustix::process::geteuid().as_raw());
        assert_eq!(probe.gid, rustix::process::getegid().as_raw());
        let work = SandboxPath::new(fixture.work().to_str().unwrap()).unwrap();
        assert_eq!(probe.working_directory, work);
        assert!(probe.free.unwrap() > 0, "{tools:?}");
        assert!(probe.tools.iter().any(|tool| tool == "sha256sum"));
        assert_eq!(
            probe.transports,
            [Transport::ExecRaw, Transport::ExecBase64]
        );
        assert_eq!(probe.life_ms, None);
    }
}

#[tokio::test]
async fn a_home_comes_from_the_environment_or_the_list_of_users() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let probe = fixture.files().probe().await.unwrap();
    assert!(probe.home.as_bytes().len() > 1, "{}", probe.home);
    let exec = fixture
        .exec()
        .with_environment([("HOME", "/home/some one")]);
    let probe = crate::ExecFiles::new(exec).probe().await.unwrap();
    assert_eq!(probe.home.to_string(), "/home/some one");
}

#[tokio::test]
async fn without_the_program_id_the_user_comes_from_the_kernel() {
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["cat", "head"]);
    let probe = fixture.files().probe().await.unwrap();
    assert_eq!(probe.uid, rustix::process::geteuid().as_raw());
    assert_eq!(probe.tools, ["cat", "head"]);
    assert_eq!(probe.free, None);
}

#[test]
fn without_ids_in_the_status_of_the_kernel_the_user_comes_from_the_program_id() {
    let directory = tempfile::tempdir().unwrap();
    let status = directory.path().join("status");
    std::fs::write(&status, "Name:\tsh\nState:\tR (running)\n").unwrap();
    let probe = include_str!("../script/probe.sh");
    let probe = probe.replace("/proc/self/status", status.to_str().unwrap());
    let script = format!("{}{probe}ask\n", include_str!("../script/prelude.sh"));
    let output = std::process::Command::new("sh")
        .args(["-c", &script, "sh", "n", "raw"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let ids = format!("\n@@n uid {uid}\n@@n gid {gid}\n");
    assert!(text.contains(&ids), "{text}");
}

#[tokio::test]
async fn without_a_shell_the_tool_is_missing() {
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe);
    std::fs::remove_file(fixture.root.path().join("bin/sh")).unwrap();
    let error = fixture.files().probe().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing, "{error}");
    let stat = fixture.files().stat(&fixture.path("a"), Follow::No).await;
    assert_eq!(stat.unwrap_err().kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn without_stat_the_metadata_comes_from_the_long_listing() {
    let fixture =
        ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["ls", "readlink", "find"]);
    let path = fixture.file("a\nb", b"12345");
    fixture.sh("chmod 640 a*; ln -s a* link; mkdir d; mkfifo d/pipe; ln -s loop loop");
    let files = fixture.files();
    let file = files.stat(&path, Follow::Yes).await.unwrap();
    assert_eq!(
        (file.kind, file.size, file.mode),
        (FileKind::File, 5, 0o640)
    );
    assert_eq!(file.uid, Some(rustix::process::geteuid().as_raw()));
    assert_eq!(
        (file.mtime_ns, file.identity, file.links),
        (None, None, Some(1))
    );
    assert_eq!(file.real_path, path);
    let link = files.stat(&fixture.path("link"), Follow::No).await.unwrap();
    assert_eq!(link.link_target.as_deref(), Some(b"a\nb".as_slice()));
    let looped = files.stat(&fixture.path("loop"), Follow::Yes).await;
    assert_eq!(looped.unwrap_err().kind(), ErrorKind::Loop);
    let listing = files
        .list(&fixture.path("x").parent(), 2, 100)
        .await
        .unwrap();
    let seen: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| {
            (
                entry.path.name().to_vec(),
                entry.kind,
                entry.link_target.is_some(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (b"a\nb".to_vec(), FileKind::File, false),
            (b"d".to_vec(), FileKind::Directory, false),
            (b"pipe".to_vec(), FileKind::Fifo, false),
            (b"link".to_vec(), FileKind::Symlink, true),
            (b"loop".to_vec(), FileKind::Symlink, true),
        ]
    );
}

#[tokio::test]
async fn without_find_the_shell_lists_directories_itself() {
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["stat", "readlink"]);
    fixture.sh("mkdir -p d/deep .hidden ..odd empty; : > d/deep/x; : > 'a*'; ln -s d link");
    let files = fixture.files();
    let work = fixture.path("x").parent();
    let top = ["..odd", ".hidden", "a*", "d", "empty", "link"];
    let all = [
        "..odd", ".hidden", "a*", "d", "d/deep", "d/deep/x", "empty", "link",
    ];
    for (depth, expected) in [(1, top.as_slice()), (9, all.as_slice())] {
        let listing = files.list(&work, depth, 100).await.unwrap();
        let prefix = work.as_bytes().len() + 1;
        let names = listing.entries.iter();
        let names: Vec<_> = names
            .map(|entry| String::from_utf8_lossy(&entry.path.as_bytes()[prefix..]).into_owned())
            .collect();
        assert_eq!(names, expected);
    }
    let bare = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["find"]);
    bare.file("x", b"x");
    let error = bare.files().list(&bare.path("x").parent(), 1, 9).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn a_part_of_a_listing_is_not_taken_for_the_whole() {
    for (program, script) in [
        ("find", "kill -9 $$"),
        // It cannot start another process.
        ("find", "exit 1"),
        (
            "stat",
            "[ \"$3\" = / ] || kill -9 $$; exec /usr/bin/stat \"$@\"",
        ),
    ] {
        let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake(program, script);
        let path = fixture.file("file", b"x");
        let listed = fixture.files().list(&path.parent(), 1, 9).await;
        let error = listed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{program}: {script}");
    }
}

#[tokio::test]
async fn without_readlink_the_shell_resolves_only_links_to_directories() {
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["stat", "ls"]);
    fixture.sh("mkdir real; ln -s real way; : > real/file; ln -s file real/link");
    let files = fixture.files();
    let linked_path = fixture.path("way").join("file").unwrap();
    let file = files.stat(&linked_path, Follow::Yes).await.unwrap();
    assert_eq!(file.real_path, fixture.path("real").join("file").unwrap());
    let directory = files.stat(&fixture.path("way"), Follow::Yes).await.unwrap();
    assert_eq!(directory.real_path, fixture.path("real"));
    let link = fixture.path("real").join("link").unwrap();
    let refused = files.stat(&link, Follow::Yes).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn virtual_files_of_the_kernel_are_refused() {
    for tools in ALL_TOOL_SETS {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let files = fixture.files();
        for path in [
            "/proc/version",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        ] {
            if !std::path::Path::new(path).exists() {
                continue;
            }
            let path = SandboxPath::new(path).unwrap();
            let file = files.stat(&path, Follow::Yes).await.unwrap();
            assert_eq!(file.kind, FileKind::Other, "{path}");
        }
    }
}

#[tokio::test]
async fn r_2_a_file_without_a_true_size_is_not_read() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let files = fixture.files();
    let path = SandboxPath::new("/proc/version").unwrap();
    for transport in files.transports() {
        let error = read(&files, &path, transport).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRegular, "{error}");
    }
}

#[tokio::test]
async fn every_digest_program_gives_the_same_digest() {
    let bytes = random(70_000);
    for program in ["sha256sum", "shasum", "openssl", "python3"] {
        let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
            .with(&["stat"])
            .with_host(&[program]);
        let fixture = if program == "shasum" {
            fixture.with_host(&["perl"])
        } else {
            fixture
        };
        let path = fixture.file("f", &bytes);
        let found = fixture.files().fingerprint(&path).await.unwrap();
        let digest = dray_types::Sha256Digest::of(&bytes);
        assert_eq!(found, Fingerprint::Sha256(digest, 70_000), "{program}");
    }
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with_host(&["cksum"]);
    let path = fixture.file("f", &bytes);
    let output = fixture.sh("cksum < f");
    let sum = output.split_whitespace().next().unwrap().parse().unwrap();
    let found = fixture.files().fingerprint(&path).await.unwrap();
    assert_eq!(found, Fingerprint::Cksum(sum, 70_000));
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe);
    let path = fixture.file("f", &bytes);
    let none = fixture.files().fingerprint(&path).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn every_encoder_reads_the_same_bytes() {
    let bytes = random(100_001);
    for program in ["base64", "openssl", "python3", "perl", "uuencode", "od"] {
        let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
            .with(&["stat", "head", "readlink", "sed"]);
        let fixture = match program {
            "uuencode" => fixture.with(&[program]),
            _ => fixture.with_host(&[program]),
        };
        let path = fixture.file("f", &bytes);
        let found = read(&fixture.files(), &path, Transport::ExecBase64).await;
        assert!(found.unwrap() == bytes, "{program}");
    }
}

#[tokio::test]
async fn every_decoder_writes_the_same_bytes() {
    let bytes = random(100_001);
    for program in ["base64", "openssl", "python3", "perl", "uudecode"] {
        let fixture =
            ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["stat", "chmod", "cat"]);
        let fixture = match program {
            "uudecode" => fixture.with(&[program]),
            _ => fixture.with_host(&[program]),
        };
        let path = fixture.path("f");
        let order = write(&path, Transport::ExecBase64, bytes.len());
        let written = fixture.files().write(order, body(&bytes)).await;
        assert!(written.is_ok(), "{program}: {written:?}");
        assert!(
            std::fs::read(fixture.work().join("f")).unwrap() == bytes,
            "{program}"
        );
    }
    let fixture =
        ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["stat", "chmod", "cat"]);
    let path = fixture.path("f");
    let order = write(&path, Transport::ExecBase64, bytes.len());
    let error = fixture
        .files()
        .write(order, body(&bytes))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn without_hard_links_a_name_is_claimed_and_that_is_reported() {
    for tools in [ToolSet::Dash, ToolSet::Bare] {
        let refuses = "echo 'ln: not permitted' >&2; exit 1";
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let fixture = match tools {
            ToolSet::Bare => fixture.with(&["mv", "rm"]),
            _ => fixture,
        };
        let fixture = fixture.with_fake("ln", refuses);
        let (from, to) = (fixture.file("from", b"new"), fixture.path("to"));
        let files = fixture.files();
        assert!(!files.rename(&from, &to, false).await.unwrap());
        assert_eq!(fixture.sh("ls; cat to"), "to\nnew");
        let from = fixture.file("from", b"newer");
        let error = files.rename(&from, &to, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        assert!(files.rename(&from, &to, true).await.unwrap());
        assert_eq!(fixture.sh("ls; cat to"), "to\nnewer");
    }
}

/// A `mv` that does not know `-T`.
fn mv_without_target_option(mv: &str) -> String {
    let help = "echo 'mv [-fin]'; exit";
    let refuse = "echo 'mv: invalid option -- T' >&2; exit 1";
    format!("case \"$*\" in *--help*) {help};; *-T*) {refuse};; esac; exec {mv} \"$@\"")
}

#[tokio::test]
async fn a_link_to_a_directory_is_replaced_and_not_entered() {
    let bare = || ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["mv", "rm"]);
    let gnu = || ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    for (fixture, whole) in [
        (gnu(), true),
        (bare(), false),
        (
            gnu().with_fake("mv", &mv_without_target_option("/bin/mv")),
            false,
        ),
        (
            bare().with_fake("mv", &mv_without_target_option("/bin/busybox mv")),
            false,
        ),
    ] {
        fixture.sh("mkdir d; ln -s d to");
        let (from, to) = (fixture.file("from", b"new"), fixture.path("to"));
        let atomic = fixture.files().rename(&from, &to, true).await.unwrap();
        assert_eq!(atomic, whole);
        assert_eq!(fixture.sh("ls d; cat to"), "new");
    }
}

#[tokio::test]
async fn directories_are_renamed_too() {
    for tools in ALL_TOOL_SETS {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        fixture.sh("mkdir from full; : > from/file; : > full/file");
        let files = fixture.files();
        let (from, to) = (fixture.path("from"), fixture.path("to"));
        let error = files.rename(&from, &fixture.path("full"), false).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Exists);
        assert!(files.rename(&from, &to, false).await.unwrap());
        assert_eq!(fixture.sh("ls; ls to"), "full\nto\nfile\n");
    }
}

#[tokio::test]
async fn the_root_is_never_removed() {
    let files = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).files();
    let refused = files.remove(&SandboxPath::root(), true).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn a_write_digests_its_bytes_where_tee_and_sha256sum_are() {
    let bytes = random(700_000);
    for tools in ALL_TOOL_SETS {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        for transport in [Transport::ExecRaw, Transport::ExecBase64] {
            let to = fixture.path(format!("to-{}", transport.as_str()));
            let order = write(&to, transport, bytes.len());
            let digest = fixture.files().write_with_digest(order, body(&bytes)).await;
            let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), 700_000);
            assert_eq!(digest.unwrap(), Some(expected), "{tools:?}");
            assert_eq!(fixture.files().fingerprint(&to).await.unwrap(), expected);
            // An existing file stays as it is.
            let repeated = fixture.files().write_with_digest(order, body(&bytes)).await;
            assert_eq!(repeated.unwrap_err().kind(), ErrorKind::Exists);
        }
    }
    let bare = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&[
        "cat",
        "chmod",
        "stat",
        "sha256sum",
    ]);
    let to = bare.path("to");
    let order = write(&to, Transport::ExecRaw, bytes.len());
    let digest = bare.files().write_with_digest(order, body(&bytes)).await;
    assert_eq!(digest.unwrap(), None);
}

#[tokio::test]
async fn a_large_write_is_digested_without_tee() {
    let bytes = random((17 << 20) + 11);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    let bare = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
        .with(&["cat", "chmod", "dd", "head", "stat", "sha256sum"])
        .with(&["base64"]);
    let fixtures = [
        ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe),
        ExecFixture::new(ToolSet::BusyBox, ChannelForm::Pipe),
        ExecFixture::new(ToolSet::Dash, ChannelForm::Endless),
        bare,
    ];
    for fixture in fixtures {
        for transport in [Transport::ExecRaw, Transport::ExecBase64] {
            let to = fixture.path(format!("to-{}", transport.as_str()));
            let order = write(&to, transport, bytes.len());
            let digest = fixture.files().write_with_digest(order, body(&bytes)).await;
            assert_eq!(digest.unwrap(), Some(expected), "{fixture:?} {transport:?}");
            assert!(std::fs::read(fixture.work().join(to.to_text().unwrap())).unwrap() == bytes);
        }
    }
}

#[tokio::test]
async fn a_large_file_is_digested_by_a_program_that_uses_the_processors_instructions() {
    let bytes = random(9 << 20);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    for program in ["openssl", "python3"] {
        let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
            .with(&["stat"])
            .with_host(&[program])
            .with_fake("sha256sum", "exit 1");
        let path = fixture.file("f", &bytes);
        let found = fixture.files().fingerprint(&path).await.unwrap();
        assert_eq!(found, expected, "{program}");
    }
}

#[tokio::test]
async fn a_digest_program_that_does_not_run_is_skipped() {
    let bytes = random(9 << 20);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe)
        .with(&["stat", "sha256sum"])
        .with_fake("openssl", "echo no such provider >&2; exit 1")
        .with_fake("python3", "echo not a digest");
    let path = fixture.file("f", &bytes);
    let found = fixture.files().fingerprint(&path).await.unwrap();
    assert_eq!(found, expected);
}
