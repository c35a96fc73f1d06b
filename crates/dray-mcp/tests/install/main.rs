//! The configuration of each client: what is written where, what is kept, and what is refused.

#![expect(clippy::panic, clippy::unwrap_used, reason = "all of it is a test")]

mod removal;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use dray_mcp::install::{
    Client, ClientDirectories, FileChange, InstallAction, InstallError, InstallOptions,
    InstallReport, OperatingSystem, ServerLaunch, install,
};
use tempfile::TempDir;

const INSTALL_WITHOUT_REPLACING: InstallAction = InstallAction::Install { replace: false };

/// A home with a space in its name, and a project in it.
struct InstallFixture {
    _root: TempDir,
    home: PathBuf,
    project: PathBuf,
}

impl InstallFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home of someone");
        let project = home.join("a project");
        fs::create_dir_all(&project).unwrap();
        Self {
            _root: root,
            home,
            project,
        }
    }

    fn directories(&self, system: OperatingSystem) -> ClientDirectories {
        ClientDirectories {
            home: self.home.clone(),
            current: self.project.clone(),
            config_home: None,
            app_data: None,
            system,
        }
    }

    fn options(&self, client: Client) -> InstallOptions {
        InstallOptions {
            client,
            scope: None,
            name: "drayage".to_owned(),
            server: ServerLaunch::Stdio {
                command: "/opt/my tools/dray".to_owned(),
                args: vec!["mcp".to_owned()],
                env: BTreeMap::new(),
            },
            action: INSTALL_WITHOUT_REPLACING,
            print_only: false,
            file: None,
            directories: self.directories(OperatingSystem::Linux),
        }
    }

    fn path(&self, client: Client) -> PathBuf {
        let directories = self.directories(OperatingSystem::Linux);
        client
            .config_path(client.default_scope(), &directories)
            .unwrap()
    }

    /// Writes the file of a client before it is edited.
    fn write(&self, client: Client, text: &str) -> PathBuf {
        let path = self.path(client);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

fn run(options: &InstallOptions) -> InstallReport {
    install(options).unwrap_or_else(|error| panic!("{}: {error}", options.client))
}

fn remove(options: &InstallOptions) -> InstallReport {
    run(&InstallOptions {
        action: InstallAction::Remove,
        ..options.clone()
    })
}

/// A file with a comment, another server and a setting, as each client's users write it.
const fn existing(client: Client) -> &'static str {
    match client {
        Client::ClaudeCode => {
            "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"other\": {\n      \"command\": \"x\"\n    }\n  },\n  \"b\": 1.0\n}"
        }
        Client::Cursor => "{\n\t\"mcpServers\": {\n\t\t\"other\": { \"command\": \"x\" }\n\t}\n}\n",
        Client::VsCode => {
            "{\n    // my servers\n    \"servers\": {\n        \"other\": { \"type\": \"stdio\", \"command\": \"x\" }, // note\n    },\n    \"inputs\": [],\n}\n"
        }
        Client::OpenCode => {
            "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"theme\": \"system\" // dark\n}\n"
        }
        Client::Codex => {
            "model = \"x\" # the model\n\n[mcp_servers.other]\ncommand = \"x\"\n\n# projects\n[projects.\"/a b\"]\ntrust_level = \"trusted\"\n"
        }
        Client::Goose => {
            "GOOSE_MODEL: x\nextensions:\n  developer:\n    enabled: true # yes\n    type: builtin\nGOOSE_MODE: auto\n"
        }
        Client::LibreChat => {
            "# my chat\nversion: 1.3.5\ncache: true\n\nmcpServers:\n  other:\n    command: x\n\n# registration\nregistration:\n  socialLogins: ['github']\n"
        }
    }
}

