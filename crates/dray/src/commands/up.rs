//! `dray up`: services until a signal ends them.

use std::net::SocketAddr;

use crate::cli::{GlobalOptions, UpArgs};
use crate::commands::console;
use crate::commands::ticket_serve;
use crate::commands::up_console::BoundConsole;
use crate::commands::up_mcp::BoundMcp;
use crate::context;
use crate::json_log;
use crate::outcome::{CommandFailure, print_line};
use dray_jwt::check_secure_url;
use dray_service::config::{ConfigSources, LoadedConfig};
use dray_service::host::BoundAddresses;
use dray_service::settings::{BusMode, BusSection};
use dray_service::{ExitStatus, RunningHost};
use serde_json::json;

/// Starts the wanted services, prints their addresses, and stops them in order on SIGTERM or SIGINT. A second signal
/// ends the process immediately.
pub(crate) async fn run(global: &GlobalOptions, up: &UpArgs) -> Result<(), CommandFailure> {
    if let Some(directory) = &up.manifests
        && let Err(error) = std::fs::read_dir(directory)
    {
        return Err(CommandFailure::Configuration(format!(
            "--manifests {}: {error}; name a directory with manifests, as docs/manifest.md describes",
            directory.display()
        )));
    }
    // The listener is bound before the services start, so that an address in use ends the command, and the port of the
    // URL is known.
    let tickets = ticket_serve::bind_wanted(up.tickets, up.tickets_url.clone()).await?;
    let sources = ticket_serve::configure_calls(up_sources(global, up)?, tickets.as_ref())?;
    let config = context::load_service_config(&sources)?;
    if tickets.is_some() {
        ticket_serve::check_records(&config)?;
    }
    let mut host = context::all_services_host(sources).install_subscriber();
    if !up.only.is_empty() {
        host = host.only(up.only.iter().cloned());
    }
    let names = if up.only.is_empty() {
        host.names().join(", ")
    } else {
        up.only.join(", ")
    };
    // The listener is bound before the services start, so that an address in use ends the command.
    let mcp = BoundMcp::bind(&up.mcp, context::tenant_of(global)?).await?;
    let bound_console = BoundConsole::bind(up, context::tenant_of(global)?, &config).await?;
    let mut serving = None;
    // The closure is called once the ports are bound: port 0 is resolved only then.
    let announce = |running: &RunningHost| {
        let bus = running.config().section::<BusSection>("bus");
        let embedded = bus.is_ok_and(|bus| bus.mode == BusMode::Embedded);
        let chat = running.context().listen_addresses.find("chat");
        let mcp_url = mcp.as_ref().map(BoundMcp::url);
        let access = tickets.and_then(|endpoint| ticket_serve::serve_endpoint(endpoint, running));
        let ticket_url = access.as_ref().map(|access| access.base_url.clone());
        serving = mcp.map(|mcp| mcp.start(running, access));
        let login_url = bound_console.map(|console| console.start(running));
        let addresses = Addresses {
            host: running.addresses(),
            chat,
            mcp_url,
            ticket_url,
            login_url,
            preview: running.context().listen_addresses.find("preview"),
        };
        announce_addresses(global, &names, &addresses, embedded);
    };
    let served = dray_service::serve_with(host, announce).await;
    if let Some(serving) = serving {
        serving.close().await;
    }
    match served {
        Ok(ExitStatus::Success) => Ok(()),
        // A second signal, or services that did not stop in time; the log has the reason.
        Ok(_) => Err(CommandFailure::Reported),
        Err(error) => Err(context::start_failure(&error)),
    }
}

/// The configuration of the services, with the options of the command line on top.
fn up_sources(global: &GlobalOptions, up: &UpArgs) -> Result<ConfigSources, CommandFailure> {
    let mut sources = context::with_home(context::config_sources(global)?)?;
    sources = up.console.oidc.configure(sources);
    if let Some(address) = up.http {
        sources = sources.set_by("--http", "http.listen", address.to_string());
    }
    if let Some(address) = up.grpc {
        sources = sources.set_by("--grpc", "grpc.listen", address.to_string());
    }
    if let Some(address) = preview_address(up, &context::load_service_config(&sources)?) {
        let (key, value) = (context::PREVIEW_LISTEN, address.to_string());
        sources = match up.preview {
            Some(_) => sources.set_by("--preview", key, value),
            None => sources.set(key, value),
        };
    }
    // Options of the command line replace the file and the environment, so they are set only where they are given.
    for (flag, field, value) in [
        (
            "--chat",
            "listen",
            up.chat.map(|address| address.to_string()),
        ),
        (
            "--manifests",
            "manifests",
            up.manifests
                .as_ref()
                .map(|directory| directory.to_string_lossy().into_owned()),
        ),
        ("--model-url", "model_url", up.model_url.clone()),
    ] {
        if let Some(value) = value {
            sources = sources.set_by(flag, format!("orchestrator.{field}"), value);
        }
    }
    // The level is set after the other settings, because it depends on all of them.
    if let Some(level) = log_level(up, &context::load_service_config(&sources)?) {
        sources = sources.set("telemetry.level", level);
    }
    Ok(sources)
}

