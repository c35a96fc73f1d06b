//! Reads files: in one run where the channel streams, in ranges where its output is limited (sandbox-transfer 11.4,
//!

use std::sync::Arc;

use bytes::Bytes;
use dray_sandbox::backend::{Read, ReadDigest};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Fingerprint, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use futures_util::stream;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::channel::Exec;
use super::files::{ExecFiles, yes_or_no};
use super::persistent_shell::PersistentShell;
use super::reply::Nonce;
use super::stream::{Stream, StreamEvent, StreamTrailer};

const READ_SCRIPT: &str = concat!(
    include_str!("script/sha256.sh"),
    include_str!("script/read.sh")
);
/// Largest file whose digest is computed with the copy. If the digest takes longer than the copy, the stream is silent
/// until the digest is complete.
const MAX_DIGESTED_BYTES: u64 = 1 << 30;
/// Longest output of one range in bytes, even where the channel would take more. It holds 4 MiB of a file as base64.
const MAX_RANGE_BYTES: usize = 6 << 20;
/// Output that is not content: marks, and the messages of shells around them.
const MARK_BYTES: usize = 2048;

fn changed_error(reason: &str) -> Error {
    Error::new(ErrorKind::ChangedDuringTransfer, reason)
}

/// One run of the script, for the file or a range of it.
struct ReadRun {
    stream: Stream,
    /// Bytes of the file from the offset where the run began.
    remaining: u64,
    received: u64,
    digest: Option<Sha256>,
}

