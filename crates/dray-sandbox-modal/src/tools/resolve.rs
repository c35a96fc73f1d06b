//! Resolves links part by part, because the tool describes a path without following any.

use dray_sandbox::{Error, FileKind, Follow, PathWalk, SandboxPath};
use dray_sandbox_exec::Exec;

use super::Tools;
use super::entry::ToolEntry;

impl<E: Exec + 'static> Tools<E> {
    /// The path without links, and the entry there.
    pub(super) async fn resolve(
        &self,
        path: &SandboxPath,
        follow: Follow,
    ) -> Result<(SandboxPath, ToolEntry), Error> {
        path.to_text()?;
        let mut walk = PathWalk::new(path);
        let mut found = None;
        while let Some(next) = walk.next_path()? {
            let entry = self.stat_path(&next).await?;
            let is_followed = follow == Follow::Yes || !walk.is_at_last_part();
            found = match (entry.kind(), entry.target()) {
                (FileKind::Symlink, Some(target)) if is_followed => {
                    walk.follow(target.as_bytes())?;
                    None
                }
                (kind, _) => {
                    walk.enter(next.clone(), kind)?;
                    Some((next, entry))
                }
            };
        }
        // The root has no entry in the walk, and after a link whose target ends in `..` the path is not that of the
        // last entry.
        match found {
            Some((path, entry)) if path == *walk.resolved() => Ok((path, entry)),
            _ => {
                let entry = self.stat_path(walk.resolved()).await?;
                Ok((walk.resolved().clone(), entry))
            }
        }
    }
}
