//! The files of the sandbox in memory.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Metadata};
use dray_sandbox::path::SandboxPath;
use dray_sandbox::path_walk::PathWalk;

use crate::fake::{Change, FakeState};

/// A file, a directory or another entry.
#[derive(Clone, Debug)]
pub struct Node {
    /// Kind of the entry, which decides what `content` means.
    pub kind: FileKind,
    /// Bytes of a file, or the target of a link.
    pub content: Vec<u8>,
    /// The 12 low mode bits.
    pub mode: u32,
    /// Number that differs between a file and its replacement.
    pub inode: u64,
    /// Time of the last write in nanoseconds since the epoch.
    pub mtime_ns: i128,
}

impl FakeState {
    pub(super) fn insert(&mut self, path: SandboxPath, kind: FileKind, content: Vec<u8>) {
        self.next_inode += 1;
        let node = Node {
            kind,
            content,
            mode: if kind == FileKind::Directory {
                0o755
            } else {
                0o644
            },
            inode: self.next_inode,
            mtime_ns: self.tick(),
        };
        self.nodes.insert(path, node);
    }

    /// A time later than all times so far.
    pub(super) fn tick(&mut self) -> i128 {
        self.clock += 1_000_000;
        self.clock
    }

    pub(super) fn change(&mut self, path: &SandboxPath, change: &Change) {
        match change {
            Change::Rewrite(content) => {
                let now = self.tick();
                if let Some(node) = self.nodes.get_mut(path) {
                    node.content = content.to_vec();
                    node.mtime_ns = now;
                }
            }
            Change::Replace(content) => {
                self.insert(path.clone(), FileKind::File, content.to_vec());
            }
            Change::Link(target) => {
                let target = target.as_bytes().to_vec();
                self.insert(path.clone(), FileKind::Symlink, target);
            }
            Change::Remove => {
                self.nodes.remove(path);
            }
            Change::EndSandbox => self.dead = true,
        }
    }

    /// Resolves the links of a path, those of its last part only with `last`. The last part may be missing.
    pub(super) fn resolve(&self, path: &SandboxPath, last: bool) -> Result<SandboxPath, Error> {
        let mut walk = PathWalk::new(path);
        while let Some(next) = walk.next_path()? {
            match self.nodes.get(&next) {
                Some(node)
                    if node.kind == FileKind::Symlink && (last || !walk.is_at_last_part()) =>
                {
                    walk.follow(&node.content)?;
                }
                Some(node) => walk.enter(next, node.kind)?,
                None if walk.is_at_last_part() => return Ok(next),
                None => return Err(Error::new(ErrorKind::NotFound, "a directory is missing")),
            }
        }
        Ok(walk.resolved().clone())
    }

    /// Metadata of the entry at a path.
    pub(super) fn stat(&self, path: &SandboxPath, follow: bool) -> Result<Metadata, Error> {
        let real_path = self.resolve(path, follow)?;
        let node = self.node(&real_path)?;
        let link = node.kind == FileKind::Symlink;
        Ok(Metadata {
            path: path.clone(),
            // A link that was not followed keeps the path that led to it (the contract of `Metadata`).
            real_path: if link { path.clone() } else { real_path },
            kind: node.kind,
            size: node.content.len() as u64,
            mode: node.mode,
            uid: Some(1000),
            gid: Some(1000),
            mtime_ns: Some(node.mtime_ns),
            link_target: link.then(|| node.content.clone()),
            links: Some(1),
            identity: Some((1, node.inode)),
        })
    }

    pub(super) fn node(&self, path: &SandboxPath) -> Result<&Node, Error> {
        self.nodes
            .get(path)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "nothing there"))
    }

    /// Sum of all contents in bytes.
    pub(super) fn used(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| node.content.len() as u64)
            .sum()
    }
}
