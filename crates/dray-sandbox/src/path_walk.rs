//! Resolves the links of a path where neither the wire nor a command of the sandbox does it.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind};
use crate::metadata::FileKind;
use crate::path::{SandboxPath, path_parts};

/// Most symbolic links that are followed for one path; with one more the path is a loop, as in Linux
/// (`path_resolution(7)`).
pub const MAX_SYMBOLIC_LINKS: u32 = 40;

/// Resolves a path part by part, as the kernel does (`path_resolution(7)`), with the root of the sandbox as the top.
///
/// This type holds the state of the walk and does no I/O. The backend examines each [`Self::next_path`] without
/// following a link at its end, and then calls [`Self::enter`] or [`Self::follow`], until no part is left. `..` applies
/// to the resolved path, so that behind a link it is the parent of the link's target.
///
/// ```
/// use dray_sandbox::{FileKind, PathWalk, SandboxPath};
///
/// // /work/current is a link to ../releases/7
/// let mut walk = PathWalk::new(&SandboxPath::new("/work/current/a.txt")?);
/// while let Some(path) = walk.next_path()? {
///     match path.to_text()? {
///         "/work/current" => walk.follow(b"../releases/7")?,
///         "/releases/7/a.txt" => walk.enter(path, FileKind::File)?,
///         _ => walk.enter(path, FileKind::Directory)?,
///     }
/// }
/// assert_eq!(walk.resolved().to_text()?, "/releases/7/a.txt");
/// # Ok::<(), dray_sandbox::Error>(())
/// ```
#[derive(Debug)]
pub struct PathWalk {
    resolved: SandboxPath,
    pending: VecDeque<Vec<u8>>,
    links: u32,
}

impl PathWalk {
    /// A walk from the root of the sandbox.
    pub fn new(path: &SandboxPath) -> Self {
        Self {
            resolved: SandboxPath::root(),
            pending: path_parts(path.as_bytes()).map(<[u8]>::to_vec).collect(),
            links: 0,
        }
    }

    /// The path to examine next; the same one until the walk enters it or follows its link. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] when the target of a link contains NUL or a name that is too long.
    pub fn next_path(&mut self) -> Result<Option<SandboxPath>, Error> {
        while let Some(part) = self.pending.front() {
            if part != b".." {
                return self.resolved.join(part).map(Some);
            }
            // The parent of the resolved path, not of the text: behind a link `..` leads to the parent of its target.
            self.resolved = self.resolved.parent();
            self.pending.pop_front();
        }
        Ok(None)
    }

    /// Whether no part follows the next path. If that is a link, callers may report the link itself instead of
    /// following it.
    pub fn is_at_last_part(&self) -> bool {
        self.pending.len() == 1
    }

