//! Settings of this sandbox backend.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest path of a Unix socket on Linux, without the NUL (`sun_path`).
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Bytes that are added to the directory: a slash, 16 hexadecimal digits, `.sock`, and the dot and 16 characters that
/// `ssh` appends while it creates the socket.
const SOCKET_NAME_BYTES: usize = 1 + 16 + 5 + 17;

/// How host keys are checked. A changed key is never accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostKeys {
    /// Only hosts that are in the known-hosts file.
    Strict,
    /// A host that is seen for the first time is remembered; a changed key is refused.
    #[default]
    AcceptNew,
}

impl HostKeys {
    /// The value for the option `StrictHostKeyChecking`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "yes",
            Self::AcceptNew => "accept-new",
        }
    }
}

/// Settings of the SSH backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of the sockets of shared connections, at most 68 bytes long. It is created with mode 0700, and refused
    /// when others own it or may enter it. Unset: `/tmp/dray-ssh-UID`.
    pub control_directory: Option<PathBuf>,
    /// File of known host keys, which only this deployment uses. Unset: `known_hosts` in the control directory. Keep
    /// the file where it survives a restart of the machine.
    pub known_hosts: Option<PathBuf>,
    /// How host keys are checked: `strict` (only known hosts) or `accept-new` (the key of a new host is remembered). A
    /// changed key is refused in both cases.
    pub host_keys: HostKeys,
    /// The `ssh` program, OpenSSH 8.5 or newer.
    pub program: PathBuf,
    /// Configuration file for `ssh`. Unset: the files that `ssh` reads by itself.
    pub config_file: Option<PathBuf>,
    /// File with the private key. Unset: the keys of `ssh` and its agent.
    pub identity_file: Option<PathBuf>,
    /// Session directory, as an absolute path, of addresses that name none. Unset: the home directory of the user.
    pub directory: Option<String>,
    /// Longest time for connecting and logging in.
    pub connect_timeout: Period,
    /// Longest time until the host opens a session, and then again until the start files of the login shell end.
    pub start_timeout: Period,
    /// Longest time without a response before a channel is closed.
    pub idle_timeout: Period,
    /// How long an unused shared connection stays open, in whole seconds; less than `1s` counts as `1s`.
    pub persist: Period,
    /// Most shared connections to one host, at least 1; each carries `MaxSessions` channels (10 unless the host is
    /// configured otherwise).
    pub connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            control_directory: None,
            known_hosts: None,
            host_keys: HostKeys::default(),
            program: PathBuf::from("ssh"),
            config_file: None,
            identity_file: None,
            directory: None,
            connect_timeout: Period::secs(15),
            start_timeout: Period::secs(60),
            idle_timeout: Period::secs(30),
            persist: Period::secs(300),
            connections: 4,
        }
    }
}

/// The reason why the backend cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The sockets would have names that the system cannot take.
    #[error(
        "the control directory has {found} bytes; at most {allowed} leave room for the names of sockets"
    )]
    ControlDirectoryTooLong {
        /// Bytes of the configured path.
        found: usize,
        /// Bytes that it may have.
        allowed: usize,
    },
    /// The directory is a link, another user's, or open to others.
    #[error("the control directory {0} must belong to this user and have mode 0700")]
    ControlDirectoryNotPrivate(PathBuf),
    /// The directory cannot be created or examined.
    #[error("the control directory {0} cannot be used")]
    ControlDirectory(PathBuf, #[source] std::io::Error),
    /// A path with characters that `ssh` would interpret.
    #[error("{0} contains a quotation mark, a backslash, a line break, or `$`")]
    Path(PathBuf),
    /// The session directory is not an absolute path.
    #[error("the session directory must be an absolute path")]
    Directory,
    /// `connections` is 0.
    #[error("at least one connection is needed")]
    Connections,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Settings as configured. Fields that were checked or completed are beside it.
    pub(crate) config: Config,
    /// Directory of sockets, logs and locks, mode 0700, owned by this user.
    pub(crate) control: PathBuf,
    /// File of known host keys; it may not exist yet.
    pub(crate) known_hosts: PathBuf,
    /// Session directory of addresses that name none.
    pub(crate) directory: Option<dray_sandbox::SandboxPath>,
}

