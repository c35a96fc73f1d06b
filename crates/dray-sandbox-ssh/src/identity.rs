//! The identity of one incarnation (sandbox-transfer R-1): the key that the host proved to have, and the session
//! directory.

use dray_sandbox::{Error, ErrorKind, SandboxPath};
use tracing::debug;

use crate::link::HostLink;
use crate::sftp::{self, Pool};
use crate::shell::Shell;

/// Prints device, inode and (where it is known) birth of the session directory, then its path. Without an argument it
/// is the home directory.
const IDENTITY_SCRIPT: &str = r#"if [ -n "$1" ]; then cd -- "$1"; else cd; fi || exit 3
stat -c %d:%i:%.9W . 2>/dev/null || stat -c %d:%i . 2>/dev/null || stat -f %d:%i . 2>/dev/null || ls -di . || exit 4
pwd -P"#;
/// Most bytes of the script's output; a longer one is not a path.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// The result of examining a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostLookup {
    /// Fingerprint and session directory as one word.
    pub(crate) incarnation: String,
    /// Session directory, without links.
    pub(crate) directory: SandboxPath,
    /// Whether commands can be run.
    pub(crate) shell: bool,
    /// Whether there is SFTP.
    pub(crate) sftp: bool,
}

/// Examines the host over a shell and over SFTP. `directory` is the configured session directory; absent means home.
pub(crate) async fn find(
    link: &HostLink,
    shell: &Shell,
    pool: &Pool,
    directory: Option<&SandboxPath>,
) -> Result<HostLookup, Error> {
    let fingerprint = link.fingerprint().await?;
    // Both are tried, because the result also shows which of them can be used.
    let by_shell = absent(over_shell(shell, directory).await)?;
    let by_sftp = absent(over_sftp(pool, directory).await)?;
    let (commands, files) = (by_shell.is_some(), by_sftp.is_some());
    // The shell first: it knows the inode, SFTP version 3 does not.
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
        shell: commands,
        sftp: files,
    })
}

/// Turns a missing shell or SFTP server into `None`.
fn absent<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::ToolMissing | ErrorKind::Protocol) => {
            debug!(%error, "the host lacks a way");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn over_shell(
    shell: &Shell,
    directory: Option<&SandboxPath>,
) -> Result<(String, SandboxPath), Error> {
    let path = directory.map_or(&b""[..], SandboxPath::as_bytes);
    let argv = [b"sh", &b"-c"[..], IDENTITY_SCRIPT.as_bytes(), b"sh", path];
    let argv = argv.map(<[u8]>::to_vec).to_vec();
    let (exit, output) = shell.output(argv, MAX_OUTPUT_BYTES).await?;
    match exit.status {
        0 => parse(&output).ok_or_else(|| Error::new(ErrorKind::Protocol, "not an identity")),
        3 => Err(gone()),
        status => Err(Error::new(
            ErrorKind::ToolMissing,
            format!("status {status}: {}", exit.stderr.escape_debug()),
        )),
    }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::SandboxGone,
        "the session directory does not exist",
    )
}

/// Reads the identity, which is the first word, and the path behind the first line; a path may hold line breaks.
fn parse(output: &[u8]) -> Option<(String, SandboxPath)> {
    let cut = output.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = output.split_at_checked(cut)?;
    let word = str::from_utf8(line).ok()?.split_whitespace().next()?;
    if !word
        .bytes()
        // Permits the texts that versions of `stat` print for an unknown birth time.
        .all(|byte| byte.is_ascii_digit() || b":.?-W".contains(&byte))
    {
        return None;
    }
    // `pwd` prints exactly one line break at the end; others belong to the path.
    let path = rest.strip_prefix(b"\n")?.strip_suffix(b"\n")?;
    Some((word.to_owned(), SandboxPath::new(path).ok()?))
}

/// The identity without a shell: the inode is unknown, so it is the path and its owner.
async fn over_sftp(
    pool: &Pool,
    directory: Option<&SandboxPath>,
) -> Result<(String, SandboxPath), Error> {
    let mut channel = pool.lease().await?;
    let path = directory.map_or(&b"."[..], SandboxPath::as_bytes);
    let path = match sftp::real_path(&mut channel, path).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(gone()),
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
        Ok(_) => Err(gone()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(gone()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_number_and_a_path_of_any_bytes() {
        let path = |path: &[u8]| SandboxPath::new(path).unwrap();
        assert_eq!(
            parse(b"8:12\n/home/me\n"),
            Some(("8:12".to_owned(), path(b"/home/me")))
        );
        assert_eq!(
            parse(b"99 .\n/a\nb\xff\n"),
            Some(("99".to_owned(), path(b"/a\nb\xff")))
        );
        for wrong in [
            &b""[..],
            b"8:12",
            b"x\n/a\n",
            b"8:12\nrelative\n",
            b"8:12\n/a",
        ] {
            assert_eq!(parse(wrong), None);
        }
    }
}
