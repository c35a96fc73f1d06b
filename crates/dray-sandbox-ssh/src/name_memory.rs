//! The name of a host's connection as the last process found it.
//!
//! The name follows from the effective configuration, which only `ssh -G` knows; that takes as long as the rest of
//! opening a host. With the remembered name the host is examined meanwhile, and the result counts only when the
//! configuration confirms the name.

use std::fs;
use std::path::PathBuf;

use dray_types::Sha256Digest;

use crate::client::Client;
use crate::master::NAME_CHARACTERS;

/// The file that holds the name, in the control directory.
#[derive(Debug)]
pub(crate) struct NameMemory(PathBuf);

impl NameMemory {
    /// The memory for the target of this client with its settings.
    pub(crate) fn new(client: &Client) -> Self {
        let (config, target) = (&client.settings().config, client.target());
        // Without the session directory, on which the name does not depend: it would leave a file for each session.
        let key = format!(
            "{} {:?} {:?} {:?} {:?} {:?}",
            config.program.display(),
            config.config_file,
            config.identity_file,
            target.user,
            target.host,
            target.port
        );
        let mut digits = Sha256Digest::of(key.as_bytes()).to_hex();
        digits.truncate(NAME_CHARACTERS);
        Self(client.settings().control.join(format!("{digits}.name")))
    }

    /// The remembered name.
    pub(crate) fn read(&self) -> Option<String> {
        let name = fs::read_to_string(&self.0).ok()?;
        // It becomes part of a path, and another process may be writing it now.
        let is_name =
            name.len() == NAME_CHARACTERS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_name.then_some(name)
    }

    /// Remembers the name. A failure costs only the time that the memory would save.
    pub(crate) fn write(&self, name: &str) {
        if self.read().as_deref() != Some(name)
            && let Err(error) = fs::write(&self.0, name)
        {
            tracing::debug!(%error, "the name of a connection is not remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Config, Settings};
    use crate::target::Target;

    #[test]
    fn session_directories_of_a_user_on_a_host_share_a_memory() {
        let control = tempfile::tempdir_in("/tmp").unwrap();
        let settings = Arc::new(
            Settings::new(Config {
                control_directory: Some(control.path().join("c")),
                ..Config::default()
            })
            .unwrap(),
        );
        let memory = |target: &str| {
            let target = Target::parse(target).unwrap();
            NameMemory::new(&Client::new(Arc::clone(&settings), target)).0
        };
        assert_eq!(memory("me@box:22/srv/a"), memory("me@box:22/srv/b"));
        assert_eq!(memory("me@box:22/srv/a"), memory("me@box:22"));
        for other in ["box:22", "me@box", "me@box:23", "you@box:22", "me@box2:22"] {
            assert_ne!(memory("me@box:22"), memory(other), "{other}");
        }
    }

    #[test]
    fn only_a_whole_name_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let memory = NameMemory(directory.path().join("x.name"));
        assert_eq!(memory.read(), None);
        memory.write("0123456789abcdef");
        assert_eq!(memory.read().as_deref(), Some("0123456789abcdef"));
        for text in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "../../../../etc/",
        ] {
            fs::write(&memory.0, text).unwrap();
            assert_eq!(memory.read(), None, "{text}");
        }
    }
}
