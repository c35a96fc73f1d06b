//! Decides whether an entry in a configuration is one that [`super::install`] writes, so that a removal keeps entries
//! that people wrote for other programs.
//!
//! An entry has no mark of its own: clients show or refuse unknown fields. So the program and its first argument
//! decide, or the fields of an entry with an address.

use serde_json::Value;
use url::Url;

use super::client::Client;
use super::entry::ServerLaunch;

/// Names of the program, with and without the extension of Windows.
const PROGRAM_NAMES: [&str; 2] = ["dray", "dray.exe"];

/// The first argument of every entry that starts the program.
const SERVER_COMMAND: &str = "mcp";

/// Whether [`super::install`] could have written `entry`. It starts a program called `dray`, or that of `server`, with
/// `mcp` as its first argument; or it has the address of `server`, or no other fields than an installed entry with an
/// address. Other fields of an entry with a program do not count, because clients add settings.
pub(super) fn is_installed_entry(
    client: Client,
    name: &str,
    entry: &Value,
    server: &ServerLaunch,
) -> bool {
    if let Some(program) = program(client, entry) {
        let is_named =
            matches!(server, ServerLaunch::Stdio { command, .. } if program.command == command);
        return program.first_argument == Some(SERVER_COMMAND)
            && (is_named || is_own_program(program.command));
    }
    let Some(url) = address(client, entry) else {
        return false;
    };
    matches!(server, ServerLaunch::Http { url: named, .. } if named == url)
        || has_installed_fields(client, name, entry, url)
}

/// What an entry starts or connects to. Arguments, paths and values are left out, because they can contain secrets.
pub(super) fn describe_entry(client: Client, entry: &Value) -> String {
    if let Some(program) = program(client, entry) {
        return match program.first_argument {
            Some(SERVER_COMMAND) => format!("starts the program `{}`", program.command),
            _ => format!(
                "starts the program `{}` without the argument `{SERVER_COMMAND}`",
                program.command
            ),
        };
    }
    let url = address(client, entry).and_then(|address| Url::parse(address).ok());
    match url.as_ref().and_then(Url::host_str) {
        Some(host) => format!("connects to `{host}` with other settings than the command writes"),
        None => "names neither a program nor an address".to_owned(),
    }
}

/// The program that an entry starts.
struct EntryProgram<'a> {
    command: &'a str,
    first_argument: Option<&'a str>,
}

fn program(client: Client, entry: &Value) -> Option<EntryProgram<'_>> {
    let (command, first_argument) = match client {
        Client::OpenCode => ("/command/0", "/command/1"),
        Client::Goose => ("/cmd", "/args/0"),
        _ => ("/command", "/args/0"),
    };
    Some(EntryProgram {
        command: text_at(entry, command)?,
        first_argument: text_at(entry, first_argument),
    })
}

fn address(client: Client, entry: &Value) -> Option<&str> {
    let pointer = match client {
        Client::Goose => "/uri",
        _ => "/url",
    };
    text_at(entry, pointer)
}

fn text_at<'a>(entry: &'a Value, pointer: &str) -> Option<&'a str> {
    entry.pointer(pointer)?.as_str()
}

/// Whether the last part of a path is the name of the program. Both separators count: a shared file can come from
/// another operating system.
fn is_own_program(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    PROGRAM_NAMES
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

/// Whether an entry has exactly the fields that the installation of this address writes, with a token or without.
fn has_installed_fields(client: Client, name: &str, entry: &Value, url: &str) -> bool {
    let has_fields = |token_variable: Option<String>| {
        let installed = ServerLaunch::Http {
            url: url.to_owned(),
            token_variable,
        };
        installed.validate(client).is_ok() && installed.to_entry(client, name) == *entry
    };
    has_fields(None) || token_variable(client, entry).is_some_and(|name| has_fields(Some(name)))
}

/// The variable that holds the token of an entry, if the entry names one.
fn token_variable(client: Client, entry: &Value) -> Option<String> {
    if client == Client::Codex {
        return Some(text_at(entry, "/bearer_token_env_var")?.to_owned());
    }
    let reference = text_at(entry, "/headers/Authorization")?;
    let name = reference.strip_prefix("Bearer ")?.strip_suffix('}')?;
    let name = name.trim_start_matches(['$', '{']);
    Some(name.strip_prefix("env:").unwrap_or(name).to_owned())
}
