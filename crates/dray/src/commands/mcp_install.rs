//! `dray mcp install`, `dray mcp bundle`, `dray mcp server-json`: the configuration with which clients find this
//! server.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use dray_mcp::install::bundle::{BundleOptions, PackageError, build_bundle, describe_bundle};
use dray_mcp::install::registry::{PublishedBundle, RegistryOptions, server_json};
use dray_mcp::install::{
    ClientDirectories, InstallAction, InstallError, InstallOptions, InstallScope, OperatingSystem,
    ServerLaunch, install,
};
use dray_types::{Fault, FaultCode};
use serde_json::json;

use crate::cli::{
    GlobalOptions, McpBundleArgs, McpInstallArgs, McpServerJsonArgs, McpSetupCommand,
};
use crate::context::named_directory;
use crate::outcome::{CommandFailure, print_line};

mod server_args;

use self::server_args::{RelativePaths, refuse_misplaced_options, server_args};

/// Runs one of the commands that prepare clients. None of them needs a bus or a store.
pub(crate) fn run(global: &GlobalOptions, command: &McpSetupCommand) -> Result<(), CommandFailure> {
    match command {
        McpSetupCommand::Install(args) => {
            refuse_misplaced_options(global)?;
            run_install(global, args)
        }
        McpSetupCommand::Bundle(args) => {
            refuse_misplaced_options(global)?;
            run_bundle(global, args)
        }
        McpSetupCommand::ServerJson(args) => print_server_json(args),
    }
}

fn run_install(global: &GlobalOptions, args: &McpInstallArgs) -> Result<(), CommandFailure> {
    let options = InstallOptions {
        client: args.client,
        scope: args.scope,
        name: args.name.clone(),
        server: server_launch(args)?,
        action: if args.remove {
            InstallAction::Remove
        } else {
            InstallAction::Install {
                replace: args.replace,
            }
        },
        print_only: args.print,
        file: args.file.clone(),
        directories: client_directories(args)?,
    };
    let report = install(&options).map_err(install_failure)?;
    if global.json {
        print_line(&serde_json::to_string(&report).unwrap_or_default());
        return Ok(());
    }
    print_line(&report.to_string());
    if args.print && !args.remove {
        print_line(&format!("\n{}", report.snippet.trim_end()));
    }
    Ok(())
}

fn server_launch(args: &McpInstallArgs) -> Result<ServerLaunch, CommandFailure> {
    if let Some(url) = &args.url {
        return Ok(ServerLaunch::Http {
            url: url.clone(),
            token_variable: args.token_env.clone(),
        });
    }
    let program = program_path(args.command.as_deref())?;
    // JSON, TOML and YAML cannot contain a path that is not UTF-8.
    let command = program.into_os_string().into_string().map_err(|path| {
        CommandFailure::Usage(format!("the path {} is not UTF-8", path.display()))
    })?;
    let relative_paths = match args.scope {
        Some(InstallScope::Project) => RelativePaths::Keep,
        Some(InstallScope::User) | None => RelativePaths::MakeAbsolute,
    };
    Ok(ServerLaunch::Stdio {
        command,
        args: server_args(&args.server_args, relative_paths)?,
        env: args.env.iter().cloned().collect(),
    })
}

/// The absolute path of the named program, or of this one.
fn program_path(named: Option<&Path>) -> Result<PathBuf, CommandFailure> {
    match named {
        Some(named) => std::path::absolute(named),
        None => env::current_exe(),
    }
    .map_err(CommandFailure::local("cannot find the path of the program"))
}

fn client_directories(args: &McpInstallArgs) -> Result<ClientDirectories, CommandFailure> {
    let home = env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| {
        CommandFailure::Usage("the home directory is not known: set HOME, or use --file".to_owned())
    })?;
    let directory = |value: Option<&OsStr>| named_directory(value?);
    Ok(ClientDirectories {
        home,
        current: env::current_dir()
            .map_err(CommandFailure::local("cannot find the current directory"))?,
        config_home: directory(args.config_home.as_deref()),
        app_data: directory(args.app_data.as_deref()),
        system: OperatingSystem::current(),
    })
}

fn install_failure(error: InstallError) -> CommandFailure {
    let text = error.to_string();
    match error {
        InstallError::UnknownClient(_)
        | InstallError::UnsupportedScope { .. }
        | InstallError::InvalidOption(_) => CommandFailure::Usage(text),
        InstallError::BrokenLink { source, .. }
        | InstallError::Read { source, .. }
        | InstallError::Write { source, .. } => CommandFailure::Local {
            description: text,
            source,
        },
        InstallError::Occupied { .. } => Fault::new(FaultCode::InvalidArgument, text)
            .detail("entry_exists")
            .advice("Repeat the command with --replace, or with another --name.")
            .into(),
        InstallError::Foreign { .. } => Fault::new(FaultCode::InvalidArgument, text)
            .detail("entry_not_installed")
            .advice(
                "If `dray mcp install` wrote it for another program or address, repeat this with that --command or --url.",
            )
            .into(),
        InstallError::Locked(_) => Fault::new(FaultCode::Unavailable, text)
            .detail("client_config_locked")
            .into(),
        InstallError::NotAFile(_)
        | InstallError::TooLarge(_)
        | InstallError::ForeignOwner(_)
        | InstallError::Syntax { .. }
        | InstallError::Unsupported { .. }
        | InstallError::ChangedConcurrently(_) => Fault::new(FaultCode::InvalidArgument, text)
            .detail("client_config")
            .into(),
    }
}

fn run_bundle(global: &GlobalOptions, args: &McpBundleArgs) -> Result<(), CommandFailure> {
    let bundle = build_bundle(&BundleOptions {
        binary: program_path(args.binary.as_deref())?,
        system: args.system.unwrap_or(OperatingSystem::current()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        args: server_args(&args.server_args, RelativePaths::Refuse)?,
        output: args.output.clone(),
    })
    .map_err(package_failure)?;
    let path = bundle.path.display().to_string();
    if global.json {
        let document = json!({ "path": path, "size": bundle.size, "sha256": bundle.sha256 });
        print_line(&document.to_string());
    } else {
        print_line(&format!(
            "wrote {path}: {} bytes, sha256 {}",
            bundle.size, bundle.sha256
        ));
    }
    Ok(())
}

/// The document is the output, with and without `--json`.
fn print_server_json(args: &McpServerJsonArgs) -> Result<(), CommandFailure> {
    let mut bundles = Vec::new();
    for (file, url) in &args.bundles {
        bundles.push(PublishedBundle {
            url: url.clone(),
            bundle: describe_bundle(Path::new(file)).map_err(package_failure)?,
        });
    }
    let document = server_json(&RegistryOptions {
        name: args.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        repository: args.repository.clone(),
        bundles,
    })
    .map_err(package_failure)?;
    print_line(&format!("{document:#}"));
    Ok(())
}

fn package_failure(error: PackageError) -> CommandFailure {
    let text = error.to_string();
    match error {
        PackageError::InvalidOption(_) => CommandFailure::Usage(text),
        PackageError::Read { source, .. } | PackageError::Write { source, .. } => {
            CommandFailure::Local {
                description: text,
                source,
            }
        }
    }
}
