//! [`Sandbox`] for the fake: each call is recorded, its fault is applied, and the rest happens in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::backend::{Follow, Read, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandRequest, SandboxCommand};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{
    Entry, FileKind, FileState, Fingerprint, Listing, Metadata, Probe, Transport,
};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_tree::{self as tree, Kind, Limits, Members as _, Owner, Reader, Walk};

use super::streams::{self, scripted};
use super::{Call, Digests, Fake, Fault, cksum, sha256};

#[async_trait]
impl Sandbox for Fake {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        self.call(Call::Probe, None).await?;
        let state = self.state();
        Ok(Probe {
            home: SandboxPath::new("/home/agent")?,
            working_directory: SandboxPath::new("/work")?,
            uid: 1000,
            gid: 1000,
            free: state
                .capacity
                .map(|capacity| capacity.saturating_sub(state.used())),
            transports: state.transports.clone(),
            tools: Vec::new(),
            life_ms: state
                .life
                .map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let fault = self.call(Call::Stat, Some(path)).await?;
        let mut metadata = self.state().stat(path, follow == Follow::Yes)?;
        if let Fault::Size(size) = fault {
            metadata.size = size;
        }
        lose_response(&fault)?;
        Ok(metadata)
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        self.call(Call::List, Some(path)).await?;
        let state = self.state();
        let real = state.resolve(path, true)?;
        if state.node(&real)?.kind != FileKind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "not a directory"));
        }
        let levels = |path: &SandboxPath| {
            let names = path.as_bytes().split(|byte| *byte == b'/');
            names.filter(|name| !name.is_empty()).count()
        };
        let deepest = levels(&real).saturating_add(usize::try_from(depth).unwrap_or(usize::MAX));
        let mut entries: Vec<Entry> = state
            .nodes
            .iter()
            .filter(|(path, _)| path.is_beneath(&real) && **path != real && levels(path) <= deepest)
            .map(|(path, node)| Entry {
                path: path.clone(),
                kind: node.kind,
                size: node.content.len() as u64,
                mode: node.mode,
                mtime_ns: Some(node.mtime_ns),
                link_target: (node.kind == FileKind::Symlink).then(|| node.content.clone()),
            })
            .collect();
        let truncated = entries.len() > limit;
        entries.truncate(limit);
        Ok(Listing { entries, truncated })
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        self.state().transports.clone()
    }

    fn resumes(&self, transport: Transport) -> bool {
        self.state().resuming.contains(&transport)
    }

    fn must_drain(&self, transport: Transport) -> bool {
        self.state().draining.contains(&transport)
    }

    fn parallel(&self) -> usize {
        self.state().parallel
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        let path = &read.file.real_path;
        let fault = self.call(Call::Read, Some(path)).await?;
        let size = {
            let state = self.state();
            let node = state.node(path)?;
            if node.kind != FileKind::File {
                return Err(Error::new(ErrorKind::NotRegular, "not a file"));
            }
            // Some backends check the identity of the opened file in this way.
            if read.file.identity != Some((1, node.inode)) {
                return Err(Error::new(ErrorKind::ChangedDuringTransfer, "another file"));
            }
            node.content.len() as u64
        };
        Ok(streams::read(self, path.clone(), read.offset, size, fault))
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        let path = write.path;
        let fault = self.call(Call::Write, Some(path)).await?;
        {
            let mut state = self.state();
            let real = state.resolve(path, false)?;
            // The caller has to resolve links before it writes; a backend must not follow them.
            if real != *path {
                return Err(Error::new(ErrorKind::Protocol, "the path has links"));
            }
            let existing_size = state.nodes.get(path).map(|node| node.content.len() as u64);
            match (write.offset, existing_size) {
                (0, Some(_)) => return Err(Error::new(ErrorKind::Exists, "there already")),
                (0, None) => {
                    state.insert(path.clone(), FileKind::File, Vec::new());
                    if let Some(node) = state.nodes.get_mut(path) {
                        node.mode = write.mode;
                    }
                }
                (offset, size) if size != Some(offset) => {
                    return Err(Error::new(ErrorKind::Protocol, "a gap in the file"));
                }
                _ => {}
            }
        }
        streams::write(self, path, write.offset, body, &fault).await?;
        lose_response(&fault)
    }

    async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
        let (path, size) = (write.path, write.size);
        self.write(write, body).await?;
        let state = self.state();
        if !state.features.digests_writes {
            return Ok(None);
        }
        let content = &state.node(path)?.content;
        Ok(Some(Fingerprint::Sha256(sha256(content), size)))
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        let fault = self.call(Call::Fingerprint, Some(path)).await?;
        let state = self.state();
        let real = state.resolve(path, true)?;
        let content = &state.node(&real)?.content;
        lose_response(&fault)?;
        let size = content.len() as u64;
        let wrong = fault == Fault::WrongDigest;
        match state.digests {
            Digests::Sha256 if wrong => Ok(Fingerprint::Sha256(sha256(b"wrong"), size)),
            Digests::Sha256 => Ok(Fingerprint::Sha256(sha256(content), size)),
            Digests::Cksum => Ok(Fingerprint::Cksum(cksum(content) ^ u32::from(wrong), size)),
            Digests::Missing => Err(Error::new(ErrorKind::ToolMissing, "no digest program")),
        }
    }

    async fn state(&self, path: &SandboxPath) -> Result<FileState, Error> {
        let fault = self.call(Call::State, Some(path)).await?;
        let state = self.state();
        let Some(settled) = state.settled else {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "no program reports states",
            ));
        };
        let node = state.node(path)?;
        lose_response(&fault)?;
        let modified = i64::try_from(node.mtime_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        let size = match fault {
            Fault::Size(size) => size,
            _ => node.content.len() as u64,
        };
        Ok(FileState {
            kind: node.kind,
            identity: (1, node.inode),
            size,
            modified_ns: node.mtime_ns,
            changed_s: modified,
            // The clock of the sandbox is not used, because `settle` decides which files count as unchanged for a long
            // time.
            now_s: if node.mtime_ns <= settled {
                modified + 10
            } else {
                modified
            },
            text: format!("{} {} {}", node.inode, node.mtime_ns, size),
        })
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        let fault = self.call(Call::Rename, Some(to)).await?;
        let mut state = self.state();
        if !state.features.renames {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "no program renames files",
            ));
        }
        if !state.nodes.contains_key(from) {
            return Err(Error::new(ErrorKind::NotFound, "nothing to rename"));
        }
        match state.nodes.get(to).map(|node| node.kind) {
            Some(_) if !replace => return Err(Error::new(ErrorKind::Exists, "there already")),
            Some(FileKind::Directory) => {
                return Err(Error::new(ErrorKind::IsDirectory, "a directory is there"));
            }
            _ => {}
        }
        if let Some(node) = state.nodes.remove(from) {
            state.nodes.insert(to.clone(), node);
        }
        lose_response(&fault).map(|()| true)
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let fault = self.call(Call::MakeDirectory, Some(path)).await?;
        let mut state = self.state();
        let mut missing = vec![path.clone()];
        while let Some(parent) = missing.last().map(SandboxPath::parent)
            && !state.nodes.contains_key(&parent)
        {
            missing.push(parent);
        }
        for directory in missing.into_iter().rev() {
            match state.nodes.get(&directory).map(|node| node.kind) {
                None => state.insert(directory, FileKind::Directory, Vec::new()),
                Some(FileKind::Directory) => {}
                Some(_) => return Err(Error::new(ErrorKind::NotDirectory, "a file is there")),
            }
        }
        lose_response(&fault)
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        let fault = self.call(Call::Remove, Some(path)).await?;
        let mut state = self.state();
        let kind = state.node(path)?.kind;
        let has_entries = state
            .nodes
            .keys()
            .any(|entry| entry.is_beneath(path) && entry != path);
        if kind == FileKind::Directory && !recursive && has_entries {
            return Err(Error::new(ErrorKind::IsDirectory, "not empty"));
        }
        state.nodes.retain(|entry, _| !entry.is_beneath(path));
        lose_response(&fault)
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        let fault = self.call(Call::ReadTree, Some(path)).await?;
        if !self.state().features.tars {
            return Err(Error::new(ErrorKind::ToolMissing, "no tar"));
        }
        let walk = Walk::open(Arc::new(self.clone()), path.clone(), Limits::default()).await?;
        let tar = tree::tar(walk, Owner::default());
        Ok((streams::faulty(self, tar, fault), Transport::ExecRaw))
    }

    async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        let fault = self.call(Call::WriteTree, Some(path)).await?;
        if !self.state().features.tars {
            return Err(Error::new(ErrorKind::ToolMissing, "no tar"));
        }
        let mut members = Reader::new(streams::faulty(self, tar, fault.clone()), Limits::default());
        while let Some(member) = members.next().await? {
            let member_path = [path.as_bytes(), b"/", member.name.as_slice()].concat();
            let member_path = SandboxPath::new(member_path)?;
            let mut content = Vec::new();
            while let Some(chunk) = members.next_chunk().await? {
                content.extend_from_slice(&chunk);
            }
            let kind = match member.kind {
                Kind::File => FileKind::File,
                Kind::Directory => FileKind::Directory,
            };
            self.state().insert(member_path, kind, content);
        }
        lose_response(&fault).map(|()| Transport::ExecRaw)
    }

    async fn execute(&self, _request: CommandRequest) -> Result<SandboxCommand, Error> {
        let programs = self.state().programs.clone();
        let none = || Error::new(ErrorKind::ToolMissing, "no program was scripted");
        Ok(programs.ok_or_else(none)?.execute().await)
    }

    async fn settled(&self) {
        let programs = self.state().programs.clone();
        if let Some(programs) = programs {
            programs.settled().await;
        }
    }

    async fn ensure_lifetime(&self, needed: Duration) -> Result<(), Error> {
        self.call(Call::EnsureLifetime, None).await?;
        match self.state().life {
            Some(life) if life < needed => Err(Error::new(ErrorKind::SandboxGone, "ends soon")),
            _ => Ok(()),
        }
    }
}