/// The address of previews if the configuration sets none. A complete system takes a free port, because two systems on
/// one machine must not share an origin of previewed pages.
fn preview_address(up: &UpArgs, loaded: &LoadedConfig) -> Option<SocketAddr> {
    let is_free = up.only.is_empty() && loaded.is_default(context::PREVIEW_LISTEN);
    up.preview
        .or_else(|| is_free.then(|| ([127, 0, 0, 1], 0).into()))
}

/// The log level for the command line. On a terminal, addresses and warnings are shown; a single service (`--only`)
/// logs as configured.
fn log_level(up: &UpArgs, loaded: &LoadedConfig) -> Option<&'static str> {
    match up.verbose {
        0 if up.only.is_empty() && loaded.is_default("telemetry.level") => Some("warn"),
        0 => None,
        1 => Some("info"),
        _ => Some("debug"),
    }
}

/// The addresses on which this process listens.
struct Addresses {
    host: BoundAddresses,
    chat: Option<SocketAddr>,
    mcp_url: Option<String>,
    /// Base URL of tickets.
    ticket_url: Option<String>,
    /// URL that logs in to the console, once.
    login_url: Option<String>,
    /// Address that serves the links of previews.
    preview: Option<SocketAddr>,
}

fn announce_addresses(global: &GlobalOptions, names: &str, addresses: &Addresses, embedded: bool) {
    if !global.json {
        let is_json = json_log::has_json_format(global);
        for note in address_notes(names, addresses, embedded) {
            json_log::note(is_json, &note);
        }
        return;
    }
    let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let line = json!({
        "services": names.split(", ").collect::<Vec<_>>(),
        "http": shown(addresses.host.http),
        "grpc": shown(addresses.host.grpc),
        "chat": shown(addresses.chat),
        "mcp": addresses.mcp_url,
        "tickets": addresses.ticket_url,
        "console": addresses.login_url,
        "preview": shown(addresses.preview),
    });
    print_line(&line.to_string());
}

/// What people read about a system that has started, one line each.
fn address_notes(names: &str, addresses: &Addresses, embedded: bool) -> Vec<String> {
    let mut notes = vec![format!("running: {names}")];
    if embedded {
        let lost = "the bus is inside this process: work and events end with it; name a server with --nats to keep them";
        notes.push(lost.to_owned());
    }
    if let Some(http) = addresses.host.http {
        notes.push(format!(
            "health and metrics: http://{http}/ready http://{http}/metrics"
        ));
    }
    if let Some(chat) = addresses.chat {
        notes.push(format!(
            "chat completions: http://{chat}/v1/chat/completions (talk to it: dray chat --url http://{chat})"
        ));
    }
    if let Some(login_url) = &addresses.login_url {
        notes.push(console::console_note(login_url));
    }
    if let Some(preview) = addresses.preview {
        notes.push(format!(
            "previews: http://{preview} (the console makes their links)"
        ));
    }
    if let Some(mcp_url) = &addresses.mcp_url {
        notes.push(format!("MCP: {mcp_url}"));
    }
    if let Some(ticket_url) = &addresses.ticket_url {
        notes.push(ticket_note(ticket_url));
    }
    if let Some(grpc) = addresses.host.grpc {
        notes.push(format!("gRPC: {grpc} (health and reflection included)"));
    }
    notes
}

fn ticket_note(url: &str) -> String {
    match check_secure_url(url) {
        Ok(_) => format!("tickets: {url} (make one: dray ticket upload --endpoint {url})"),
        // The command sends a key, so it does not use an address of other machines without TLS.
        Err(_) => format!("tickets: {url}"),
    }
}
