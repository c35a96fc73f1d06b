//! The process group of a command on the host.

use super::Shell;

/// Kills the group of a process if it is still the one that was started. Without a number the process is found by the
/// nonce in its command line; the script and its parent have the nonce there too and are left out.
const KILL_SCRIPT: &str = r#"end() { kill -KILL "-$1" 2>/dev/null || kill -KILL "$1"; }
if [ "$1" != 0 ]; then
  if [ ! -d /proc/self ] || grep -q "$2" "/proc/$1/cmdline" 2>/dev/null; then end "$1"; fi
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
    /// Its leader; 0 until it is known.
    pub(super) leader: u32,
    /// Whether nothing is left to kill, or killing is not permitted.
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

    /// Records that the command ended by itself, so that nothing is left to kill.
    pub(super) fn set_ended(&mut self) {
        self.has_ended = true;
    }

    /// Kills the group, over a channel of its own. A failure is only logged.
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
