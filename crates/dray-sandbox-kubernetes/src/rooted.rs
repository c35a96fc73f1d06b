//! Files of a container, seen from another one beside it, where its root is `/proc/1/root` (sandbox-transfer R-9).
//!
//! A command in the helper would resolve the container's links from the helper's own root, so no command follows a
//! link. Instead, this module examines every component of a path separately, and resolves links with the container's
//! root as the top. A link that another process creates afterwards leads into the helper, which holds no data.

use async_trait::async_trait;
use dray_sandbox::{
    Body, Entry, Error, ErrorKind, FileKind, Fingerprint, Follow, Handle, Listing, Metadata,
    PathWalk, Probe, Read, Sandbox, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::{Channel, Exec, ExecFiles, RunningCommand};

/// The root of the target container's first process, as the helper sees it.
pub(crate) const PROCESS_ROOT: &str = "/proc/1/root";

/// Commands get resolved paths. `readlink -f` would also resolve `/proc/1/root`, which is a link, so this function
/// replaces it.
const RESOLVED_PRELUDE: &str = r#"readlink() { case $1 in -f) printf '%s\n' "$2" ;; *) command readlink "$@" ;; esac; }
"#;

/// Runs scripts that take paths without resolving them.
#[derive(Debug)]
struct LiteralPaths<E>(E);

#[async_trait]
impl<E: Exec> Exec for LiteralPaths<E> {
    fn channel(&self) -> Channel {
        let channel = self.0.channel();
        Channel {
            longest_arguments: channel
                .longest_arguments
                .saturating_sub(RESOLVED_PRELUDE.len()),
            ..channel
        }
    }

    async fn run(
        &self,
        mut argv: Vec<Vec<u8>>,
        stdin: Option<Body>,
    ) -> Result<RunningCommand, Error> {
        if let [shell, flag, script, ..] = argv.as_mut_slice()
            && shell == b"sh"
            && flag == b"-c"
        {
            // The function precedes the script, so that the script's own calls use it.
            script.splice(..0, RESOLVED_PRELUDE.bytes());
        }
        self.0.run(argv, stdin).await
    }
}

/// A container without a shell, reached through its helper.
#[derive(Debug)]
pub(crate) struct RootedSandbox<E> {
    handle: Handle,
    files: ExecFiles<LiteralPaths<E>>,
    /// Root of the container, as commands see it.
    root: SandboxPath,
}

impl<E: Exec + 'static> RootedSandbox<E> {
    /// Makes a sandbox of the incarnation. `exec` runs commands that see the root of the container at `root`.
    pub(crate) fn new(handle: Handle, exec: E, root: SandboxPath) -> Self {
        Self {
            handle,
            files: ExecFiles::new(LiteralPaths(exec)),
            root,
        }
    }

    /// A path of the container, as commands see it.
    fn outside(&self, path: &SandboxPath) -> Result<SandboxPath, Error> {
        SandboxPath::new([self.root.as_bytes(), path.as_bytes()].concat())
    }

    /// Metadata of a path, without following a link in it.
    async fn stat_path(&self, path: &SandboxPath) -> Result<Metadata, Error> {
        self.files.stat(&self.outside(path)?, Follow::No).await
    }

    /// Resolves the links of a path, one in its last part only on request. The last parts may be missing.
    async fn walk(&self, path: &SandboxPath, follow: Follow) -> Result<RootedPath, Error> {
        let mut walk = PathWalk::new(path);
        while let Some(next) = walk.next_path()? {
            let found = match self.stat_path(&next).await {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // Beneath a missing directory, `..` leads nowhere either.
                    let mut rest = walk.pending().skip(1);
                    return match rest.try_fold(next, |path, part| path.join(part)) {
                        Ok(path) => Ok(RootedPath {
                            path,
                            missing: Some(error),
                        }),
                        Err(_) => Err(error),
                    };
                }
                Err(error) => return Err(error),
            };
            let is_followed = follow == Follow::Yes || !walk.is_at_last_part();
            if found.kind == FileKind::Symlink && is_followed {
                walk.follow(&found.link_target.unwrap_or_default())?;
            } else {
                walk.enter(next, found.kind)?;
            }
        }
        Ok(RootedPath {
            path: walk.resolved().clone(),
            missing: None,
        })
    }

    /// A path that must exist, with links resolved, as commands see it.
    async fn existing(&self, path: &SandboxPath) -> Result<SandboxPath, Error> {
        let found = self.walk(path, Follow::Yes).await?;
        match found.missing {
            Some(error) => Err(error),
            None => self.outside(&found.path),
        }
    }

    /// A name in its resolved directory, as commands see it. The name itself is not followed.
    async fn entry(&self, path: &SandboxPath) -> Result<SandboxPath, Error> {
        if path.name().is_empty() {
            return self.outside(path);
        }
        self.existing(&path.parent()).await?.join(path.name())
    }
}

