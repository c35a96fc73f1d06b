//! `dray mcp`: the services as a server of the Model Context Protocol.

use std::path::Path;
use std::time::Duration;

use dray_mcp::{
    AuthOptions, BearerToken, Caller, FileLimits, HttpEndpoint, HttpError, HttpOptions, LocalRoot,
    McpServer, OfferedChat, Permissions, ScopeSet, ServerOptions, ServiceClient, StaticToken,
    TicketAccess,
};
use dray_proto::v1;
use dray_service::config::LoadedConfig;
use dray_service::host::ErrorChain;
use dray_service::stop_signals::StopSignals;
use dray_types::{Period, TenantId};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cli::{GlobalOptions, McpArgs, McpCommand};
use crate::commands::{deliver, mcp_install, reach, ticket_serve};
use crate::context::{self, SystemConnection};
use crate::interruption;
use crate::outcome::{CommandFailure, print_note};
use crate::standard_input::read_standard_input;

/// Services behind the tools.
const MCP_SERVICES: [&str; 4] = [
    "file-resolver",
    "egress-fetcher",
    "sandbox-transfer",
    "platform-delivery",
];
/// Timeout for binding the sandbox and the chat of the session.
pub(super) const BIND_TIMEOUT: Duration = Duration::from_mins(1);

/// The names of a server's options on its command line, for messages.
#[derive(Clone, Copy)]
pub(super) struct OptionNames {
    pub(super) address: &'static str,
    pub(super) root: &'static str,
    pub(super) token_file: &'static str,
    pub(super) auth_file: &'static str,
}

const OPTION_NAMES: OptionNames = OptionNames {
    address: "--http",
    root: "--root",
    token_file: "--token-file",
    auth_file: "--auth-file",
};

/// Prepares a client, or serves.
pub(crate) async fn run(global: &GlobalOptions, mcp: &McpCommand) -> Result<(), CommandFailure> {
    match &mcp.setup {
        Some(setup) => mcp_install::run(global, setup),
        // The future is boxed, because that of a server is large.
        None => Box::pin(serve(global, &mcp.serve)).await,
    }
}

/// Serves until the client disconnects or a signal arrives. Standard output is used by the protocol only.
async fn serve(global: &GlobalOptions, mcp: &McpArgs) -> Result<(), CommandFailure> {
    // All options are checked before services start.
    let root = local_root(mcp, OPTION_NAMES)?;
    let sandbox = mcp.sandbox.as_deref().unwrap_or_default();
    if !sandbox.is_empty() {
        reach::check_address(sandbox)?;
    }
    let chats = offered_chats(mcp)?;
    // Both ports are bound before services start, so that a port in use ends the command early.
    let endpoint = bind_endpoint(mcp, &context::tenant_of(global)?, OPTION_NAMES).await?;
    let tickets = match mcp.tickets {
        Some(address) => {
            Some(ticket_serve::bind_endpoint(address, mcp.tickets_url.clone(), "--tickets").await?)
        }
        None => None,
    };
    // The sandbox was named by the user, so a directory may be used without being configured.
    let global = reach::allow_local_sandbox(global, sandbox);
    // The listener is installed once for the whole command: a signal that comes between two listeners would be lost.
    let mut signals = interruption::listen_to_signals()?;
    if endpoint.is_none() && tickets.is_none() {
        return Box::pin(serve_while_starting(mcp, &global, root, chats, signals)).await;
    }
    let opening = Box::pin(SystemConnection::open(&global, &MCP_SERVICES));
    let system = match interruption::until_signal(&mut signals, opening).await {
        // A signal is the ordinary end of a server.
        Err(CommandFailure::Interrupted(_)) => return Ok(()),
        opened => opened?,
    };
    system.mark_long_lived();
    let limits = match system.config() {
        Some(loaded) => file_limits(loaded),
        // The services of a running system have their own limits; the ones here are checked before them.
        None => file_limits(&context::load_config(&context::config_sources(&global)?)?),
    };
    let outcome = if let Some(tickets) = tickets {
        let (access, serving) = ticket_serve::attach_endpoint(tickets, &system, &global)?;
        let options = server_options(mcp, chats, limits, Some(access));
        let outcome = serve_tools(mcp, &system, root, options, endpoint, &mut signals).await;
        serving.close().await;
        outcome
    } else {
        let options = server_options(mcp, chats, limits, None);
        serve_tools(mcp, &system, root, options, endpoint, &mut signals).await
    };
    system.close().await;
    outcome
}

