//! Images made of one static program, because none can be pulled.

use std::path::Path;
use std::process::Command;

use dray_archive::tar::{BLOCK_BYTES, END_BLOCKS, NewEntry, Owner, encode};

use super::api;

/// `BusyBox` with all its applets; users `root` and `agent` (1000); `/workspace` belongs to `agent` and
/// `/alias` is a link to it.
pub const BUSYBOX_IMAGE: &str = "dray-busybox:1";
/// Only one program that sleeps, without a shell or users.
pub const SHELL_LESS_IMAGE: &str = "dray-shell-less:1";

const BUSYBOX_PROGRAM: &str = "/bin/busybox";

/// Loads a root file system as an image.
pub(super) fn import_image(socket: &Path, image: &str, tar: &[u8]) {
    let (name, tag) = image.split_once(':').expect("a name and a tag");
    let target = format!("/images/create?fromSrc=-&repo={name}&tag={tag}");
    let response = api::call_engine(socket, "POST", &target, "application/x-tar", tar);
    let response = response.expect("the engine responds");
    let body = String::from_utf8_lossy(&response.body);
    // The engine reports progress and failures in the body, after the status.
    assert!(response.status == 200 && !body.contains("error"), "{body}");
    // Podman 4.3 tags an import as `latest`, although the request names another tag.
    let tagged = api::call_engine(socket, "GET", &format!("/images/{image}/json"), "", b"");
    if tagged.expect("the engine responds").status == 404 {
        let target = format!("/images/{name}:latest/tag?repo={name}&tag={tag}");
        api::expect_success(socket, "POST", &target, &serde_json::Value::Null);
    }
}

pub(super) fn busybox_tar() -> Vec<u8> {
    let mut tar = TarBytes::default();
    for directory in [
        "bin", "dev", "etc", "home", "proc", "root", "sys", "usr", "usr/bin",
    ] {
        tar.add(directory, b'5', 0o755, 0, b"", "");
    }
    tar.add("tmp", b'5', 0o1777, 0, b"", "");
    for directory in ["home/agent", "workspace"] {
        tar.add(directory, b'5', 0o755, 1000, b"", "");
    }
    tar.add("alias", b'2', 0o777, 0, b"", "/workspace");
    tar.add(
        "etc/passwd",
        b'0',
        0o644,
        0,
        b"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n",
        "",
    );
    let groups = b"root:x:0:\nagent:x:1000:\n";
    tar.add("etc/group", b'0', 0o644, 0, groups, "");
    tar.add("bin/busybox", b'0', 0o755, 0, &busybox_program(), "");
    for applet in busybox_applets() {
        if applet != "busybox" {
            tar.add(&format!("bin/{applet}"), b'2', 0o777, 0, b"", "busybox");
        }
    }
    tar.finish()
}

pub(super) fn shell_less() -> Vec<u8> {
    let mut tar = TarBytes::default();
    for directory in ["app", "dev", "proc", "sys", "tmp", "workspace"] {
        tar.add(directory, b'5', 0o755, 0, b"", "");
    }
    tar.add("app/sleep", b'0', 0o755, 0, &busybox_program(), "");
    tar.finish()
}

fn busybox_program() -> Vec<u8> {
    std::fs::read(BUSYBOX_PROGRAM).expect("Debian package `busybox-static` is installed")
}

fn busybox_applets() -> Vec<String> {
    let list = Command::new(BUSYBOX_PROGRAM).arg("--list").output();
    let list = list.expect("BusyBox lists its applets").stdout;
    let list = String::from_utf8(list).expect("names of applets are text");
    list.lines().map(str::to_owned).collect()
}

/// Modification time of all files in images, in seconds since the epoch.
const FILE_MTIME: u64 = 1_610_612_736;

#[derive(Default)]
struct TarBytes(Vec<u8>);

impl TarBytes {
    fn add(&mut self, name: &str, flag: u8, mode: u32, owner: u32, data: &[u8], link: &str) {
        let entry = NewEntry {
            name: name.as_bytes(),
            flag,
            link: link.as_bytes(),
            size: data.len() as u64,
            mode,
            owner: Owner {
                uid: owner,
                gid: owner,
            },
            mtime: FILE_MTIME,
        };
        self.0.extend_from_slice(&encode(&entry));
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK_BYTES), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&END_BLOCKS);
        self.0
    }
}
