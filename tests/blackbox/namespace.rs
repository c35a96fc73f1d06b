//! A network namespace that is removed when its value is dropped, even after a panic.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, process};

use crate::machine;

/// Every name starts with this; the id of the process that created it follows.
const NAME_PREFIX: &str = "dray-blackbox-";

/// One network namespace that has only a loopback device, which is up.
#[derive(Debug)]
pub(crate) struct NetworkNamespace {
    name: String,
}

impl NetworkNamespace {
    /// Creates the namespace. `suffix` is unique within this process.
    pub(crate) fn new(suffix: &str) -> Self {
        let name = format!("{NAME_PREFIX}{}-{suffix}", process::id());
        machine::run(machine::bare("ip").args(["netns", "add", &name]));
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// The name of the namespace for other `ip` commands.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs lines of `ip` commands in the namespace.
    pub(crate) fn ip(&self, lines: &str) {
        machine::feed(
            machine::bare("ip").args(["-netns", &self.name, "-batch", "-"]),
            lines,
        );
    }

    /// A command in the namespace, with the namespace's own files in `/etc`; environment as in [`machine::bare`].
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = machine::bare("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Puts a file over one in `/etc` for programs of this namespace.
    pub(crate) fn overlay(&self, file: &str, text: &str) {
        fs::create_dir_all(self.directory()).unwrap();
        fs::write(self.directory().join(file), text).unwrap();
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from("/etc/netns").join(&self.name)
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // If this fails, the next run removes it.
        let _ = machine::bare("ip")
            .args(["netns", "delete", &self.name])
            .output();
        let _ = fs::remove_dir_all(self.directory());
    }
}

/// Removes the namespaces of killed runs of this suite: those whose process has ended.
pub(crate) fn sweep() {
    let listed = machine::run(machine::bare("ip").args(["netns", "list"]));
    for name in String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(|line| line.split(' ').next())
    {
        let owner = name
            .strip_prefix(NAME_PREFIX)
            .and_then(|rest| rest.split('-').next());
        // A process that has ended has no program, even before its parent reads its status.
        let ended = |pid| fs::read_link(format!("/proc/{pid}/exe")).is_err();
        if owner.is_some_and(ended) {
            drop(NetworkNamespace {
                name: name.to_owned(),
            });
        }
    }
}
