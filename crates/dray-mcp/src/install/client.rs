//! The clients: their names, where each keeps its configuration, and in which format.
//!
//! It does not read the environment, and accesses only files whose existence decides between two names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::error::InstallError;

/// A client whose configuration can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Claude Code. Source: <https://code.claude.com/docs/en/mcp>, section "MCP installation scopes".
    ClaudeCode,
    /// Codex: command line, IDE extension and app. Source: <https://developers.openai.com/codex/mcp>.
    Codex,
    /// Cursor. Source: <https://cursor.com/docs/context/mcp>.
    Cursor,
    /// Visual Studio Code. Source: <https://code.visualstudio.com/docs/copilot/reference/mcp-configuration>.
    #[serde(rename = "vscode")]
    VsCode,
    /// opencode, versions 1 and 2. Source: <https://opencode.ai/docs/mcp-servers> and
    /// <https://opencode.ai/docs/migrate-v1>: version 2 reads the keys of version 1.
    #[serde(rename = "opencode")]
    OpenCode,
    /// goose. Source: <https://block.github.io/goose/docs/guides/config-files>.
    Goose,
    /// `LibreChat`. Source:
    /// <https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers>.
    #[serde(rename = "librechat")]
    LibreChat,
}

/// For whom an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallScope {
    /// For all projects of the user, in the home directory.
    User,
    /// For one project, in the current directory. Such files are often shared through version control.
    Project,
}

/// The operating system whose directories are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatingSystem {
    /// Linux and other systems that follow the XDG base directories.
    Linux,
    /// macOS.
    MacOs,
    /// Windows, where configuration is below `%APPDATA%`.
    Windows,
}

