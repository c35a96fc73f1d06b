//! Resolves the links in paths of a container, one path component after the other.
//!
//! The engine follows links in the middle of a path without reporting them. So this module examines every component
//! separately and resolves links itself; the root of the container is the topmost directory. Paths that the archive
//! methods of the engine cannot see, such as mounts, must be resolved by a command in the container.

use dray_archive::tar::TarRules;
use dray_sandbox::{Error, ErrorKind, FileKind, Follow, PathWalk, SandboxPath};
use dray_sandbox_tree::TarEntries;

use crate::archive::PathStat;
use crate::client::Client;
use crate::mounts::Mounts;
use crate::wire::Connection;

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
    let mut engine = EnginePaths {
        client,
        container,
        connection: None,
    };
    let is_visible = |path: &SandboxPath| mounts.is_none_or(|mounts| mounts.sees(path));
    let mut walk = PathWalk::new(path);
    let mut found = None;
    while let Some(next) = walk.next_path()? {
        if !is_visible(&next) {
            return hidden_path(&walk).map(ResolvedPath::Hidden);
        }
        let is_kept = follow == Follow::No && walk.is_at_last_part();
        let stat = match engine.stat_path(&next).await {
            Ok(stat) => stat,
            // The engine cannot examine a link to itself, but the container can examine the link without following it.
            Err(error) if error.kind() == ErrorKind::Loop && is_kept => {
                return Ok(ResolvedPath::Hidden(next));
            }
            Err(error) => return Err(error),
        };
        if stat.kind != FileKind::Symlink {
            walk.enter(next, stat.kind)?;
            found = Some((walk.resolved().clone(), stat));
            continue;
        }
        if str::from_utf8(next.name()).is_err() {
            // The archive methods change names that are not UTF-8, so the tar would contain another file.
            return hidden_path(&walk).map(ResolvedPath::Hidden);
        }
        let Some(target) = target(client, container, &next).await? else {
            return hidden_path(&walk).map(ResolvedPath::Hidden);
        };
        if is_kept {
            return Ok(ResolvedPath::Seen {
                real_path: next,
                stat,
                target: Some(target),
            });
        }
        walk.follow(&target)?;
    }
    let real_path = walk.resolved().clone();
    let stat = match found {
        Some((path, stat)) if path == real_path => stat,
        // The root, or the end of a target in `..`.
        _ => engine.stat_path(&real_path).await?,
    };
    Ok(ResolvedPath::Seen {
        real_path,
        stat,
        target: None,
    })
}

/// Examines paths through the archive methods of the engine, over one connection.
struct EnginePaths<'a> {
    client: &'a Client,
    container: &'a str,
    connection: Option<Connection>,
}

impl EnginePaths<'_> {
    async fn stat_path(&mut self, path: &SandboxPath) -> Result<PathStat, Error> {
        self.client
            .stat_path(&mut self.connection, self.container, path.as_bytes())
            .await
    }
}

/// The resolved beginning of a path, with the parts after it as they are.
fn hidden_path(walk: &PathWalk) -> Result<SandboxPath, Error> {
    let mut whole = walk.resolved().as_bytes().to_vec();
    for part in walk.pending() {
        whole.push(b'/');
        whole.extend_from_slice(part);
    }
    SandboxPath::new(whole)
}

/// Reads the target of a link from the tar of the link, because the engine's description changes the target. `None`
/// where the tar has another entry: Podman follows the link, and on Docker another entry has replaced the link.
async fn target(
    client: &Client,
    container: &str,
    path: &SandboxPath,
) -> Result<Option<Vec<u8>>, Error> {
    let (_, body) = client.download(container, path.as_bytes()).await?;
    let header = TarEntries::new(body, TarRules::Exact).entry().await?;
    let target = header.map(|header| header.link).unwrap_or_default();
    Ok(Some(target).filter(|target| !target.is_empty()))
}
