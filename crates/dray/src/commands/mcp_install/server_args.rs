//! The options of the server in an entry or a bundle: checked, and with absolute paths, because the client starts the
//! server in a directory of its own.

use std::path::Path;

use clap::Parser as _;
use dray_platform::DeliveryTarget;
use dray_types::PlatformKind;

use crate::cli::{Cli, DrayCommand, GlobalOptions, McpArgs, argument_problem};
use crate::commands::{mcp, reach, shown};
use crate::outcome::{CommandFailure, print_note};

/// What happens to relative paths in the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelativePaths {
    /// They begin at the current directory, and the absolute path is written.
    MakeAbsolute,
    /// They are written as they are, for a file of a project: clients start its servers in the project's directory.
    Keep,
    /// They are refused, for a bundle, which other machines install.
    Refuse,
}

/// The arguments of the program that start the server. Options that `dray mcp` would refuse are refused here, because a
/// client shows at most that its server ended.
pub(super) fn server_args(
    options: &[String],
    relative_paths: RelativePaths,
) -> Result<Vec<String>, CommandFailure> {
    let server = parse_options(options)?;
    check_values(&server)?;
    if relative_paths != RelativePaths::Refuse
        && let Some(root) = server.root.filter(|root| !root.is_dir())
    {
        print_note(&format!(
            "warning: --root: {} is not a directory; the server does not start without it",
            shown::path_line(&root)
        ));
    }
    let options = match relative_paths {
        RelativePaths::Keep => options.to_vec(),
        RelativePaths::MakeAbsolute => absolute_options(options)?,
        RelativePaths::Refuse => {
            refuse_relative_paths(options)?;
            options.to_vec()
        }
    };
    Ok(std::iter::once("mcp".to_owned()).chain(options).collect())
}

/// Refuses options of the server that were typed before `--`: they would be missing in the entry, and the server would
/// act for another tenant or with another store.
pub(super) fn refuse_misplaced_options(global: &GlobalOptions) -> Result<(), CommandFailure> {
    // The options are destructured, so that a new one cannot be forgotten here.
    let GlobalOptions {
        config,
        overrides,
        nats,
        s3,
        state,
        tenant,
        json: _,
    } = global;
    let typed = [
        (config.is_some(), "--config"),
        (!overrides.is_empty(), "--set"),
        (nats.is_some(), "--nats"),
        (s3.is_some(), "--s3"),
        (state.is_some(), "--state"),
        (tenant.is_some(), "--tenant"),
    ];
    match typed.into_iter().find(|(is_typed, _)| *is_typed) {
        Some((_, name)) => Err(CommandFailure::Usage(format!(
            "{name} is an option of the server: name it after `--`, as in `dray mcp install codex -- {name} VALUE`"
        ))),
        None => Ok(()),
    }
}

fn refused(problem: &str) -> CommandFailure {
    CommandFailure::Usage(format!(
        "the options of the server after `--` are invalid: {problem}"
    ))
}

/// Parses the options, and refuses those with which `dray mcp` would not serve on its standard streams.
fn parse_options(options: &[String]) -> Result<McpArgs, CommandFailure> {
    let typed = ["dray", "mcp"].into_iter();
    match Cli::try_parse_from(typed.chain(options.iter().map(String::as_str))) {
        // This is help or the version.
        Err(error) if !error.use_stderr() => {
            Err(refused("the server would print a help text and end"))
        }
        Err(error) => Err(refused(&argument_problem(&error))),
        Ok(Cli {
            command: DrayCommand::Mcp(server),
            ..
        }) if server.setup.is_none() => match server.serve.http {
            // The client reads the standard output of the program that it starts.
            Some(_) => Err(refused(
                "with `--http` the server does not use standard input and output; start it separately, and name its \
                 address with `--url`",
            )),
            None => Ok(server.serve),
        },
        Ok(_) => Err(refused("the options name another command")),
    }
}

/// Refuses addresses and chats that `dray mcp` could not read.
fn check_values(server: &McpArgs) -> Result<(), CommandFailure> {
    let in_options = |failure| match failure {
        CommandFailure::Usage(problem) => refused(&problem),
        failure => failure,
    };
    mcp::offered_chats(server).map_err(in_options)?;
    mcp::binding_request(server).map_err(in_options)?;
    Ok(())
}

fn refuse_relative_paths(options: &[String]) -> Result<(), CommandFailure> {
    for (typed, absolute) in options.iter().zip(absolute_options(options)?) {
        // A path of Windows is relative for other systems.
        if *typed != absolute && !typed.contains(r":\") {
            return Err(refused(&format!(
                "a bundle needs absolute paths, unlike `{typed}`"
            )));
        }
    }
    Ok(())
}

