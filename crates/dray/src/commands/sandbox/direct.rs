//! `dray sandbox get` and `put` without a running system: bytes go straight between the sandbox and files of this
//! machine. Nothing of them passes a bus or a store, and no service is started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_content::name;
use dray_proto::v1;
use dray_sandbox_transfer::Config;
use dray_sandbox_transfer::direct::{DirectSandbox, PutFile, Received};
use dray_sandbox_transfer::files::{FileSink, FileSource, Progress};
use dray_types::{ByteSize, Clock, Fault, FaultCode};
use indicatif::ProgressBar;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{SHOWN, free_name, hex, placed, raw, written};
use crate::cli::{Global, Sandbox};
use crate::commands::reach::absolute;
use crate::commands::upload;
use crate::outcome::{Failure, note};
use crate::{progress, world};

/// Does `get` or `put`.
pub(super) async fn run(global: &Global, config: Config, command: &Sandbox) -> Result<(), Failure> {
    match command {
        Sandbox::Put { .. } => run_put(global, config, command).await,
        _ => run_get(global, config, command).await,
    }
}

/// Copies out of a sandbox.
async fn run_get(global: &Global, config: Config, command: &Sandbox) -> Result<(), Failure> {
    let Sandbox::Get {
        sandbox,
        path,
        output,
        size_limit,
        tar,
        timeout,
    } = command
    else {
        return Ok(());
    };
    let get = Get {
        sandbox,
        path,
        output: output.as_deref(),
        size_limit: *size_limit,
        tar: *tar,
        time: Duration::from_secs(*timeout),
    };
    let Fetched { output, received } = self::get(global, config, &get).await?;
    for skipped in &received.skipped {
        note(&format!("left out: {}", name::shown(skipped, SHOWN)));
    }
    if let Some(output) = output {
        let (size, sha256) = (received.size, hex(&received.sha256));
        written(global, &output, size, &sha256, Some(&received.receipt));
    }
    Ok(())
}

/// Copies into a sandbox.
async fn run_put(global: &Global, config: Config, command: &Sandbox) -> Result<(), Failure> {
    let Sandbox::Put {
        file,
        sandbox,
        directory,
        name: called,
        collision,
        timeout,
    } = command
    else {
        return Ok(());
    };
    let put = Put {
        file,
        sandbox,
        directory,
        name: called.as_deref(),
        collision,
        time: Duration::from_secs(*timeout),
    };
    placed(global, &self::put(global, config, &put).await?);
    Ok(())
}

/// A file that was fetched.
struct Fetched {
    /// Where it is; `None` when it went to standard output.
    output: Option<PathBuf>,
    /// What it is, and how it came.
    received: Received,
}

/// What `get` asks for.
struct Get<'a> {
    sandbox: &'a str,
    path: &'a Path,
    output: Option<&'a Path>,
    size_limit: Option<ByteSize>,
    tar: bool,
    time: Duration,
}

/// What `put` asks for.
struct Put<'a> {
    file: &'a Path,
    sandbox: &'a str,
    directory: &'a Path,
    name: Option<&'a str>,
    collision: &'a str,
    time: Duration,
}

/// Shows progress as a bar.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn moved(&self, done: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(done);
    }
}

/// Copies a file or a directory out of a sandbox.
async fn get(global: &Global, config: Config, get: &Get<'_>) -> Result<Fetched, Failure> {
    let bar = Bar(progress::bytes(Some(0), global.json));
    let cancel = CancellationToken::new();
    let got = until(get.time, &cancel, fetch(global, config, get, &bar, &cancel)).await;
    bar.0.finish_and_clear();
    got
}

async fn fetch(
    global: &Global,
    config: Config,
    get: &Get<'_>,
    bar: &Bar,
    cancel: &CancellationToken,
) -> Result<Fetched, Failure> {
    let sandbox = open(global, config, get.sandbox).await?;
    let path = raw(get.path);
    let most = get.size_limit.map_or(0, ByteSize::as_u64);
    let mut target = Target::new(get.output, || sandbox.file_name(&path))?;
    let got = sandbox
        .get(&path, most, &mut target.sink, bar, cancel)
        .await;
    let received = match got {
        Err(fault) if fault.detail == "is_directory" => {
            let format = if get.tar { "tar" } else { "zip" };
            target = Target::new(get.output, || sandbox.archive_name(&path, format))?;
            let sink = &mut target.sink;
            sandbox.get_tree(&path, format, most, sink, cancel).await?
        }
        got => got?,
    };
    let output = target.deliver().await?;
    Ok(Fetched { output, received })
}

/// Copies a file of this machine, or standard input, into a sandbox.
async fn put(global: &Global, config: Config, put: &Put<'_>) -> Result<v1::PlacedFile, Failure> {
    let bar = Bar(progress::bytes(Some(0), global.json));
    let cancel = CancellationToken::new();
    let sending = async {
        let (source, own) = source(put.file).await?;
        let sandbox = open(global, config, put.sandbox).await?;
        let wanted = PutFile {
            directory: &raw(put.directory),
            name: put.name.unwrap_or(&own),
            collision: put.collision,
        };
        Ok(sandbox.put(wanted, &source, &bar, &cancel).await?)
    };
    let placed = until(put.time, &cancel, sending).await;
    bar.0.finish_and_clear();
    placed
}