impl OperatingSystem {
    /// The operating system that this program was built for.
    pub const fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

/// The directories that decide where configurations are. The caller reads the environment.
#[derive(Clone, Debug)]
pub struct ClientDirectories {
    /// The user's home directory.
    pub home: PathBuf,
    /// The directory of the project.
    pub current: PathBuf,
    /// `XDG_CONFIG_HOME`, if it is set; else `~/.config` is used.
    pub config_home: Option<PathBuf>,
    /// `APPDATA` of Windows, if it is set; else `~/AppData/Roaming` is used.
    pub app_data: Option<PathBuf>,
    /// The operating system.
    pub system: OperatingSystem,
}

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigFormat {
    /// JSON with comments and trailing commas.
    Json,
    /// TOML; comments and order stay.
    Toml,
    /// YAML; comments and order stay.
    Yaml,
}

impl Client {
    /// All clients, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Cursor,
        Self::VsCode,
        Self::OpenCode,
        Self::Goose,
        Self::LibreChat,
    ];

    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::OpenCode => "opencode",
            Self::Goose => "goose",
            Self::LibreChat => "librechat",
        }
    }

    /// The name that its vendor writes.
    pub const fn display_name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::OpenCode => "opencode",
            Self::Goose => "goose",
            Self::LibreChat => "LibreChat",
        }
    }

    /// The scope that is used when the caller names none.
    pub const fn default_scope(self) -> InstallScope {
        match self {
            Self::LibreChat => InstallScope::Project,
            _ => InstallScope::User,
        }
    }

    /// The format of its file.
    pub(super) const fn format(self) -> ConfigFormat {
        match self {
            Self::ClaudeCode | Self::Cursor | Self::VsCode | Self::OpenCode => ConfigFormat::Json,
            Self::Codex => ConfigFormat::Toml,
            Self::Goose | Self::LibreChat => ConfigFormat::Yaml,
        }
    }

    /// The key of the table that contains all servers.
    pub(super) const fn servers_key(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Cursor | Self::LibreChat => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::VsCode => "servers",
            Self::OpenCode => "mcp",
            Self::Goose => "extensions",
        }
    }

    /// The content of a new file in addition to the entry. `LibreChat` refuses a file without a version of its format;
    /// this one is `CONFIG_VERSION` of `librechat-data-provider` 0.8.524.
    pub(super) const fn new_file_text(self) -> &'static str {
        match self {
            Self::LibreChat => "version: 1.3.17\n",
            _ => "",
        }
    }

    /// Texts that this client replaces inside a command. A path that contains one of them could not be started.
    pub(super) const fn variable_markers(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode | Self::Cursor | Self::VsCode => &["${"],
            Self::OpenCode => &["{env:", "{file:"],
            Self::LibreChat => &["${", "{{"],
            Self::Codex | Self::Goose => &[],
        }
    }

    /// The file of this client.
    ///
    /// # Errors
    ///
    /// [`InstallError::UnsupportedScope`] when the client has no file of that scope.
    pub fn config_path(
        self,
        scope: InstallScope,
        directories: &ClientDirectories,
    ) -> Result<PathBuf, InstallError> {
        let home = &directories.home;
        let current = &directories.current;
        let path = match (self, scope) {
            (Self::ClaudeCode, InstallScope::User) => home.join(".claude.json"),
            (Self::ClaudeCode, InstallScope::Project) => current.join(".mcp.json"),
            (Self::Codex, InstallScope::User) => home.join(".codex/config.toml"),
            (Self::Codex, InstallScope::Project) => current.join(".codex/config.toml"),
            (Self::Cursor, InstallScope::User) => home.join(".cursor/mcp.json"),
            (Self::Cursor, InstallScope::Project) => current.join(".cursor/mcp.json"),
            (Self::VsCode, InstallScope::User) => directories.vscode_user().join("mcp.json"),
            (Self::VsCode, InstallScope::Project) => current.join(".vscode/mcp.json"),
            (Self::OpenCode, InstallScope::User) => {
                opencode_file(&directories.xdg_config().join("opencode"))
            }
            (Self::OpenCode, InstallScope::Project) => opencode_file(current),
            (Self::Goose, InstallScope::User) => directories.goose().join("config.yaml"),
            (Self::LibreChat, InstallScope::Project) => current.join("librechat.yaml"),
            (Self::Goose, InstallScope::Project) | (Self::LibreChat, InstallScope::User) => {
                return Err(InstallError::UnsupportedScope {
                    client: self,
                    scope,
                });
            }
        };
        Ok(path)
    }

    /// The next step of the user, so that the client reads its configuration.
    pub(super) const fn next_step(self, scope: InstallScope) -> &'static str {
        match (self, scope) {
            (Self::ClaudeCode, InstallScope::User) => {
                "Start a new session of Claude Code; `/mcp` lists the server."
            }
            (Self::ClaudeCode, InstallScope::Project) => {
                "Start a new session of Claude Code here and approve the server of this project."
            }
            (Self::Codex, InstallScope::User) => {
                "Start a new session of Codex; `/mcp` lists the server."
            }
            (Self::Codex, InstallScope::Project) => {
                "Start a new session of Codex here; it reads this file only in a trusted project."
            }
            (Self::Cursor, _) => "Enable the server in Cursor's settings, under MCP.",
            (Self::VsCode, _) => {
                "Run `MCP: List Servers` in VS Code, start the server and confirm that it is trusted."
            }
            (Self::OpenCode, _) => "Restart opencode.",
            (Self::Goose, _) => "Start a new session of goose.",
            (Self::LibreChat, _) => "Restart LibreChat.",
        }
    }
}

impl ClientDirectories {
    fn xdg_config(&self) -> PathBuf {
        match &self.config_home {
            // The XDG specification ignores relative paths.
            Some(directory) if directory.is_absolute() => directory.clone(),
            _ => self.home.join(".config"),
        }
    }

    fn windows_app_data(&self) -> PathBuf {
        let default = || self.home.join("AppData/Roaming");
        self.app_data.clone().unwrap_or_else(default)
    }

