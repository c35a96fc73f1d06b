//! Probes a sandbox with a script.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Probe;
use dray_sandbox::path::SandboxPath;

use super::channel::Exec;
use super::files::ExecFiles;
use super::reply::Reply;

const PROBE_SCRIPT: &str = concat!(include_str!("script/probe.sh"), "answer ask \"$@\"\n");

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::probe`]. `transports` are those of [`Self::transports`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] when there is no `sh`.
    pub async fn probe(&self) -> Result<Probe, Error> {
        self.parse_probe(&self.run_script(PROBE_SCRIPT, &[], None).await?)
    }

    /// Reads the records of a probe from the response of a script.
    pub(super) fn parse_probe(&self, reply: &Reply) -> Result<Probe, Error> {
        reply.check("tools")?;
        let working_directory = reply
            .line("cwd")
            .and_then(|path| SandboxPath::new(path).ok())
            .unwrap_or_else(SandboxPath::root);
        let id = |tag: &str| reply.text(tag).parse().ok();
        let (uid, gid) = id("uid").zip(id("gid")).ok_or_else(|| {
            Error::new(
                ErrorKind::ToolMissing,
                "the sandbox has no program that reports the user id",
            )
        })?;
        // `entry` is the home directory in `/etc/passwd`, for commands that start without `HOME`.
        let home = ["home", "entry"]
            .iter()
            .find_map(|tag| SandboxPath::new(reply.get(tag)?).ok())
            .unwrap_or_else(|| working_directory.clone());
        let tools = tools(reply);
        // An earlier probe may have set them already; all probes find the same.
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

    /// Whether the sandbox has a program. The programs are requested once.
    pub(super) async fn has_tool(&self, tool: &str) -> Result<bool, Error> {
        let tools = self
            .tools
            .get_or_try_init(|| async {
                let reply = self.run_script(PROBE_SCRIPT, &[], None).await?;
                reply.check("tools")?;
                Ok::<_, Error>(tools(&reply))
            })
            .await?;
        Ok(tools.iter().any(|found| found == tool))
    }
}

fn tools(reply: &Reply) -> Vec<String> {
    let text = reply.text("tools");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Bytes free, from `df -Pk`: the number before the percentage in the last line.
pub(super) fn free(df: &str) -> Option<u64> {
    let words: Vec<_> = df.lines().last()?.split_whitespace().collect();
    // The search for the percentage begins at the end: the name of a device may hold spaces and percent signs.
    let percentage = words.iter().rposition(|word| word.ends_with('%'))?;
    let kibibytes: u64 = words.get(percentage.checked_sub(1)?)?.parse().ok()?;
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
}
