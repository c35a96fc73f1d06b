//! The process group of a command on the host.

use super::Shell;

/// Kills the group of a process if it is still the one that was started, which has the nonce in its command line. Where
/// that cannot be read, no process is killed: the number may belong to another process. Without a process id, the
/// process is found by the nonce. The script and its parent also have the nonce in their command lines and are left
/// out.
const KILL_SCRIPT: &str = r#"end() { kill -KILL "-$1" 2>/dev/null || kill -KILL "$1"; }
if [ "$1" != 0 ]; then
  if [ -d /proc/self ]; then grep -q "$2" "/proc/$1/cmdline" 2>/dev/null
  else ps -ww -o args= -p "$1" 2>/dev/null | grep -q "$2"; fi && end "$1"
else
  for d in /proc/[0-9]*; do
    p=${d#/proc/}
    if [ "$p" != "$$" ] && [ "$p" != "$PPID" ] && grep -q "$2" "$d/cmdline" 2>/dev/null; then end "$p"; fi
  done
fi"#;
/// Most bytes of the output of that script.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// A process group that is killed when this is dropped before the command has ended.
pub(super) struct ProcessGroup {
    shell: Shell,
    nonce: String,
    /// The group's leader; 0 until it is known.
    pub(super) leader: u32,
    /// Whether no process is left to kill, or killing is not permitted.
    has_ended: bool,
}

impl ProcessGroup {
    pub(super) fn new(shell: Shell, nonce: String) -> Self {
        Self {
            has_ended: !shell.kills,
            shell,
            nonce,
            leader: 0,
        }
    }

    /// Records that the command ended by itself, so that no process is left to kill.
    pub(super) fn set_ended(&mut self) {
        self.has_ended = true;
    }

    /// Kills the group, over a separate channel. A failure is only logged.
    pub(super) fn kill(&self) -> impl Future<Output = ()> + Send + use<> {
        let shell = self.shell.without_kills();
        let leader = self.leader.to_string();
        let words = ["sh", "-c", KILL_SCRIPT, "sh", &leader, &self.nonce];
        let argv = words.map(|word| word.as_bytes().to_vec()).to_vec();
        async move {
            if let Err(error) = shell.output(argv, MAX_OUTPUT_BYTES).await {
                tracing::warn!(%error, "a command on the host may still run");
            }
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shell.link.background_work().add(self.kill());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, ExitStatus, Stdio};

    use super::*;

    /// Runs the script for a process, on a system without `/proc` whose `ps` prints this line. Returns how the process
    /// ended; left alone, it exits with 7.
    fn end_after_kill(ps_line: &str) -> ExitStatus {
        let mut process = Command::new("sh")
            .args(["-c", "read line; exit 7"])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let script = KILL_SCRIPT.replace("/proc", "/nonexistent");
        let script = format!("ps() {{ echo '{ps_line}'; }}\n{script}");
        Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(process.id().to_string())
            .arg("nonce")
            .status()
            .unwrap();
        // A process that was killed has closed its input.
        let _ = process.stdin.take().unwrap().write_all(b"line\n");
        process.wait().unwrap()
    }

    #[test]
    fn without_proc_only_a_process_with_the_nonce_is_killed() {
        assert_eq!(
            end_after_kill("sh -c script sh nonce true").signal(),
            Some(9)
        );
        for line in ["sh -c script sh other true", ""] {
            assert_eq!(end_after_kill(line).code(), Some(7), "{line}");
        }
    }
}