/// Serves on the standard streams before the services have started, because clients wait only a short time for the
/// first response of a server.
async fn serve_while_starting(
    mcp: &McpArgs,
    global: &GlobalOptions,
    root: Option<LocalRoot>,
    chats: Vec<OfferedChat>,
    mut signals: StopSignals,
) -> Result<(), CommandFailure> {
    // The limits follow with the configuration of the services.
    let options = server_options(mcp, chats, FileLimits::default(), None);
    let (server, starter) = McpServer::starting(root, options);
    // A separate task, because the start of the services takes a while, and the first request must not wait for it.
    let mut serving = JoinSet::new();
    serving.spawn(async move { serve_stdio(server, &mut signals).await });
    let opened = tokio::select! {
        biased;
        ended = serving.join_next() => return serving_outcome(ended),
        opened = SystemConnection::open(global, &MCP_SERVICES) => opened,
    };
    let system = opened?;
    system.mark_long_lived();
    let started = async {
        tokio::select! {
            biased;
            // The client or a signal ended it. The binding is dropped, which cancels what it does in the services.
            ended = serving.join_next() => return serving_outcome(ended),
            bound = bind_session(mcp, &system) => bound?,
        }
        let limits = match system.config() {
            Some(loaded) => file_limits(loaded),
            None => file_limits(&context::load_config(&context::config_sources(global)?)?),
        };
        starter.ready(service_client(mcp, &system)?, limits);
        serving_outcome(serving.join_next().await)
    };
    let outcome = started.await;
    system.close().await;
    outcome
}

fn serving_outcome(
    ended: Option<Result<Result<(), CommandFailure>, JoinError>>,
) -> Result<(), CommandFailure> {
    match ended {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(CommandFailure::local("the server failed")(error.into())),
        None => Ok(()),
    }
}

fn service_client(
    mcp: &McpArgs,
    system: &SystemConnection,
) -> Result<ServiceClient, CommandFailure> {
    Ok(ServiceClient {
        bus: system.bus.clone(),
        store: system.store()?.clone(),
        clock: system.clock.clone(),
        tenant: system.tenant().clone(),
        session: mcp.session.clone(),
    })
}

async fn serve_tools(
    mcp: &McpArgs,
    system: &SystemConnection,
    root: Option<LocalRoot>,
    options: ServerOptions,
    endpoint: Option<HttpEndpoint>,
    signals: &mut StopSignals,
) -> Result<(), CommandFailure> {
    match interruption::until_signal(signals, bind_session(mcp, system)).await {
        // The dropped call is cancelled, so the services do not wait for it when they stop.
        Err(CommandFailure::Interrupted(_)) => return Ok(()),
        bound => bound?,
    }
    let server = McpServer::new(service_client(mcp, system)?, root, options);
    match endpoint {
        Some(endpoint) => {
            serve_http(endpoint, server, signals).await;
            Ok(())
        }
        None => serve_stdio(server, signals).await,
    }
}

/// Collects what the command line chose for the server.
pub(super) fn server_options(
    mcp: &McpArgs,
    offered_chats: Vec<OfferedChat>,
    limits: FileLimits,
    tickets: Option<TicketAccess>,
) -> ServerOptions {
    ServerOptions {
        tools: mcp.tools.clone(),
        permissions: Permissions {
            write: mcp.allow_write,
            send: mcp.allow_send,
        },
        limits,
        tickets,
        confirm_send: mcp.confirm_send,
        approve_hosts: mcp.approve_hosts.map(Period::as_duration),
        offered_chats,
    }
}

