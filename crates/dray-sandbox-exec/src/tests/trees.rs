//! Tests of whole directories (sandbox-transfer 13).

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::Transport;

use super::fixture::{ChannelForm, ExecFixture, ToolSet};

const MAKE_TREE: &str = "mkdir -p t/d; printf one > t/one; printf two > 't/d/new
line'; ln t/one t/same; ln -s one t/link";

#[tokio::test]
async fn a_directory_is_read_as_tar_and_written_from_tar() {
    for (tools, form) in [
        (ToolSet::Dash, ChannelForm::Pipe),
        (ToolSet::Bash, ChannelForm::Text),
        (ToolSet::BusyBox, ChannelForm::Pipe),
        (ToolSet::BusyBox, ChannelForm::Text),
    ] {
        let fixture = ExecFixture::new(tools, form);
        fixture.sh(MAKE_TREE);
        let files = fixture.files();
        let transport = if form == ChannelForm::Text {
            Transport::ExecBase64
        } else {
            Transport::ExecRaw
        };
        let (tar, read_over) = files.read_tree(&fixture.path("t")).await.unwrap();
        assert_eq!(read_over, transport, "{tools:?} {form:?}");
        let tar = tar.read_all(1 << 20).await.unwrap();
        fixture.sh("mkdir in; chmod 700 in; rm -rf t/same t/link");
        let body = super::fixture::body(&tar);
        let written = files.write_tree(&fixture.path("in"), body).await;
        assert_eq!(written.unwrap(), transport, "{tools:?} {form:?}");
        assert_eq!(
            fixture.sh("cat in/one in/d/*"),
            "onetwo",
            "{tools:?} {form:?}"
        );
        let metadata = std::fs::metadata(fixture.work().join("in")).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o700, "{tools:?}");
        assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
    }
}

#[tokio::test]
async fn hard_links_are_read_as_files_if_tar_supports_that() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    fixture.sh(MAKE_TREE);
    let (tar, _) = fixture.files().read_tree(&fixture.path("t")).await.unwrap();
    std::fs::write(
        fixture.work().join("t.tar"),
        tar.read_all(1 << 20).await.unwrap(),
    )
    .unwrap();
    let listing = fixture.sh("tar tvf t.tar");
    assert!(
        !listing.lines().any(|line| line.starts_with('h')),
        "{listing}"
    );
}

#[tokio::test]
async fn only_directories_are_trees() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    fixture.sh(": > file");
    let files = fixture.files();
    for (name, kind) in [
        ("file", ErrorKind::NotDirectory),
        ("missing", ErrorKind::NotFound),
    ] {
        let path = fixture.path(name);
        assert_eq!(files.read_tree(&path).await.unwrap_err().kind(), kind);
        let written = files
            .write_tree(&path, super::fixture::body(&[0; 1024]))
            .await;
        assert_eq!(written.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn without_tar_or_a_stream_the_tool_is_missing() {
    for fixture in [
        ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&["stat"]),
        ExecFixture::new(ToolSet::Dash, ChannelForm::Narrow),
    ] {
        fixture.sh("mkdir t");
        let files = fixture.files();
        let path = fixture.path("t");
        let error = files.read_tree(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ToolMissing);
        let error = files
            .write_tree(&path, super::fixture::body(&[0; 1024]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ToolMissing);
    }
}

#[tokio::test]
async fn a_tar_that_fails_in_the_middle_is_a_failure() {
    for form in [ChannelForm::Pipe, ChannelForm::Text] {
        let fails = "case \"$*\" in *version*) exit;; esac; echo half; echo 'tar: ./f: Permission denied' >&2; exit 2";
        let fixture = ExecFixture::new(ToolSet::Dash, form).with_fake("tar", fails);
        fixture.sh("mkdir t");
        let files = fixture.files();
        let (tar, _) = files.read_tree(&fixture.path("t")).await.unwrap();
        let error = tar.read_all(1 << 20).await.unwrap_err();
        if form == ChannelForm::Pipe {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
        let written = files
            .write_tree(&fixture.path("t"), super::fixture::body(&[0; 1024]))
            .await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
