//! Where content goes that a command was asked for: standard output, a pipe or device, or a file that gets its name when
//! it is complete.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::outcome::CommandFailure;

/// Names of the standard streams of a process.
const STREAM_NAMES: [&str; 3] = ["-", "/dev/stdout", "/dev/stderr"];
/// Names of standard output, which the lines about content use too.
const STANDARD_OUTPUT_NAMES: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// Directories whose entries are the open files of a process.
const DESCRIPTOR_DIRECTORIES: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// Whether bytes are written into an existing object instead of a new file: standard output, an open file of this
/// process, a device or a pipe.
pub(crate) fn is_stream(output: &Path) -> bool {
    let is_open = STREAM_NAMES.iter().any(|name| output == Path::new(name))
        || output.parent().is_some_and(|directory| {
            let mut descriptors = DESCRIPTOR_DIRECTORIES.iter();
            descriptors.any(|name| directory == Path::new(name))
        });
    let there = || std::fs::metadata(output);
    is_open || there().is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Whether content goes to standard output. Neither a line nor a document about it may follow there.
pub(crate) fn is_standard_output(output: &Path) -> bool {
    let mut names = STANDARD_OUTPUT_NAMES.iter();
    names.any(|name| output == Path::new(name))
}

/// Opens a device or a pipe, which is neither created nor replaced; `-` is standard output.
pub(crate) async fn open_stream(output: &Path) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
    if output == Path::new("-") {
        return Ok(Box::new(tokio::io::stdout()));
    }
    // An open file of this process may have content, for example after `>> file`, which stays.
    let mut options = tokio::fs::OpenOptions::new();
    Ok(Box::new(options.append(true).open(output).await?))
}

/// The file to write for a name: behind all links, which stay, even where the file does not exist yet.
pub(crate) fn linked_file(output: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(output) {
        Err(error) if error.kind() == ErrorKind::NotFound => match std::fs::read_link(output) {
            // Ends, because links that lead in a circle are another error.
            Ok(target) => linked_file(&directory_of(output).join(target)),
            Err(_) => Ok(output.to_path_buf()),
        },
        found => found,
    }
}

/// The directory of a file; a bare file name has an empty parent.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// An open destination of content.
pub(crate) enum OutputSink {
    Stream {
        /// `None` when the reader has ended.
        out: Option<Box<dyn AsyncWrite + Send + Unpin>>,
        /// Description of a failure.
        failure: String,
    },
    File {
        file: tokio::fs::File,
        temporary: tempfile::TempPath,
        target: PathBuf,
    },
}

impl OutputSink {
    /// Opens the output that a person named. The target of a link is replaced, not the link.
    pub(crate) async fn open(output: &Path) -> Result<Self, CommandFailure> {
        let failure = if output == Path::new("-") {
            "cannot write to standard output".to_owned()
        } else {
            format!("cannot write {}", output.display())
        };
        if !is_stream(output) {
            let target = linked_file(output).map_err(CommandFailure::local(failure))?;
            return Self::replace(&target);
        }
        let out = open_stream(output).await;
        Ok(Self::Stream {
            out: Some(out.map_err(CommandFailure::local(failure.as_str()))?),
            failure,
        })
    }

    /// Opens a file that replaces whatever has its name, also a link.
    pub(crate) fn replace(target: &Path) -> Result<Self, CommandFailure> {
        // The draft is in the same directory, so that it can be renamed into place.
        let named = tempfile::Builder::new()
            .prefix(".dray-")
            .tempfile_in(directory_of(target));
        let failed = CommandFailure::local(format!("cannot write {}", target.display()));
        let (file, temporary) = named.map_err(failed)?.into_parts();
        Ok(Self::File {
            file: tokio::fs::File::from_std(file),
            temporary,
            target: target.to_path_buf(),
        })
    }

    /// Whether the reader of a stream has ended (`dray … | head`), which is its wish and not a failure.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self, Self::Stream { out: None, .. })
    }

    /// Writes bytes. Those for a reader that has ended are dropped.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        match self {
            Self::Stream { out, failure } => {
                let Some(stream) = out else {
                    return Ok(());
                };
                let written = is_read(stream.write_all(bytes).await);
                if !written.map_err(CommandFailure::local(failure.as_str()))? {
                    *out = None;
                }
                Ok(())
            }
            Self::File { file, target, .. } => {
                let failed = CommandFailure::local(format!("cannot write {}", target.display()));
                file.write_all(bytes).await.map_err(failed)
            }
        }
    }

    /// Ends the output; a file gets its name.
    pub(crate) async fn finish(self) -> Result<(), CommandFailure> {
        match self {
            Self::Stream { out, failure } => match out {
                Some(mut stream) => is_read(stream.flush().await)
                    .map(drop)
                    .map_err(CommandFailure::local(failure)),
                None => Ok(()),
            },
            Self::File {
                mut file,
                temporary,
                target,
            } => {
                let failed = || CommandFailure::local(format!("cannot write {}", target.display()));
                file.flush().await.map_err(failed())?;
                // The file is synced before the rename: after a crash the name must not lead to a file without content.
                file.sync_all().await.map_err(failed())?;
                temporary
                    .persist(&target)
                    .map_err(|error| failed()(error.error))
            }
        }
    }
}

/// Whether what was written has a reader.
pub(crate) fn is_read<T>(written: io::Result<T>) -> io::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unfinished_file_never_appears() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("out");
        let mut sink = OutputSink::open(&target).await.unwrap();
        sink.write(b"half").await.unwrap();
        drop(sink);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

        let mut sink = OutputSink::open(&target).await.unwrap();
        sink.write(b"whole").await.unwrap();
        sink.finish().await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");
    }

    #[test]
    fn a_device_is_written_to_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        std::fs::write(&file, "x").unwrap();
        for (output, expected) in [
            (Path::new("-"), true),
            (Path::new("/dev/null"), true),
            (Path::new("/dev/stdout"), true),
            (Path::new("/dev/fd/9"), true),
            (&file, false),
            (&directory.path().join("new"), false),
        ] {
            assert_eq!(is_stream(output), expected, "{}", output.display());
        }
    }

    #[test]
    fn standard_output_is_known_under_each_of_its_names() {
        for (output, expected) in [
            ("-", true),
            ("/dev/stdout", true),
            ("/dev/fd/1", true),
            ("/dev//fd/1", true),
            ("/proc/self/fd/1", true),
            ("/dev/stderr", false),
            ("/dev/fd/11", false),
            ("./-", false),
        ] {
            assert_eq!(is_standard_output(Path::new(output)), expected, "{output}");
        }
    }

    #[test]
    fn links_lead_to_their_file_even_before_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().canonicalize().unwrap().join(name);
        std::os::unix::fs::symlink("second", path("first")).unwrap();
        std::os::unix::fs::symlink("file", path("second")).unwrap();
        std::os::unix::fs::symlink("circle", path("circle")).unwrap();
        assert_eq!(linked_file(&path("first")).unwrap(), path("file"));
        std::fs::write(path("file"), "x").unwrap();
        assert_eq!(linked_file(&path("first")).unwrap(), path("file"));
        assert_eq!(linked_file(&path("new")).unwrap(), path("new"));
        assert!(linked_file(&path("circle")).is_err());
    }
}