/// The chats of --offer-chat.
pub(super) fn offered_chats(mcp: &McpArgs) -> Result<Vec<OfferedChat>, CommandFailure> {
    let chats = mcp.offered_chats.iter();
    chats
        .map(|name| {
            Ok(OfferedChat {
                name: name.clone(),
                target: deliver::parse_chat_target(name)?,
            })
        })
        .collect()
}

/// The limits of the services on files, so that a file that they would refuse is not stored first.
pub(super) fn file_limits(loaded: &LoadedConfig) -> FileLimits {
    let defaults = FileLimits::default();
    let reading = loaded.section::<dray_file_resolver::Config>("file-resolver");
    let transfer = loaded.section::<dray_sandbox_transfer::Config>("sandbox-transfer");
    FileLimits {
        read: reading.map_or(defaults.read, |config| config.reading.max_file_size),
        transfer: transfer.map_or(defaults.transfer, |config| config.max_file),
    }
}

async fn serve_stdio(server: McpServer, signals: &mut StopSignals) -> Result<(), CommandFailure> {
    let input = read_standard_input()?;
    tokio::select! {
        served = dray_mcp::serve_stdio(server, input) => served.map_err(|error| CommandFailure::Unreachable {
            description: format!("{}", ErrorChain(&error)),
            advice: "Start this command from an MCP client; docs/mcp-server.md shows how.".to_owned(),
        }),
        _ = signals.next() => Ok(()),
    }
}

async fn serve_http(endpoint: HttpEndpoint, server: McpServer, signals: &mut StopSignals) {
    print_note(&format!("MCP: {}", endpoint.url()));
    let stop = CancellationToken::new();
    let serving = endpoint.serve(server, stop.clone());
    let stopping = async {
        signals.next().await;
        stop.cancel();
    };
    tokio::join!(serving, stopping);
}

/// Waits for a signal to stop.
pub(super) async fn termination() -> Result<(), CommandFailure> {
    interruption::listen_to_signals()?.next().await;
    Ok(())
}

/// Binds the sandbox and the chat that the options name. Both belong to the user who starts the server; a client can
/// name neither.
async fn bind_session(mcp: &McpArgs, system: &SystemConnection) -> Result<(), CommandFailure> {
    if let Some(request) = binding_request(mcp)? {
        system.call(&system.meta(BIND_TIMEOUT), &request).await?;
    }
    Ok(())
}

/// The call that binds the resources in the options; `None` if they name nothing.
pub(super) fn binding_request(
    mcp: &McpArgs,
) -> Result<Option<v1::BindSessionRequest>, CommandFailure> {
    let chat = mcp
        .to
        .as_deref()
        .map(deliver::parse_chat_target)
        .transpose()?;
    if chat.is_none() && mcp.sandbox.is_none() {
        return Ok(None);
    }
    if let Some(sandbox) = &mcp.sandbox {
        reach::check_address(sandbox)?;
    }
    Ok(Some(v1::BindSessionRequest {
        session: mcp.session.as_str().to_owned(),
        sandbox: mcp
            .sandbox
            .as_deref()
            .map(reach::absolute_address)
            .unwrap_or_default(),
        chat,
        ..v1::BindSessionRequest::default()
    }))
}

pub(super) fn local_root(
    mcp: &McpArgs,
    names: OptionNames,
) -> Result<Option<LocalRoot>, CommandFailure> {
    let path = match &mcp.root {
        Some(root) => root.as_path(),
        // A server for other users must not serve the directory in which it was started by chance.
        None if mcp.no_root || mcp.http.is_some() => return Ok(None),
        None => Path::new("."),
    };
    LocalRoot::open(path)
        .map(Some)
        .map_err(|error| CommandFailure::Usage(format!("{}: {}", names.root, ErrorChain(&error))))
}

