//! Resolves paths part by part.
//!
//! The engine follows links in the middle of a path without reporting them, so every part is examined by itself and
//! links are resolved here, with the root of the container as the top. Paths that the archive calls cannot see are
//! left to the container.

use std::collections::VecDeque;

use dray_archive::tar::TarRules;
use dray_sandbox::{Error, ErrorKind, FileKind, Follow, SandboxPath};
use dray_sandbox_tree::TarEntries;

use crate::archive::PathStat;
use crate::client::Client;
use crate::mounts::Mounts;
use crate::wire::Connection;

/// Links that are followed for one path, as in the kernel of Linux.
const MAX_LINKS: usize = 40;

/// The end of a resolved path.
#[derive(Debug)]
pub(crate) enum ResolvedPath {
    /// The archive calls see it.
    Seen {
        real_path: SandboxPath,
        stat: PathStat,
        /// Text of a link that was not followed.
        target: Option<Vec<u8>>,
    },
    /// Only the container itself can examine it. The parts before the last are resolved as far as they are seen.
    Hidden(SandboxPath),
}

/// Resolves a path. Without `mounts` all of it counts as seen.
pub(crate) async fn resolve(
    client: &Client,
    container: &str,
    mounts: Option<&Mounts>,
    path: &SandboxPath,
    follow: Follow,
) -> Result<ResolvedPath, Error> {
    let mut walk = PathWalk {
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
            return walk.hidden(&there).map(ResolvedPath::Hidden);
        }
        let last = walk.left.is_empty();
        let found = match walk.look(&there).await {
            Ok(found) => found,
            // A link that leads in circles cannot be examined from outside, but it is a link.
            Err(error) if error.kind() == ErrorKind::Loop && last && follow == Follow::No => {
                return Ok(ResolvedPath::Hidden(there));
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
    Ok(ResolvedPath::Seen {
        real_path: walk.here,
        stat,
        target: None,
    })
}

struct PathWalk<'a> {
    client: &'a Client,
    container: &'a str,
    connection: Option<Connection>,
    links: usize,
    /// Parts that are not resolved yet.
    left: VecDeque<Vec<u8>>,
    /// The resolved part of the path; it holds no link.
    here: SandboxPath,
}

impl PathWalk<'_> {
    async fn look(&mut self, path: &SandboxPath) -> Result<PathStat, Error> {
        self.client
            .look(&mut self.connection, self.container, path.as_bytes())
            .await
    }

    /// Follows a link, unless it is the end of the path.
    async fn link(
        &mut self,
        there: SandboxPath,
        stat: PathStat,
        follow: Follow,
    ) -> Result<Option<ResolvedPath>, Error> {
        if str::from_utf8(there.name()).is_err() {
            // The archive calls lose names that are not UTF-8, so the tar would be that of another file.
            return self.hidden(&there).map(ResolvedPath::Hidden).map(Some);
        }
        let target = target(self.client, self.container, &there).await?;
        if !self.left.is_empty() || follow == Follow::Yes {
            self.turn(&target)?;
            return Ok(None);
        }
        Ok(Some(ResolvedPath::Seen {
            real_path: there,
            stat,
            target: Some(target),
        }))
    }

    /// Continues where a link leads.
    fn turn(&mut self, target: &[u8]) -> Result<(), Error> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::new(ErrorKind::Loop, "too many links"));
        }
        if target.first() == Some(&b'/') {
            self.here = SandboxPath::root();
        }
        // In reverse, so that the parts of the target stand before the rest in their order.
        for part in parts(target).rev() {
            self.left.push_front(part);
        }
        Ok(())
    }

    /// The rest of the path, from the first part on that is not seen.
    fn hidden(&self, there: &SandboxPath) -> Result<SandboxPath, Error> {
        let mut whole = there.as_bytes().to_vec();
        for part in &self.left {
            whole.push(b'/');
            whole.extend_from_slice(part);
        }
        SandboxPath::new(whole)
    }
}

/// Text of a link, from its tar. The engine's description re-encodes it and resolves it in its own way.
async fn target(client: &Client, container: &str, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let (_, body) = client.download(container, path.as_bytes()).await?;
    let header = TarEntries::new(body, TarRules::Exact).entry().await?;
    let target = header.map(|header| header.link).unwrap_or_default();
    if target.is_empty() {
        let other = "no longer a link";
        return Err(Error::new(ErrorKind::ChangedDuringTransfer, other));
    }
    Ok(target)
}

/// The names between slashes; `.` is left out.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}
