//! Tests of the commands in `docs/runbooks.md`: each has an identity in the table of the page, and the shipped accounts
//! permit it.

use std::process::Command;

use super::server::{AccountsServer, password};
use crate::deploy::read;
use crate::support;

/// Commands of the page that end without a running service, in an order in which they can run.
const RUNBOOK_COMMANDS: [&str; 6] = [
    "topology apply --store-size 5GiB",
    "topology check",
    "dlq list",
    "dlq redrive --detail no_responder --dry-run",
    "receipts --open --tenant acme",
    "resend 01a22d41-3f7b-726e-ba15-30f5267319f7 --tenant acme",
];

/// The texts in code quotes that begin with `dray `.
fn quoted_commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| text.strip_prefix("dray "))
        .map(str::to_owned)
        .collect()
}

/// The commands of the table at the beginning of the page, with their identity; `none` needs no connection.
fn table(page: &str) -> Vec<(String, String)> {
    let rows = page.lines().filter(|line| line.starts_with("| `dray "));
    let mut commands = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let identity = cells[2].split('`').nth(1).unwrap_or("none");
        let quoted = quoted_commands(cells[1]).into_iter();
        commands.extend(quoted.map(|command| (command, identity.to_owned())));
    }
    commands
}

fn identity_of<'a>(table: &'a [(String, String)], command: &str) -> Option<&'a str> {
    let row = table.iter().find(|(start, _)| command.starts_with(start));
    row.map(|(_, identity)| identity.as_str())
}

#[test]
fn every_command_of_the_runbooks_has_an_identity() {
    let page = read("docs/runbooks.md");
    let table = table(&page);
    assert!(table.len() > 6, "{table:?}");
    for command in quoted_commands(&page) {
        assert!(identity_of(&table, &command).is_some(), "dray {command}");
    }
}

#[test]
fn the_accounts_permit_the_commands_of_the_runbooks_to_their_identities() {
    let table = table(&read("docs/runbooks.md"));
    let server = AccountsServer::start();
    let directory = tempfile::tempdir().unwrap();
    for command in RUNBOOK_COMMANDS {
        let identity = identity_of(&table, command).unwrap();
        let output = Command::new(support::dray())
            .args(["--nats", &format!("nats://{}", server.address())])
            .args(command.split(' '))
            .env("DRAY_BUS__NATS__NAME", identity)
            .env("DRAY_BUS__NATS__USER", identity)
            .env("DRAY_BUS__NATS__PASSWORD", password(identity))
            .current_dir(directory.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // The last two get no response from a service that does not run.
        let is_answered = output.status.success() || errors.contains("no_responder");
        assert!(is_answered, "dray {command}: {errors}");
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}
