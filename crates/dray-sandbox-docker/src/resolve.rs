//! Resolves the links in paths of a container, one path component after the other.
//!
//! The engine follows links in the middle of a path without reporting them. So this module examines every component
//! separately and resolves links itself; the root of the container is the topmost directory. Paths that the archive
//! methods of the engine cannot see, such as mounts, must be resolved by a command in the container.

use std::collections::VecDeque;

use dray_archive::tar::TarRules;
use dray_sandbox::{Error, ErrorKind, FileKind, Follow, SandboxPath};
use dray_sandbox_tree::TarEntries;

use crate::archive::PathStat;
use crate::client::Client;
use crate::mounts::Mounts;
use crate::wire::Connection;

/// Most links that are followed for one path, as in the Linux kernel.
const MAX_LINKS: usize = 40;

/// The result of resolving a path.
#[derive(Debug)]
pub(crate) enum ResolvedPath {
    /// The archive methods see the path.
    Seen {
        real_path: SandboxPath,
        stat: PathStat,
        /// Target of the path, if it is a link that was not followed.
        target: Option<Vec<u8>>,
    },
    /// Only a command in the container can examine the path. Its links are resolved up to the first hidden component.
    Hidden(SandboxPath),
}

/// Resolves a path. Without `mounts` the whole path counts as seen.
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
            // The engine cannot examine a link to itself, but the container can examine the link without following it.
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
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "a component of the path is not a directory",
            ));
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
    /// Components that are not resolved yet.
    left: VecDeque<Vec<u8>>,
    /// The resolved beginning of the path, without links.
    here: SandboxPath,
}

impl PathWalk<'_> {
    async fn look(&mut self, path: &SandboxPath) -> Result<PathStat, Error> {
        self.client
            .look(&mut self.connection, self.container, path.as_bytes())
            .await
    }

    /// Follows a link, unless it is the last component and `follow` is `No`. Returns the result if the path ends here.
    async fn link(
        &mut self,
        there: SandboxPath,
        stat: PathStat,
        follow: Follow,
    ) -> Result<Option<ResolvedPath>, Error> {
        if str::from_utf8(there.name()).is_err() {
            // The archive methods change names that are not UTF-8, so the tar would contain another file.
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

    /// Continues with the target of a link.
    fn turn(&mut self, target: &[u8]) -> Result<(), Error> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::new(ErrorKind::Loop, "too many links"));
        }
        if target.first() == Some(&b'/') {
            self.here = SandboxPath::root();
        }
        // In reverse order, so that the components of the target precede the rest of the path in the right order.
        for part in parts(target).rev() {
            self.left.push_front(part);
        }
        Ok(())
    }

    /// Joins the path up to the first hidden component with the components after it.
    fn hidden(&self, there: &SandboxPath) -> Result<SandboxPath, Error> {
        let mut whole = there.as_bytes().to_vec();
        for part in &self.left {
            whole.push(b'/');
            whole.extend_from_slice(part);
        }
        SandboxPath::new(whole)
    }
}

/// Reads the target of a link from the tar of the link, because the engine's description changes the target.
async fn target(client: &Client, container: &str, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let (_, body) = client.download(container, path.as_bytes()).await?;
    let header = TarEntries::new(body, TarRules::Exact).entry().await?;
    let target = header.map(|header| header.link).unwrap_or_default();
    if target.is_empty() {
        let other = "the path is no longer a link";
        return Err(Error::new(ErrorKind::ChangedDuringTransfer, other));
    }
    Ok(target)
}

/// The components of a path, without empty ones and `.`.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}
