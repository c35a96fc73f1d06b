//! File operations of a sandbox that need only POSIX scripts.

use std::sync::Arc;

use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, FileState, Fingerprint, Metadata, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use super::channel::{Channel, Exec};
use super::list::LIST_SCRIPT;
use super::metadata::{PathFacts, is_pseudo, keeps_times, state_of};
use super::persistent_shell::{PersistentShell, RetrySafety};
use super::reply::{MAX_RESPONSE_BYTES, Nonce, Reply, command, one_line};
use super::supervisor::Supervisor;

const STAT_SCRIPT: &str = include_str!("script/stat.sh");
const STATE_SCRIPT: &str = include_str!("script/state.sh");
const RENAME_SCRIPT: &str = include_str!("script/rename.sh");
const DIGEST_SCRIPT: &str = concat!(
    include_str!("script/sha256.sh"),
    include_str!("script/digest.sh")
);

/// Bytes of the paths that one script gets. Together with the script they fit into the arguments of every channel; the
/// lowest limit is that of Kubernetes, 19 KiB.
const MAX_PATH_ARGUMENT_BYTES: usize = 8 << 10;

/// Files over [`Exec`]. A backend that can run commands delegates to this type the operations that its API does not
/// offer. Every method keeps the contract of the method of [`dray_sandbox::Sandbox`] with the same name. A value
/// belongs to one incarnation: it remembers which programs the sandbox has.
#[derive(Debug)]
pub struct ExecFiles<E> {
    pub(super) exec: Arc<E>,
    pub(super) tools: Arc<OnceCell<Vec<String>>>,
    /// A shell that stays open, where starting commands is slow.
    persistent_shell: Option<Arc<PersistentShell>>,
    /// Whether long output comes through that shell too.
    lends_shell: bool,
    /// Ends the programs of [`Self::execute`] whose caller has disconnected.
    pub(super) supervisor: Supervisor,
}

impl<E> Clone for ExecFiles<E> {
    fn clone(&self) -> Self {
        Self {
            exec: Arc::clone(&self.exec),
            tools: Arc::clone(&self.tools),
            persistent_shell: self.persistent_shell.clone(),
            lends_shell: self.lends_shell,
            supervisor: self.supervisor.clone(),
        }
    }
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// Makes files over this channel.
    pub fn new(exec: E) -> Self {
        Self {
            exec: Arc::new(exec),
            tools: Arc::new(OnceCell::new()),
            persistent_shell: None,
            lends_shell: false,
            supervisor: Supervisor::new(TaskTracker::new()),
        }
    }

    /// Keeps one shell for all requests. This suits channels on which starting a command is slow and bytes pass in both
    /// directions; other channels may hold back the output of a shell until it ends. The shell ends after 20 s without
    /// a request, or when the last clone of this value is dropped.
    #[must_use]
    pub fn with_persistent_shell(self) -> Self {
        Self {
            lends_shell: true,
            ..self.with_request_shell()
        }
    }

    /// Like [`Self::with_persistent_shell`], but only for requests with short responses. Content is read and written by
    /// separate commands, whose ends the channel reports.
    #[must_use]
    pub fn with_request_shell(self) -> Self {
        Self {
            persistent_shell: Some(Arc::new(PersistentShell::new())),
            ..self
        }
    }

    /// Ends the shell that waits for its next request, if there is one, to make room on the channel. The next request
    /// starts another.
    pub async fn release_shell(&self) {
        if let Some(persistent_shell) = &self.persistent_shell {
            persistent_shell.release().await;
        }
    }

    /// The channel that runs the commands.
    pub fn exec(&self) -> &E {
        &self.exec
    }

    /// The transports that the channel allows, best first: [`Transport::ExecRaw`] where bytes pass unchanged in at
    /// least one direction (the other one is then [`ErrorKind::ToolMissing`]), [`Transport::ExecBase64`] always.
    pub fn transports(&self) -> Vec<Transport> {
        let channel = self.exec.channel();
        if channel.binary_output || (channel.input && channel.binary_input) {
            vec![Transport::ExecRaw, Transport::ExecBase64]
        } else {
            vec![Transport::ExecBase64]
        }
    }

    /// Whether this transport can begin at an offset: both of these can (sandbox-transfer R-10).
    pub fn resumes(&self, transport: Transport) -> bool {
        self.transports().contains(&transport)
    }

    /// The persistent shell, if it can carry the long output of a script.
    pub(super) fn lendable_shell(&self) -> Option<&Arc<PersistentShell>> {
        let channel = self.exec.channel();
        let streams =
            self.lends_shell && carries_requests(channel) && channel.longest_output.is_none();
        self.persistent_shell.as_ref().filter(|_| streams)
    }

