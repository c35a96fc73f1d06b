//! The entry of one server, in the shape that each client reads.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use url::Url;

use super::client::Client;
use super::error::InstallError;

/// Seconds that goose waits for a call. Its documentation uses this value for every extension.
const GOOSE_TIMEOUT_SECONDS: u64 = 300;

/// Longest name of an entry. Clients prepend it to the names of tools, which models accept up to 64 characters.
const MAX_NAME_BYTES: usize = 32;

/// The way in which a client reaches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLaunch {
    /// The client starts a program and speaks with it over its standard streams.
    Stdio {
        /// Absolute path of the program, because clients with a window have another `PATH` than a shell.
        command: String,
        /// Arguments of the program.
        args: Vec<String>,
        /// Variables that are added to the environment of the program. They are written unchanged: a secret in them is
        /// then in the file.
        env: BTreeMap<String, String>,
    },
    /// The client connects to a running server (streamable HTTP).
    Http {
        /// The endpoint: `http` or `https`.
        url: String,
        /// Name of the variable in the client's environment that holds the bearer token. Only the name is written.
        token_variable: Option<String>,
    },
}

impl ServerLaunch {
    /// Refuses values that a client would misinterpret.
    pub(super) fn validate(&self, client: Client) -> Result<(), InstallError> {
        let invalid = |text: String| Err(InstallError::InvalidOption(text));
        match self {
            Self::Stdio { command, env, .. } => {
                let markers = client.variable_markers();
                if let Some(marker) = markers.iter().find(|marker| command.contains(**marker)) {
                    let name = client.display_name();
                    return invalid(format!(
                        "the path {command} contains `{marker}`, which {name} replaces by a variable"
                    ));
                }
                match env.keys().find(|name| !is_variable_name(name)) {
                    Some(name) => invalid(format!("`{name}` is not a name of a variable")),
                    None => Ok(()),
                }
            }
            Self::Http {
                url,
                token_variable,
            } => {
                validate_url(url)?;
                match token_variable {
                    Some(name) if !is_variable_name(name) => {
                        invalid(format!("`{name}` is not a name of a variable"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// The entry as `client` reads it.
    pub(super) fn to_entry(&self, client: Client, name: &str) -> Value {
        let mut entry = Map::new();
        match self {
            Self::Stdio { command, args, env } => {
                let stdio = StdioCommand { command, args, env };
                stdio.add_fields(client, name, &mut entry);
            }
            Self::Http {
                url,
                token_variable,
            } => add_http_fields(client, name, url, token_variable.as_deref(), &mut entry),
        }
        Value::Object(entry)
    }
}

/// Refuses names that a client would change or refuse.
pub(super) fn validate_name(name: &str) -> Result<(), InstallError> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    let starts_with_letter = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    // Claude Code reserves `workspace`; opencode 2 reads `servers` and `timeout` as settings.
    let is_reserved = matches!(name, "workspace" | "servers" | "timeout");
    if starts_with_letter
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_allowed)
        && !is_reserved
    {
        return Ok(());
    }
    Err(InstallError::InvalidOption(format!(
        "`{name}` cannot be the name of an entry: use up to {MAX_NAME_BYTES} of a-z, 0-9, `-` and `_`, beginning with \
         a letter; workspace, servers and timeout are reserved"
    )))
}

fn validate_url(text: &str) -> Result<(), InstallError> {
    let invalid = |text: String| Err(InstallError::InvalidOption(text));
    match Url::parse(text) {
        Err(error) => invalid(format!("`{text}` is not an address: {error}")),
        // The message does not repeat the address, because messages are often shared.
        Ok(url) if !url.username().is_empty() || url.password().is_some() => invalid(
            "the address of the server contains credentials, which would be in the file".to_owned(),
        ),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            invalid(format!("the scheme of `{text}` is not http or https"))
        }
        Ok(_) => Ok(()),
    }
}

fn is_variable_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_with_digit = name.bytes().next().is_none_or(|byte| byte.is_ascii_digit());
    !starts_with_digit && name.bytes().all(is_allowed)
}

/// A program that a client starts.
struct StdioCommand<'a> {
    command: &'a str,
    args: &'a [String],
    env: &'a BTreeMap<String, String>,
}

impl StdioCommand<'_> {
    fn add_fields(&self, client: Client, name: &str, entry: &mut Map<String, Value>) {
        let mut set = |key: &str, value: Value| entry.insert(key.to_owned(), value);
        match client {
            Client::ClaudeCode | Client::Cursor | Client::VsCode | Client::LibreChat => {
                set("type", json!("stdio"));
                set("command", json!(self.command));
                set("args", json!(self.args));
            }
            Client::Codex => {
                set("command", json!(self.command));
                set("args", json!(self.args));
            }
            Client::OpenCode => {
                let argv =
                    std::iter::once(self.command).chain(self.args.iter().map(String::as_str));
                set("type", json!("local"));
                set("command", argv.collect());
            }
            Client::Goose => {
                set("enabled", json!(true));
                set("type", json!("stdio"));
                set("name", json!(name));
                // The field is required by goose's `ExtensionConfig`.
                set("description", json!(super::SERVER_DESCRIPTION));
                set("cmd", json!(self.command));
                set("args", json!(self.args));
                set("timeout", json!(GOOSE_TIMEOUT_SECONDS));
            }
        }
        let env_key = match client {
            Client::OpenCode => "environment",
            Client::Goose => "envs",
            _ => "env",
        };
        if !self.env.is_empty() {
            set(env_key, json!(self.env));
        }
    }
}

fn add_http_fields(
    client: Client,
    name: &str,
    url: &str,
    token_variable: Option<&str>,
    entry: &mut Map<String, Value>,
) {
    let mut set = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    match client {
        Client::ClaudeCode | Client::VsCode => {
            set("type", json!("http"));
            set("url", json!(url));
        }
        // Both take an entry with a `url` as streamable HTTP.
        Client::Codex | Client::Cursor => {
            set("url", json!(url));
        }
        Client::OpenCode => {
            set("type", json!("remote"));
            set("url", json!(url));
        }
        Client::LibreChat => {
            set("type", json!("streamable-http"));
            set("url", json!(url));
        }
        Client::Goose => {
            set("enabled", json!(true));
            set("type", json!("streamable_http"));
            set("name", json!(name));
            set("description", json!(super::SERVER_DESCRIPTION));
            set("uri", json!(url));
            set("timeout", json!(GOOSE_TIMEOUT_SECONDS));
        }
    }
    let Some(variable) = token_variable else {
        return;
    };
    if client == Client::Codex {
        set("bearer_token_env_var", json!(variable));
        return;
    }
    if client == Client::Goose {
        // goose replaces a variable in headers only when it is listed here.
        set("env_keys", json!([variable]));
    }
    let reference = match client {
        Client::Cursor | Client::VsCode => format!("${{env:{variable}}}"),
        Client::OpenCode => format!("{{env:{variable}}}"),
        _ => format!("${{{variable}}}"),
    };
    set(
        "headers",
        json!({ "Authorization": format!("Bearer {reference}") }),
    );
}
