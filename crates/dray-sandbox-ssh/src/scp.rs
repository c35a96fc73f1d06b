//! `scp` with the settings of this backend, for comparisons with it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::client::without_tokens;
use crate::config::{Config, Settings};
use crate::target::Target;

/// The arguments with which `scp` copies from and to the host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScpTarget {
    /// Options: no questions, and the port, key, configuration and known hosts that the backend uses.
    pub options: Vec<OsString>,
    /// What precedes an absolute path of the host: `user@host:`.
    pub prefix: String,
    /// File of known host keys that the backend uses.
    pub known_hosts: PathBuf,
}

impl ScpTarget {
    /// The target of an address, which is given without its kind. `None` for an address or settings that the backend
    /// refuses.
    pub fn new(config: &Config, name: &str) -> Option<Self> {
        let target = Target::parse(name).ok()?;
        let settings = Settings::new(config.clone()).ok()?;
        let mut options: Vec<OsString> = vec!["-q".into(), "-B".into()];
        let mut add = |option: &str, value: OsString| options.extend([option.into(), value]);
        add("-S", config.program.clone().into_os_string());
        if let Some(file) = &config.config_file {
            add("-F", file.clone().into_os_string());
        }
        if let Some(file) = &config.identity_file {
            add("-i", without_tokens(file));
        }
        if let Some(port) = target.port {
            add("-P", port.to_string().into());
        }
        let host_keys = format!("StrictHostKeyChecking={}", config.host_keys.as_str());
        add("-o", host_keys.into());
        let mut known = OsString::from("UserKnownHostsFile=\"");
        known.push(without_tokens(&settings.known_hosts));
        known.push("\"");
        add("-o", known);
        Some(Self {
            options,
            prefix: prefix(&target),
            known_hosts: settings.known_hosts,
        })
    }
}

fn prefix(target: &Target) -> String {
    let user = target.user.as_ref().map(|user| format!("{user}@"));
    let user = user.unwrap_or_default();
    // Without brackets, the path of an IPv6 address would begin at its first colon.
    if target.host.contains(':') {
        format!("{user}[{}]:", target.host)
    } else {
        format!("{user}{}:", target.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(config: Config, name: &str) -> ScpTarget {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            control_directory: Some(directory.path().join("control")),
            ..config
        };
        ScpTarget::new(&config, name).unwrap()
    }

    fn has(target: &ScpTarget, option: &str, value: &str) -> bool {
        let mut pairs = target.options.windows(2);
        pairs.any(|pair| pair == [option, value])
    }

    #[test]
    fn port_and_directory_of_an_address_are_no_part_of_the_path() {
        let remote = target(Config::default(), "me@h:2222/d");
        assert_eq!(remote.prefix, "me@h:");
        assert!(has(&remote, "-P", "2222"), "{remote:?}");
        let plain = target(Config::default(), "host");
        assert_eq!(plain.prefix, "host:");
        assert!(!plain.options.contains(&"-P".into()), "{plain:?}");
        assert_eq!(target(Config::default(), "a@[::1]:22").prefix, "a@[::1]:");
    }

    #[test]
    fn scp_gets_the_key_the_configuration_and_the_known_hosts_of_the_settings() {
        let config = Config {
            identity_file: Some("/keys/id".into()),
            config_file: Some("/etc/ssh/bench".into()),
            known_hosts: Some("/keys/known".into()),
            ..Config::default()
        };
        let target = target(config, "host");
        assert!(has(&target, "-i", "/keys/id"), "{target:?}");
        assert!(has(&target, "-F", "/etc/ssh/bench"), "{target:?}");
        let known = "UserKnownHostsFile=\"/keys/known\"";
        assert!(has(&target, "-o", known), "{target:?}");
        assert!(
            has(&target, "-o", "StrictHostKeyChecking=accept-new"),
            "{target:?}"
        );
    }

    #[test]
    fn an_address_that_the_backend_refuses_has_no_target() {
        assert_eq!(
            ScpTarget::new(&Config::default(), "-oProxyCommand=id"),
            None
        );
    }
}