/// The result of resolving a path.
struct RootedPath {
    path: SandboxPath,
    /// The error of the first missing part.
    missing: Option<Error>,
}

#[async_trait]
impl<E: Exec + 'static> Sandbox for RootedSandbox<E> {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let probe = self.files.probe().await?;
        // Home and free space would be those of the helper.
        Ok(Probe {
            home: SandboxPath::root(),
            working_directory: SandboxPath::root(),
            free: None,
            ..probe
        })
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let found = self.walk(path, follow).await?;
        if let Some(error) = found.missing {
            return Err(error);
        }
        let metadata = self.stat_path(&found.path).await?;
        let real_path = if metadata.kind == FileKind::Symlink {
            if follow == Follow::Yes {
                let replaced = "a link was put in place meanwhile";
                return Err(Error::new(ErrorKind::ChangedDuringTransfer, replaced));
            }
            path.clone()
        } else {
            found.path
        };
        Ok(Metadata {
            path: path.clone(),
            real_path,
            ..metadata
        })
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        let real = self.existing(path).await?;
        let listing = self.files.list(&real, depth, limit).await?;
        let entries = listing.entries.into_iter().map(|entry| {
            // Entries have the helper's view of the path; the caller knows the container's.
            let rest = entry.path.as_bytes().strip_prefix(real.as_bytes());
            let rest = rest.ok_or_else(|| Error::new(ErrorKind::Protocol, "another directory"))?;
            let path = SandboxPath::new([path.as_bytes(), rest].concat())?;
            Ok(Entry { path, ..entry })
        });
        Ok(Listing {
            entries: entries.collect::<Result<_, Error>>()?,
            truncated: listing.truncated,
        })
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        self.files.transports()
    }

    fn resumes(&self, transport: Transport) -> bool {
        self.files.resumes(transport)
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        let file = Metadata {
            real_path: self.outside(&read.file.real_path)?,
            ..read.file.clone()
        };
        self.files
            .read(Read {
                file: &file,
                ..read
            })
            .await
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        let path = self.entry(write.path).await?;
        self.files
            .write(
                Write {
                    path: &path,
                    ..write
                },
                body,
            )
            .await
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        let path = self.existing(path).await?;
        self.files.fingerprint(&path).await
    }

    async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        let path = self.existing(path).await?;
        self.files.change_marker(&path).await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        let from = self.entry(from).await?;
        let to = self.entry(to).await?;
        self.files.rename(&from, &to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let found = self.walk(path, Follow::Yes).await?;
        self.files.make_directory(&self.outside(&found.path)?).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        let path = self.entry(path).await?;
        self.files.remove(&path, recursive).await
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        let path = self.existing(path).await?;
        self.files.read_tree(&path).await
    }

    async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        let path = self.existing(path).await?;
        self.files.write_tree(&path, tar).await
    }
}

#[cfg(test)]
mod tests;