    /// Runs a script and reads its whole response, of at most [`MAX_RESPONSE_BYTES`] bytes.
    pub(super) async fn run_script(
        &self,
        script: &'static str,
        arguments: &[&[u8]],
        stdin: Option<Body>,
    ) -> Result<Reply, Error> {
        let reply = self.run_script_up_to(MAX_RESPONSE_BYTES, script, arguments, stdin);
        let reply = reply.await?;
        if reply.cut {
            return Err(Error::new(ErrorKind::Protocol, "a response without an end"));
        }
        Ok(reply)
    }

    /// Runs a script and reads at most `limit` bytes of its response.
    pub(super) async fn run_script_up_to(
        &self,
        limit: usize,
        script: &'static str,
        arguments: &[&[u8]],
        stdin: Option<Body>,
    ) -> Result<Reply, Error> {
        let exec = self.exec.as_ref();
        match (&self.persistent_shell, stdin) {
            // The shell itself would read the input; only `run_script_with_input` passes it on to a script.
            (Some(persistent_shell), None) if carries_requests(exec.channel()) => {
                let repeat = repeat(script);
                persistent_shell
                    .run_script(exec, script, arguments, limit, repeat)
                    .await
            }
            (_, stdin) => Reply::of_script(exec, script, arguments, stdin, limit).await,
        }
    }

    /// See [`dray_sandbox::Sandbox::stat`]. Regular files of `/proc` and similar file systems are [`FileKind::Other`].
    pub async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let word: &[u8] = match follow {
            Follow::Yes => b"yes",
            Follow::No => b"no",
        };
        let reply = self
            .run_script(STAT_SCRIPT, &[word, path.as_bytes()], None)
            .await?;
        // The script falls back to `ls` where `stat` takes no format (sandbox-transfer 11.2).
        let tool = match reply.get("ls") {
            Some(_) => "ls",
            None => "stat",
        };
        reply.check(tool)?;
        let text = reply.text(tool);
        let facts = match tool {
            "ls" => PathFacts::of_ls(&text),
            _ => PathFacts::of_stat(&text),
        };
        let facts = facts.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, format!("malformed metadata: {text}"))
        })?;
        to_metadata(path, follow, &facts, &reply)
    }

    /// See [`dray_sandbox::Sandbox::state`]. Only for file systems that this kernel writes itself: a file that another
    /// machine or a program serves may change while its times stay.
    pub async fn state(&self, path: &SandboxPath) -> Result<FileState, Error> {
        let reply = self
            .run_script(STATE_SCRIPT, &[path.as_bytes()], None)
            .await?;
        reply.check("state")?;
        if !keeps_times(&reply.text("fs")) {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "times do not show every change on this file system",
            ));
        }
        let now = reply.number("now").and_then(|now| i64::try_from(now).ok());
        state_of(&reply.text("state"), now).ok_or_else(|| {
            Error::new(
                ErrorKind::ToolMissing,
                "the sandbox cannot report the state of a file",
            )
        })
    }

    /// See [`dray_sandbox::Sandbox::change_marker`]; `None` also where [`Self::state`] is not available.
    pub async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        FileState::change_marker(self.state(path).await)
    }

    /// See [`dray_sandbox::Sandbox::fingerprint`]; the script uses the best digest program that it finds.
    pub async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        fingerprint_of(
            &self
                .run_script(DIGEST_SCRIPT, &[path.as_bytes()], None)
                .await?,
        )
    }

    /// Starts to compute a fingerprint and returns once the command runs, so that an operation which would delay its
    /// start can follow. The future returns the result of [`Self::fingerprint`]; dropping it ends the command.
    ///
    /// # Errors
    ///
    /// The failure to start a command.
    pub async fn start_fingerprint(
        &self,
        path: &SandboxPath,
    ) -> Result<BoxFuture<'static, Result<Fingerprint, Error>>, Error> {
        let (exec, nonce) = (self.exec.as_ref(), Nonce::new());
        let arguments = [path.as_bytes()];
        let running = if let Some(persistent_shell) = self.lendable_shell() {
            persistent_shell
                .run(exec, DIGEST_SCRIPT, &nonce, &arguments)
                .await?
        } else {
            let text = !exec.channel().binary_output;
            let argv = command(DIGEST_SCRIPT, &nonce, text, &arguments);
            exec.run(argv, None).await?
        };
        Ok(async move {
            let reply = Reply::collect(running, &nonce, MAX_RESPONSE_BYTES).await?;
            fingerprint_of(&reply)
        }
        .boxed())
    }

    /// See [`dray_sandbox::Sandbox::rename`]. Without `replace` a hard link claims the name. Where hard links are not
    /// supported, an empty file claims it and is replaced immediately; readers may see the empty file, so that is not
    /// atomic.
    pub async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        let arguments = [from.as_bytes(), to.as_bytes(), yes_or_no(replace)];
        let reply = self.run_script(RENAME_SCRIPT, &arguments, None).await?;
        reply.check("text")?;
        Ok(reply.text("atomic") == "yes")
    }

    /// See [`dray_sandbox::Sandbox::make_directory`]. Missing parents are made with it.
    pub async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.make_directories(std::slice::from_ref(path)).await
    }

    /// See [`dray_sandbox::Sandbox::make_directories`].
    pub async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        let script = include_str!("script/directory.sh");
        let mut rest = paths;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|path| {
                bytes += path.as_bytes().len();
                bytes <= MAX_PATH_ARGUMENT_BYTES
            });
            // A batch has at least one path, because every path fits by itself.
            let (batch, next) = rest.split_at(fitting.count().clamp(1, rest.len()));
            let arguments: Vec<_> = batch.iter().map(SandboxPath::as_bytes).collect();
            let reply = self.run_script(script, &arguments, None).await?;
            reply.check("text")?;
            rest = next;
        }
        Ok(())
    }

    /// See [`dray_sandbox::Sandbox::remove`]. The root is refused before a script runs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for the root.
    pub async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        if *path == SandboxPath::root() {
            return Err(Error::new(
                ErrorKind::InvalidName,
                "the root is never removed",
            ));
        }
        let script = include_str!("script/remove.sh");
        let arguments = [path.as_bytes(), yes_or_no(recursive)];
        let reply = self.run_script(script, &arguments, None).await?;
        reply.check("text")
    }
}

