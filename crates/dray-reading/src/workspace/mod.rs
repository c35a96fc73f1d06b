//! Checks which files may be read: roots, containment before any access, links (read-attachment 3, 4).
//!
//! A path is resolved lexically, and then the real path of its directory is determined. Only a directory inside a root
//! is accessed further. Files outside are never accessed, so the result does not depend on them. The directory is then
//! opened beneath its root, and stat and open are relative to that handle, so no part of the path can be swapped in
//! between.

pub(crate) mod errno;
mod open;
mod resolve;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::message;
use crate::record::{Code, Refusal};

pub use open::OpenedFile;
use resolve::ResolvedPath;

/// Longest path in bytes, `PATH_MAX` of Linux; a longer one is refused in step 1.
const MAX_PATH_BYTES: usize = 4096;

/// The directories in which files may be read.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The root against which relative paths are resolved.
    primary: PathBuf,
    /// Real paths, the primary one first; without those that do not exist.
    real: Vec<PathBuf>,
    home: Option<PathBuf>,
    strict: bool,
}

impl Roots {
    /// One root: the working directory of the agent. If it does not exist or is not a directory, no path is in it.
    pub fn new(primary: &Path) -> Self {
        let absolute = std::path::absolute(primary).unwrap_or_else(|_| primary.to_owned());
        let real = std::fs::canonicalize(&absolute).ok();
        let real = real.filter(|real| real.is_dir());
        Self {
            primary: real.clone().unwrap_or(absolute),
            real: real.into_iter().collect(),
            home: None,
            strict: true,
        }
    }

    /// Adds a root.
    ///
    /// # Errors
    ///
    /// The path is not an existing readable directory.
    pub fn add(&mut self, root: &Path) -> io::Result<()> {
        let real = std::fs::canonicalize(root)?;
        // Fails if it is not a directory or cannot be read.
        std::fs::read_dir(&real)?;
        if !self.real.contains(&real) {
            self.real.push(real);
        }
        Ok(())
    }

    /// Adds roots; those that do not exist or cannot be read are skipped.
    #[must_use]
    pub fn with(mut self, roots: impl IntoIterator<Item = PathBuf>) -> Self {
        for root in roots {
            if let Err(error) = self.add(&root) {
                tracing::warn!(error = %error, "root is skipped");
            }
        }
        self
    }

    /// Sets the user's home for a leading `~`. Without it, such a path is refused.
    #[must_use]
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Switches only containment on or off (`tools.workspace_strict`).
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// The real paths of all roots.
    pub fn paths(&self) -> &[PathBuf] {
        &self.real
    }

    /// The root that contains a real path.
    fn root_of(&self, real: &Path) -> Option<&Path> {
        // Compares whole components, so `…/proj2` is not in `…/proj`.
        let holds = |root: &&PathBuf| real.starts_with(root);
        self.real.iter().find(holds).map(PathBuf::as_path)
    }

    /// The message of step 2.
    fn outside(&self, display_path: &str) -> Refusal {
        let name = |root: &PathBuf| message::escape_path(&root.to_string_lossy());
        let roots = match self.real.as_slice() {
            [] => name(&self.primary),
            [one] => name(one),
            all => {
                let all: Vec<String> = all.iter().map(name).collect();
                format!("any allowed root ({})", all.join(", "))
            }
        };
        Refusal {
            code: Code::OutsideWorkspace,
            output: message::outside_workspace(display_path, &roots),
        }
    }

    /// Steps 1 to 5: from the caller's path to an open file.
    ///
    /// # Errors
    ///
    /// The refusal of the first step that fails.
    pub fn open(&self, file_path: Option<&str>) -> Result<OpenedFile, Refusal> {
        self.open_with(file_path, &mut |_| {})
    }

    /// [`Roots::open`] with a callback between its steps. Tests change files there.
    fn open_with(
        &self,
        file_path: Option<&str>,
        between: &mut dyn FnMut(OpenStep),
    ) -> Result<OpenedFile, Refusal> {
        let display_path = check(file_path)?;
        let resolved = self.resolve_path(display_path)?;
        between(OpenStep::Resolved);
        open::open(self, display_path, &resolved, between)
    }

    /// Step 2: resolves a path, and checks that it is inside a root.
    fn resolve_path(&self, display_path: &str) -> Result<ResolvedPath, Refusal> {
        let lexical = self
            .lexical(display_path)
            .ok_or_else(|| self.outside(display_path))?;
        let resolved = resolve::resolve_parent(&lexical).and_then(|path| {
            let root = self.root_of(&path).map(Path::to_owned);
            (root.is_some() || !self.strict).then_some(ResolvedPath { path, root })
        });
        match resolved {
            Some(resolved) => Ok(resolved.with_names_on_disk()),
            // A path that cannot be resolved fails later, in the stat.
            None if !self.strict => Ok(ResolvedPath {
                path: lexical,
                root: None,
            }),
            None => Err(self.outside(display_path)),
        }
    }

    /// The absolute path without `.` and `..`.
    fn lexical(&self, display_path: &str) -> Option<PathBuf> {
        let path = match display_path.strip_prefix('~') {
            // `~name` is an ordinary file name: homes of other users are not looked up.
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.home.as_ref()?.join(rest.trim_start_matches('/'))
            }
            _ => self.primary.join(display_path),
        };
        let mut clean = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => {
                    // Lexically, before links are followed (read-attachment 4): `link/..` is the directory that
                    // contains the link.
                    clean.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Some(clean)
    }
}

/// Points between the steps at which another process may change the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenStep {
    /// Containment is known, and no file was touched.
    Resolved,
    /// The file was examined with stat.
    Examined,
    /// The file is open.
    Opened,
}

/// Step 1: checks that the path is present, without NUL and of at most [`MAX_PATH_BYTES`] bytes.
pub(crate) fn check(file_path: Option<&str>) -> Result<&str, Refusal> {
    let path = file_path.filter(|path| !path.trim().is_empty());
    let path = path.ok_or_else(|| Refusal {
        code: Code::FilePathRequired,
        output: message::FILE_PATH_REQUIRED.to_owned(),
    })?;
    if path.contains('\0') || path.len() > MAX_PATH_BYTES {
        return Err(Refusal {
            code: Code::FilePathInvalid,
            output: message::FILE_PATH_INVALID.to_owned(),
        });
    }
    Ok(path)
}