    /// Continues below the next path, which is not a link.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotDirectory`] when parts follow a file.
    pub fn enter(&mut self, path: SandboxPath, kind: FileKind) -> Result<(), Error> {
        if kind != FileKind::Directory && !self.is_at_last_part() {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "a part of the path is not a directory",
            ));
        }
        self.pending.pop_front();
        self.resolved = path;
        Ok(())
    }

    /// Continues with the target of the link at the next path. An absolute target begins at the root of the sandbox.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Loop`] after [`MAX_SYMBOLIC_LINKS`]; [`ErrorKind::NotFound`] for an empty target, as in Linux.
    pub fn follow(&mut self, target: &[u8]) -> Result<(), Error> {
        // The links are counted over the whole path, as the kernel does: a link of each part may be harmless alone.
        self.links += 1;
        if self.links > MAX_SYMBOLIC_LINKS {
            return Err(Error::new(ErrorKind::Loop, "too many links"));
        }
        if target.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "the link has no target"));
        }
        if target.first() == Some(&b'/') {
            self.resolved = SandboxPath::root();
        }
        self.pending.pop_front();
        // The target's parts come first, and its own links are followed before the rest of the path.
        let mut pending: VecDeque<_> = path_parts(target).map(<[u8]>::to_vec).collect();
        pending.append(&mut self.pending);
        self.pending = pending;
        Ok(())
    }

    /// The beginning of the path that is resolved; at the end of the walk all of it.
    pub const fn resolved(&self) -> &SandboxPath {
        &self.resolved
    }

    /// The parts that are not resolved yet, the next one first. `..` may be among them, from the target of a link.
    pub fn pending(&self) -> impl Iterator<Item = &[u8]> {
        self.pending.iter().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks a tree of entries `path` or `path -> target`; a path that is not listed is missing.
    fn walk_tree(tree: &[&str], path: &str) -> Result<String, ErrorKind> {
        let mut walk = PathWalk::new(&SandboxPath::new(path).unwrap());
        while let Some(path) = walk.next_path().map_err(|error| error.kind())? {
            let text = path.to_text().unwrap().to_owned();
            let entry = tree
                .iter()
                .find_map(|entry| match entry.split_once(" -> ") {
                    Some((link, target)) if link == text => Some(Some(target)),
                    None if *entry == text => Some(None),
                    _ => None,
                });
            let kind = match text.rsplit_once('.') {
                Some(_) => FileKind::File,
                None => FileKind::Directory,
            };
            match entry {
                None => return Err(ErrorKind::NotFound),
                Some(Some(target)) => walk.follow(target.as_bytes()),
                Some(None) => walk.enter(path, kind),
            }
            .map_err(|error| error.kind())?;
        }
        Ok(walk.resolved().to_text().unwrap().to_owned())
    }

    #[test]
    fn links_are_resolved_as_the_kernel_does() {
        let tree = [
            "/a",
            "/a/b",
            "/a/b/f.txt",
            "/a/up -> ../a/b/..",
            "/a/top -> /a//./b/",
            "/a/out -> ../../../a",
            "/l -> a/top",
        ];
        for (path, resolved) in [
            ("/", "/"),
            ("/a/b/f.txt", "/a/b/f.txt"),
            ("/a/up/b", "/a/b"),
            ("/a/top/f.txt", "/a/b/f.txt"),
            ("/a/out/b", "/a/b"),
            ("/l/f.txt", "/a/b/f.txt"),
        ] {
            assert_eq!(walk_tree(&tree, path).as_deref(), Ok(resolved), "{path}");
        }
    }

    #[test]
    fn loops_empty_targets_and_paths_through_files_are_refused() {
        let tree = ["/f.txt", "/x -> y", "/y -> x", "/e -> ", "/l -> f.txt/../x"];
        for (path, kind) in [
            ("/x", ErrorKind::Loop),
            ("/e", ErrorKind::NotFound),
            ("/missing/a", ErrorKind::NotFound),
            ("/f.txt/a", ErrorKind::NotDirectory),
            // `..` behind a file leads nowhere, although the text of the path could be shortened.
            ("/l", ErrorKind::NotDirectory),
        ] {
            assert_eq!(walk_tree(&tree, path), Err(kind), "{path}");
        }
    }

    #[test]
    fn forty_links_are_followed_and_the_next_is_a_loop() {
        for (links, expected) in [(40, Ok("/end".to_owned())), (41, Err(ErrorKind::Loop))] {
            let mut tree: Vec<String> = (0..links - 1)
                .map(|link| format!("/l{link} -> l{}", link + 1))
                .collect();
            tree.push(format!("/l{} -> end", links - 1));
            tree.push("/end".to_owned());
            let tree: Vec<&str> = tree.iter().map(String::as_str).collect();
            assert_eq!(walk_tree(&tree, "/l0"), expected);
        }
    }

    #[test]
    fn the_next_path_stays_until_it_is_entered_and_the_rest_is_known() {
        let mut walk = PathWalk::new(&SandboxPath::new("/a/b").unwrap());
        for _ in 0..2 {
            let next = walk.next_path().unwrap().unwrap();
            assert_eq!(next.to_text().unwrap(), "/a");
            assert!(!walk.is_at_last_part());
        }
        assert_eq!(walk.pending().collect::<Vec<_>>(), [b"a", b"b"]);
        let next = walk.next_path().unwrap().unwrap();
        walk.enter(next, FileKind::Directory).unwrap();
        walk.next_path().unwrap();
        assert!(walk.is_at_last_part());
        assert_eq!(walk.resolved().to_text().unwrap(), "/a");
    }
}
