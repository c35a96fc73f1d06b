//! The identity of one incarnation (sandbox-transfer R-1): the key that the host proved to have, and the session
//! directory.

use dray_sandbox::{Error, ErrorKind, Probe, SandboxPath};
use dray_sandbox_exec::ExecFiles;
use tracing::debug;

use crate::link::HostLink;
use crate::sftp::{self, Pool};
use crate::shell::Shell;

/// The result of examining a host.
#[derive(Clone, Debug)]
pub(crate) struct HostLookup {
    /// Fingerprint and session directory as one word.
    pub(crate) incarnation: String,
    /// Session directory, without links.
    pub(crate) directory: SandboxPath,
    /// Whether commands can be run.
    pub(crate) shell: bool,
    /// Whether the host offers SFTP.
    pub(crate) sftp: bool,
    /// The probe of the host that the shell reported in the same request.
    pub(crate) probe: Option<Probe>,
}

/// Examines the host over a shell and over SFTP concurrently: each is a session with a separate server process.
/// `directory` is the configured session directory; absent means home. Afterwards a persistent shell of `files` and a
/// channel of `pool` are open for their next use.
pub(crate) async fn examine_host(
    link: &HostLink,
    files: &ExecFiles<Shell>,
    pool: &Pool,
    directory: Option<&SandboxPath>,
) -> Result<HostLookup, Error> {
    let fingerprint = link.fingerprint().await?;
    // Both are tried, because the result also shows which of them can be used.
    let (by_shell, by_sftp) =
        tokio::join!(over_shell(files, directory), over_sftp(pool, directory));
    let (by_shell, by_sftp) = (if_offered(by_shell)?, if_offered(by_sftp)?);
    let (shell, sftp) = (by_shell.is_some(), by_sftp.is_some());
    let (by_shell, probe) =
        by_shell.map_or((None, None), |(identity, probe)| (Some(identity), probe));
    // The result of the shell is preferred: it has the inode, which SFTP version 3 does not report.
    let Some((identity, directory)) = by_shell.or(by_sftp) else {
        return Err(Error::new(
            ErrorKind::ToolMissing,
            "the host offers neither commands nor sftp",
        ));
    };
    Ok(HostLookup {
        incarnation: format!(
            // One word without line breaks, because handles are stored and compared as text.
            "{fingerprint},{identity},{}",
            directory.as_bytes().escape_ascii()
        ),
        directory,
        shell,
        sftp,
        probe,
    })
}

/// Turns a missing shell or SFTP server into `None`.
fn if_offered<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(identity) => Ok(Some(identity)),
        Err(error) if matches!(error.kind(), ErrorKind::ToolMissing | ErrorKind::Protocol) => {
            debug!(%error, "the host offers no commands or no sftp");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn over_shell(
    files: &ExecFiles<Shell>,
    directory: Option<&SandboxPath>,
) -> Result<((String, SandboxPath), Option<Probe>), Error> {
    match files.examine_directory(directory).await {
        Ok((found, probe)) => Ok(((found.word, found.path), probe)),
        Err(error) if error.kind() == ErrorKind::SandboxGone => Err(no_directory()),
        Err(error) => Err(error),
    }
}

fn no_directory() -> Error {
    Error::new(
        ErrorKind::SandboxGone,
        "the session directory does not exist",
    )
}

/// The identity without a shell: the inode is unknown, so it is the path and its owner.
async fn over_sftp(
    pool: &Pool,
    directory: Option<&SandboxPath>,
) -> Result<(String, SandboxPath), Error> {
    let mut channel = pool.lease().await?;
    let path = directory.map_or(&b"."[..], SandboxPath::as_bytes);
    let path = match sftp::real_path(&mut channel, path).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(no_directory()),
        path => path?,
    };
    let found = sftp::stat(&mut channel, &path, dray_sandbox::Follow::Yes).await;
    match found {
        Ok(found) if found.kind == dray_sandbox::FileKind::Directory => {
            let owner = found
                .uid
                .map_or_else(|| "-".to_owned(), |uid| uid.to_string());
            Ok((format!("u{owner}"), path))
        }
        Ok(_) => Err(no_directory()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(no_directory()),
        Err(error) => Err(error),
    }
}
