//! Where a path leads, part by part.
//!
//! The engine follows links in the middle of a path and says nothing of it, so every part is looked at by itself and
//! links are resolved here, with the root of the container as the top. What the archive calls cannot see is left to
//! the container.

use std::collections::VecDeque;

use dray_sandbox::{Error, ErrorKind, FileKind, Follow, SandboxPath};

use crate::archive::PathStat;
use crate::client::Client;
use crate::mounts::Mounts;
use crate::tar::Reader;
use crate::wire::Connection;

/// Links that are followed for one path, as Linux does it.
const MOST_LINKS: usize = 40;

/// What was found at the end of a path.
#[derive(Debug)]
pub(crate) enum Found {
    /// Something that the archive calls see.
    Seen {
        real_path: SandboxPath,
        stat: PathStat,
        /// Text of a link that was not followed.
        target: Option<Vec<u8>>,
    },
    /// Only the container itself can tell. The parts before the last are resolved as far as they are seen.
    Hidden(SandboxPath),
}

/// Follows a path.
pub(crate) async fn resolve(
    client: &Client,
    container: &str,
    mounts: Option<&Mounts>,
    path: &SandboxPath,
    follow: Follow,
) -> Result<Found, Error> {
    let mut walk = Walk {
        client,
        container,
        connection: None,
        links: 0,
        left: parts(path.as_bytes()).collect(),
        here: SandboxPath::root(),
    };
    let seen = |path: &SandboxPath| mounts.is_none_or(|mounts| mounts.sees(path));
    let mut stat = None;
    while let Some(part) = walk.left.pop_front() {
        if part == b".." {
            walk.here = walk.here.parent();
            stat = None;
            continue;
        }
        let there = walk.here.join(&part)?;
        if !seen(&there) {
            return walk.hidden(&there).map(Found::Hidden);
        }
        let last = walk.left.is_empty();
        let found = match walk.look(&there).await {
            Ok(found) => found,
            // A link that leads in circles cannot be looked at from outside, but is a link.
            Err(error) if error.kind() == ErrorKind::Loop && last && follow == Follow::No => {
                return Ok(Found::Hidden(there));
            }
            Err(error) => return Err(error),
        };
        if found.kind == FileKind::Symlink {
            if let Some(end) = walk.link(there, found, follow).await? {
                return Ok(end);
            }
            stat = None;
            continue;
        }
        if !last && found.kind != FileKind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "following a path"));
        }
        walk.here = there;
        stat = Some(found);
    }
    let stat = match stat {
        Some(stat) => stat,
        None => walk.look(&walk.here.clone()).await?,
    };
    Ok(Found::Seen {
        real_path: walk.here,
        stat,
        target: None,
    })
}

struct Walk<'a> {
    client: &'a Client,
    container: &'a str,
    connection: Option<Connection>,
    links: usize,
    /// Parts still to go.
    left: VecDeque<Vec<u8>>,
    /// Where the walk is; no part of it is a link.
    here: SandboxPath,
}

impl Walk<'_> {
    async fn look(&mut self, path: &SandboxPath) -> Result<PathStat, Error> {
        self.client
            .look(&mut self.connection, self.container, path.as_bytes())
            .await
    }

    /// Follows a link, unless it is the end of the walk.
    async fn link(
        &mut self,
        there: SandboxPath,
        stat: PathStat,
        follow: Follow,
    ) -> Result<Option<Found>, Error> {
        if str::from_utf8(there.name()).is_err() {
            // The archive calls lose it.
            return self.hidden(&there).map(Found::Hidden).map(Some);
        }
        let target = target(self.client, self.container, &there).await?;
        if !self.left.is_empty() || follow == Follow::Yes {
            self.turn(&target)?;
            return Ok(None);
        }
        Ok(Some(Found::Seen {
            real_path: there,
            stat,
            target: Some(target),
        }))
    }

    /// Goes where a link leads.
    fn turn(&mut self, target: &[u8]) -> Result<(), Error> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Error::new(ErrorKind::Loop, "too many links"));
        }
        if target.first() == Some(&b'/') {
            self.here = SandboxPath::root();
        }
        for part in parts(target).rev() {
            self.left.push_front(part);
        }
        Ok(())
    }

    /// The whole rest of the way, from what is not seen on.
    fn hidden(&self, there: &SandboxPath) -> Result<SandboxPath, Error> {
        let mut whole = there.as_bytes().to_vec();
        for part in &self.left {
            whole.push(b'/');
            whole.extend_from_slice(part);
        }
        SandboxPath::new(whole)
    }
}

/// The text of a link. The engine's own description re-encodes it and resolves it its own way.
async fn target(client: &Client, container: &str, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let (_, body) = client.download(container, path.as_bytes()).await?;
    let header = Reader::new(body).entry().await?;
    let target = header.map(|header| header.link).unwrap_or_default();
    if target.is_empty() {
        let other = "no longer a link";
        return Err(Error::new(ErrorKind::ChangedDuringTransfer, other));
    }
    Ok(target)
}

/// Names between slashes; `.` is none.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}
