//! Resolves paths on the host.

use dray_sandbox::{Error, ErrorKind, FileKind, PathWalk, SandboxPath};

use super::channel::Channel;
use super::files::{lstat, read_link};
use super::wire::kind;

/// Extension of OpenSSH and servers modelled on it, which resolve links in REALPATH.
pub(super) const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// The path after all links were resolved on the host. The last part may be missing.
pub(crate) async fn real_path(channel: &mut Channel, path: &[u8]) -> Result<SandboxPath, Error> {
    let reply = channel
        .call(kind::REALPATH, |packet| packet.string(path))
        .await?;
    let real = SandboxPath::new(reply.name()?)?;
    if channel.has_extension(POSIX_RENAME) {
        return Ok(real);
    }
    // Other servers may only remove `.` and `..`.
    let mut walk = PathWalk::new(&real);
    match follow_links(channel, &mut walk).await {
        Err(error) if error.kind() == ErrorKind::NotFound && walk.is_at_last_part() => {
            Ok(walk.next_path()?.unwrap_or(real))
        }
        followed => followed.map(|()| walk.resolved().clone()),
    }
}

/// Resolves all links of a path on the host. After an error the walk is at the part that failed.
pub(super) async fn follow_links(channel: &mut Channel, walk: &mut PathWalk) -> Result<(), Error> {
    while let Some(next) = walk.next_path()? {
        let kind = lstat(channel, &next).await?.kind();
        if kind == FileKind::Symlink {
            let target = read_link(channel, &next).await?;
            walk.follow(&target)?;
        } else {
            walk.enter(next, kind)?;
        }
    }
    Ok(())
}
