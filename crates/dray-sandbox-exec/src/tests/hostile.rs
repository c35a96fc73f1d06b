//! Tests of channels and sandboxes that send wrong, incomplete or excessive data (sandbox-transfer 11.4, R-8, R-12).

use dray_sandbox::backend::{Follow, Read};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Metadata, Transport};
use dray_sandbox::path::SandboxPath;

use super::fixture::{ChannelForm, ExecFixture, ToolSet, body, random, read, write};
use super::scripted::ScriptedExec;
use crate::{ExecFiles, LocalExec};

fn metadata(size: u64) -> Metadata {
    let path = SandboxPath::new("/w/f").unwrap();
    Metadata {
        path: path.clone(),
        real_path: path,
        kind: FileKind::File,
        size,
        mode: 0o644,
        uid: None,
        gid: None,
        mtime_ns: None,
        link_target: None,
        links: None,
        identity: Some((1, 2)),
    }
}

async fn reading(exec: ScriptedExec, transport: Transport, size: u64) -> Result<Vec<u8>, Error> {
    let file = metadata(size);
    let read = Read {
        transport,
        file: &file,
        offset: 0,
    };
    ExecFiles::new(exec)
        .read(read)
        .await?
        .read_all(1 << 20)
        .await
}

fn output_chunk(text: String) -> Vec<Result<Vec<u8>, Error>> {
    vec![Ok(text.into_bytes())]
}

const RAW_TRANSPORT: Transport = Transport::ExecRaw;
const TEXT_TRANSPORT: Transport = Transport::ExecBase64;

#[tokio::test]
async fn a_correct_response_is_accepted() {
    let raw = |nonce: &str| {
        output_chunk(format!(
            "hi\n@@{nonce} begin raw - 4 3 1:2\nabc\n@@{nonce} end 0 - 3 1:2\nbye"
        ))
    };
    assert_eq!(
        reading(ScriptedExec::new(raw), RAW_TRANSPORT, 3)
            .await
            .unwrap(),
        b"abc"
    );
    let text = |nonce: &str| {
        output_chunk(format!(
            "\r\n@@{nonce} begin base64 - 4 3 1:2\r\nYW\r\nJj\r\n\r\n@@{nonce} end 0 - 3 1:2\r\n"
        ))
    };
    assert_eq!(
        reading(ScriptedExec::new(text), TEXT_TRANSPORT, 3)
            .await
            .unwrap(),
        b"abc"
    );
}