/// The entry as each vendor documents it, in a new file.
const fn expected_entry(client: Client) -> &'static str {
    match client {
        Client::ClaudeCode | Client::Cursor => {
            r#"{"mcpServers":{"drayage":{"type":"stdio","command":"/opt/my tools/dray","args":["mcp"]}}}"#
        }
        Client::VsCode => {
            r#"{"servers":{"drayage":{"type":"stdio","command":"/opt/my tools/dray","args":["mcp"]}}}"#
        }
        Client::OpenCode => {
            r#"{"mcp":{"drayage":{"type":"local","command":["/opt/my tools/dray","mcp"]}}}"#
        }
        Client::Codex => {
            "[mcp_servers.drayage]\ncommand = \"/opt/my tools/dray\"\nargs = [\"mcp\"]\n"
        }
        Client::Goose => {
            "extensions:\n  drayage:\n    enabled: true\n    type: stdio\n    name: drayage\n    description: \"Moves files between agents, sandboxes, the web and chats without passing them through the model\"\n    cmd: \"/opt/my tools/dray\"\n    args:\n      - mcp\n    timeout: 300\n"
        }
        Client::LibreChat => {
            "mcpServers:\n  drayage:\n    type: stdio\n    command: \"/opt/my tools/dray\"\n    args:\n      - mcp\n"
        }
    }
}

/// JSON without its layout; other formats as they are.
fn compact(text: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(text);
    value.map_or_else(|_| text.to_owned(), |value| value.to_string())
}

#[test]
fn a_new_file_contains_the_documented_entry_and_is_removed_with_it() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let options = fixture.options(client);
        let report = run(&options);
        assert_eq!((report.change, report.written), (FileChange::Created, true));
        assert_eq!(report.path, fixture.path(client));
        assert!(report.next_step.is_some());
        assert_eq!(compact(&report.snippet), expected_entry(client), "{client}");
        // A file of LibreChat is invalid without a version.
        let head = match client {
            Client::LibreChat => "version: 1.3.17\n",
            _ => "",
        };
        let text = fs::read_to_string(&report.path).unwrap();
        assert_eq!(text, format!("{head}{}", report.snippet), "{client}");
        assert_eq!(run(&options).change, FileChange::Unchanged);
        let removal = remove(&options);
        assert_eq!(removal.next_step, None);
        if head.is_empty() {
            assert_eq!(removal.change, FileChange::Deleted);
            assert!(!report.path.exists(), "{client}");
        } else {
            assert_eq!(fs::read_to_string(&report.path).unwrap(), head);
        }
        assert_eq!(remove(&options).change, FileChange::Absent);
    }
}

#[test]
fn everything_else_in_a_file_stays_byte_for_byte() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let before = existing(client);
        let path = fixture.write(client, before);
        let options = fixture.options(client);
        assert_eq!(run(&options).change, FileChange::Added, "{client}");
        let after = fs::read_to_string(&path).unwrap();
        // Every line is still there and in order; in JSON one gets a comma.
        let mut lines = after.lines();
        for line in before.lines() {
            let is_line = |kept: &str| {
                kept == line || kept == format!("{line},") || kept.replace(',', "") == line
            };
            assert!(
                lines.any(is_line),
                "{client}: {line} is missing in\n{after}"
            );
        }
        assert_eq!(run(&options).change, FileChange::Unchanged, "{client}");
        assert_eq!(remove(&options).change, FileChange::Removed, "{client}");
        assert_eq!(fs::read_to_string(&path).unwrap(), before, "{client}");
    }
}

#[test]
fn a_broken_file_is_named_with_its_place_and_stays() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let broken = "{ \"a\": 1,\n  [broken\n";
        let path = fixture.write(client, broken);
        for action in [INSTALL_WITHOUT_REPLACING, InstallAction::Remove] {
            let options = InstallOptions {
                action,
                ..fixture.options(client)
            };
            let message = install(&options).unwrap_err().to_string();
            assert!(
                message.contains(path.to_str().unwrap()),
                "{client}: {message}"
            );
            assert!(message.contains(" on line "), "{client}: {message}");
            assert!(
                message.contains("nothing was changed"),
                "{client}: {message}"
            );
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
}

#[test]
fn an_entry_with_other_values_is_replaced_only_on_request() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let mut options = fixture.options(client);
        let path = run(&options).path;
        let before = fs::read_to_string(&path).unwrap();
        options.server = ServerLaunch::Http {
            url: "http://127.0.0.1:7333/mcp".to_owned(),
            token_variable: Some("DRAY_TOKEN".to_owned()),
        };
        let error = install(&options).unwrap_err();
        assert!(
            matches!(error, InstallError::Occupied { .. }),
            "{client}: {error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        options.action = InstallAction::Install { replace: true };
        assert_eq!(run(&options).change, FileChange::Replaced);
        let after = fs::read_to_string(&path).unwrap();
        assert!(
            after.contains("7333/mcp") && !after.contains("my tools"),
            "{client}: {after}"
        );
        assert!(after.contains("DRAY_TOKEN"), "{client}: {after}");
    }
}

