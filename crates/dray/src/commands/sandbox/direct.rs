//! Copies of a single file without a running system: bytes pass from the sandbox to a file of this machine, or back.
//! They pass no bus and no store, and no service is started.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_presentation::name;
use dray_proto::v1;
use dray_sandbox_transfer::Config;
use dray_sandbox_transfer::direct::{DirectSandbox, KEPT_ADVICE, PutFile, Received};
use dray_sandbox_transfer::files::{FileSink, FileSource, Progress};
use dray_types::{ByteSize, Clock, Fault, FaultCode, Sha256Digest};
use indicatif::ProgressBar;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{MAX_SHOWN_CHARACTERS, free_name_in, path_bytes};
use crate::cli::{GlobalOptions, SandboxGet, SandboxPut};
use crate::commands::output_sink::{OutputSink, is_standard_output, is_stream, linked_file};
use crate::commands::reach::absolute_address;
use crate::commands::upload;
use crate::interruption::{self, CleanupHold};
use crate::outcome::{CommandFailure, print_note};
use crate::standard_input::read_standard_input;
use crate::{context, progress};

/// Mode of a file that is put, without the bits that let it be executed.
const FILE_MODE: u32 = 0o644;
/// Number of hexadecimal digits that identify the content of a file.
const CONTENT_DIGITS: usize = 24;
/// Bytes of checked content that are written to a stream together.
const COPY_BUFFER_BYTES: usize = 64 << 10;

/// A file or an archive that was fetched.
pub(super) struct FetchedFile {
    /// Path of the file; `None` for standard output.
    pub(super) output: Option<PathBuf>,
    /// The file's size and digest, and the receipt of the transfer.
    pub(super) received: Received,
}

/// Progress of one transfer as a bar.
struct TransferBar(ProgressBar);

impl Progress for TransferBar {
    fn moved(&self, done: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(done);
    }
}

/// Copies a file, or a directory as one archive, out of a sandbox.
pub(super) async fn get_direct(
    global: &GlobalOptions,
    sandbox: &DirectSandbox,
    path: &Path,
    get: &SandboxGet,
    cancel: &CancellationToken,
) -> Result<FetchedFile, CommandFailure> {
    let bar = TransferBar(progress::byte_progress_bar(Some(0), global.json));
    let copied = fetch_to_target(sandbox, path, get, &bar, cancel).await;
    bar.0.finish_and_clear();
    copied
}

async fn fetch_to_target(
    sandbox: &DirectSandbox,
    path: &Path,
    get: &SandboxGet,
    bar: &TransferBar,
    cancel: &CancellationToken,
) -> Result<FetchedFile, CommandFailure> {
    let path = path_bytes(path);
    let max_bytes = get.size_limit.map_or(0, ByteSize::as_u64);
    let origin = if get.transfer.resume {
        Some(sandbox.origin(&path)?)
    } else {
        None
    };
    let output = get.output.as_deref();
    // The name is requested only where the output does not have one.
    let mut target = DownloadTarget::new(output, origin, || sandbox.file_name(&path))?;
    let copied = sandbox
        .get(&path, max_bytes, &mut target.sink, bar, cancel)
        .await;
    if let Some(reason) = target.sink.restarted() {
        // This is not an error: the earlier part does not belong to this content.
        note_restart(&path, reason);
    }
    let received = match copied {
        // The attempt shows that it is a directory. This saves a request for the common case of a file.
        Err(fault) if fault.detail == "is_directory" => {
            let format = if get.tar { "tar" } else { "zip" };
            target = DownloadTarget::new(output, None, || sandbox.archive_name(&path, format))?;
            let sink = &mut target.sink;
            sandbox
                .get_tree(&path, format, max_bytes, sink, cancel)
                .await?
        }
        copied => copied?,
    };
    let output = target.deliver().await?;
    Ok(FetchedFile { output, received })
}