/// Returns whether a script may run again when its response was lost. Only a rename has another effect the second time.
fn repeat(script: &'static str) -> RetrySafety {
    match script {
        RENAME_SCRIPT => RetrySafety::Never,
        STAT_SCRIPT | STATE_SCRIPT | DIGEST_SCRIPT | LIST_SCRIPT => RetrySafety::Harmless,
        _ => RetrySafety::Idempotent,
    }
}

/// Whether a shell on this channel can read requests and write responses.
const fn carries_requests(channel: Channel) -> bool {
    channel.input && channel.binary_input && channel.binary_output
}

pub(super) fn yes_or_no(yes: bool) -> &'static [u8] {
    if yes { b"yes" } else { b"no" }
}

fn fingerprint_of(reply: &Reply) -> Result<Fingerprint, Error> {
    let invalid = || Error::new(ErrorKind::Protocol, "not a digest");
    if reply.get("cksum").is_some() {
        reply.check("cksum")?;
        let text = reply.text("cksum");
        let mut words = text.split_whitespace();
        let sum = words.next().and_then(|sum| sum.parse().ok());
        let size = words.next().and_then(|size| size.parse().ok());
        let (sum, size) = sum.zip(size).ok_or_else(invalid)?;
        return Ok(Fingerprint::Cksum(sum, size));
    }
    reply.check("sha256")?;
    let text = reply.text("sha256");
    let digest: Sha256Digest = text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()
        .map_err(|error| invalid().caused_by(error))?;
    let size = reply.number("size").ok_or_else(invalid)?;
    Ok(Fingerprint::Sha256(digest, size))
}

fn to_metadata(
    path: &SandboxPath,
    follow: Follow,
    facts: &PathFacts,
    reply: &Reply,
) -> Result<Metadata, Error> {
    let link = follow == Follow::No && facts.kind() == FileKind::Symlink;
    let real_path = if link {
        path.clone()
    } else {
        // A failed tool leaves its message in `real`, so only the status shows that links were resolved.
        if reply.number("resolved") != Some(0) {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the sandbox has no program that resolves links",
            ));
        }
        SandboxPath::new(reply.line("real").unwrap_or_default())?
    };
    // Pseudo files report a size of zero and still have content (sandbox-transfer 1.4, rule 2).
    let kind = match facts.kind() {
        FileKind::File if is_pseudo(&reply.text("fs")) => FileKind::Other,
        kind => kind,
    };
    Ok(Metadata {
        path: path.clone(),
        real_path,
        kind,
        size: facts.size,
        mode: facts.mode(),
        uid: facts.uid,
        gid: facts.gid,
        mtime_ns: facts.mtime_ns,
        link_target: link
            .then(|| reply.get("target").map(|target| one_line(target).to_vec()))
            .flatten(),
        links: facts.links,
        identity: facts.identity,
    })
}
