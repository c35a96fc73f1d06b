//! The documents that the arguments of `dray read` name: files, directories, URLs and stored files.

use std::path::{Path, PathBuf};

use dray_types::Sha256Digest;

use crate::outcome::CommandFailure;

/// Most files of all directories together.
const MAX_FILES: usize = 10_000;
/// Deepest level of directories that is entered.
const MAX_DEPTH: usize = 64;

/// The source of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DocumentLocation {
    Path,
    Url,
    Artifact(Sha256Digest),
    StandardInput,
}

impl DocumentLocation {
    /// Determines the source from the form of the argument. `primary` is the root in which a file is looked for, or the
    /// current directory.
    pub(super) fn of(document: &str, primary: Option<&Path>) -> Self {
        let is_url = ["http://", "https://"].iter().any(|scheme| {
            document
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        if is_url {
            return Self::Url;
        }
        if document == "-" {
            return Self::StandardInput;
        }
        let digest = document.strip_prefix("artifact:").unwrap_or(document);
        match digest.parse() {
            // A file whose name reads like a digest is a file.
            Ok(sha256)
                if path_below_primary(document, primary)
                    .symlink_metadata()
                    .is_err() =>
            {
                Self::Artifact(sha256)
            }
            _ => Self::Path,
        }
    }
}

/// One document to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadTarget {
    /// The argument as it was typed; for a file found in a directory, its path.
    pub(super) document: String,
    pub(super) source: DocumentLocation,
    /// The directory of the file, which may be read although it is not a root.
    pub(super) directory: Option<PathBuf>,
}

/// The failure when standard input is named twice.
pub(super) fn repeated_stdin() -> CommandFailure {
    CommandFailure::Usage("standard input (`-`) can be read only once".to_owned())
}

/// The documents of all arguments, in order. A directory is replaced by its files.
///
/// # Errors
///
/// When a directory cannot be listed or has too many files, or standard input is named twice.
pub(super) fn expand_arguments(
    arguments: &[String],
    primary: Option<&Path>,
) -> Result<Vec<ReadTarget>, CommandFailure> {
    if arguments.iter().filter(|document| *document == "-").count() > 1 {
        return Err(repeated_stdin());
    }
    let mut targets = Vec::new();
    for document in arguments {
        let source = DocumentLocation::of(document, primary);
        let path = path_below_primary(document, primary);
        if source == DocumentLocation::Path && path.is_dir() {
            let mut files = Vec::new();
            list_directory(&path, Path::new(document), 0, &mut files)?;
            targets.extend(files.into_iter().map(|file| ReadTarget {
                document: file.to_string_lossy().into_owned(),
                source: DocumentLocation::Path,
                directory: Some(PathBuf::from(document)),
            }));
        } else {
            let directory = match source {
                DocumentLocation::Path => parent_directory(Path::new(document)),
                _ => None,
            };
            targets.push(ReadTarget {
                document: document.clone(),
                source,
                directory,
            });
        }
        if targets.len() > MAX_FILES {
            return Err(CommandFailure::Usage(format!(
                "{document} and what comes before it hold more than {MAX_FILES} files. Name fewer."
            )));
        }
    }
    Ok(targets)
}

fn path_below_primary(document: &str, primary: Option<&Path>) -> PathBuf {
    primary.map_or_else(|| PathBuf::from(document), |root| root.join(document))
}

/// The directory in the path of a file; `None` for a bare name.
pub(super) fn parent_directory(file: &Path) -> Option<PathBuf> {
    match file.parent() {
        Some(parent) if parent.as_os_str().is_empty() => None,
        parent => parent.map(Path::to_owned),
    }
}

/// Adds the regular files of a directory and of those below it, by name. Links are not followed.
fn list_directory(
    directory: &Path,
    shown: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), CommandFailure> {
    let failed = || CommandFailure::local(format!("cannot list {}", shown.display()));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        // Hidden files of a directory are not included.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            let kind = entry.file_type().map_err(failed())?;
            entries.push((entry.file_name(), kind));
        }
    }
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    for (name, kind) in entries {
        // One above the limit is enough for the caller to refuse.
        if files.len() > MAX_FILES {
            break;
        }
        if kind.is_file() {
            files.push(shown.join(&name));
        } else if kind.is_dir() && depth < MAX_DEPTH {
            list_directory(&directory.join(&name), &shown.join(&name), depth + 1, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_name_looks_like_a_digest_is_looked_for_in_the_primary_root() {
        let directory = tempfile::tempdir().unwrap();
        let name = "ab".repeat(32);
        let source = || DocumentLocation::of(&name, Some(directory.path()));
        assert!(matches!(source(), DocumentLocation::Artifact(_)));
        std::fs::write(directory.path().join(&name), "words").unwrap();
        assert!(matches!(source(), DocumentLocation::Path));
    }

    #[test]
    fn a_directory_stands_for_its_regular_files_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        std::fs::create_dir_all(top.join("b/c")).unwrap();
        for name in ["z.txt", "a.txt", ".hidden", "b/c/d.txt"] {
            std::fs::write(top.join(name), "words").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", top.join("link")).unwrap();
        let arguments = [
            "https://example.org/a.pdf".to_owned(),
            top.to_string_lossy().into_owned(),
            "missing.txt".to_owned(),
        ];
        let targets = expand_arguments(&arguments, None).unwrap();
        let named: Vec<&str> = targets
            .iter()
            .map(|target| {
                let path = Path::new(&target.document);
                path.strip_prefix(top).unwrap_or(path).to_str().unwrap()
            })
            .collect();
        assert_eq!(
            named,
            [
                "https://example.org/a.pdf",
                "a.txt",
                "b/c/d.txt",
                "z.txt",
                "missing.txt"
            ]
        );
        assert_eq!(targets[0].source, DocumentLocation::Url);
        assert_eq!(targets[1].directory.as_deref(), Some(top));
    }
}
