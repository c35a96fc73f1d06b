//! The identity of a directory, beyond its path.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Probe;
use dray_sandbox::path::SandboxPath;

use super::channel::Exec;
use super::files::ExecFiles;
use super::reply::Reply;

const IDENTITY_SCRIPT: &str = concat!(
    include_str!("script/probe.sh"),
    include_str!("script/identity.sh")
);

/// A directory, and what distinguishes it from an earlier or later one at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// Device, inode and, where the file system records it, the birth time, as one word.
    pub word: String,
    /// The directory's path without links.
    pub path: SandboxPath,
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// The identity of a directory, by default of the home directory, and from the same request the probe of the sandbox
    /// from that directory; `None` if [`Self::probe`] would fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] when the directory does not exist, [`ErrorKind::ToolMissing`] when there is no
    /// program that prints an inode.
    pub async fn examine_directory(
        &self,
        directory: Option<&SandboxPath>,
    ) -> Result<(DirectoryIdentity, Option<Probe>), Error> {
        let path = directory.map_or(&b""[..], SandboxPath::as_bytes);
        let reply = self.run_script(IDENTITY_SCRIPT, &[path], None).await?;
        reply.check("text")?;
        let identity = parse(&reply);
        let identity = identity.ok_or_else(|| Error::new(ErrorKind::Protocol, "not an identity"));
        Ok((identity?, self.parse_probe(&reply).ok()))
    }
}

fn parse(reply: &Reply) -> Option<DirectoryIdentity> {
    // `ls` prints the name of the directory after the inode.
    let word = reply.text("identity").split_whitespace().next()?.to_owned();
    // Some versions of `stat` print a text of these other characters for an unknown birth time.
    let is_number = |byte: u8| byte.is_ascii_digit() || b":.?-W".contains(&byte);
    let path = SandboxPath::new(reply.line("path")?).ok()?;
    word.bytes()
        .all(is_number)
        .then_some(DirectoryIdentity { word, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Nonce;

    fn parse_identity(identity: &str, path: &str) -> Option<DirectoryIdentity> {
        let reply = format!(
            "\n@@7e57 begin raw\n\n@@7e57 text \n@@7e57 identity {identity}\n\n@@7e57 path {path}\n\n@@7e57 status 0\n@@7e57 end\n"
        );
        let reply = Reply::parse(reply.as_bytes(), &Nonce::fixed("7e57")).unwrap();
        parse(&reply.unwrap())
    }

    #[test]
    fn an_identity_is_a_number_and_a_path_of_any_bytes() {
        for (identity, path, word) in [
            ("8:12", "/home/me", Some("8:12")),
            (
                "8:12:1700000000.123456789",
                "/a\nb",
                Some("8:12:1700000000.123456789"),
            ),
            ("8:12:?", "/a", Some("8:12:?")),
            ("99 .", "/a", Some("99")),
            ("x", "/a", None),
            ("", "/a", None),
            ("8:12", "relative", None),
        ] {
            let found = parse_identity(identity, path);
            let expected = word.map(|word| DirectoryIdentity {
                word: word.to_owned(),
                path: SandboxPath::new(path).unwrap(),
            });
            assert_eq!(found, expected, "{identity} {path:?}");
        }
    }
}
