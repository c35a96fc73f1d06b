//! What a sandbox offers.

use super::channel::Exec;
use super::files::ExecFiles;
use super::reply::Reply;
use crate::error::{Error, ErrorKind};
use crate::metadata::Probe;
use crate::path::SandboxPath;

const SCRIPT: &str = include_str!("script/probe.sh");

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`crate::Sandbox::probe`]. `transports` are those of [`Self::transports`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] when there is no `sh`.
    pub async fn probe(&self) -> Result<Probe, Error> {
        let reply = self.ask(SCRIPT, &[], None).await?;
        reply.check("tools")?;
        let working_directory = reply
            .line("cwd")
            .and_then(|path| SandboxPath::new(path).ok())
            .unwrap_or_else(SandboxPath::root);
        let (uid, gid) = identity(&reply)
            .ok_or_else(|| Error::new(ErrorKind::ToolMissing, "nothing tells the user id"))?;
        let home = reply
            .get("home")
            .and_then(|path| SandboxPath::new(path).ok())
            .or_else(|| home_of(uid, &reply.text("passwd")))
            .unwrap_or_else(|| working_directory.clone());
        let tools = tools(&reply);
        let _ = self.tools.set(tools.clone());
        Ok(Probe {
            home,
            working_directory,
            uid,
            gid,
            free: free(&reply.text("free")),
            transports: self.transports(),
            tools,
            life_ms: None,
        })
    }

    /// Whether a program is in the sandbox; asked once.
    pub(super) async fn has(&self, tool: &str) -> Result<bool, Error> {
        let tools = self
            .tools
            .get_or_try_init(|| async {
                let reply = self.ask(SCRIPT, &[], None).await?;
                reply.check("tools")?;
                Ok::<_, Error>(tools(&reply))
            })
            .await?;
        Ok(tools.iter().any(|found| found == tool))
    }
}

fn tools(reply: &Reply) -> Vec<String> {
    let said = reply.text("tools");
    said.split_whitespace().map(str::to_owned).collect()
}

/// User and group, from `id` or from what the kernel says.
fn identity(reply: &Reply) -> Option<(u32, u32)> {
    let kernel = reply.text("self");
    let effective = |field: &str| {
        let line = kernel.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let number = |tag: &str, field: &str| reply.text(tag).parse().ok().or_else(|| effective(field));
    number("uid", "Uid:").zip(number("gid", "Gid:"))
}

/// Home of a user in `/etc/passwd`.
fn home_of(uid: u32, passwd: &str) -> Option<SandboxPath> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        match fields.as_slice() {
            [_, _, id, _, _, home, ..] if id.parse() == Ok(uid) => SandboxPath::new(home).ok(),
            _ => None,
        }
    })
}

/// Bytes free, from `df -Pk`: the number before the percentage in the last line.
fn free(df: &str) -> Option<u64> {
    let words: Vec<_> = df.lines().last()?.split_whitespace().collect();
    let at = words.iter().rposition(|word| word.ends_with('%'))?;
    let kibibytes: u64 = words.get(at.checked_sub(1)?)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_read_from_the_end_of_the_line() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\nmy disk 64 0 63 1% /mnt/50% off\n";
        assert_eq!(free(df), None);
        let df =
            "Filesystem 1024-blocks Used Available Capacity Mounted on\nmy disk 64 0 63 1% /mnt\n";
        assert_eq!(free(df), Some(63 * 1024));
        assert_eq!(free(""), None);
    }

    #[test]
    fn a_home_is_found_without_an_environment() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(home_of(1000, passwd).unwrap().to_string(), "/home/me");
        assert_eq!(home_of(7, passwd), None);
    }
}