    /// The default profile of VS Code. Source: <https://code.visualstudio.com/docs/configure/settings>, "User
    /// settings.json location"; `mcp.json` is beside that file.
    fn vscode_user(&self) -> PathBuf {
        match self.system {
            OperatingSystem::Linux => self.xdg_config().join("Code/User"),
            OperatingSystem::MacOs => self.home.join("Library/Application Support/Code/User"),
            OperatingSystem::Windows => self.windows_app_data().join("Code/User"),
        }
    }

    fn goose(&self) -> PathBuf {
        match self.system {
            OperatingSystem::Linux | OperatingSystem::MacOs => self.xdg_config().join("goose"),
            OperatingSystem::Windows => self.windows_app_data().join("Block/goose/config"),
        }
    }
}

/// opencode merges `opencode.json` and then `opencode.jsonc`, so an existing `opencode.jsonc` wins.
fn opencode_file(directory: &Path) -> PathBuf {
    let commented = directory.join("opencode.jsonc");
    if commented.exists() {
        commented
    } else {
        directory.join("opencode.json")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Client {
    type Err = InstallError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|client| client.as_str() == text)
            .ok_or_else(|| InstallError::UnknownClient(text.to_owned()))
    }
}

impl fmt::Display for InstallScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::User => "user",
            Self::Project => "project",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(client: Client, scope: InstallScope, system: OperatingSystem, expected: &str) {
        let directories = ClientDirectories {
            home: PathBuf::from("/home/me"),
            current: PathBuf::from("/work"),
            config_home: None,
            app_data: None,
            system,
        };
        let path = client.config_path(scope, &directories).unwrap();
        assert_eq!(path, Path::new(expected), "{client}");
    }

    #[test]
    fn each_scope_has_its_own_file() {
        let linux = OperatingSystem::Linux;
        for (client, user, project) in [
            (
                Client::ClaudeCode,
                "/home/me/.claude.json",
                "/work/.mcp.json",
            ),
            (
                Client::Codex,
                "/home/me/.codex/config.toml",
                "/work/.codex/config.toml",
            ),
            (
                Client::Cursor,
                "/home/me/.cursor/mcp.json",
                "/work/.cursor/mcp.json",
            ),
            (
                Client::VsCode,
                "/home/me/.config/Code/User/mcp.json",
                "/work/.vscode/mcp.json",
            ),
            (
                Client::OpenCode,
                "/home/me/.config/opencode/opencode.json",
                "/work/opencode.json",
            ),
        ] {
            check(client, InstallScope::User, linux, user);
            check(client, InstallScope::Project, linux, project);
        }
        check(
            Client::Goose,
            InstallScope::User,
            linux,
            "/home/me/.config/goose/config.yaml",
        );
        check(
            Client::LibreChat,
            InstallScope::Project,
            linux,
            "/work/librechat.yaml",
        );
    }

    #[test]
    fn other_systems_have_their_own_directories() {
        let user = InstallScope::User;
        let mac = "/home/me/Library/Application Support/Code/User/mcp.json";
        check(Client::VsCode, user, OperatingSystem::MacOs, mac);
        let windows = "/home/me/AppData/Roaming/Code/User/mcp.json";
        check(Client::VsCode, user, OperatingSystem::Windows, windows);
        let goose = "/home/me/AppData/Roaming/Block/goose/config/config.yaml";
        check(Client::Goose, user, OperatingSystem::Windows, goose);
    }

    #[test]
    fn a_scope_without_a_file_is_refused() {
        let directories = ClientDirectories {
            home: PathBuf::from("/home/me"),
            current: PathBuf::from("/work"),
            config_home: Some(PathBuf::from("/xdg")),
            app_data: None,
            system: OperatingSystem::Linux,
        };
        for (client, scope) in [
            (Client::Goose, InstallScope::Project),
            (Client::LibreChat, InstallScope::User),
        ] {
            let refused = client.config_path(scope, &directories);
            assert!(matches!(
                refused,
                Err(InstallError::UnsupportedScope { .. })
            ));
        }
        let goose = Client::Goose.config_path(InstallScope::User, &directories);
        assert_eq!(goose.unwrap(), Path::new("/xdg/goose/config.yaml"));
    }
}