/// A file that is being read.
struct ScriptRead<E> {
    exec: Arc<E>,
    persistent_shell: Option<Arc<PersistentShell>>,
    /// Receives the digest that the command computes beside the copy.
    digest: Option<oneshot::Sender<Fingerprint>>,
    text: bool,
    path: SandboxPath,
    size: u64,
    identity: Option<(u64, u64)>,
    position: u64,
    /// The facts of the first run; every later run must find the same.
    facts: Option<String>,
    run: Option<ReadRun>,
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::read`]. Takes [`Transport::ExecRaw`] and [`Transport::ExecBase64`].
    pub async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        self.start_read(read, None).await
    }

    /// See [`dray_sandbox::Sandbox::reads_with_digest`]: whole files of up to 1 GiB that come through a persistent
    /// shell.
    pub fn reads_with_digest(&self, read: &Read<'_>) -> bool {
        read.transport == Transport::ExecRaw
            && read.offset == 0
            && read.file.size <= MAX_DIGESTED_BYTES
            && self.lendable_shell().is_some()
    }

    /// See [`dray_sandbox::Sandbox::read_with_digest`].
    pub async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        let (digest, receiver) = oneshot::channel();
        let wanted = self.reads_with_digest(&read).then_some(digest);
        Ok((self.start_read(read, wanted).await?, receiver))
    }

    async fn start_read(
        &self,
        read: Read<'_>,
        digest: Option<oneshot::Sender<Fingerprint>>,
    ) -> Result<Body, Error> {
        let text = is_text(read.transport)?;
        if !text && !self.exec.channel().binary_output {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the channel does not carry raw bytes",
            ));
        }
        let mut reading = ScriptRead {
            exec: Arc::clone(&self.exec),
            persistent_shell: self.lendable_shell().filter(|_| !text).cloned(),
            digest,
            text,
            path: read.file.real_path.clone(),
            size: read.file.size,
            identity: read.file.identity,
            position: read.offset,
            facts: None,
            run: None,
        };
        reading.run = Some(reading.open().await?);
        Ok(Body::new(stream::try_unfold(
            Some(reading),
            |reading| async {
                match reading {
                    Some(reading) => reading.step().await,
                    None => Ok(None),
                }
            },
        )))
    }
}

impl<E: Exec> ScriptRead<E> {
    async fn open(&mut self) -> Result<ReadRun, Error> {
        let remaining = self
            .size
            .checked_sub(self.position)
            .ok_or_else(|| changed_error("it is shorter than where to begin"))?;
        // One byte more than allowed: a file that grew is noticed.
        let max_bytes = remaining + 1;
        let longest = self.exec.channel().longest_output;
        let room = longest.map_or(0, |longest| {
            longest
                .saturating_sub(MARK_BYTES)
                .clamp(256, MAX_RANGE_BYTES)
        });
        let arguments: [&[u8]; 6] = [
            self.path.as_bytes(),
            &self.position.to_string().into_bytes(),
            &max_bytes.to_string().into_bytes(),
            &room.to_string().into_bytes(),
            yes_or_no(self.text),
            yes_or_no(self.digest.is_some()),
        ];
        let exec = self.exec.as_ref();
        let stream = match &self.persistent_shell {
            Some(persistent_shell) => {
                let nonce = Nonce::new();
                let running = persistent_shell
                    .run(exec, READ_SCRIPT, &nonce, &arguments)
                    .await?;
                Stream::of(nonce, running).await?
            }
            None => Stream::open(exec, READ_SCRIPT, self.text, &arguments).await?,
        };
        if stream.announced == 0 || stream.announced > max_bytes {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the response has another length than requested",
            ));
        }
        self.check_facts(&stream.facts)?;
        Ok(ReadRun {
            stream,
            remaining,
            received: 0,
            // Where output is limited, each range comes with a separate digest (sandbox-transfer 11.4).
            digest: longest.map(|_| Sha256::new()),
        })
    }

    /// Checks that the opened file is the one that the caller checked, and the same in every run.
    fn check_facts(&mut self, facts: &str) -> Result<(), Error> {
        match &self.facts {
            Some(first) if first != facts => {
                return Err(changed_error("it changed between two ranges"));
            }
            Some(_) => return Ok(()),
            None => self.facts = Some(facts.to_owned()),
        }
        // The sandbox has no `stat`: size and digest are compared, but not the identity.
        if facts == "-" {
            return Ok(());
        }
        let mut words = facts.split(' ');
        let size = words.next().and_then(|size| size.parse().ok());
        if size != Some(self.size) {
            return Err(changed_error("it has another size than just before"));
        }
        let opened = words.next().and_then(|word| {
            let (device, inode) = word.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        match (self.identity, opened) {
            (Some(checked), Some(opened)) if checked != opened => {
                Err(changed_error("another file is there now"))
            }
            _ => Ok(()),
        }
    }

    async fn step(mut self) -> Result<Option<(Bytes, Option<Self>)>, Error> {
        loop {
            let mut run = match self.run.take() {
                Some(run) => run,
                None => self.open().await?,
            };
            match run.stream.next().await? {
                StreamEvent::Bytes(bytes) => {
                    run.received += bytes.len() as u64;
                    if run.received > run.stream.announced {
                        return Err(Error::new(ErrorKind::Corrupted, "more than was announced"));
                    }
                    if let Some(digest) = &mut run.digest {
                        digest.update(&bytes);
                    }
                    // The extra byte counts as received and is not passed on.
                    let room = usize::try_from(self.size - self.position).unwrap_or(usize::MAX);
                    let bytes = bytes.slice(..room.min(bytes.len()));
                    self.position += bytes.len() as u64;
                    self.run = Some(run);
                    if !bytes.is_empty() {
                        return Ok(Some((bytes, Some(self))));
                    }
                }
                StreamEvent::End(trailer) => {
                    // Only the last run requests the extra byte.
                    let last = run.stream.announced > run.remaining;
                    let sha256 = trailer.digest.as_deref().map(str::parse);
                    check_run(run, trailer)?;
                    if let (Some(sender), Some(Ok(sha256))) = (self.digest.take(), sha256) {
                        // The receiver may be gone; the copy does not depend on it.
                        let _ = sender.send(Fingerprint::Sha256(sha256, self.size));
                    }
                    if last {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

/// Checks that a run delivered everything.
fn check_run(run: ReadRun, trailer: StreamTrailer) -> Result<(), Error> {
    if trailer.facts != run.stream.facts {
        return Err(changed_error("it changed while it was read"));
    }
    if run.received > run.remaining {
        // The file did not change according to its facts, but it has more bytes than its size.
        return Err(Error::new(
            ErrorKind::NotRegular,
            "it has more bytes than its size",
        ));
    }
    let expected = run.stream.announced.min(run.remaining);
    if run.received < expected {
        let short = format!("{} of {expected} bytes arrived", run.received);
        return Err(match trailer.failure {
            Some(failure) => failure,
            None => Error::new(ErrorKind::Truncated, short),
        });
    }
    if let (Some(computed), Some(reported)) = (run.digest, trailer.digest) {
        let computed = Sha256Digest::from_bytes(computed.finalize().into()).to_hex();
        if computed != reported {
            return Err(Error::new(ErrorKind::Corrupted, "a range arrived damaged"));
        }
    }
    Ok(())
}

/// Whether a transport carries text; an error for transports of other kinds.
pub(super) fn is_text(transport: Transport) -> Result<bool, Error> {
    match transport {
        Transport::ExecRaw => Ok(false),
        Transport::ExecBase64 => Ok(true),
        _ => Err(Error::new(
            ErrorKind::ToolMissing,
            "not a transport over commands",
        )),
    }
}
