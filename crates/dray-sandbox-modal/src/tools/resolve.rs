//! Resolves links part by part, because the tool describes a path without following any.

use dray_sandbox::{Error, ErrorKind, FileKind, Follow, SandboxPath};
use dray_sandbox_exec::Exec;

use super::Tools;
use super::entry::ToolEntry;

/// Most links that are followed for one path, as in the Linux kernel.
const MAX_LINKS: usize = 40;

impl<E: Exec + 'static> Tools<E> {
    /// The path without links, and the entry there.
    pub(super) async fn resolve(
        &self,
        path: &SandboxPath,
        follow: Follow,
    ) -> Result<(SandboxPath, ToolEntry), Error> {
        path.to_text()?;
        let mut real = SandboxPath::root();
        let mut found = None;
        let mut left: Vec<Vec<u8>> = parts(path.as_bytes());
        let mut links = 0;
        while let Some(part) = left.pop() {
            // Applied to the resolved path: behind a link `..` is the parent of its target.
            if part == b".." {
                real = real.parent();
                found = None;
                continue;
            }
            let next = real.join(&part)?;
            let here = self.look(&next).await?;
            let last = left.is_empty();
            match (here.kind(), here.target()) {
                (FileKind::Symlink, Some(target)) if !last || follow == Follow::Yes => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::new(ErrorKind::Loop, "too many links"));
                    }
                    if target.starts_with('/') {
                        real = SandboxPath::root();
                    }
                    found = None;
                    // Parts are taken from the end, so those of the target come before the rest of the path.
                    left.extend(parts(target.as_bytes()));
                }
                (FileKind::Directory, _) => {
                    real = next;
                    found = Some(here);
                }
                _ if last => return Ok((next, here)),
                _ => {
                    return Err(Error::new(
                        ErrorKind::NotDirectory,
                        "a part of the path is not a directory",
                    ));
                }
            }
        }
        let found = match found {
            Some(found) => found,
            None => self.look(&real).await?,
        };
        Ok((real, found))
    }
}

/// Names of a path, the last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .rev()
        .collect()
}
