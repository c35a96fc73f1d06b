//! Removal of entries: those that the command wrote, and those that people wrote for other programs.

use std::collections::BTreeMap;
use std::fs;

use dray_mcp::install::{Client, FileChange, InstallAction, InstallOptions, ServerLaunch, install};

use crate::{InstallFixture, remove};

/// Entries with the name of this server that people wrote for other programs and servers.
const fn foreign_entries(client: Client) -> [&'static str; 2] {
    match client {
        Client::ClaudeCode | Client::Cursor => [
            r#"{"mcpServers":{"drayage":{"command":"/opt/other","args":["mcp","s3cret"]}}}"#,
            r#"{"mcpServers":{"drayage":{"url":"https://files.example.org/s3cret","headers":{"X-Key":"s3cret"}}}}"#,
        ],
        Client::VsCode => [
            r#"{"servers":{"drayage":{"type":"stdio","command":"/opt/other","args":["mcp","s3cret"]}}}"#,
            r#"{"servers":{"drayage":{"type":"sse","url":"https://files.example.org/s3cret"}}}"#,
        ],
        Client::OpenCode => [
            r#"{"mcp":{"drayage":{"type":"local","command":["/opt/other","mcp","s3cret"]}}}"#,
            r#"{"mcp":{"drayage":{"type":"remote","url":"https://files.example.org/s3cret","oauth":{}}}}"#,
        ],
        Client::Codex => [
            "[mcp_servers.drayage]\ncommand = \"/opt/other\"\nargs = [\"mcp\", \"s3cret\"]\n",
            "[mcp_servers.drayage]\nurl = \"https://files.example.org/s3cret\"\nhttp_headers = { X-Key = \"s3cret\" }\n",
        ],
        Client::Goose => [
            "extensions:\n  drayage:\n    type: stdio\n    cmd: /opt/other\n    args:\n      - mcp\n      - s3cret\n",
            "extensions:\n  drayage:\n    type: sse\n    uri: https://files.example.org/s3cret\n",
        ],
        Client::LibreChat => [
            "mcpServers:\n  drayage:\n    command: /opt/other\n    args:\n      - mcp\n      - s3cret\n",
            "mcpServers:\n  drayage:\n    type: sse\n    url: https://files.example.org/s3cret\n",
        ],
    }
}

#[test]
fn an_entry_that_a_person_wrote_is_not_removed() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let described = [
            "starts the program `/opt/other`",
            "connects to `files.example.org`",
        ];
        for (text, description) in foreign_entries(client).into_iter().zip(described) {
            let path = fixture.write(client, text);
            for print_only in [false, true] {
                let message = install(&InstallOptions {
                    action: InstallAction::Remove,
                    print_only,
                    ..fixture.options(client)
                })
                .unwrap_err()
                .to_string();
                for words in [path.to_str().unwrap(), description, "nothing was changed"] {
                    assert!(message.contains(words), "{client}: {message}");
                }
                assert!(!message.contains("s3cret"), "{client}: {message}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{client}");
            }
        }
    }
}

#[test]
fn an_entry_whose_program_or_address_is_named_is_removed() {
    for client in Client::ALL {
        let fixture = InstallFixture::new();
        let [program, address] = foreign_entries(client);
        for (text, server) in [
            (
                program,
                ServerLaunch::Stdio {
                    command: "/opt/other".to_owned(),
                    args: vec!["mcp".to_owned()],
                    env: BTreeMap::new(),
                },
            ),
            (
                address,
                ServerLaunch::Http {
                    url: "https://files.example.org/s3cret".to_owned(),
                    token_variable: None,
                },
            ),
        ] {
            let path = fixture.write(client, text);
            let report = remove(&InstallOptions {
                server,
                ..fixture.options(client)
            });
            assert_eq!(report.change, FileChange::Deleted, "{client}");
            assert!(!path.exists(), "{client}");
        }
    }
}

#[test]
fn entries_that_were_installed_are_removed_after_a_client_added_settings() {
    let fixture = InstallFixture::new();
    for (client, text) in [
        (
            Client::ClaudeCode,
            r#"{"mcpServers":{"drayage":{"command":"C:\\tools\\dray.exe","args":["mcp","--root","x"],"disabled":true}}}"#,
        ),
        (
            Client::OpenCode,
            r#"{"mcp":{"drayage":{"type":"local","command":["dray","mcp"],"enabled":false}}}"#,
        ),
        (
            Client::Goose,
            "extensions:\n  drayage:\n    enabled: false\n    type: stdio\n    cmd: dray\n    args:\n      - mcp\n    available_tools: []\n",
        ),
        (
            Client::VsCode,
            r#"{"servers":{"drayage":{"type":"http","url":"http://127.0.0.1:7333/mcp","headers":{"Authorization":"Bearer ${env:DRAY_TOKEN}"}}}}"#,
        ),
        (
            Client::Codex,
            "[mcp_servers.drayage]\nurl = \"https://files.example.org/mcp\"\nbearer_token_env_var = \"DRAY_TOKEN\"\n",
        ),
    ] {
        fixture.write(client, text);
        let report = remove(&fixture.options(client));
        assert_eq!(report.change, FileChange::Deleted, "{client}");
    }
}