async fn open(global: &Global, config: Config, sandbox: &str) -> Result<DirectSandbox, Failure> {
    let tenant = world::tenant(global)?;
    let address = absolute(sandbox);
    Ok(DirectSandbox::open(config, Clock::system(), &tenant, &address).await?)
}

/// A file to send, and its own name.
async fn source(file: &Path) -> Result<(FileSource, String), Failure> {
    if file == Path::new("-") {
        let failed = || Failure::local("cannot read standard input");
        let held = tokio::task::spawn_blocking(hold_input).await;
        let held = held.map_err(std::io::Error::other).and_then(|held| held);
        let (held, size) = held.map_err(failed())?;
        return Ok((FileSource::new(held, size), String::new()));
    }
    let (opened, size) = upload::open(file).await?;
    let own = file.file_name().map(|name| name.to_string_lossy());
    let own = own.unwrap_or_default().into_owned();
    Ok((FileSource::new(opened.into_std().await, size), own))
}

/// Standard input in a file without a name, since a put may have to read it again, and how long it is.
fn hold_input() -> std::io::Result<(std::fs::File, u64)> {
    let mut held = tempfile::tempfile()?;
    let size = std::io::copy(&mut std::io::stdin().lock(), &mut held)?;
    Ok((held, size))
}

/// Waits for the work, but no longer than it may take and not after Ctrl-C. What was half done is removed before this
/// returns.
async fn until<T>(
    time: Duration,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut work = std::pin::pin!(work);
    let failure = tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(time) => {
            Fault::new(FaultCode::Timeout, "The transfer took longer than --timeout allows.")
        }
        _ = tokio::signal::ctrl_c() => Fault::new(FaultCode::Unavailable, "Interrupted."),
    };
    cancel.cancel();
    drop(tokio::time::timeout(CLEANUP_TIMEOUT, work).await);
    Err(failure.into())
}

/// How long the removal of what was half done may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the bytes of a get go.
struct Target {
    sink: FileSink,
    /// `None` for standard output.
    output: Option<PathBuf>,
    /// Where content is until all of it was proved, on its way to what is not a file.
    held: Option<(tempfile::TempDir, PathBuf)>,
}

/// Whether bytes go into what is there instead of into a new file in its place: standard output, a device or a pipe.
fn is_stream(output: &Path) -> bool {
    let there = || std::fs::metadata(output);
    output == Path::new("-") || there().is_ok_and(|there| !there.is_file() && !there.is_dir())
}

impl Target {
    fn new(
        output: Option<&Path>,
        called: impl FnOnce() -> Result<String, Fault>,
    ) -> Result<Self, Failure> {
        if let Some(output) = output.filter(|output| is_stream(output)) {
            let failed = || Failure::local("cannot make a temporary folder");
            let folder = tempfile::tempdir().map_err(failed())?;
            let file = folder.path().join("content");
            return Ok(Self {
                sink: FileSink::create(&file).map_err(failed())?,
                output: (output != Path::new("-")).then(|| output.to_path_buf()),
                held: Some((folder, file)),
            });
        }
        let output = match output {
            Some(output) => output.to_path_buf(),
            None => free_name(&called()?),
        };
        let failed = Failure::local(format!("cannot write {}", output.display()));
        Ok(Self {
            sink: FileSink::create(&output).map_err(failed)?,
            output: Some(output),
            held: None,
        })
    }

    /// Copies what was proved to where it is to go, unless it is there already.
    async fn deliver(self) -> Result<Option<PathBuf>, Failure> {
        let Some((_folder, file)) = &self.held else {
            return Ok(self.output);
        };
        let to = match &self.output {
            Some(output) => output.display().to_string(),
            None => "to standard output".to_owned(),
        };
        let failed = || Failure::local(format!("cannot write {to}"));
        let mut file = tokio::fs::File::open(file).await.map_err(failed())?;
        let mut out: Box<dyn AsyncWrite + Send + Unpin> = match &self.output {
            Some(output) => {
                let open = tokio::fs::OpenOptions::new().write(true).open(output).await;
                Box::new(open.map_err(failed())?)
            }
            None => Box::new(tokio::io::stdout()),
        };
        let copied = tokio::io::copy(&mut file, &mut out).await;
        copied.map_err(failed())?;
        out.flush().await.map_err(failed())?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_to_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "x").unwrap();
        for (output, expected) in [
            (Path::new("-"), true),
            (Path::new("/dev/null"), true),
            (&file, false),
            (&folder.path().join("new"), false),
        ] {
            assert_eq!(is_stream(output), expected, "{}", output.display());
        }
    }

    #[tokio::test]
    async fn a_full_device_is_told_as_what_it_is() {
        let target = Target::new(Some(Path::new("/dev/full")), || Ok(String::new())).unwrap();
        let (_folder, held) = target.held.as_ref().unwrap();
        std::fs::write(held, "content").unwrap();
        let failure = target.deliver().await.unwrap_err();
        assert_eq!(failure.to_string(), "cannot write /dev/full");
    }
}