impl Settings {
    /// Checks the settings and creates the control directory.
    pub(crate) fn new(config: Config) -> Result<Self, ConfigError> {
        let control = config.control_directory.clone().unwrap_or_else(|| {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/tmp/dray-ssh-{uid}"))
        });
        let known_hosts = config
            .known_hosts
            .clone()
            .unwrap_or_else(|| control.join("known_hosts"));
        for path in [&control, &known_hosts] {
            let bytes = path.as_os_str().as_bytes();
            // `ssh` expands `$` in some paths, and a quoted option has no escape for a quotation mark.
            if bytes.iter().any(|byte| b"\"'\\\n\r$".contains(byte)) {
                return Err(ConfigError::Path(path.clone()));
            }
        }
        if config.connections == 0 {
            return Err(ConfigError::Connections);
        }
        let directory = config
            .directory
            .as_deref()
            .map(dray_sandbox::SandboxPath::new)
            .transpose()
            .map_err(|_| ConfigError::Directory)?;
        check_length(&control)?;
        make_private(&control)?;
        Ok(Self {
            config,
            control,
            known_hosts,
            directory,
        })
    }
}

fn check_length(control: &Path) -> Result<(), ConfigError> {
    let found = control.as_os_str().len();
    let allowed = MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES;
    if found > allowed {
        return Err(ConfigError::ControlDirectoryTooLong { found, allowed });
    }
    Ok(())
}

/// Creates the directory, or checks that an existing one belongs to this user and is closed to others.
fn make_private(control: &Path) -> Result<(), ConfigError> {
    let failed = |error| ConfigError::ControlDirectory(control.to_owned(), error);
    // The mode is set at creation: after a later `chmod` others could already have entered.
    match fs::DirBuilder::new().mode(0o700).create(control) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    // Links are not followed: in `/tmp` another user could have created a link first.
    let metadata = fs::symlink_metadata(control).map_err(failed)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || !is_ours || metadata.mode() & 0o077 != 0 {
        return Err(ConfigError::ControlDirectoryNotPrivate(control.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn with_directory(path: PathBuf) -> Result<Settings, ConfigError> {
        Settings::new(Config {
            control_directory: Some(path),
            ..Config::default()
        })
    }

    #[test]
    fn the_control_directory_is_made_for_us_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let settings = with_directory(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(settings.known_hosts, path.join("known_hosts"));
        with_directory(path).unwrap();
    }

    #[test]
    fn a_control_directory_of_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        for path in [open, link] {
            let refused = with_directory(path).unwrap_err();
            assert!(
                matches!(refused, ConfigError::ControlDirectoryNotPrivate(_)),
                "{refused}"
            );
        }
        let missing = with_directory(directory.path().join("no/such")).unwrap_err();
        assert!(matches!(missing, ConfigError::ControlDirectory(..)));
    }

    #[test]
    fn a_socket_name_never_gets_too_long_for_the_system() {
        let directory = tempfile::tempdir().unwrap();
        let room =
            MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES - directory.path().as_os_str().len() - 1;
        with_directory(directory.path().join("x".repeat(room))).unwrap();
        let refused = with_directory(directory.path().join("x".repeat(room + 1))).unwrap_err();
        assert!(
            matches!(
                refused,
                ConfigError::ControlDirectoryTooLong {
                    found: 69,
                    allowed: 68
                }
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_path_that_ssh_could_misread_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = with_directory(directory.path().join("a\"b")).unwrap_err();
        assert!(matches!(refused, ConfigError::Path(_)));
        let relative = Settings::new(Config {
            control_directory: Some(directory.path().join("control")),
            directory: Some("work".to_owned()),
            ..Config::default()
        });
        assert!(matches!(relative, Err(ConfigError::Directory)));
    }

    #[test]
    fn host_keys_are_never_ignored() {
        let read = |text: &str| serde_json::from_str::<HostKeys>(text);
        assert_eq!(read("\"strict\"").unwrap().as_str(), "yes");
        assert_eq!(read("\"accept-new\"").unwrap().as_str(), "accept-new");
        assert!(read("\"no\"").is_err());
    }
}