/// The options with absolute paths in place of relative ones. The options were parsed before, so that each name of an
/// option is followed by its value.
fn absolute_options(options: &[String]) -> Result<Vec<String>, CommandFailure> {
    let mut absolute = Vec::with_capacity(options.len());
    let mut expected: Option<PathValue> = None;
    for option in options {
        let text = match (expected.take(), option.split_once('=')) {
            (Some(kind), _) => kind.to_absolute(option)?,
            (None, Some((name, value))) => match PathValue::of_option(name) {
                Some(kind) => format!("{name}={}", kind.to_absolute(value)?),
                None => option.clone(),
            },
            (None, None) => {
                expected = PathValue::of_option(option);
                option.clone()
            }
        };
        absolute.push(text);
    }
    Ok(absolute)
}

/// Values of options that contain a path.
#[derive(Clone, Copy, Debug)]
enum PathValue {
    /// A path alone.
    Path,
    /// The address of a sandbox; `local:` has a path.
    Sandbox,
    /// A chat; `cli:` has a path.
    Chat,
}

impl PathValue {
    fn of_option(name: &str) -> Option<Self> {
        match name {
            "--root" | "--state" | "--config" => Some(Self::Path),
            "--sandbox" => Some(Self::Sandbox),
            "--to" | "--offer-chat" => Some(Self::Chat),
            _ => None,
        }
    }

    fn to_absolute(self, value: &str) -> Result<String, CommandFailure> {
        match self {
            Self::Path => absolute_path(value),
            Self::Sandbox => match value.strip_prefix(reach::LOCAL_PREFIX) {
                Some(directory) if !directory.is_empty() => Ok(format!(
                    "{}{}",
                    reach::LOCAL_PREFIX,
                    absolute_path(directory)?
                )),
                _ => Ok(value.to_owned()),
            },
            Self::Chat => match value.parse::<DeliveryTarget>() {
                Ok(target) if target.platform == PlatformKind::Cli.as_str() => {
                    absolute_chat(target)
                }
                _ => Ok(value.to_owned()),
            },
        }
    }
}

/// `cli:` with the absolute path of its directory, which is the current one where none is named.
fn absolute_chat(mut target: DeliveryTarget) -> Result<String, CommandFailure> {
    target.chat = match target.chat.as_str() {
        "" => absolute_path(".")?,
        directory => absolute_path(directory)?,
    };
    Ok(target.to_string())
}

fn absolute_path(path: &str) -> Result<String, CommandFailure> {
    // An absolute path stays as it was typed.
    if Path::new(path).is_absolute() {
        return Ok(path.to_owned());
    }
    let absolute = std::path::absolute(path)
        .map_err(CommandFailure::local("cannot find the current directory"))?;
    // JSON, TOML and YAML cannot contain a path that is not UTF-8.
    absolute
        .into_os_string()
        .into_string()
        .map_err(|path| CommandFailure::Usage(format!("the path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(options: &[&str], paths: RelativePaths) -> Result<Vec<String>, CommandFailure> {
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        server_args(&options, paths)
    }

    #[test]
    fn relative_paths_begin_at_the_current_directory() {
        let current = std::env::current_dir().unwrap();
        let current = current.to_str().unwrap();
        let typed = [
            "--root",
            "papers",
            "--state=st",
            "--sandbox",
            "local:box",
            "--allow-send",
            "--to",
            "cli:inbox",
            "--offer-chat=cli:",
            "--offer-chat",
            "telegram:42",
            "--session",
            "papers",
        ];
        let absolute = [
            "mcp".to_owned(),
            "--root".to_owned(),
            format!("{current}/papers"),
            format!("--state={current}/st"),
            "--sandbox".to_owned(),
            format!("local:{current}/box"),
            "--allow-send".to_owned(),
            "--to".to_owned(),
            format!("cli:{current}/inbox"),
            format!("--offer-chat=cli:{current}"),
            "--offer-chat".to_owned(),
            "telegram:42".to_owned(),
            "--session".to_owned(),
            "papers".to_owned(),
        ];
        assert_eq!(args(&typed, RelativePaths::MakeAbsolute).unwrap(), absolute);
        assert_eq!(args(&typed, RelativePaths::Keep).unwrap()[1..], typed);
        let refused = args(&typed, RelativePaths::Refuse).unwrap_err().to_string();
        assert!(
            refused.ends_with("absolute paths, unlike `papers`"),
            "{refused}"
        );
    }

    #[test]
    fn absolute_paths_stay_as_they_are_typed() {
        let typed = ["--root", "/srv//papers", "--sandbox", "docker:web"];
        for paths in [
            RelativePaths::MakeAbsolute,
            RelativePaths::Keep,
            RelativePaths::Refuse,
        ] {
            assert_eq!(args(&typed, paths).unwrap()[1..], typed);
        }
        let windows = ["--root", r"C:\papers"];
        assert_eq!(args(&windows, RelativePaths::Refuse).unwrap()[1..], windows);
    }
}