impl Fake {
    /// Records a call and removes its next fault. Faults that fail or hang take effect here.
    async fn call(&self, call: Call, path: Option<&SandboxPath>) -> Result<Fault, Error> {
        let fault = {
            let mut state = self.state();
            state.calls.push((call, path.cloned()));
            if state.dead {
                return Err(Error::new(ErrorKind::SandboxGone, "scripted death"));
            }
            let fault = state
                .faults
                .get_mut(&call)
                .and_then(std::collections::VecDeque::pop_front);
            if let (Some(Fault::Before(change)), Some(path)) = (&fault, path) {
                // Changes apply to the target: a test that scripts one means the file and not a link to it.
                let path = state.resolve(path, true).unwrap_or_else(|_| path.clone());
                state.change(&path, change);
                if state.dead {
                    return Err(Error::new(ErrorKind::SandboxGone, "scripted death"));
                }
            }
            fault.unwrap_or(Fault::None)
        };
        // The lock is released, so that other tasks can run before the call takes effect.
        tokio::task::yield_now().await;
        match fault {
            Fault::Fail(kind) => Err(scripted(kind)),
            Fault::Later(delay) => Err(scripted(ErrorKind::RateLimited).with_retry_after(delay)),
            Fault::Hang => std::future::pending().await,
            fault => Ok(fault),
        }
    }
}

/// Fails with the scripted error if the response of a call is lost after the call took effect.
fn lose_response(fault: &Fault) -> Result<(), Error> {
    match fault {
        Fault::Lost(kind) => Err(scripted(*kind)),
        _ => Ok(()),
    }
}