/// Reports that a part from an earlier command cannot be used.
pub(super) fn note_restart(path: &[u8], reason: &str) {
    print_note(&format!(
        "{}: copied from its beginning, since {reason}",
        name::shown_text(path, MAX_SHOWN_CHARACTERS)
    ));
}

/// Copies a file of this machine, or standard input, into a sandbox.
pub(super) async fn put_direct(
    global: &GlobalOptions,
    config: Config,
    put: &SandboxPut,
) -> Result<v1::PlacedFile, CommandFailure> {
    let operands = put.parse()?;
    let file = operands.files.first().ok_or_else(Fault::internal)?;
    let bar = TransferBar(progress::byte_progress_bar(Some(0), global.json));
    let cancel = CancellationToken::new();
    let sending = async {
        // The file is opened before the sandbox: a missing file needs no connection.
        let (source, executable, content) = file_source(file).await?;
        let sandbox = open_sandbox(global, config, operands.sandbox).await?;
        let own = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        // The name is cleaned, because the file may be named by another program.
        let called = name::clean_name(put.name.clone().or(own).unwrap_or_default());
        let wanted = PutFile {
            directory: &path_bytes(operands.directory),
            name: called.as_bytes(),
            collision: &put.collision,
            mode: FILE_MODE | executable,
            resume: put.transfer.resume.then_some(content.as_str()),
        };
        Ok(sandbox.put(wanted, &source, &bar, &cancel).await?)
    };
    let time = Duration::from_secs(put.transfer.timeout);
    // The future is boxed, because the configuration and the transfer are large, and every outer future would contain
    // them again.
    let placed = run_until(time, &cancel, Box::pin(sending)).await;
    bar.0.finish_and_clear();
    placed
}

/// Opens a sandbox for one command. Dropping it closes the connection.
pub(super) async fn open_sandbox(
    global: &GlobalOptions,
    config: Config,
    sandbox: &str,
) -> Result<DirectSandbox, CommandFailure> {
    let tenant = context::tenant_of(global)?;
    let address = absolute_address(sandbox);
    Ok(DirectSandbox::open(config, Clock::system(), &tenant, &address).await?)
}

