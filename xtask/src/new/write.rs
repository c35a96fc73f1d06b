//! Writes all files of a skeleton, or none.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// New content by path, relative to the workspace.
pub(super) type Changes = BTreeMap<String, String>;

/// Files that the check after writing may change.
const CHECKED_FILES: [&str; 1] = ["Cargo.lock"];

/// Writes every file, formatted, and then runs `check`. After a failure, it restores every file and removes new
/// directories.
///
/// # Errors
///
/// Source that does not parse, a file that cannot be written, and the failure of `check`.
pub(super) fn replace_files(
    root: &Path,
    changes: &Changes,
    check: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // All checks are made before the first file is changed.
    let mut formatted = Changes::new();
    for (path, content) in changes {
        let is_rust = Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "rs");
        let content = if is_rust {
            format_rust(content).with_context(|| format!("{path} would not be valid Rust"))?
        } else {
            content.clone()
        };
        formatted.insert(path.clone(), content);
    }
    let mut undo = UndoLog::new(root);
    for path in formatted.keys().map(String::as_str).chain(CHECKED_FILES) {
        undo.record(path)?;
    }
    let result = write_all(root, &formatted).and_then(|()| check(root));
    if let Err(error) = result {
        undo.restore()
            .with_context(|| format!("{error:#}; and it could not be undone"))?;
        return Err(error.context("nothing was written"));
    }
    Ok(())
}

fn write_all(root: &Path, changes: &Changes) -> anyhow::Result<()> {
    for (path, content) in changes {
        let path = root.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Formats Rust source with `rustfmt`. The error contains its messages.
fn format_rust(source: &str) -> anyhow::Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start `rustfmt`")?;
    // rustfmt reads all of its input before it writes, so that neither side waits for the other.
    child
        .stdin
        .take()
        .context("rustfmt has no input")?
        .write_all(source.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The earlier content of files.
struct UndoLog<'a> {
    root: &'a Path,
    /// Content of files before the change; `None` for new files.
    files: BTreeMap<String, Option<Vec<u8>>>,
    /// New directories, the outermost first.
    directories: Vec<std::path::PathBuf>,
}

impl<'a> UndoLog<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            files: BTreeMap::new(),
            directories: Vec::new(),
        }
    }

    fn record(&mut self, path: &str) -> anyhow::Result<()> {
        let full = self.root.join(path);
        let content = if full.exists() {
            Some(fs::read(&full)?)
        } else {
            None
        };
        self.files.insert(path.to_owned(), content);
        let mut missing: Vec<_> = full
            .ancestors()
            .skip(1)
            .take_while(|directory| !directory.exists())
            .map(Path::to_path_buf)
            .filter(|directory| !self.directories.contains(directory))
            .collect();
        missing.reverse();
        self.directories.extend(missing);
        Ok(())
    }

    fn restore(&self) -> anyhow::Result<()> {
        for (path, content) in &self.files {
            let path = self.root.join(path);
            match content {
                Some(content) => fs::write(&path, content)?,
                None if path.exists() => fs::remove_file(&path)?,
                None => {}
            }
        }
        for directory in self.directories.iter().rev() {
            if directory.exists() {
                fs::remove_dir(directory)?;
            }
        }
        Ok(())
    }
}
