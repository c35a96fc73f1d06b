//! A cache of the names of connections: the name that the last process computed for a target.
//!
//! The name follows from the effective configuration, which only `ssh -G` knows. Running it takes as long as the other
//! steps of opening a host, so the host is examined meanwhile over the connection with the cached name. The result
//! counts only when the configuration confirms the name.

use std::fs;
use std::path::PathBuf;

use dray_types::Sha256Digest;

use crate::client::Client;
use crate::master::NAME_CHARACTERS;

/// The file that holds the name, in the control directory.
#[derive(Debug)]
pub(crate) struct NameCache(PathBuf);

impl NameCache {
    /// The cache for the target of this client with its settings.
    pub(crate) fn new(client: &Client) -> Self {
        let (config, target) = (&client.settings().config, client.target());
        // Leaves out the session directory, on which the name does not depend: otherwise each session would leave a
        // file.
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

    /// Returns the cached name, unless it is missing or incomplete.
    pub(crate) fn read(&self) -> Option<String> {
        let name = fs::read_to_string(&self.0).ok()?;
        // The name becomes part of a path, and another process may be writing it now.
        let is_valid =
            name.len() == NAME_CHARACTERS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_valid.then_some(name)
    }

    /// Stores the name. A failure costs only the time that the cache would save.
    pub(crate) fn write(&self, name: &str) {
        if self.read().as_deref() != Some(name)
            && let Err(error) = fs::write(&self.0, name)
        {
            tracing::debug!(%error, "could not store the name of a connection");
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
    fn session_directories_of_a_user_on_a_host_share_a_cache_file() {
        let control = tempfile::tempdir_in("/tmp").unwrap();
        let settings = Arc::new(
            Settings::new(Config {
                control_directory: Some(control.path().join("c")),
                ..Config::default()
            })
            .unwrap(),
        );
        let cache = |target: &str| {
            let target = Target::parse(target).unwrap();
            NameCache::new(&Client::new(Arc::clone(&settings), target)).0
        };
        assert_eq!(cache("me@box:22/srv/a"), cache("me@box:22/srv/b"));
        assert_eq!(cache("me@box:22/srv/a"), cache("me@box:22"));
        for other in ["box:22", "me@box", "me@box:23", "you@box:22", "me@box2:22"] {
            assert_ne!(cache("me@box:22"), cache(other), "{other}");
        }
    }

    #[test]
    fn a_cached_name_that_is_incomplete_or_no_name_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = NameCache(directory.path().join("x.name"));
        assert_eq!(cache.read(), None);
        cache.write("0123456789abcdef");
        assert_eq!(cache.read().as_deref(), Some("0123456789abcdef"));
        for text in [
            "",
            "0123456789abcde",
            "0123456789abcdef0",
            "../../../../etc/",
        ] {
            fs::write(&cache.0, text).unwrap();
            assert_eq!(cache.read(), None, "{text}");
        }
    }
}