/// A file to send, the executable bits of its mode, and a stand-in for its content that stays the same until a process
/// writes to the file.
pub(super) async fn file_source(file: &Path) -> Result<(FileSource, u32, String), CommandFailure> {
    if file == Path::new("-") {
        let spooled = hold_input(read_standard_input()?).await;
        let (spooled, size) =
            spooled.map_err(CommandFailure::local("cannot read standard input"))?;
        return Ok((FileSource::new(spooled, size), 0, String::new()));
    }
    let (opened, size) = upload::open_regular_file(file).await?;
    let opened = opened.into_std().await;
    let failed = CommandFailure::local(format!("cannot read {}", file.display()));
    // The metadata is that of the open file: its path could lead to another one by now.
    let metadata = opened.metadata().map_err(failed)?;
    // The state is device, inode, size and time: reading a large file only to compare it would take as long as sending
    // it.
    let state = format!(
        "{} {} {size} {} {}",
        metadata.dev(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let mut content = Sha256Digest::of(state.as_bytes()).to_hex();
    content.truncate(CONTENT_DIGITS);
    Ok((
        FileSource::new(opened, size),
        metadata.mode() & 0o111,
        content,
    ))
}

/// Copies the input into a file without a name, because a put may have to read it again. Returns it with its length.
async fn hold_input(mut input: impl AsyncRead + Unpin) -> std::io::Result<(std::fs::File, u64)> {
    let mut spool = tokio::fs::File::from_std(tempfile::tempfile()?);
    let size = tokio::io::copy(&mut input, &mut spool).await?;
    spool.flush().await?;
    Ok((spool.into_std().await, size))
}

/// Waits for the work until it ends, until its time is over, or until a signal. In the last two cases partial
/// files are removed before this returns, unless a later command can continue with them.
pub(super) async fn run_until<T>(
    time: Duration,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, CommandFailure>>,
) -> Result<T, CommandFailure> {
    let _hold = CleanupHold::new();
    let mut signals = interruption::listen_to_signals()?;
    let mut work = std::pin::pin!(work);
    let mut failure = tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(time) => {
            Fault::new(FaultCode::Timeout, "The transfer took longer than --timeout allows.")
        }
        _ = signals.next() => Fault::new(FaultCode::Unavailable, "Interrupted."),
    };
    // The work is cancelled and not dropped, so that the work removes its partial files in the sandbox.
    cancel.cancel();
    let ended = tokio::time::timeout(CLEANUP_TIMEOUT, work).await;
    if let Ok(Err(ended)) = ended
        && is_kept(&ended)
    {
        failure = failure.advice(KEPT_ADVICE);
    }
    Err(failure.into())
}

/// Whether a later command can continue from where this failure stopped.
pub(super) fn is_kept(failure: &CommandFailure) -> bool {
    matches!(failure, CommandFailure::Fault(fault) if fault.advice == KEPT_ADVICE)
}

/// How long the removal of partial files may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Destination of the bytes of a get.
struct DownloadTarget {
    sink: FileSink,
    /// The file that is written; `None` for standard output.
    output: Option<PathBuf>,
    /// Buffers the content until it was verified, if the output cannot be undone: standard output, a pipe or a device.
    held: Option<(tempfile::TempDir, PathBuf)>,
}

impl DownloadTarget {
    fn new(
        output: Option<&Path>,
        origin: Option<Vec<u8>>,
        called: impl FnOnce() -> Result<String, Fault>,
    ) -> Result<Self, CommandFailure> {
        // The reader must get the complete content or none of it.
        if let Some(output) = output.filter(|output| is_stream(output)) {
            if origin.is_some() {
                return Err(CommandFailure::Usage(
                    "--resume needs a file to write to".to_owned(),
                ));
            }
            let failed = || CommandFailure::local("cannot create a temporary directory");
            let directory = tempfile::tempdir().map_err(failed())?;
            let file = directory.path().join("content");
            return Ok(Self {
                sink: FileSink::create(&file).map_err(failed())?,
                output: (!is_standard_output(output)).then(|| output.to_path_buf()),
                held: Some((directory, file)),
            });
        }
        let output = match output {
            Some(output) if output.is_dir() => free_name_in(output, called()?.as_bytes()),
            Some(output) => output.to_path_buf(),
            None => free_name_in(Path::new(""), called()?.as_bytes()),
        };
        let failed = || CommandFailure::local(format!("cannot write {}", output.display()));
        let file = linked_file(&output).map_err(failed())?;
        let sink = match origin {
            Some(origin) => FileSink::resumable(file, origin),
            None => FileSink::create(file).map_err(failed())?,
        };
        Ok(Self {
            sink,
            output: Some(output),
            held: None,
        })
    }

    /// Writes checked content to a stream. Content for a file is in its place already.
    async fn deliver(self) -> Result<Option<PathBuf>, CommandFailure> {
        let Some((_directory, file)) = &self.held else {
            return Ok(self.output);
        };
        let output = self.output.as_deref().unwrap_or(Path::new("-"));
        let mut sink = OutputSink::open(output).await?;
        let failed = || CommandFailure::local("cannot read a temporary file");
        let mut file = tokio::fs::File::open(file).await.map_err(failed())?;
        let mut buffer = vec![0; COPY_BUFFER_BYTES];
        while !sink.is_closed() {
            let count = file.read(&mut buffer).await.map_err(failed())?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            sink.write(bytes).await?;
        }
        sink.finish().await?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_device_is_reported_as_full() {
        let target =
            DownloadTarget::new(Some(Path::new("/dev/full")), None, || Ok(String::new())).unwrap();
        let (_directory, held) = target.held.as_ref().unwrap();
        std::fs::write(held, "content").unwrap();
        let failure = target.deliver().await.unwrap_err();
        assert_eq!(failure.to_string(), "cannot write /dev/full");
    }
}
