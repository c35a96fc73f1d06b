//! Resolving paths on the host.

use std::collections::VecDeque;

use dray_sandbox::{Error, ErrorKind, FileKind, SandboxPath};

use super::channel::Channel;
use super::files::{lstat, read_link};
use super::wire::kind;

/// Links that Linux follows before it reports a loop.
pub(super) const MAX_LINKS: u32 = 40;
/// Extension of OpenSSH and servers modelled on it, which resolve links in REALPATH.
pub(super) const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// The path after all links were resolved on the host. The last part may be missing.
pub(crate) async fn real_path(channel: &mut Channel, path: &[u8]) -> Result<SandboxPath, Error> {
    let reply = channel
        .call(kind::REALPATH, |packet| packet.string(path))
        .await?;
    let real = SandboxPath::new(reply.name()?)?;
    if channel.has(POSIX_RENAME) {
        return Ok(real);
    }
    // Other servers may only remove `.` and `..`.
    walk(channel, &real).await
}

/// Resolves a path part by part, as the system would.
async fn walk(channel: &mut Channel, path: &SandboxPath) -> Result<SandboxPath, Error> {
    let mut left: VecDeque<Vec<u8>> = parts(path.as_bytes()).collect();
    let mut here = SandboxPath::root();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == b".." {
            here = here.parent();
            continue;
        }
        let next = here.join(&part)?;
        let found = match lstat(channel, &next).await {
            Err(error) if error.kind() == ErrorKind::NotFound && left.is_empty() => {
                return Ok(next);
            }
            found => found?.kind(),
        };
        if found == FileKind::Symlink {
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::new(ErrorKind::Loop, "too many links"));
            }
            let target = read_link(channel, &next).await?;
            if target.first() == Some(&b'/') {
                here = SandboxPath::root();
            }
            for part in parts(&target).rev() {
                left.push_front(part);
            }
        } else if found != FileKind::Directory && !left.is_empty() {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "a file with this name exists",
            ));
        } else {
            here = next;
        }
    }
    Ok(here)
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}
