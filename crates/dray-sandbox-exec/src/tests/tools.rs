//! Systems that lack what others have (sandbox-transfer 11.2).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{FileKind, Fingerprint, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;

use super::world::{Tools, Way, World, body, random, read, write};

const ALL: [Tools; 3] = [Tools::Dash, Tools::Bash, Tools::BusyBox];

#[tokio::test]
async fn a_probe_tells_who_where_and_with_what() {
    for tools in ALL {
        let world = World::new(tools, Way::Pipe);
        let probe = world.files().probe().await.unwrap();
        assert_eq!(probe.uid, rustix::process::geteuid().as_raw());
        assert_eq!(probe.gid, rustix::process::getegid().as_raw());
        let work = SandboxPath::new(world.work().to_str().unwrap()).unwrap();
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
    let world = World::new(Tools::Dash, Way::Pipe);
    let probe = world.files().probe().await.unwrap();
    assert!(probe.home.as_bytes().len() > 1, "{}", probe.home);
    let exec = world.exec().with_environment([("HOME", "/home/some one")]);
    let probe = crate::ExecFiles::new(exec).probe().await.unwrap();
    assert_eq!(probe.home.to_string(), "/home/some one");
}

#[tokio::test]
async fn without_id_the_kernel_says_who_we_are() {
    let world = World::new(Tools::Bare, Way::Pipe).with(&["cat", "head"]);
    let probe = world.files().probe().await.unwrap();
    assert_eq!(probe.uid, rustix::process::geteuid().as_raw());
    assert_eq!(probe.tools, ["cat", "head"]);
    assert_eq!(probe.free, None);
}

#[tokio::test]
async fn without_a_shell_the_tool_is_missing() {
    let world = World::new(Tools::Bare, Way::Pipe);
    std::fs::remove_file(world.root.path().join("bin/sh")).unwrap();
    let error = world.files().probe().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing, "{error}");
    let stat = world.files().stat(&world.path("a"), Follow::No).await;
    assert_eq!(stat.unwrap_err().kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn without_stat_the_long_listing_describes() {
    let world = World::new(Tools::Bare, Way::Pipe).with(&["ls", "readlink", "find"]);
    let path = world.file("a\nb", b"12345");
    world.sh("chmod 640 a*; ln -s a* link; mkdir d; mkfifo d/pipe; ln -s loop loop");
    let files = world.files();
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
    let link = files.stat(&world.path("link"), Follow::No).await.unwrap();
    assert_eq!(link.link_target.as_deref(), Some(b"a\nb".as_slice()));
    let looped = files.stat(&world.path("loop"), Follow::Yes).await;
    assert_eq!(looped.unwrap_err().kind(), ErrorKind::Loop);
    let listing = files.list(&world.path("x").parent(), 2, 100).await.unwrap();
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
async fn without_readlink_the_shell_resolves_what_it_can() {
    let world = World::new(Tools::Bare, Way::Pipe).with(&["stat", "ls"]);
    world.sh("mkdir real; ln -s real way; : > real/file; ln -s file real/link");
    let files = world.files();
    let way = world.path("way").join("file").unwrap();
    let file = files.stat(&way, Follow::Yes).await.unwrap();
    assert_eq!(file.real_path, world.path("real").join("file").unwrap());
    let directory = files.stat(&world.path("way"), Follow::Yes).await.unwrap();
    assert_eq!(directory.real_path, world.path("real"));
    let link = world.path("real").join("link").unwrap();
    let refused = files.stat(&link, Follow::Yes).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn files_that_the_kernel_makes_up_are_no_files() {
    for tools in ALL {
        let world = World::new(tools, Way::Pipe);
        let files = world.files();
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
    let world = World::new(Tools::Dash, Way::Pipe);
    let files = world.files();
    let path = SandboxPath::new("/proc/version").unwrap();
    for transport in files.transports() {
        let error = read(&files, &path, transport).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRegular, "{error}");
    }
}

#[tokio::test]
async fn every_digest_program_is_as_good() {
    let bytes = random(70_000);
    for program in ["sha256sum", "shasum", "openssl", "python3"] {
        let world = World::new(Tools::Bare, Way::Pipe)
            .with(&["stat"])
            .with_host(&[program]);
        let world = if program == "shasum" {
            world.with_host(&["perl"])
        } else {
            world
        };
        let path = world.file("f", &bytes);
        let found = world.files().fingerprint(&path).await.unwrap();
        let digest = dray_types::Sha256Digest::of(&bytes);
        assert_eq!(found, Fingerprint::Sha256(digest, 70_000), "{program}");
    }
    let world = World::new(Tools::Bare, Way::Pipe).with_host(&["cksum"]);
    let path = world.file("f", &bytes);
    let said = world.sh("cksum < f");
    let sum = said.split_whitespace().next().unwrap().parse().unwrap();
    let found = world.files().fingerprint(&path).await.unwrap();
    assert_eq!(found, Fingerprint::Cksum(sum, 70_000));
    let world = World::new(Tools::Bare, Way::Pipe);
    let path = world.file("f", &bytes);
    let none = world.files().fingerprint(&path).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn every_encoder_brings_the_same_bytes() {
    let bytes = random(100_001);
    for program in ["base64", "openssl", "python3", "perl", "uuencode", "od"] {
        let world = World::new(Tools::Bare, Way::Pipe).with(&["stat", "head", "readlink", "sed"]);
        let world = match program {
            "uuencode" => world.with(&[program]),
            _ => world.with_host(&[program]),
        };
        let path = world.file("f", &bytes);
        let found = read(&world.files(), &path, Transport::ExecBase64).await;
        assert!(found.unwrap() == bytes, "{program}");
    }
}

#[tokio::test]
async fn every_decoder_writes_the_same_bytes() {
    let bytes = random(100_001);
    for program in ["base64", "openssl", "python3", "perl", "uudecode"] {
        let world = World::new(Tools::Bare, Way::Pipe).with(&["stat", "chmod", "cat"]);
        let world = match program {
            "uudecode" => world.with(&[program]),
            _ => world.with_host(&[program]),
        };
        let path = world.path("f");
        let order = write(&path, Transport::ExecBase64, bytes.len());
        let written = world.files().write(order, body(&bytes)).await;
        assert!(written.is_ok(), "{program}: {written:?}");
        assert!(
            std::fs::read(world.work().join("f")).unwrap() == bytes,
            "{program}"
        );
    }
    let world = World::new(Tools::Bare, Way::Pipe).with(&["stat", "chmod", "cat"]);
    let path = world.path("f");
    let order = write(&path, Transport::ExecBase64, bytes.len());
    let error = world.files().write(order, body(&bytes)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn without_hard_links_a_name_is_claimed_and_that_is_told() {
    for tools in [Tools::Dash, Tools::Bare] {
        let refuses = "echo 'ln: not permitted' >&2; exit 1";
        let world = World::new(tools, Way::Pipe);
        let world = match tools {
            Tools::Bare => world.with(&["mv", "rm"]),
            _ => world,
        };
        let world = world.with_fake("ln", refuses);
        let (from, to) = (world.file("from", b"new"), world.path("to"));
        let files = world.files();
        assert!(!files.rename(&from, &to, false).await.unwrap());
        assert_eq!(world.sh("ls; cat to"), "to\nnew");
        let from = world.file("from", b"newer");
        let taken = files.rename(&from, &to, false).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::Exists);
        assert!(files.rename(&from, &to, true).await.unwrap());
        assert_eq!(world.sh("ls; cat to"), "to\nnewer");
    }
}

/// A `mv` that does not know `-T`.
fn old(mv: &str) -> String {
    let help = "echo 'mv [-fin]'; exit";
    let refuse = "echo 'mv: invalid option -- T' >&2; exit 1";
    format!("case \"$*\" in *--help*) {help};; *-T*) {refuse};; esac; exec {mv} \"$@\"")
}

#[tokio::test]
async fn a_link_to_a_directory_is_replaced_and_not_entered() {
    let bare = || World::new(Tools::Bare, Way::Pipe).with(&["mv", "rm"]);
    let gnu = || World::new(Tools::Dash, Way::Pipe);
    for (world, whole) in [
        (gnu(), true),
        (bare(), false),
        (gnu().with_fake("mv", &old("/bin/mv")), false),
        (bare().with_fake("mv", &old("/bin/busybox mv")), false),
    ] {
        world.sh("mkdir d; ln -s d to");
        let (from, to) = (world.file("from", b"new"), world.path("to"));
        let atomic = world.files().rename(&from, &to, true).await.unwrap();
        assert_eq!(atomic, whole);
        assert_eq!(world.sh("ls d; cat to"), "new");
    }
}

#[tokio::test]
async fn directories_are_renamed_too() {
    for tools in ALL {
        let world = World::new(tools, Way::Pipe);
        world.sh("mkdir from full; : > from/file; : > full/file");
        let files = world.files();
        let (from, to) = (world.path("from"), world.path("to"));
        let taken = files.rename(&from, &world.path("full"), false).await;
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::Exists);
        assert!(files.rename(&from, &to, false).await.unwrap());
        assert_eq!(world.sh("ls; ls to"), "full\nto\nfile\n");
    }
}

#[tokio::test]
async fn the_root_is_never_removed() {
    let files = World::new(Tools::Dash, Way::Pipe).files();
    let refused = files.remove(&SandboxPath::root(), true).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn a_write_digests_its_bytes_where_tee_and_sha256sum_are() {
    let bytes = random(700_000);
    for tools in ALL {
        let world = World::new(tools, Way::Pipe);
        for transport in [Transport::ExecRaw, Transport::ExecBase64] {
            let to = world.path(format!("to-{}", transport.as_str()));
            let order = write(&to, transport, bytes.len());
            let digest = world.files().write_with_digest(order, body(&bytes)).await;
            let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), 700_000);
            assert_eq!(digest.unwrap(), Some(expected), "{tools:?}");
            assert_eq!(world.files().fingerprint(&to).await.unwrap(), expected);
            // A name that is taken stays as it is.
            let again = world.files().write_with_digest(order, body(&bytes)).await;
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Exists);
        }
    }
    let bare = World::new(Tools::Bare, Way::Pipe).with(&["cat", "chmod", "stat", "sha256sum"]);
    let to = bare.path("to");
    let order = write(&to, Transport::ExecRaw, bytes.len());
    let digest = bare.files().write_with_digest(order, body(&bytes)).await;
    assert_eq!(digest.unwrap(), None);
}

#[tokio::test]
async fn a_large_write_is_digested_without_tee() {
    let bytes = random((17 << 20) + 11);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    let bare = World::new(Tools::Bare, Way::Pipe)
        .with(&["cat", "chmod", "dd", "head", "stat", "sha256sum"])
        .with(&["base64"]);
    let worlds = [
        World::new(Tools::Dash, Way::Pipe),
        World::new(Tools::BusyBox, Way::Pipe),
        World::new(Tools::Dash, Way::Endless),
        bare,
    ];
    for world in worlds {
        for transport in [Transport::ExecRaw, Transport::ExecBase64] {
            let to = world.path(format!("to-{}", transport.as_str()));
            let order = write(&to, transport, bytes.len());
            let digest = world.files().write_with_digest(order, body(&bytes)).await;
            assert_eq!(digest.unwrap(), Some(expected), "{world:?} {transport:?}");
            assert!(std::fs::read(world.work().join(to.to_text().unwrap())).unwrap() == bytes);
        }
    }
}

#[tokio::test]
async fn a_large_file_is_digested_by_a_program_that_uses_the_processors_instructions() {
    let bytes = random(9 << 20);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    for program in ["openssl", "python3"] {
        let world = World::new(Tools::Bare, Way::Pipe)
            .with(&["stat"])
            .with_host(&[program])
            .with_fake("sha256sum", "exit 1");
        let path = world.file("f", &bytes);
        let found = world.files().fingerprint(&path).await.unwrap();
        assert_eq!(found, expected, "{program}");
    }
}

#[tokio::test]
async fn a_program_for_digests_that_does_not_run_is_passed_over() {
    let bytes = random(9 << 20);
    let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), bytes.len() as u64);
    let world = World::new(Tools::Bare, Way::Pipe)
        .with(&["stat", "sha256sum"])
        .with_fake("openssl", "echo no such provider >&2; exit 1")
        .with_fake("python3", "echo not a digest");
    let path = world.file("f", &bytes);
    let found = world.files().fingerprint(&path).await.unwrap();
    assert_eq!(found, expected);
}