/// Binds the address in the options; `None` without one.
pub(super) async fn bind_endpoint(
    mcp: &McpArgs,
    tenant: &TenantId,
    names: OptionNames,
) -> Result<Option<HttpEndpoint>, CommandFailure> {
    let Some(listen) = mcp.http else {
        return Ok(None);
    };
    let bound = HttpEndpoint::bind(http_options(mcp, listen, tenant, names)?).await;
    bound.map(Some).map_err(|error| http_failure(&error, names))
}

fn http_options(
    mcp: &McpArgs,
    listen: std::net::SocketAddr,
    tenant: &TenantId,
    names: OptionNames,
) -> Result<HttpOptions, CommandFailure> {
    let mut auth = match &mcp.auth_file {
        Some(file) => AuthOptions::read(file, tenant).map_err(|error| {
            CommandFailure::Usage(format!("{}: {}", names.auth_file, ErrorChain(&error)))
        })?,
        None => AuthOptions::default(),
    };
    if let Some(file) = &mcp.token_file {
        let text = std::fs::read_to_string(file).map_err(CommandFailure::local(format!(
            "cannot read {} of {}",
            file.display(),
            names.token_file
        )))?;
        let token = BearerToken::new(text.trim())
            .map_err(|error| CommandFailure::Usage(format!("{}: {error}", names.token_file)))?;
        let caller = Caller {
            tenant: tenant.clone(),
            session: mcp.session.clone(),
            scopes: ScopeSet::all(),
            subject: "operator".to_owned(),
            expires_at_ms: None,
        };
        let added = auth.add_token(StaticToken { token, caller });
        added.map_err(|error| {
            let (token_file, auth_file) = (names.token_file, names.auth_file);
            CommandFailure::Usage(format!("{token_file}: {error} in {auth_file}"))
        })?;
    }
    Ok(HttpOptions {
        listen,
        auth,
        allowed_hosts: mcp.allowed_hosts.clone(),
        allowed_origins: mcp.allowed_origins.clone(),
    })
}

fn http_failure(error: &HttpError, names: OptionNames) -> CommandFailure {
    match error {
        HttpError::TokenNeeded(_) => CommandFailure::Usage(format!(
            "{error}: name its file with {}, or several with {}",
            names.token_file, names.auth_file
        )),
        HttpError::Bind { .. } => CommandFailure::Unreachable {
            description: format!("{}", ErrorChain(error)),
            advice: format!(
                "End the program that uses the address, or name another one: {} ADDRESS.",
                names.address
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, DrayCommand};

    #[test]
    fn a_token_of_the_file_of_tokens_is_not_accepted_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("ci"), "a-secret-of-the-ci\n").unwrap();
        std::fs::write(path("other"), "a-secret-of-others\n").unwrap();
        let table = "[[token]]\nname = 'ci'\nfile = 'ci'\nscopes = ['read']\nsession = 's1'\n";
        std::fs::write(path("auth"), format!("{table}tenant = 'globex'\n")).unwrap();
        let options = |token: &str| {
            let (auth, token) = (path("auth"), path(token));
            let typed = ["dray", "mcp", "--http", "127.0.0.1:0", "--auth-file", &auth];
            let typed = typed.into_iter().chain(["--token-file", &token]);
            let DrayCommand::Mcp(command) = Cli::try_parse_from(typed).unwrap().command else {
                panic!("the command must be `mcp`");
            };
            let listen = command.serve.http.unwrap();
            http_options(&command.serve, listen, &TenantId::default(), OPTION_NAMES)
        };
        assert_eq!(options("other").unwrap().auth.tokens.len(), 2);
        let refused = options("ci").unwrap_err();
        assert!(matches!(refused, CommandFailure::Usage(_)), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "--token-file: another token has the same secret in --auth-file"
        );
    }
}
