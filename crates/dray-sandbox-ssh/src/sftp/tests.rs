//! Tests with servers that send wrong or duplicate responses, stall or hang up. `tests/real` has the tests with real
//! servers.

mod reading;
mod server;
mod writing;

use std::time::Duration;

use dray_sandbox::{ErrorKind, Follow, SandboxPath};

use self::server::{attributes, connect, failed, packet, status_packet, string};
use super::pool::ChannelLease;
use super::wire::{kind, status};
use super::{list, stat};

#[tokio::test]
async fn an_entry_name_that_cannot_be_part_of_a_path_is_refused() {
    let entry = |name: &[u8]| [string(name), string(b"shown"), attributes(1)].concat();
    for name in [&b"a/b"[..], b"", b"a\0b"] {
        let names = [&1_u32.to_be_bytes()[..], &entry(name)].concat();
        let mut directory = attributes(1);
        directory[20..24].copy_from_slice(&0o040_755_u32.to_be_bytes());
        let mut has_listed = false;
        let (_tasks, mut channel) = connect(move |kind, id, _| {
            Some(match kind {
                kind::REALPATH => {
                    let real = [string(b"/d"), string(b""), vec![0; 4]].concat();
                    packet(kind::NAME, id, &[&1_u32.to_be_bytes()[..], &real].concat())
                }
                kind::LSTAT => packet(kind::ATTRS, id, &directory),
                kind::OPENDIR => packet(kind::HANDLE, id, &string(b"h")),
                kind::READDIR if has_listed => status_packet(id, status::EOF),
                kind::READDIR => {
                    has_listed = true;
                    packet(kind::NAME, id, &names)
                }
                _ => status_packet(id, status::OK),
            })
        })
        .await;
        let path = SandboxPath::new("/d").unwrap();
        let listed = list(&mut channel, &path, 1, 10).await;
        assert_eq!(failed(listed), ErrorKind::InvalidName, "{name:?}");
    }
}

#[tokio::test]
async fn a_directory_that_may_be_read_and_not_searched_is_not_listed_as_an_empty_one() {
    for (code, expected) in [
        (status::PERMISSION_DENIED, Some(ErrorKind::PermissionDenied)),
        (status::NO_SUCH_FILE, None),
    ] {
        let mut directory = attributes(1);
        directory[20..24].copy_from_slice(&0o040_444_u32.to_be_bytes());
        let (_tasks, mut channel) = connect(move |kind, id, fields| {
            Some(match kind {
                kind::REALPATH => {
                    let real = [string(b"/d"), string(b""), vec![0; 4]].concat();
                    packet(kind::NAME, id, &[&1_u32.to_be_bytes()[..], &real].concat())
                }
                kind::LSTAT if fields.ends_with(b"/.") => status_packet(id, code),
                kind::LSTAT => packet(kind::ATTRS, id, &directory),
                kind::OPENDIR => packet(kind::HANDLE, id, &string(b"h")),
                // OpenSSH leaves out entries that it cannot examine.
                kind::READDIR => status_packet(id, status::EOF),
                _ => status_packet(id, status::OK),
            })
        })
        .await;
        let path = SandboxPath::new("/d").unwrap();
        let listed = list(&mut channel, &path, 1, 10).await;
        assert_eq!(listed.err().map(|error| error.kind()), expected);
    }
}

#[tokio::test]
async fn an_invalid_real_path_is_refused() {
    for real in [&b"relative"[..], b""] {
        let (_tasks, mut channel) = connect(move |_, id, _| {
            let name = [string(real), string(b""), vec![0; 4]].concat();
            Some(packet(
                kind::NAME,
                id,
                &[&1_u32.to_be_bytes()[..], &name].concat(),
            ))
        })
        .await;
        let path = SandboxPath::new("/d").unwrap();
        let found = stat(&mut channel, &path, Follow::Yes).await;
        assert_eq!(failed(found), ErrorKind::InvalidName);
    }
}

/// Opens a FIFO, to which the server never responds, and drops the channel.
pub(crate) async fn open_and_give_up(mut lease: ChannelLease, path: &SandboxPath) {
    let limit = Duration::from_millis(300);
    let opened = lease.call_within(limit, kind::OPEN, |packet| {
        packet.string(path.as_bytes()).u32(1).u32(0)
    });
    assert_eq!(failed(opened.await), ErrorKind::Timeout);
}