#[test]
fn a_token_is_named_in_the_syntax_of_each_client() {
    let references = [
        (Client::ClaudeCode, "Bearer ${DRAY_TOKEN}"),
        (Client::Codex, "bearer_token_env_var = \"DRAY_TOKEN\""),
        (Client::Cursor, "Bearer ${env:DRAY_TOKEN}"),
        (Client::VsCode, "Bearer ${env:DRAY_TOKEN}"),
        (Client::OpenCode, "Bearer {env:DRAY_TOKEN}"),
        (Client::Goose, "Bearer ${DRAY_TOKEN}"),
        (Client::LibreChat, "Bearer ${DRAY_TOKEN}"),
    ];
    for (client, reference) in references {
        let fixture = InstallFixture::new();
        let report = run(&InstallOptions {
            server: ServerLaunch::Http {
                url: "https://files.example.org/mcp".to_owned(),
                token_variable: Some("DRAY_TOKEN".to_owned()),
            },
            print_only: true,
            ..fixture.options(client)
        });
        assert!(
            report.snippet.contains(reference),
            "{client}: {}",
            report.snippet
        );
        assert!(!report.path.exists() && !report.written);
    }
}

#[test]
fn printing_changes_nothing() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let path = fixture.write(client, existing(client));
        let mut options = fixture.options(client);
        options.print_only = true;
        let report = run(&options);
        assert_eq!((report.change, report.written), (FileChange::Added, false));
        assert!(
            report
                .to_string()
                .starts_with("would add the entry `drayage`")
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), existing(client));
    }
}

#[test]
fn the_page_of_the_clients_shows_each_entry() {
    let page = include_str!("../../../../docs/mcp-clients.md");
    let fixture = InstallFixture::new();
    for client in Client::ALL {
        let mut options = fixture.options(client);
        options.server = ServerLaunch::Stdio {
            command: "/usr/local/bin/dray".to_owned(),
            args: vec!["mcp".to_owned()],
            env: BTreeMap::new(),
        };
        options.print_only = true;
        let snippet = run(&options).snippet;
        assert!(page.contains(&snippet), "{client} lacks\n{snippet}");
    }
}

#[test]
fn opencode_keeps_its_layout_and_its_file_with_comments() {
    let fixture = InstallFixture::new();
    let directory = fixture.home.join(".config/opencode");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("opencode.jsonc");
    let before = "{\n  \"mcp\": {\n    \"servers\": {\n      // mine\n      \"x\": { \"type\": \"local\", \"command\": [\"x\"] },\n    },\n  },\n}\n";
    fs::write(&path, before).unwrap();
    let options = fixture.options(Client::OpenCode);
    assert_eq!(run(&options).path, path);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("\n      \"drayage\": {\n"), "{after}");
    remove(&options);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn names_and_paths_that_a_client_would_misread_are_refused() {
    let fixture = InstallFixture::new();
    let base = fixture.options(Client::ClaudeCode);
    for name in [
        "",
        "Big",
        "a b",
        "workspace",
        "servers",
        "a.b",
        "1a",
        &"a".repeat(33),
    ] {
        let options = InstallOptions {
            name: name.to_owned(),
            ..base.clone()
        };
        assert!(
            matches!(install(&options), Err(InstallError::InvalidOption(_))),
            "{name}"
        );
    }
    let launches = [
        ServerLaunch::Stdio {
            command: "/opt/${USER}/dray".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
        },
        ServerLaunch::Http {
            url: "ftp://example.org/".to_owned(),
            token_variable: None,
        },
        ServerLaunch::Http {
            url: "https://user:secret@example.org/".to_owned(),
            token_variable: None,
        },
        ServerLaunch::Http {
            url: "https://example.org/".to_owned(),
            token_variable: Some("A TOKEN".to_owned()),
        },
    ];
    for server in launches {
        let options = InstallOptions {
            server,
            ..base.clone()
        };
        let error = install(&options).unwrap_err();
        assert!(matches!(error, InstallError::InvalidOption(_)), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert!(!fixture.path(Client::ClaudeCode).exists());
    let unknown = "emacs".parse::<Client>().unwrap_err().to_string();
    assert!(unknown.contains("claude-code, codex, cursor"), "{unknown}");
}