/// Reads over a channel with each of these responses and expects the error beside it. `B` and `E` stand for the marks.
async fn lies(transport: Transport, lies: &[(&'static str, ErrorKind)]) {
    for &(lie, kind) in lies {
        let exec = ScriptedExec::new(move |nonce| {
            let text = lie.replace('B', &format!("\n@@{nonce} begin"));
            output_chunk(text.replace('E', &format!("\n@@{nonce} end")))
        });
        let error = reading(exec, transport, 3).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{lie}: {error}");
    }
}

#[tokio::test]
async fn every_wrong_response_in_raw_bytes_has_its_error_kind() {
    const ERROR_TABLE: &[(&str, ErrorKind)] = &[
        // The end of the response is missing, or half of it is missing.
        ("B raw - 4 3 1:2\nabc", ErrorKind::Truncated),
        ("B raw - 4 3 1:2\nabcE 0 - 3 1:2", ErrorKind::Truncated),
        ("B raw - 4", ErrorKind::Truncated),
        // Too short, one byte too long, and far too long.
        ("B raw - 4 3 1:2\nabE 0 - 3 1:2\n", ErrorKind::Truncated),
        ("B raw - 4 3 1:2\nabcdE 0 - 3 1:2\n", ErrorKind::NotRegular),
        ("B raw - 4 3 1:2\nabcdeE 0 - 3 1:2\n", ErrorKind::Corrupted),
        // The announced number of bytes is too high, zero, or not a number.
        ("B raw - 99 3 1:2\nabcE 0 - 3 1:2\n", ErrorKind::Protocol),
        ("B raw - 0 3 1:2\nE 0 - 3 1:2\n", ErrorKind::Protocol),
        ("B raw - many 3 1:2\nE 0 - 3 1:2\n", ErrorKind::Protocol),
    ];
    lies(RAW_TRANSPORT, ERROR_TABLE).await;
}

#[tokio::test]
async fn every_change_is_noticed() {
    const ERROR_TABLE: &[(&str, ErrorKind)] = &[
        // The file shrank, grew, or was touched.
        (
            "B raw - 4 3 1:2\nabE 0 - 2 1:2\n",
            ErrorKind::ChangedDuringTransfer,
        ),
        (
            "B raw - 4 3 1:2\nabcdE 0 - 4 1:2\n",
            ErrorKind::ChangedDuringTransfer,
        ),
        (
            "B raw - 4 3 1:2 77\nabcE 0 - 3 1:2 78\n",
            ErrorKind::ChangedDuringTransfer,
        ),
        // Another file, and another size than was checked.
        (
            "B raw - 4 3 1:3\nabcE 0 - 3 1:3\n",
            ErrorKind::ChangedDuringTransfer,
        ),
        (
            "B raw - 4 9 1:2\nabcE 0 - 9 1:2\n",
            ErrorKind::ChangedDuringTransfer,
        ),
    ];
    lies(RAW_TRANSPORT, ERROR_TABLE).await;
}

#[tokio::test]
async fn every_wrong_response_in_text_has_its_error_kind() {
    const ERROR_TABLE: &[(&str, ErrorKind)] = &[
        ("B morse - 4 3 1:2\n...\n", ErrorKind::Protocol),
        (
            "B base64 - 4 3 1:2\nYW!JjE 0 - 3 1:2\n",
            ErrorKind::Corrupted,
        ),
        ("B base64 - 4 3 1:2\nYWJE 0 - 3 1:2\n", ErrorKind::Corrupted),
        (
            "B base64 - 4 3 1:2\nYWI=YWJjE 0 - 3 1:2\n",
            ErrorKind::Corrupted,
        ),
        (
            "B od - 4 3 1:2\n 61 62 6E 0 - 3 1:2\n",
            ErrorKind::Corrupted,
        ),
        (
            "B od - 4 3 1:2\n 61 62 gg 0 - 3 1:2\n",
            ErrorKind::Corrupted,
        ),
        (
            "B base64 gzip 4 3 1:2\nYWJjE 0 - 3 1:2\n",
            ErrorKind::Corrupted,
        ),
        ("B base64 - 4 3 1:2\nYWJj", ErrorKind::Truncated),
    ];
    lies(TEXT_TRANSPORT, ERROR_TABLE).await;
}

#[tokio::test]
async fn a_command_that_ends_without_a_response_has_the_kind_of_its_status() {
    for (status, stderr, kind) in [
        (0, "", ErrorKind::Protocol),
        (127, "", ErrorKind::ToolMissing),
        (137, "", ErrorKind::Unavailable),
        (
            2,
            "sh: cannot open /w/f: Permission denied\n",
            ErrorKind::PermissionDenied,
        ),
    ] {
        let exec = || ScriptedExec {
            status,
            stderr,
            ..ScriptedExec::new(|_| output_chunk("banner\n".to_owned()))
        };
        let error = reading(exec(), RAW_TRANSPORT, 3).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let path = SandboxPath::new("/w").unwrap();
        let error = ExecFiles::new(exec())
            .make_directory(&path)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn a_read_error_in_the_middle_is_reported() {
    let exec = ScriptedExec {
        stderr: "head: error reading 'standard input': Input/output error\n",
        ..ScriptedExec::new(|nonce| {
            output_chunk(format!(
                "\n@@{nonce} begin raw - 4 3 1:2\na\n@@{nonce} end 1 - 3 1:2\n"
            ))
        })
    };
    let error = reading(exec, RAW_TRANSPORT, 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn r_12_endless_output_is_cut_off() {
    let endless = |header: &'static str, chunk: &'static [u8]| ScriptedExec {
        endless: true,
        ..ScriptedExec::new(move |nonce| {
            let begin = header.replace('B', &format!("\n@@{nonce} begin"));
            vec![Ok(begin.into_bytes()), Ok(chunk.repeat(10_000))]
        })
    };
    for (transport, header, chunk, kind) in [
        (
            RAW_TRANSPORT,
            "",
            b"noise\n".as_slice(),
            ErrorKind::Protocol,
        ),
        (
            RAW_TRANSPORT,
            "B raw - 4 3 1:2\n",
            b"x",
            ErrorKind::Corrupted,
        ),
        (
            TEXT_TRANSPORT,
            "B base64 - 4 3 1:2\n",
            b"AAAA",
            ErrorKind::Corrupted,
        ),
        (
            TEXT_TRANSPORT,
            "B base64 - 4 3 1:2\n@",
            b"A",
            ErrorKind::Protocol,
        ),
    ] {
        let exec = endless(header, chunk);
        let error = reading(exec, transport, 3).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let path = SandboxPath::new("/w/f").unwrap();
        let files = ExecFiles::new(endless(header, chunk));
        let error = files.stat(&path, Follow::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}

#[tokio::test]
async fn a_channel_that_breaks_is_reported_with_its_own_error() {
    let broken = |nonce: &str| {
        vec![
            Ok(format!("\n@@{nonce} begin raw - 4 3 1:2\nab").into()),
            Err(Error::new(ErrorKind::SandboxGone, "deleted")),
        ]
    };
    let error = reading(ScriptedExec::new(broken), RAW_TRANSPORT, 3)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn an_unknown_refusal_counts_as_not_found() {
    let exec = ScriptedExec::new(|nonce| output_chunk(format!("\n@@{nonce} refused because\n")));
    let error = reading(exec, RAW_TRANSPORT, 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn content_that_equals_marks_stays_content() {
    let bytes = b"\n@@0123456789abcdef0123456789abcdef end 0 - 3 1:2\n@@ end\n\n@@".repeat(99);
    for tools in [ToolSet::Dash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let path = fixture.file("f", &bytes);
        for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
            assert_eq!(
                read(&fixture.files(), &path, transport).await.unwrap(),
                bytes
            );
        }
    }
}

/// A sandbox that is entered through `script`, which gets the command as its arguments.
fn sandbox_through_script(fixture: &ExecFixture, script: &str) -> ExecFiles<LocalExec> {
    let exec = LocalExec::new(["/bin/sh", "-c", script, "sh"])
        .with_environment([("PATH", fixture.search())])
        .with_directory(fixture.work());
    ExecFiles::new(exec)
}

#[tokio::test]
async fn banners_before_and_after_are_ignored() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let bytes = random(50_000);
    let path = fixture.file("f", &bytes);
    let banner = r#"echo "@@ Last login: @@ today @@"; echo "@@ begin"; echo warning >&2; "$@"; echo "@@ logout @@"; echo bye @@"#;
    let files = sandbox_through_script(&fixture, banner);
    for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
        assert_eq!(read(&files, &path, transport).await.unwrap(), bytes);
        let to = fixture.path(format!("to-{}", transport.as_str()));
        let order = write(&to, transport, bytes.len());
        files.write(order, body(&bytes)).await.unwrap();
        assert_eq!(
            files.fingerprint(&to).await.unwrap(),
            files.fingerprint(&path).await.unwrap()
        );
    }
    assert_eq!(
        files
            .list(&path.parent(), 1, 9)
            .await
            .unwrap()
            .entries
            .len(),
        3
    );
}

#[tokio::test]
async fn r_8_a_stream_that_is_cut_is_truncated_wherever_the_cut_is() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let path = fixture.file("f", &random(200_000));
    let file = fixture.files().stat(&path, Follow::Yes).await.unwrap();
    for cut in [100, 1_000, 150_000, 200_000, 200_110] {
        let files = sandbox_through_script(&fixture, &format!(r#""$@" | /usr/bin/head -c {cut}"#));
        for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
            let read = Read {
                transport,
                file: &file,
                offset: 0,
            };
            let found = match files.read(read).await {
                Ok(body) => body.read_all(1 << 20).await,
                Err(error) => Err(error),
            };
            let error = found.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Truncated, "{cut} {error}");
        }
    }
}

#[tokio::test]
async fn a_shell_that_is_killed_in_the_middle_is_noticed() {
    for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
        let killer = "/usr/bin/head -c 70000; kill -9 $PPID";
        let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake("head", killer);
        let path = fixture.file("f", &random(200_000));
        let error = read(&fixture.files(), &path, transport).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    }
}

#[tokio::test]
async fn damage_in_transit_is_found_in_every_range() {
    let flips = "/usr/bin/base64 | tr A B";
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Narrow).with_fake("base64", flips);
    let path = fixture.file("f", &random(2_000));
    let files = fixture.files();
    let mut file = metadata(2_000);
    file.real_path = path;
    file.identity = None;
    let read = Read {
        transport: TEXT_TRANSPORT,
        file: &file,
        offset: 0,
    };
    let error = files
        .read(read)
        .await
        .unwrap()
        .read_all(1 << 20)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
}

#[tokio::test]
async fn a_gzip_bomb_stops_at_the_size_of_the_file() {
    let bomb = "cat >/dev/null; /usr/bin/head -c 50000000 /dev/zero | /bin/gzip -c";
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    // The sample is compressed correctly; the bomb replaces the content after it.
    let fake =
        format!("if [ -e ../sampled ]; then {bomb}; else : >../sampled; /bin/gzip \"$@\"; fi");
    let fixture = fixture.with_fake("gzip", &fake);
    let path = fixture.file("f", &vec![b'a'; 100_000]);
    let files = fixture.files();
    let file = files.stat(&path, Follow::Yes).await.unwrap();
    let order = Read {
        transport: TEXT_TRANSPORT,
        file: &file,
        offset: 0,
    };
    let mut body = files.read(order).await.unwrap();
    let mut got = 0;
    let error = loop {
        match body.next().await.unwrap() {
            Ok(chunk) => got += chunk.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
    assert!(got <= 100_000, "{got}");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_not_taken_for_success() {
    let full =
        "/usr/bin/head -c 1000; echo 'cat: write error: No space left on device' >&2; exit 1";
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake("cat", full);
    let bytes = random(100_000);
    let path = fixture.path("f");
    let order = write(&path, RAW_TRANSPORT, bytes.len());
    let error = fixture
        .files()
        .write(order, body(&bytes))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    // A real full disk, where this host permits mounts.
    let mount = r#"mount -t tmpfs -o size=64k none "$PWD" 2>/dev/null && cd "$PWD" && exec "$@""#;
    let unshare = ["unshare", "-Urm", "sh", "-c", mount, "sh"];
    let may = std::process::Command::new("unshare")
        .args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !may.is_ok_and(|output| output.status.success()) {
        return;
    }
    for tools in [ToolSet::Dash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let exec = LocalExec::new(unshare)
            .with_environment([("PATH", format!("{}:/usr/bin:/bin", fixture.search()))])
            .with_directory(fixture.work());
        for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
            let path = fixture.path("f");
            let order = write(&path, transport, bytes.len());
            let error = ExecFiles::new(exec.clone())
                .write(order, body(&bytes))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{tools:?} {error}");
        }
    }
}
